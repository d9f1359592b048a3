//! Concurrency limits: this node holds slots in the store and lends them to its requests. One store operation says how
//! many slots the node holds, as an absolute number, so that it may be repeated after its answer was lost.
//!
//! When the limit is lowered, slots in use stay in use, and a slot that comes back is not lent again. As long as the
//! store says that all nodes together hold too many, the node asks only for the slots in use, and repeats that as they
//! become fewer.
//!
//! A node that is always busy would keep all its slots, while requests on other nodes wait. So from time to time it
//! yields: it lends no more than its part until the rest is back in the store, and waits long enough for other nodes to
//! take it. If no node has taken it by then, the node takes it again.

use super::{CallInFlight, Effect, Key, Origin, Patience, Reason, Setting};
use crate::limit::definition::SECOND;

/// Slots that were not used for this long go back to the store.
const IDLE_NS: u64 = SECOND;

/// A request for several slots collects them for this many batch times, or up to twice as long. Then the node gives
/// them back: two nodes that each hold a part of what both need would wait for ever.
const COLLECT_BATCHES: u64 = 6;
/// After that the node waits for this many batch times, or up to twice as long, which is longer than other nodes take
/// to notice.
const WAIT_BATCHES: u64 = 3;

/// The longest time that a node keeps more than its part while requests wait on it; then it yields.
const YIELD_AFTER_NS: u64 = 2 * SECOND;

/// The answer of the store about the slots of this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotsAnswer {
    pub has: u64,
    /// Slots that no node holds.
    pub free: u64,
    /// The number by which all nodes together hold more slots than the limit has.
    pub over: u64,
    /// The version of the definition that the store used.
    pub version: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Slots {
    /// The slots that may be in use. It is lower than `used` if other nodes may have them, or if the limit was lowered.
    held: u64,
    used: u64,
    /// The slots that the store counts for this node, and those that no node holds, by its last answer.
    counted: u64,
    free_in_store: Option<u64>,
    /// The lowest number of free slots since the time of idleness began; `give_back_at_ns` is its end.
    free_low: u64,
    give_back_at_ns: Option<u64>,
    /// The store may count another number of slots for this node than the node knows.
    unsure: bool,
    /// All nodes together may hold more slots than the limit has.
    over: bool,
    /// The number of slots of the limit, by the definition last in force here.
    max: u64,
    /// The time since which some slots are free, but too few for the first waiter.
    collecting_since_ns: Option<u64>,
    /// This node's part if all nodes share equally.
    part: u64,
    /// The time since which it holds more than its part.
    beyond_since_ns: Option<u64>,
    /// It lends no more than its part; further slots that come back are for other nodes.
    yields: bool,
    /// The time at which it looks whether other nodes have taken the slots that it gave back.
    look_at_ns: u64,
}

impl Slots {
    pub(super) fn wake_at_ns(&self) -> Option<u64> {
        self.give_back_at_ns
    }

    pub(super) fn has_none(&self) -> bool {
        self.held == 0 && self.used == 0 && self.counted == 0 && !self.unsure
    }

    pub(super) fn is_unsure(&self) -> bool {
        self.unsure
    }

    /// Stops yielding and giving back: other nodes could not take the slots now.
    pub(super) fn stop_yielding(&mut self) {
        (self.yields, self.beyond_since_ns, self.give_back_at_ns) = (false, None, None);
    }

    fn free(&self) -> u64 {
        let lendable = if self.yields { self.held.min(self.part) } else { self.held };
        lendable.saturating_sub(self.used)
    }

    /// The definition may have changed, and the answer to a call in flight is not waited for any more.
    pub(super) fn on_setting_changed(&mut self, was_asking: bool, max: u64) {
        self.unsure |= was_asking;
        if max < self.max {
            // Only the store knows how many of the removed slots this node held. Until it answers, every node gives up
            // as many as were removed, so that all nodes together use no more than the limit has.
            (self.over, self.held) = (true, self.held.saturating_sub(self.max - max));
        }
        self.max = max;
    }

    /// Decides whether to yield: requests may wait on other nodes, too, so from time to time those are served.
    fn decide_whether_to_yield(&mut self, is_waited_for: bool, now_ns: u64, nodes: u64) {
        self.part = self.max / nodes.max(1);
        if self.yields {
            return;
        }
        if self.held <= self.part {
            self.beyond_since_ns = None;
            return;
        }
        let since_ns = *self.beyond_since_ns.get_or_insert(now_ns);
        self.yields = is_waited_for && now_ns >= since_ns.saturating_add(YIELD_AFTER_NS);
    }

