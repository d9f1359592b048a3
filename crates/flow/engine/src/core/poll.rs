//! Decides when to poll a source, and for how many rows. There is no cursor: a position per priority only says where to
//! look first, sweeps look below it, and rows in flight are recognised.
//!
//! The interval is 1 ms while rows arrive, 4 ms for a second after, then doubles to 100 ms when idle. A sweep runs
//! every second, and every 10 s when idle.

use std::{sync::Arc, time::Duration};

use honeyflow_event::{Event, EventId, Name, PRIORITY_LEVELS};
use honeyflow_runtime::{Failure, Moment};
use honeyflow_source::Intake;
use honeyflow_store::{
    Poll,
    poll::{Level, SkipRule, Sweep},
};

use honeyflow_workflow::Exclusion;

use super::{
    Core, SourceState,
    input::Effect,
    plan::{EntityPlan, Limits},
};

/// Rows that arrive within this time of one another count as a steady flow.
const ROWS_COME: Duration = Duration::from_millis(20);

#[derive(Default)]
pub(crate) struct PollState {
    begun: bool,
    number: u64,
    under_way: Option<u64>,
    sweeping: bool,
    swept_full: bool,
    sweep_from: EventId,
    asked_room: u32,
    position: [EventId; PRIORITY_LEVELS],
    /// The positions were reset while a poll was under way: that poll looked above the old ones and must not restore
    /// them.
    rewound: bool,
    next_at: Moment,
    interval: Duration,
    last_rows_at: Moment,
    sweep_at: Moment,
    failures: u32,
    /// The level that came back full, if any: it gets the larger part of the room.
    full: Option<usize>,
    /// Entities whose edges cannot be followed now, with the reason.
    pub held: Vec<(Name, Failure)>,
    /// The entities that the last poll left in the table.
    passed: Vec<SkipRule>,
    /// There was no room at the last check.
    starved: bool,
}

impl PollState {
    pub fn begin(&mut self, now: Moment) {
        *self = PollState { begun: true, number: self.number, next_at: now, sweep_at: now, ..PollState::default() };
    }

    /// The state for the next term. Poll numbers continue over terms, so that a late answer is never taken for a new
    /// one.
    pub fn for_next_term(before: &PollState) -> PollState {
        PollState { number: before.number, ..PollState::default() }
    }

    /// A sweep that had no room for all rows continues behind the last one; otherwise rows that are left in the table
    /// would hide the rows behind them. It continues at once if it found new rows or a run waits to be resumed
    /// (`eager`).
    pub fn on_swept(&mut self, last: Option<EventId>, eager: bool, now: Moment) {
        if !self.sweeping {
            return;
        }
        match last.filter(|_| self.swept_full) {
            Some(last) => {
                self.sweep_from = last + 1;
                if eager {
                    self.sweep_at = now;
                }
            }
            None => self.sweep_from = 0,
        }
    }

    /// The number of rows that the answer to the poll under way may contain.
    pub fn reserved(&self) -> u32 {
        if self.is_under_way() { self.asked_room } else { 0 }
    }

    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    pub fn wake_at(&self, source: &SourceState) -> Moment {
        if !source.can_poll() || self.starved {
            return Moment::FAR;
        }
        self.next_at
    }

    /// Resets the positions, which are only hints: the next poll looks from the start.
    pub fn rewind(&mut self) {
        self.position = [0; PRIORITY_LEVELS];
        self.rewound = self.is_under_way();
    }

    pub fn hold(&mut self, event: &Event, failure: Failure) {
        if !self.held.iter().any(|(entity, _)| *entity == event.entity) {
            self.held.push((event.entity.clone(), failure));
        }
    }

    /// Notes the answer; false if it belongs to another poll than the one under way.
    pub fn accept_answer(&mut self, poll: u64) -> bool {
        if self.under_way != Some(poll) {
            return false;
        }
        self.under_way = None;
        true
    }

    pub fn on_failed(&mut self, now: Moment, limits: &Limits, random: u64) {
        self.failures += 1;
        self.next_at = now.after(limits.store_backoff.wait(self.failures, random).max(limits.poll_busy));
    }

