//! What may go wrong at an event.

use honeyflow_hive::Request;

use crate::hive::{Happening, Hive, TTL};

/// A question is on its way to the store, or a node is about to do something, when this happens to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The question never arrives.
    Lost,
    /// It is done, and nobody hears of it.
    Unanswered,
    /// It is overtaken by what others send a little later.
    Overtaken,
    /// It arrives when nobody waits for the answer any more.
    Late,
    /// It is done, and done again later.
    Twice,
    /// The node stands still beyond its trust, and is back before it has expired.
    Nap,
    /// The node stands still until others have its leases.
    Sleep,
    Crash,
    /// The store's clock.
    StepAhead,
    StepBack,
    /// Another server answers, without what was written last.
    FailOver,
    /// The same server shows what it showed before, until a person has accepted that.
    Restore,
}

/// Long enough for another to do what it was to do.
const OVERTAKEN: u64 = 600_000;
/// What is lost with a server.
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
            | Request::Bury { .. }
            | Request::Release { .. }
            | Request::Count { .. }
            | Request::NewLineage { .. }
            | Request::SetHeir { .. } => &[Fault::Lost, Fault::Unanswered, Fault::Overtaken, Fault::Late, Fault::Twice],
            // Whoever only asks hears nothing, in the one way or the other.
            _ => &[Fault::Lost],
        }
    }
}

impl Hive {
    /// What may happen instead of the next event.
    pub fn faults(&self) -> Vec<Fault> {
        let Some(next) = self.next() else { return Vec::new() };
        match next {
            Happening::Arrives { request, again: false, .. } => {
                let fits = |fault: &&Fault| match fault {
                    // Epochs outlive a lost history by the clock: it must not step back in the same future.
                    Fault::StepAhead | Fault::StepBack => !self.is_another() && !self.has_stepped(),
                    Fault::FailOver | Fault::Restore => !self.is_another() && !self.has_stepped(),
                    _ => true,
                };
                Fault::of_question(request).iter().filter(fits).copied().collect()
            }
            // What was kept back meets another server.
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

    /// Whatever becomes of the next event, this happens now.
    pub(crate) fn strikes(&mut self, fault: Fault) {
        match fault {
            Fault::StepAhead => self.steps_clock(STEP_MS),
            Fault::StepBack => self.steps_clock(-STEP_MS),
            Fault::FailOver => self.fails_over(),
            Fault::Restore => self.restores(),
            _ => self.befalls(fault),
        }
    }

    fn befalls(&mut self, fault: Fault) {
        let Some(next) = self.take_next() else { return };
        match (fault, next) {
            (Fault::Nap | Fault::Sleep, Happening::Ticks { who } | Happening::Answers { who, .. }) => {
                // What it was about to do it does when it wakes; what it has in hand it writes then.
                let long = if fault == Fault::Nap { TTL * 9 / 10 } else { TTL * 5 / 2 };
                self.pauses(who, long);
            }
            (Fault::Crash, Happening::Ticks { who } | Happening::Answers { who, .. }) => self.dies(who),
            (_, Happening::Arrives { who, call, request, .. }) => {
                let again =
                    |answered| Happening::Arrives { who, call, request: request.clone(), answered, again: true };
                match fault {
                    Fault::Unanswered => self.arrives(who, call, request, false),
                    Fault::Overtaken => self.after(OVERTAKEN, again(true)),
                    Fault::Late => self.after(TTL * 6 / 5, again(true)),
                    Fault::Twice => {
                        self.after(TTL * 6 / 5, again(false));
                        self.arrives(who, call, request, true);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
}
