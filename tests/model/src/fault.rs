//! The faults that can replace an event.

use honeyflow_hive::Request;

use crate::hive::{Happening, Hive, TTL};

/// A fault that hits a request on its way to the store, or a node that is about to act.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The request never arrives.
    Lost,
    /// The store executes the request, and the answer is lost.
    Unanswered,
    /// Requests that other nodes send a little later overtake it.
    Overtaken,
    /// The request arrives when its node no longer waits for the answer.
    Late,
    /// The store executes the request, and executes it again later.
    Twice,
    /// The node is paused beyond its trust, and continues before it has expired.
    Nap,
    /// The node is paused until other nodes have its leases.
    Sleep,
    Crash,
    /// The store's clock steps one hour ahead.
    StepAhead,
    StepBack,
    /// Another server answers, and the last writes are lost.
    FailOver,
    /// The same server shows an older state, until the operator accepts that.
    Restore,
}

/// A delay that is long enough for another node to do the same.
const OVERTAKEN: u64 = 600_000;
/// How far back the writes reach that are lost with a server, in microseconds.
pub const LOST: u64 = 300_000;
pub const STEP_MS: i64 = 3_600_000;

impl Fault {
    fn of_question(request: &Request) -> &'static [Fault] {
        match request {
            Request::Beat { read_only: false, .. } => &[
                Fault::Lost,
                Fault::Unanswered,
                Fault::Late,
                Fault::Twice,
                Fault::StepAhead,
                Fault::StepBack,
                Fault::FailOver,
                Fault::Restore,
            ],
            Request::Take { .. } | Request::HandOver { .. } => &[
                Fault::Lost,
                Fault::Unanswered,
                Fault::Overtaken,
                Fault::Late,
                Fault::Twice,
                Fault::FailOver,
                Fault::Restore,
            ],
            Request::Join { .. }
            | Request::Leave { .. }
            | Request::Remove { .. }
            | Request::Release { .. }
            | Request::Count { .. }
            | Request::NewLineage { .. }
            | Request::SetSuccessor { .. } => {
                &[Fault::Lost, Fault::Unanswered, Fault::Overtaken, Fault::Late, Fault::Twice]
            }
            // For a read, all of these faults look the same: no answer comes.
            _ => &[Fault::Lost],
        }
    }
}

impl Hive {
    /// The faults that may happen instead of the next event.
    pub fn faults(&self) -> Vec<Fault> {
        let Some(next) = self.next() else { return Vec::new() };
        match next {
            Happening::Arrives { request, again: false, .. } => {
                let fits = |fault: &&Fault| match fault {
                    // After a lost history the clock makes epochs grow, so the clock must not step in the same future.
                    Fault::StepAhead | Fault::StepBack => !self.is_another() && !self.has_stepped(),
                    Fault::FailOver | Fault::Restore => !self.is_another() && !self.has_stepped(),
                    _ => true,
                };
                Fault::of_question(request).iter().filter(fits).copied().collect()
            }
            // A delayed request may meet another server.
            Happening::Arrives { request: Request::Take { .. } | Request::HandOver { .. }, .. } => {
                let known = !self.is_another() && !self.has_stepped();
                known.then_some(Fault::FailOver).into_iter().collect()
            }
            Happening::Ticks { who } | Happening::Answers { who, .. } => {
                let node = &self.nodes[*who];
                let mut faults = vec![];
                if node.is_up(self.now) {
                    faults.extend([Fault::Nap, Fault::Sleep]);
                    let others = self.nodes.iter().filter(|node| node.alive).count();
                    faults.extend((others > 1).then_some(Fault::Crash));
                }
                faults
            }
            _ => Vec::new(),
        }
    }

    /// Applies the fault now.
    pub(crate) fn apply_fault(&mut self, fault: Fault) {
        match fault {
            Fault::StepAhead => self.step_clock(STEP_MS),
            Fault::StepBack => self.step_clock(-STEP_MS),
            Fault::FailOver => self.fail_over(),
            Fault::Restore => self.restore(),
            _ => self.apply_to_next_event(fault),
        }
    }

    fn apply_to_next_event(&mut self, fault: Fault) {
        let Some(next) = self.take_next() else { return };
        match (fault, next) {
            (Fault::Nap | Fault::Sleep, Happening::Ticks { who } | Happening::Answers { who, .. }) => {
                // The node does when it wakes what it was about to do, and writes under the fences that it had.
                let long = if fault == Fault::Nap { TTL * 9 / 10 } else { TTL * 5 / 2 };
                self.pause(who, long);
            }
            (Fault::Crash, Happening::Ticks { who } | Happening::Answers { who, .. }) => self.kill(who),
            (_, Happening::Arrives { who, call, request, .. }) => {
                let again =
                    |answered| Happening::Arrives { who, call, request: request.clone(), answered, again: true };
                match fault {
                    Fault::Unanswered => self.execute(who, call, request, false),
                    Fault::Overtaken => self.after(OVERTAKEN, again(true)),
                    Fault::Late => self.after(TTL * 6 / 5, again(true)),
                    Fault::Twice => {
                        self.after(TTL * 6 / 5, again(false));
                        self.execute(who, call, request, true);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
}