    /// `found`: rows that were not in flight already.
    pub fn on_polled(&mut self, intake: &Intake, found: usize, now: Moment, limits: &Limits) {
        self.failures = 0;
        let rewound = std::mem::take(&mut self.rewound);
        self.swept_full = self.sweeping && intake.taken.len() >= self.asked_room as usize;
        if !self.sweeping {
            self.full = None;
            let mut counts = [0_usize; PRIORITY_LEVELS];
            for taken in &intake.taken {
                counts[usize::from(taken.event.priority).min(9)] += 1;
            }
            for (position, looked_to) in self.position.iter_mut().zip(intake.looked_to).filter(|_| !rewound) {
                *position = (*position).max(looked_to);
            }
            for taken in intake.taken.iter().filter(|taken| taken.newest && crate::planted::on("PB-11")) {
                let position = &mut self.position[usize::from(taken.event.priority).min(9)];
                *position = (*position).max(taken.event.id);
            }
            self.full = (0..PRIORITY_LEVELS).find(|level| counts[*level] >= (self.asked_room / 4).max(1) as usize);
        }
        if found > 0 {
            self.last_rows_at = now;
        }
        if now.since(self.last_rows_at) < ROWS_COME {
            self.interval = limits.poll_busy;
        } else if now.since(self.last_rows_at) < Duration::from_secs(1) {
            self.interval = limits.poll_quiet;
        } else {
            self.interval = (self.interval * 2).clamp(limits.poll_quiet, limits.poll_idle);
        }
        // Shards that are equally idle poll at the same time: their store answers all of them in one round trip.
        let together = if self.interval < limits.poll_quiet { Duration::ZERO } else { self.interval };
        self.next_at = now.after(self.interval).floor(together).max(now.after(limits.poll_busy));
        if let Some(due_ms) = intake.next_due_ms {
            self.next_at = self.next_at.min(now.after(Duration::from_millis(due_ms)));
        }
    }
}

impl SourceState {
    fn can_poll(&self) -> bool {
        self.poll.begun && !self.poll.is_under_way() && self.term.is_some() && !self.leaving
    }
}

impl Core {
    pub(crate) fn poll_if_due(&mut self, source: usize, effects: &mut Vec<Effect>) {
        let now = self.now;
        if self.draining || !self.sources[source].can_poll() || now < self.sources[source].poll.next_at {
            return;
        }
        let limits = self.plan.limits.clone();
        let free = self.free_room(source, &limits);
        let waiting = self.sources.iter().filter(|source| source.can_poll()).count();
        let state = &mut self.sources[source];
        let poll = &mut state.poll;
        let batch = limits.poll_rows_max.min(500).min(u32::try_from(limits.runs_max).unwrap_or(u32::MAX));
        let least = (batch / 4).max(1);
        poll.starved = free < least && state.checkpoints.is_empty();
        if poll.starved {
            return;
        }
        if free >= least && std::mem::take(&mut state.crowded) {
            poll.rewind();
        }
        // Runs that an earlier owner has begun go first: their rows are read even if there is no room.
        let each = free / u32::try_from(waiting).unwrap_or(u32::MAX).max(1);
        let room = each.max(least).min(free).min(limits.poll_rows_max).max(1);
        let sweep_due = now >= poll.sweep_at && !crate::planted::on("PB-12") && !crate::planted::on("PB-11");
        let passed_over = self.passed_over(source);
        let state = &mut self.sources[source];
        let poll = &mut state.poll;
        poll.sweeping = sweep_due;
        poll.asked_room = room;
        poll.number += 1;
        poll.under_way = Some(poll.number);
        let mut levels = [Level::default(); PRIORITY_LEVELS];
        let mut newest = 0;
        let mut sweep = None;
        if sweep_due {
            let busy = now.since(poll.last_rows_at) < Duration::from_secs(10);
            poll.sweep_at = now.after(if busy { limits.sweep_busy } else { limits.sweep_idle });
            let mut known: Vec<EventId> =
                state.in_flight.keys().copied().chain(state.lingering.iter().copied()).collect();
            known.sort_unstable();
            // While no rows arrive, the sweep covers the whole table, for example a level that no poll reaches. It also
            // does while an earlier owner's run waits to be resumed: the rows that wait behind that run are read again
            // and again, and could take all the room of the polls.
            let to = if busy && state.checkpoints.is_empty() {
                poll.position.iter().copied().max().unwrap_or(0)
            } else {
                EventId::MAX
            };
            sweep = Some(Sweep { from: poll.sweep_from, to, room, known: Arc::new(known) });
            self.counters.sweeps += 1;
        } else {
            newest = if poll.full.is_some() { room / 4 } else { 0 };
            let room = room - newest;
            let favoured = poll.full.unwrap_or(usize::from(honeyflow_event::PRIORITY_DEFAULT));
            let shares = share(room, favoured, poll.number);
            for (level, place) in levels.iter_mut().enumerate() {
                *place = Level { after: poll.position[level], room: shares[level] };
            }
        }
        self.counters.polls += 1;
        let planned = &self.plan.sources[source];
        let request = Poll {
            shard: planned.shard,
            levels,
            newest,
            sweep,
            passed_over,
            payload_bytes_max: planned.payload_bytes_max,
        };
        effects.push(Effect::Poll { source: super::id(source), poll: self.sources[source].poll.number, request });
    }

