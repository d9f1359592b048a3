//! So many at once: this node holds slots in the store and lends them out. One operation says how many it holds, as an
//! absolute number, so that repeating one whose answer was lost does no harm.

use super::{Effect, Flying, Key, Origin, Reason, Setting};
use crate::limit::definition::SECOND;

/// Slots that nobody used for so long go back.
const IDLE_NS: u64 = SECOND;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Slots {
    /// By the store's word: so many may be in use. Fewer than are, if it has given them to others.
    held: u64,
    used: u64,
    /// The fewest that were free since `idle_since_ns`.
    free_low: u64,
    give_back_at_ns: Option<u64>,
    /// The store may count another number for this node than it holds.
    unsure: bool,
}

impl Slots {
    pub(super) fn wake_at_ns(&self) -> Option<u64> {
        self.give_back_at_ns
    }

    pub(super) fn is_none_held(&self) -> bool {
        self.held == 0 && self.used == 0 && !self.unsure
    }

    pub(super) fn is_unsure(&self) -> bool {
        self.unsure
    }

    fn free(&self) -> u64 {
        self.held.saturating_sub(self.used)
    }
}

impl<W> Key<W> {
    pub(super) fn serve_slots(&mut self, now_ns: u64, effects: &mut Vec<Effect<W>>) {
        while let Some(head) = self.queue.head() {
            if head.cost > self.slots.free() {
                break;
            }
            self.slots.used += head.cost;
            self.grant_head(Origin::Slots, now_ns, effects);
        }
        self.slots.free_low = self.slots.free_low.min(self.slots.free());
    }

    pub(super) fn attend_slots(&mut self, now_ns: u64, setting: &Setting, effects: &mut Vec<Effect<W>>) {
        self.serve_slots(now_ns, effects);
        self.draw_at_ns = u64::MAX;
        let waiting = self.queue.cost();
        if self.flying.is_some() {
            return;
        }
        if waiting > 0 {
            if now_ns < self.paced_until_ns {
                let retry_ns = self.retry_ns(now_ns);
                self.refuse_doors(retry_ns, Reason::Exhausted, effects);
                self.draw_at_ns = self.paced_until_ns;
                return;
            }
            let slots = self.slots.used.saturating_add(waiting).min(setting.terms.burst).max(self.slots.used);
            self.flying = Some(Flying { started_ns: now_ns, want: slots, book: 0 });
            effects.push(Effect::Hold { slots });
            return;
        }
        if self.slots.unsure {
            // Said again, also if nobody waits: what the store counts for us nobody else can have.
            if now_ns < self.paced_until_ns {
                self.draw_at_ns = self.paced_until_ns;
                return;
            }
            let slots = self.slots.held.max(self.slots.used);
            self.flying = Some(Flying { started_ns: now_ns, want: slots, book: 0 });
            effects.push(Effect::Hold { slots });
            return;
        }
        match self.slots.give_back_at_ns {
            _ if self.slots.free() == 0 => self.slots.give_back_at_ns = None,
            Some(at) if now_ns >= at => {
                let idle = self.slots.free_low;
                self.slots.free_low = self.slots.free() - idle;
                self.slots.give_back_at_ns = (self.slots.free() > idle).then_some(now_ns + IDLE_NS);
                if idle > 0 {
                    // Not ours any more as soon as we say so: the answer may be lost.
                    self.slots.held -= idle;
                    let slots = self.slots.held;
                    self.flying = Some(Flying { started_ns: now_ns, want: slots, book: 0 });
                    effects.push(Effect::Hold { slots });
                }
            }
            Some(_) => {}
            None => {
                self.slots.free_low = self.slots.free();
                self.slots.give_back_at_ns = Some(now_ns + IDLE_NS);
            }
        }
    }

    /// The store says how many slots this node holds, or does not answer.
    pub fn holds(
        &mut self,
        started_ns: u64,
        answer: Option<u64>,
        now_ns: u64,
        setting: &Setting,
        effects: &mut Vec<Effect<W>>,
    ) {
        let Some(flying) = self.flying.take_if(|flying| flying.started_ns == started_ns) else { return };
        match answer {
            Some(held) => {
                self.slots.unsure = false;
                self.slots.held =
                    if crate::planted::on("returned slots are lent") { held.max(self.slots.used) } else { held };
                if held < flying.want {
                    self.paced_until_ns = started_ns + setting.batch_ns;
                }
            }
            None => {
                self.slots.unsure = true;
                self.paced_until_ns = (started_ns + setting.batch_ns).max(now_ns);
            }
        }
        self.attend_slots(now_ns, setting, effects);
    }

    /// The node has another identity: nothing is held under it yet, and what comes back is not ours to lend.
    pub fn hold_again(&mut self, now_ns: u64, effects: &mut Vec<Effect<W>>) {
        self.slots.held = 0;
        self.flying = None;
        if self.slots.used > 0 {
            self.flying = Some(Flying { started_ns: now_ns, want: self.slots.used, book: 0 });
            effects.push(Effect::Hold { slots: self.slots.used });
        }
    }

    /// This node may have been buried, and others given what it held: nothing more is lent of it, nor of what a call that is
    /// under way may bring.
    pub fn let_go(&mut self) {
        self.slots.held = 0;
        self.slots.unsure = true;
        self.flying = None;
    }

    /// A guard was dropped.
    pub fn slot_freed(&mut self, slots: u64, now_ns: u64, setting: &Setting, effects: &mut Vec<Effect<W>>) {
        self.slots.used = self.slots.used.saturating_sub(slots);
        match setting.footing {
            super::Footing::Store => self.attend_slots(now_ns, setting, effects),
            _ => self.serve_slots(now_ns, effects),
        }
    }
}
