//! Permits for steps. A separate task waits for them and reports them to the core; permits that the core cannot use are
//! given back. Slots of a concurrency limit stay with the batch that they were granted for.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hashbrown::HashMap;
use honeyflow_event::Name;
use honeyflow_hive::limit::{Limit, Permit, definition::Decider};
use tokio::sync::mpsc;

use crate::core::{
    Input,
    input::{BatchPermits, TakeId},
};

/// How long the task waits for a permit before it reports that there is none; the core then decides again.
const PATIENCE: Duration = Duration::from_secs(2);
/// The task waits for at most 1/8 of the burst at once: other nodes draw too, and a large request would wait for all of
/// them.
const PART_OF_BURST: u64 = 8;

/// The limits by name. Cheap to clone.
#[derive(Clone, Default)]
pub struct StepLimits(Arc<HashMap<Name, StepLimit>>);

#[derive(Clone)]
pub struct StepLimit {
    pub limit: Limit,
    /// The limit only counts; it delays no step.
    pub shadow: bool,
}

impl FromIterator<(Name, StepLimit)> for StepLimits {
    fn from_iter<I: IntoIterator<Item = (Name, StepLimit)>>(limits: I) -> StepLimits {
        StepLimits(Arc::new(limits.into_iter().collect()))
    }
}

/// The permits of the last grant of each limit: the core uses or returns them before it asks again.
#[derive(Clone, Default)]
pub(super) struct GrantedPermits(Arc<Mutex<HashMap<Name, Grant>>>);

type Grant = (TakeId, Vec<Permit<'static>>);

impl GrantedPermits {
    /// The map is replaced entry by entry, so a panic leaves no entry half written.
    fn put(&self, limit: Name, take: TakeId, permits: Vec<Permit<'static>>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(limit, (take, permits));
    }

    /// Takes the slots that a batch keeps while it is executed. Other permits are used up.
    pub fn take_slots(&self, BatchPermits { limit, take, permits }: &BatchPermits) -> Vec<Permit<'static>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_, granted)) = all.get_mut(limit).filter(|(of, _)| of == take) else { return Vec::new() };
        let (mut slots, mut missing) = (Vec::new(), *permits);
        for permit in granted.iter_mut().filter(|permit| permit.is_slot()) {
            let slot = permit.split(missing);
            missing -= slot.cost();
            slots.push(slot);
        }
        slots.retain(|slot| slot.cost() > 0);
        slots
    }

    pub fn give_back(&self, limit: &Name, take: TakeId, mut unused: u64) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_, permits)) = all.remove(limit).filter(|(of, _)| *of == take) else { return };
        for permit in permits {
            let part = unused.min(permit.cost());
            unused -= part;
            permit.refund(part);
        }
    }
}

impl StepLimits {
    pub(super) fn take(
        &self,
        name: Name,
        take: TakeId,
        wanted: u64,
        inputs: &mpsc::Sender<Input>,
        taken: &GrantedPermits,
    ) {
        let (inputs, taken, limited) = (inputs.clone(), taken.clone(), self.0.get(&name).cloned());
        tokio::spawn(async move {
            let (permits, wait) = match limited {
                // An earlier workflow version uses a limit that the configuration no longer has.
                None => (wanted, None),
                Some(StepLimit { limit, shadow: true }) => {
                    taken.put(name.clone(), take, count_for_shadow(&limit, wanted).await);
                    (wanted, None)
                }
                Some(StepLimit { limit, shadow: false }) => {
                    let (permits, wait) = take_some(&limit, wanted).await;
                    let granted = permits.iter().map(Permit::cost).sum();
                    taken.put(name.clone(), take, permits);
                    (granted, wait)
                }
            };
            let _ = inputs.send(Input::Permitted { limit: name, take, permits, wait }).await;
        });
    }
}

/// Counts for a shadow limit what it would have granted; of a concurrency limit, returns the slots to keep meanwhile.
async fn count_for_shadow(limit: &Limit, wanted: u64) -> Vec<Permit<'static>> {
    if limit.terms().decider != Decider::Slots {
        let _ = limit.try_take(wanted.min(limit.terms().cost_max()).max(1)).await;
        return Vec::new();
    }
    let slots = limit.whole().try_take_up_to(wanted).await;
    slots.map_or_else(|_| Vec::new(), |slots| vec![slots.into_owned()])
}

/// Takes the permits that are here, up to `wanted`; if there are none, waits for the first few.
async fn take_some(limit: &Limit, wanted: u64) -> (Vec<Permit<'static>>, Option<Duration>) {
    let (whole, terms) = (limit.whole(), limit.terms());
    if terms.decider == Decider::Slots {
        return match whole.take_up_to(wanted, PATIENCE).await {
            Ok(permit) => (vec![permit.into_owned()], None),
            Err(denied) => (Vec::new(), Some(denied.retry_after)),
        };
    }
    if let Some(permit) = whole.take_local_up_to(wanted) {
        return (vec![permit.into_owned()], None);
    }
    let first = wanted.min(terms.burst / PART_OF_BURST).max(1);
    match whole.take(first, PATIENCE).await {
        Ok(permit) => {
            let more = whole.take_local_up_to(wanted - first).map(Permit::into_owned);
            (std::iter::once(permit.into_owned()).chain(more).collect(), None)
        }
        Err(denied) => (Vec::new(), Some(denied.retry_after)),
    }
}
