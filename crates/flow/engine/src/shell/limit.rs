//! Permits for steps: waited for by a task of its own, told to the core, and given back if it found no use for them.
//! Those of a limit on how many at once go with the batch that they are for.

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
    input::{TakeId, Under},
};

/// How long a permit is waited for before the core is told that there is none: it looks again then.
const PATIENCE: Duration = Duration::from_secs(2);
/// As much of the burst as is waited for at once: others draw, too, and a large wish would wait for all of them.
const PART_OF_BURST: u64 = 8;

/// By name. Cheap to clone.
#[derive(Clone, Default)]
pub struct Limits(Arc<HashMap<Name, Limited>>);

#[derive(Clone)]
pub struct Limited {
    pub limit: Limit,
    /// Counts, and holds up nobody.
    pub shadow: bool,
}

impl FromIterator<(Name, Limited)> for Limits {
    fn from_iter<I: IntoIterator<Item = (Name, Limited)>>(limits: I) -> Limits {
        Limits(Arc::new(limits.into_iter().collect()))
    }
}

/// What was granted last, by limit: the core uses or returns it before it asks again.
#[derive(Clone, Default)]
pub(super) struct Taken(Arc<Mutex<HashMap<Name, Granted>>>);

type Granted = (TakeId, Vec<Permit<'static>>);

impl Taken {
    /// A map of whole entries: a panic leaves none half made.
    fn put(&self, limit: Name, take: TakeId, permits: Vec<Permit<'static>>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(limit, (take, permits));
    }

    /// Of what was granted, the places that a batch keeps for as long as it is worked on. Other permits are used up.
    pub fn places(&self, Under { limit, take, permits }: &Under) -> Vec<Permit<'static>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_, granted)) = all.get_mut(limit).filter(|(of, _)| of == take) else { return Vec::new() };
        let (mut places, mut missing) = (Vec::new(), *permits);
        for permit in granted.iter_mut().filter(|permit| permit.is_slot()) {
            let place = permit.split(missing);
            missing -= place.cost();
            places.push(place);
        }
        places.retain(|place| place.cost() > 0);
        places
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

impl Limits {
    pub(super) fn take(&self, name: Name, take: TakeId, wanted: u64, inputs: &mpsc::Sender<Input>, taken: &Taken) {
        let (inputs, taken, limited) = (inputs.clone(), taken.clone(), self.0.get(&name).cloned());
        tokio::spawn(async move {
            let (permits, wait) = match limited {
                // A version that began under a limit which the configuration has no more.
                None => (wanted, None),
                Some(Limited { limit, shadow: true }) => {
                    taken.put(name.clone(), take, counted(&limit, wanted).await);
                    (wanted, None)
                }
                Some(Limited { limit, shadow: false }) => {
                    let (permits, wait) = some(&limit, wanted).await;
                    let granted = permits.iter().map(Permit::cost).sum();
                    taken.put(name.clone(), take, permits);
                    (granted, wait)
                }
            };
            let _ = inputs.send(Input::Permitted { limit: name, take, permits, wait }).await;
        });
    }
}

/// For a limit that holds up nobody: what it would have given, and of places those that are kept meanwhile.
async fn counted(limit: &Limit, wanted: u64) -> Vec<Permit<'static>> {
    if limit.terms().decider != Decider::Slots {
        let _ = limit.try_take(wanted.min(limit.terms().cost_max()).max(1)).await;
        return Vec::new();
    }
    let places = limit.whole().try_take_up_to(wanted).await;
    places.map_or_else(|_| Vec::new(), |places| vec![places.owned()])
}

/// What is here, up to what is wanted; if nothing is, the first few that come.
async fn some(limit: &Limit, wanted: u64) -> (Vec<Permit<'static>>, Option<Duration>) {
    let (whole, terms) = (limit.whole(), limit.terms());
    if terms.decider == Decider::Slots {
        return match whole.take_up_to(wanted, PATIENCE).await {
            Ok(permit) => (vec![permit.owned()], None),
            Err(denied) => (Vec::new(), Some(denied.retry_after)),
        };
    }
    if let Some(permit) = whole.take_local_up_to(wanted) {
        return (vec![permit.owned()], None);
    }
    let first = wanted.min(terms.burst / PART_OF_BURST).max(1);
    match whole.take(first, PATIENCE).await {
        Ok(permit) => {
            let more = whole.take_local_up_to(wanted - first).map(Permit::owned);
            (std::iter::once(permit.owned()).chain(more).collect(), None)
        }
        Err(denied) => (Vec::new(), Some(denied.retry_after)),
    }
}
