//! So many at once: this node holds slots in the store and lends them out. One operation says how many it holds, as an
//! absolute number, so that repeating one whose answer was lost does no harm.
//!
//! Where there are fewer than before, what is in use stays so and nothing that comes back is lent again: as long as the store
//! says that all nodes together have too many, only what is in use is asked for, and said anew as it becomes less.
//!
//! A node that never comes to rest would keep what it has, and leave nothing to others who wait: from time to time it
//! lends no more than its part until the rest is in the store, and stays away long enough for others to find it. If nobody
//! has taken what was left there by then, it has its turn again.

use super::{Effect, Flying, Key, Origin, Patience, Reason, Setting};
use crate::limit::definition::SECOND;

/// Slots that nobody used for so long go back.
const IDLE_NS: u64 = SECOND;

/// Whoever needs several gathers them for so many batches, or twice as long; then others shall have them. Two that have a
/// part each of what both need would wait for ever.
const GATHER_BATCHES: u64 = 6;
/// And stays away for so long, or twice as long: longer than others take to find out.
const AWAY_BATCHES: u64 = 3;

/// For so long a node may have more than its part while others here wait for more.
const TURN_NS: u64 = 2 * SECOND;

/// The store's word on the slots of this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holds {
    pub has: u64,
    /// Nobody's.
    pub free: u64,
    /// So many more than there are, of all nodes together.
    pub over: u64,
    /// Of the definition that it goes by.
    pub version: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Slots {
    /// So many may be in use. Fewer than are, if the store has given them to others, or if there are fewer than before.
    held: u64,
    used: u64,
    /// What the store counts for this node, as far as it has said, and what was left there.
    counted: u64,
    left_there: Option<u64>,
    /// The fewest that were free since `idle_since_ns`.
    free_low: u64,
    give_back_at_ns: Option<u64>,
    /// The store may count another number for this node than it holds.
    unsure: bool,
    /// All nodes together may have more than there are.
    over: bool,
    /// How many there are, by what was last in force here.
    max: u64,
    /// Since when there are some, and too few for the next in line.
    gathers_since_ns: Option<u64>,
    /// What this node has if all share alike.
    part: u64,
    /// Since when it has more.
    beyond_since_ns: Option<u64>,
    /// Lends no more than its part: what comes back beyond that is for others.
    yields: bool,
    /// When it looks whether anybody has taken what was left to others.
    look_at_ns: u64,
}

impl Slots {
    pub(super) fn wake_at_ns(&self) -> Option<u64> {
        self.give_back_at_ns
    }

    pub(super) fn is_none_held(&self) -> bool {
        self.held == 0 && self.used == 0 && self.counted == 0 && !self.unsure
    }

    pub(super) fn is_unsure(&self) -> bool {
        self.unsure
    }

    /// Nobody could take over what is left to others now, or goes back.
    pub(super) fn keep(&mut self) {
        (self.yields, self.beyond_since_ns, self.give_back_at_ns) = (false, None, None);
    }

    fn free(&self) -> u64 {
        let lendable = if self.yields { self.held.min(self.part) } else { self.held };
        lendable.saturating_sub(self.used)
    }

    /// The definition may have changed, and whatever was asked for is not waited for any more.
    pub(super) fn changed(&mut self, was_asking: bool, max: u64) {
        self.unsure |= was_asking;
        if max < self.max {
            // How many of them are ours the store has to say. Until then, and if it is away, everybody does without as many
            // as are gone: whoever has them, no more than there are can be left.
            (self.over, self.held) = (true, self.held.saturating_sub(self.max - max));
        }
        self.max = max;
    }

    /// Others may wait as those here do: now and then they shall have their turn.
    fn take_turns(&mut self, is_waited_for: bool, now_ns: u64, nodes: u64) {
        self.part = self.max / nodes.max(1);
        if self.yields {
            return;
        }
        if self.held <= self.part {
            self.beyond_since_ns = None;
            return;
        }
        let since_ns = *self.beyond_since_ns.get_or_insert(now_ns);
        self.yields = is_waited_for && now_ns >= since_ns.saturating_add(TURN_NS);
    }

