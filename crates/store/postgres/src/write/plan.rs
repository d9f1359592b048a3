//! Plans the statements that execute a group of requests. Pure.
//!
//! The operations of a shard keep their order. The first operations of all shards are combined if they have the same
//! kind and no two of them touch the same row of the journal: a statement may change a row only once.

use std::{collections::VecDeque, time::Duration};

use hashbrown::HashSet;
use honeyflow_event::{EventId, EventView, Key, Name};
use honeyflow_runtime::Failure;
use honeyflow_store::{
    NewEvent, Op, RunKey, Write,
    write::{Checkpoint, FanOut, History, ParkRequest},
};

use super::shard;

#[derive(Debug)]
pub(crate) enum Step<'w> {
    Settle { events: Vec<EventId>, runs: Vec<(u16, &'w RunKey)> },
    Charge(Vec<Charge<'w>>),
    Park(u16, &'w ParkRequest),
    ParkRow(EventId, &'w Failure),
    Checkpoint(Vec<(u16, &'w Checkpoint)>),
    Signal(Vec<NewSignal<'w>>),
    Replace(Vec<(EventId, &'w [NewEvent])>),
    FanOut(&'w FanOut, &'w [Key]),
    History(Vec<&'w History>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge<'w> {
    pub shard: u16,
    pub run: &'w RunKey,
    pub step: &'w str,
    pub index: u32,
    pub attempts: u32,
    pub due_ms: i64,
    pub failure: &'w Failure,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct NewSignal<'w> {
    pub event: &'w EventView,
    pub keep: Duration,
}

struct Lane<'w> {
    lease: &'w Name,
    shard: u16,
    ops: VecDeque<(&'w Op, &'w [Key])>,
}

/// A row of the journal that a statement touches.
#[derive(PartialEq, Eq, Hash)]
enum TouchedRow<'w> {
    Item(u16, &'w RunKey, u32, &'w str, u32),
    Row(EventId),
}

pub(crate) fn steps<'w>(writes: impl Iterator<Item = (&'w Write, &'w [Vec<Key>])>) -> Vec<Step<'w>> {
    let mut lanes: Vec<Lane<'w>> = Vec::new();
    for (write, pages) in writes {
        let lease = write.fence.lease();
        let at = lanes.iter().position(|lane| lane.lease == lease).unwrap_or_else(|| {
            lanes.push(Lane { lease, shard: shard(&write.fence), ops: VecDeque::new() });
            lanes.len() - 1
        });
        let mut pages = pages.iter();
        lanes[at].ops.extend(write.ops.iter().map(|op| {
            let page = if matches!(op, Op::FanOut(_)) { pages.next() } else { None };
            (op, page.map_or(&[][..], Vec::as_slice))
        }));
    }
    let mut steps = Vec::new();
    while let Some(first) = lanes.iter().find_map(|lane| lane.ops.front()) {
        let kind = std::mem::discriminant(first.0);
        let mut touched = HashSet::new();
        let mut taken = Vec::new();
        for lane in &mut lanes {
            while let Some((op, page)) = lane.ops.front().copied()
                && std::mem::discriminant(op) == kind
                && touched_row(lane.shard, op).is_none_or(|row| touched.insert(row))
            {
                lane.ops.pop_front();
                taken.push((lane.shard, op, page));
            }
        }
        gather(taken, &mut steps);
    }
    steps
}

fn touched_row<'w>(shard: u16, op: &'w Op) -> Option<TouchedRow<'w>> {
    match op {
        Op::Charge { run, step, index, .. } => Some(TouchedRow::Item(shard, run, 0, step, *index)),
        Op::Checkpoint(checkpoint) => {
            Some(TouchedRow::Item(shard, &checkpoint.run, checkpoint.phase, &checkpoint.step, checkpoint.index))
        }
        Op::Replace { event, .. } => Some(TouchedRow::Row(*event)),
        _ => None,
    }
}

/// Combines operations of one kind into steps.
fn gather<'w>(taken: Vec<(u16, &'w Op, &'w [Key])>, steps: &mut Vec<Step<'w>>) {
    let mut settled = (Vec::new(), Vec::new());
    let (mut charges, mut checkpoints) = (Vec::new(), Vec::new());
    let (mut signals, mut replaced, mut histories) = (Vec::new(), Vec::new(), Vec::new());
    for (shard, op, page) in taken {
        match op {
            Op::Settle { events, runs } => {
                settled.0.extend_from_slice(events);
                settled.1.extend(runs.iter().map(|run| (shard, run)));
            }
            Op::Charge { run, step, index, attempts, due_in, failure } => charges.push(Charge {
                shard,
                run,
                step,
                index: *index,
                attempts: *attempts,
                due_ms: crate::append::millis(*due_in),
                failure,
            }),
            Op::Checkpoint(checkpoint) => checkpoints.push((shard, &**checkpoint)),
            Op::Signal { event, keep } => signals.push(NewSignal { event, keep: *keep }),
            Op::Replace { event, by } => replaced.push((*event, by.as_slice())),
            Op::History(history) => histories.push(&**history),
            Op::Park(parked) => steps.push(Step::Park(shard, parked)),
            Op::ParkRow { event, failure } => steps.push(Step::ParkRow(*event, failure)),
            Op::FanOut(fan_out) => steps.push(Step::FanOut(fan_out, page)),
        }
    }
    let (mut events, runs) = settled;
    events.sort_unstable();
    if !events.is_empty() || !runs.is_empty() {
        steps.push(Step::Settle { events, runs });
    }
    if !charges.is_empty() {
        steps.push(Step::Charge(charges));
    }
    if !checkpoints.is_empty() {
        steps.push(Step::Checkpoint(checkpoints));
    }
    if !signals.is_empty() {
        steps.push(Step::Signal(signals));
    }
    if !replaced.is_empty() {
        steps.push(Step::Replace(replaced));
    }
    if !histories.is_empty() {
        steps.push(Step::History(histories));
    }
}