    /// The time at which this node has to yield, as long as requests wait here.
    fn yield_at_ns(&self) -> u64 {
        self.beyond_since_ns.map_or(u64::MAX, |since_ns| since_ns.saturating_add(YIELD_AFTER_NS))
    }

    /// Ends yielding once the node holds no more than its part; returns true then.
    fn finish_yielding(&mut self) -> bool {
        let has = self.yields && self.held <= self.part;
        if has {
            (self.yields, self.beyond_since_ns) = (false, None);
        }
        has
    }

    /// Whether the store counts another number than this node uses, so that other nodes could have the difference.
    fn is_unreported(&self) -> bool {
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

/// Returns a time between `span_ns` and twice that. Other nodes get another value, because they call at another time.
fn randomized(span_ns: u64, now_ns: u64) -> u64 {
    let mixed = (now_ns ^ (now_ns >> 27)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    span_ns + mixed % span_ns.max(1)
}

impl<W> Key<W> {
    pub(super) fn serve_slots(&mut self, now_ns: u64, effects: &mut Vec<Effect<W>>) {
        while let Some(head) = self.queue.head() {
            if head.cost > self.slots.free() {
                break;
            }
            let slots = head.up_to.min(self.slots.free()).max(head.cost);
            self.slots.used += slots;
            self.slots.collecting_since_ns = None;
            self.grant_to_head(slots, Origin::Slots, now_ns, effects);
        }
        self.slots.free_low = self.slots.free_low.min(self.slots.free());
    }

    fn send_slots(&mut self, slots: u64, now_ns: u64, effects: &mut Vec<Effect<W>>) {
        // Slots that the node gives back are no longer its own from here on: the answer may be lost.
        self.slots.held = self.slots.held.min(slots);
        self.in_flight = Some(CallInFlight { started_ns: now_ns, want: slots, reserve: 0 });
        effects.push(Effect::Hold { slots });
    }

    pub(super) fn attend_slots(&mut self, now_ns: u64, setting: &Setting, effects: &mut Vec<Effect<W>>) {
        // The first request under a new definition applies it.
        self.slots.on_setting_changed(false, setting.terms.burst);
        self.serve_slots(now_ns, effects);
        if self.queue.is_empty() {
            self.slots.collecting_since_ns = None;
        }
        let is_waited_for = self.queue.head().is_some_and(|head| head.patience == Patience::UntilDeadline);
        self.slots.decide_whether_to_yield(is_waited_for, now_ns, setting.nodes);
        self.draw_at_ns = u64::MAX;
        if self.in_flight.is_some() {
            return;
        }
        if self.slots.yields && !self.slots.is_unreported() && now_ns < self.slots.look_at_ns {
            // The slots beyond its part are in use; the node tells the store as they come back.
            self.draw_at_ns = self.slots.look_at_ns;
            let retry_ns = self.retry_ns(now_ns);
            return self.refuse_immediate(retry_ns, Reason::Exhausted, effects);
        }
        let wanted = self.slots.wanted(self.queue.up_to());
        let Slots { yields, over, counted, .. } = self.slots;
        if !self.queue.is_empty() && !yields && !over && !self.slots.is_unreported() && wanted <= counted {
            // The node holds all slots it can get, and all are in use: a slot that comes back serves the next waiter.
            if is_waited_for && self.slots.part < self.slots.max {
                self.draw_at_ns = self.slots.yield_at_ns();
            }
            let retry_ns = self.retry_ns(now_ns);
            return self.refuse_immediate(retry_ns, Reason::Exhausted, effects);
        }
        // Sent also if the queue is empty: other nodes cannot have slots that the store counts for this one.
        if !self.queue.is_empty() || self.slots.is_unreported() {
            if now_ns < self.paced_until_ns {
                let retry_ns = self.retry_ns(now_ns);
                self.refuse_immediate(retry_ns, Reason::Exhausted, effects);
                self.draw_at_ns = self.paced_until_ns;
                return;
            }
            return self.send_slots(wanted, now_ns, effects);
        }
        match self.slots.give_back_at_ns {
            _ if self.slots.free() == 0 => self.slots.give_back_at_ns = None,
            Some(at) if now_ns >= at => {
                let idle = self.slots.free_low;
                self.slots.free_low = self.slots.free() - idle;
                self.slots.give_back_at_ns = (self.slots.free() > idle).then_some(now_ns + IDLE_NS);
                if idle > 0 {
                    self.send_slots(self.slots.held - idle, now_ns, effects);
                }
            }
            Some(_) => {}
            None => {
                self.slots.free_low = self.slots.free();
                self.slots.give_back_at_ns = Some(now_ns + IDLE_NS);
            }
        }
    }

    /// Handles the store's answer how many slots this node holds. `None`: the store failed to answer.
    pub fn on_slots_answer(
        &mut self,
        started_ns: u64,
        answer: Option<SlotsAnswer>,
        now_ns: u64,
        setting: &Setting,
        effects: &mut Vec<Effect<W>>,
    ) {
        let Some(in_flight) = self.in_flight.take_if(|in_flight| in_flight.started_ns == started_ns) else { return };
        let again_ns = started_ns + setting.batch_ns;
        let mut is_short = false;
        match answer {
            Some(SlotsAnswer { has, free, over, version }) => {
                let slots = &mut self.slots;
                let has_looked = slots.yields && !slots.is_unreported() && in_flight.want == slots.counted;
                (slots.unsure, slots.counted, slots.free_in_store) = (false, has, Some(free));
                // A lower limit is in force on the node a little sooner than in the store.
                slots.over = over > 0 || (slots.over && version != setting.terms.version);
                let held = has.saturating_sub(over);
                let held = if slots.over { held.min(slots.used) } else { held };
                slots.held = if crate::planted::on("returned slots are lent") { held.max(slots.used) } else { held };
                is_short = has < in_flight.want;
                slots.look_at_ns = now_ns.saturating_add(randomized(WAIT_BATCHES * setting.batch_ns, now_ns));
                if has_looked && free > 0 {
                    // No other node wants the slots that this one gave back.
                    slots.stop_yielding();
                } else if slots.finish_yielding() {
                    self.paced_until_ns = now_ns.saturating_add(randomized(WAIT_BATCHES * setting.batch_ns, now_ns));
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
        if is_short && self.in_flight.is_none() {
            self.give_back_too_few(now_ns, setting, effects);
        }
    }

    /// Gives back free slots that are too few for the first waiter, so that other nodes can use them.
    fn give_back_too_few(&mut self, now_ns: u64, setting: &Setting, effects: &mut Vec<Effect<W>>) {
        if self.slots.free() == 0 {
            self.slots.collecting_since_ns = None;
            return;
        }
        if !self.queue.is_empty() {
            let since_ns = *self.slots.collecting_since_ns.get_or_insert(now_ns);
            if now_ns < since_ns.saturating_add(randomized(COLLECT_BATCHES * setting.batch_ns, since_ns)) {
                return;
            }
            self.paced_until_ns = now_ns.saturating_add(randomized(WAIT_BATCHES * setting.batch_ns, now_ns));
        }
        self.slots.collecting_since_ns = None;
        self.send_slots(self.slots.used, now_ns, effects);
    }

    /// The node has a new identity, which holds no slots yet. It asks for those in use; others that come back are not
    /// lent.
    pub fn hold_under_new_identity(&mut self, now_ns: u64, effects: &mut Vec<Effect<W>>) {
        (self.slots.held, self.slots.counted) = (0, 0);
        self.slots.unsure |= self.in_flight.take().is_some();
        if self.slots.used > 0 {
            self.send_slots(self.slots.used, now_ns, effects);
        }
    }

    /// This node may have been removed from the hive, and other nodes may have its slots: it lends none of them any
    /// more, nor those that a call in flight may bring.
    pub fn drop_slots(&mut self) {
        self.slots.held = 0;
        self.slots.unsure = true;
        self.in_flight = None;
    }

    pub fn slots_in_use(&self) -> u64 {
        self.slots.used
    }

    /// The slots that are free here, and this node's part of those that no node holds.
    pub fn slots_left(&self, nodes: u64) -> u64 {
        let Slots { max, free_in_store, .. } = self.slots;
        self.slots.free().saturating_add(free_in_store.unwrap_or(max).div_ceil(nodes.max(1)))
    }

    /// Takes back slots of a dropped permit.
    pub fn on_slot_freed(&mut self, slots: u64, now_ns: u64, setting: &Setting, effects: &mut Vec<Effect<W>>) {
        self.slots.used = self.slots.used.saturating_sub(slots);
        match setting.mode {
            super::Mode::Store => self.attend_slots(now_ns, setting, effects),
            _ => self.serve_slots(now_ns, effects),
        }
    }
}
