//! One bucket of permits for all nodes, and an account for each node: all limited work must have its permits first.

use honeyflow_engine::core::{
    Input,
    input::{TakeId, Work},
};
use honeyflow_event::Name;
use honeyflow_invariant::Breach;

use super::{World, queue::Happening};
use crate::options::{MILLI, SECOND};

/// The burst is this fraction of a second's permits.
const PART_OF_SECOND: u64 = 5;

#[derive(Default)]
pub(super) struct Bucket {
    left: u64,
    filled_at: u64,
    /// The fraction of a permit that remains, in microseconds times permits a second.
    rest: u64,
}

impl Bucket {
    fn fill(&mut self, per_second: u64, now: u64) {
        let burst = (per_second / PART_OF_SECOND).max(1);
        let micro = self.rest + (now - self.filled_at) * per_second;
        (self.left, self.rest) = ((self.left + micro / SECOND).min(burst), micro % SECOND);
        self.filled_at = now;
    }
}

impl World {
    pub(super) fn take(&mut self, who: usize, limit: Name, take: TakeId, wanted: u64) {
        let per_second = self.options.permits;
        self.bucket.fill(per_second, self.now);
        // Sometimes there are fewer permits than possible, as if other services drew too.
        let most = if self.random.one_in(3) { 1 } else { wanted };
        let permits = self.bucket.left.min(most);
        self.bucket.left -= permits;
        let wait = (permits == 0).then(|| std::time::Duration::from_micros(SECOND / per_second.max(1)));
        self.incarnations[who].permits += permits;
        let back = 1 + self.random.below(20 * MILLI);
        self.after(back, Happening::Hears { who, input: Input::Permitted { limit, take, permits, wait } });
    }

    pub(super) fn given_back(&mut self, who: usize, permits: u64) {
        self.spend(who, permits, "gave back");
        self.bucket.left += permits;
    }

    pub(super) fn use_permits(&mut self, who: usize, work: &Work) {
        let Work::Execute { workflow, step, batch } = work else { return };
        let step = &self.shapes.plan.workflows[*workflow].graph.steps[usize::from(*step)];
        if step.limit.is_some() {
            self.spend(who, batch.items.len() as u64, "used");
        }
    }

    fn spend(&mut self, who: usize, permits: u64, how: &str) {
        let account = &mut self.incarnations[who].permits;
        if *account < permits {
            let what = format!("incarnation {who} {how} {permits} permits and had {account}");
            self.history.breaches.push(Breach::new("WF-72", what));
        }
        *account = account.saturating_sub(permits);
    }
}