    /// Returns how many rows all shards together may still poll.
    fn free_room(&self, source: usize, limits: &Limits) -> u32 {
        let reserved = self.sources.iter().map(|source| source.poll.reserved() as usize).sum::<usize>();
        let per_row =
            self.plan.sources[source].entities.values().map(|entity| self.runs_per_row(entity)).max().unwrap_or(1);
        let runs =
            (limits.runs_max.saturating_sub(self.busy_runs() + self.event_checks.len() + reserved * per_row)) / per_row;
        if self.payload_bytes >= limits.payload_bytes_max {
            return 0;
        }
        let rows = limits.rows_max.saturating_sub(self.busy_rows() + reserved);
        u32::try_from(runs.min(rows)).unwrap_or(u32::MAX)
    }

    /// Returns how many runs a row of the entity may open at once.
    fn runs_per_row(&self, entity: &EntityPlan) -> usize {
        let shares = |workflow: &&usize| self.plan.workflows[**workflow].exclusion == Exclusion::Key;
        let sharing = entity.workflows.iter().filter(shares).count();
        (entity.workflows.len() - sharing + usize::from(sharing > 0)).max(1)
    }

    /// Returns the entities that cannot be worked on now: those held by a migration, and those whose workflows are all
    /// either gated while they have half of all open runs, or blocked by a target with too many delayed retries.
    fn passed_over(&mut self, source: usize) -> Vec<SkipRule> {
        let mut passed: Vec<SkipRule> = self.sources[source]
            .poll
            .held
            .iter()
            .map(|(entity, _)| SkipRule { entity: entity.clone(), workflow: None })
            .collect();
        let half = self.plan.limits.runs_max / 2;
        let crowded = |workflow: &usize| {
            let targets = &self.plan.workflows[*workflow].targets;
            self.counters.open_runs(*workflow) >= half && self.gates.is_gated(*workflow, targets, self.now)
                || self.budgets.crowded_target(&self.plan, *workflow).is_some()
        };
        let planned = &self.plan.sources[source];
        let gated = |entity: &Name| {
            let workflows = planned.entities.get(entity).map(|entity| &entity.workflows);
            workflows.is_some_and(|workflows| !workflows.is_empty() && workflows.iter().all(crowded))
        };
        for (name, leads) in &planned.leads {
            if leads.iter().all(gated) {
                passed.push(SkipRule { entity: name.clone(), workflow: None });
            }
        }
        passed.sort_unstable();
        let before = std::mem::replace(&mut self.sources[source].poll.passed, passed.clone());
        if before.iter().any(|entity| !passed.contains(entity)) {
            self.sources[source].poll.rewind();
        }
        passed
    }
}

/// Divides the room: the favoured level gets the larger part, each other level at least a twentieth. If the room is too
/// small for that, the other levels take turns, so that none is starved.
fn share(room: u32, favoured: usize, turn: u64) -> [u32; PRIORITY_LEVELS] {
    let small = room / 20;
    let mut shares = [small; PRIORITY_LEVELS];
    shares[favoured] = room - small * 9;
    if small == 0 && room > 0 {
        let levels = PRIORITY_LEVELS as u64;
        // With room for one row only, every other poll goes to another level.
        let others = if room == 1 { turn % 2 } else { u64::from(room / 2) };
        for place in 0..others {
            let level = usize::try_from((turn / 2 + place) % levels).unwrap_or(0);
            shares[favoured] -= 1;
            shares[level] += 1;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_level_is_starved_even_with_room_for_one_row() {
        for room in 1..100 {
            let mut total = [0; PRIORITY_LEVELS];
            for turn in 0..20 {
                let shares = share(room, 4, turn);
                assert_eq!(shares.iter().sum::<u32>(), room);
                shares.iter().zip(&mut total).for_each(|(share, total)| *total += share);
            }
            assert!(total.iter().all(|total| *total > 0), "room {room}: {total:?}");
            assert!(total.iter().all(|other| *other <= total[4]), "room {room}: {total:?}");
        }
    }
}