    /// When others are to have their turn, as long as somebody waits here.
    fn turn_at_ns(&self) -> u64 {
        self.beyond_since_ns.map_or(u64::MAX, |since_ns| since_ns.saturating_add(TURN_NS))
    }

    /// True once nothing beyond its part is left to this node.
    fn has_yielded(&mut self) -> bool {
        let has = self.yields && self.held <= self.part;
        if has {
            (self.yields, self.beyond_since_ns) = (false, None);
        }
        has
    }

    /// The store knows of another number than is in use, and others could have the difference.
    fn is_untold(&self) -> bool {
        self.unsure || ((self.over || self.yields) && self.counted != self.wanted(0))
    }

    fn wanted(&self, waiting: u64) -> u64 {
        match waiting {
            _ if self.over => self.used,
            _ if self.yields => self.used.max(self.part),
            0 => self.held.max(self.used),
            waiting => self.used.saturating_add(waiting).min(self.max).max(self.used),
        }
    }
}

/// Up to twice the time; other nodes draw another number.
fn or_longer(span_ns: u64, now_ns: u64) -> u64 {
    let mixed = (now_ns ^ (now_ns >> 27)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    span_ns + mixed % span_ns.max(1)
}

impl<W> Key<W> {
    pub(super) fn serve_slots(&mut self, now_ns: u64, effects: &mut Vec<Effect<W>>) {
        while let Some(head) = self.queue.head() {
            if head.cost > self.slots.free() {
                break;
            }
            let slots = head.wish.min(self.slots.free()).max(head.cost);
            self.slots.used += slots;
            self.slots.gathers_since_ns = None;
            self.grant_to_head(slots, Origin::Slots, now_ns, effects);
        }
        self.slots.free_low = self.slots.free_low.min(self.slots.free());
    }

    fn say_slots(&mut self, slots: u64, now_ns: u64, effects: &mut Vec<Effect<W>>) {
        // Not ours any more as soon as we say so: the answer may be lost.
        self.slots.held = self.slots.held.min(slots);
        self.flying = Some(Flying { started_ns: now_ns, want: slots, book: 0 });
        effects.push(Effect::Hold { slots });
    }

    pub(super) fn attend_slots(&mut self, now_ns: u64, setting: &Setting, effects: &mut Vec<Effect<W>>) {
        // Whoever comes first under a new definition finds out.
        self.slots.changed(false, setting.terms.burst);
        self.serve_slots(now_ns, effects);
        if self.queue.is_empty() {
            self.slots.gathers_since_ns = None;
        }
        let is_waited_for = self.queue.head().is_some_and(|head| head.patience == Patience::Step);
        self.slots.take_turns(is_waited_for, now_ns, setting.nodes);
        self.draw_at_ns = u64::MAX;
        if self.flying.is_some() {
            return;
        }
        if self.slots.yields && !self.slots.is_untold() && now_ns < self.slots.look_at_ns {
            // What is beyond its part is in use; as it comes back there is something to say.
            self.draw_at_ns = self.slots.look_at_ns;
            let retry_ns = self.retry_ns(now_ns);
            return self.refuse_doors(retry_ns, Reason::Exhausted, effects);
        }
        let wanted = self.slots.wanted(self.queue.wish());
        let Slots { yields, over, counted, .. } = self.slots;
        if !self.queue.is_empty() && !yields && !over && !self.slots.is_untold() && wanted <= counted {
            // All there are to have are here and in use: whatever comes back wakes those who wait.
            if is_waited_for && self.slots.part < self.slots.max {
                self.draw_at_ns = self.slots.turn_at_ns();
            }
            let retry_ns = self.retry_ns(now_ns);
            return self.refuse_doors(retry_ns, Reason::Exhausted, effects);
        }
        // Said again, also if nobody waits: what the store counts for us nobody else can have.
        if !self.queue.is_empty() || self.slots.is_untold() {
            if now_ns < self.paced_until_ns {
                let retry_ns = self.retry_ns(now_ns);
                self.refuse_doors(retry_ns, Reason::Exhausted, effects);
                self.draw_at_ns = self.paced_until_ns;
                return;
            }
            return self.say_slots(wanted, now_ns, effects);
        }
        match self.slots.give_back_at_ns {
            _ if self.slots.free() == 0 => self.slots.give_back_at_ns = None,
            Some(at) if now_ns >= at => {
                let idle = self.slots.free_low;
                self.slots.free_low = self.slots.free() - idle;
                self.slots.give_back_at_ns = (self.slots.free() > idle).then_some(now_ns + IDLE_NS);
                if idle > 0 {
                    self.say_slots(self.slots.held - idle, now_ns, effects);
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
        answer: Option<Holds>,
        now_ns: u64,
        setting: &Setting,
        effects: &mut Vec<Effect<W>>,
    ) {
        let Some(flying) = self.flying.take_if(|flying| flying.started_ns == started_ns) else { return };
        let again_ns = started_ns + setting.batch_ns;
        let mut is_short = false;
        match answer {
            Some(Holds { has, free, over, version }) => {
                let slots = &mut self.slots;
                let has_looked = slots.yields && !slots.is_untold() && flying.want == slots.counted;
                (slots.unsure, slots.counted, slots.left_there) = (false, has, Some(free));
                // A lower limit is in force here a little sooner than there.
                slots.over = over > 0 || (slots.over && version != setting.terms.version);
                let held = has.saturating_sub(over);
                let held = if slots.over { held.min(slots.used) } else { held };
                slots.held = if crate::planted::on("returned slots are lent") { held.max(slots.used) } else { held };
                is_short = has < flying.want;
                slots.look_at_ns = now_ns.saturating_add(or_longer(AWAY_BATCHES * setting.batch_ns, now_ns));
                if has_looked && free > 0 {
                    // Nobody wants what was left to others.
                    slots.keep();
                } else if slots.has_yielded() {
                    self.paced_until_ns = now_ns.saturating_add(or_longer(AWAY_BATCHES * setting.batch_ns, now_ns));
                } else if is_short || slots.over || slots.yields {
                    self.paced_until_ns = again_ns;
                }
            }
            None => {
                self.slots.unsure = true;
                self.paced_until_ns = again_ns.max(now_ns);
            }
        }
        self.attend_slots(now_ns, setting, effects);
        if is_short && self.flying.is_none() {
            self.leave_to_others(now_ns, setting, effects);
        }
    }

    /// Too few for those who wait, and nobody else can have them.
    fn leave_to_others(&mut self, now_ns: u64, setting: &Setting, effects: &mut Vec<Effect<W>>) {
        if self.slots.free() == 0 {
            self.slots.gathers_since_ns = None;
            return;
        }
        if !self.queue.is_empty() {
            let since_ns = *self.slots.gathers_since_ns.get_or_insert(now_ns);
            if now_ns < since_ns.saturating_add(or_longer(GATHER_BATCHES * setting.batch_ns, since_ns)) {
                return;
            }
            self.paced_until_ns = now_ns.saturating_add(or_longer(AWAY_BATCHES * setting.batch_ns, now_ns));
        }
        self.slots.gathers_since_ns = None;
        self.say_slots(self.slots.used, now_ns, effects);
    }

    /// The node has another identity: nothing is held under it yet, and what comes back is not ours to lend.
    pub fn hold_again(&mut self, now_ns: u64, effects: &mut Vec<Effect<W>>) {
        (self.slots.held, self.slots.counted) = (0, 0);
        self.slots.unsure |= self.flying.take().is_some();
        if self.slots.used > 0 {
            self.say_slots(self.slots.used, now_ns, effects);
        }
    }

    /// This node may have been buried, and others given what it held: nothing more is lent of it, nor of what a call that is
    /// under way may bring.
    pub fn let_go(&mut self) {
        self.slots.held = 0;
        self.slots.unsure = true;
        self.flying = None;
    }

    pub fn slots_in_use(&self) -> u64 {
        self.slots.used
    }

    /// Free here, and this node's part of what nobody has.
    pub fn slots_left(&self, nodes: u64) -> u64 {
        let Slots { max, left_there, .. } = self.slots;
        self.slots.free().saturating_add(left_there.unwrap_or(max).div_ceil(nodes.max(1)))
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
