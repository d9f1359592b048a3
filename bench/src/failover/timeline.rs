//! What happened in a hive while it had no leader, from the events in its store: it shows where the time of a slow
//! round went.

use std::time::SystemTime;

use honeyflow_chaos::hive::StoreLocation;
use honeyflow_hive::{
    Reply, Request,
    contract::{Event, HIVE_TIME_START_MS},
};
use honeyflow_runtime::{Clock, time::BootClock};

use super::Round;

const EVENTS_MAX: u32 = 64;
/// Stores keep time in whole milliseconds.
const TOLERANCE_US: u64 = 2_000;

/// Describes a round in one line.
pub fn describe(location: &StoreLocation, round: &Round) -> String {
    let wait = round.whole().as_secs_f64();
    match events(location, &round.hive) {
        Ok(events) => format!("{wait:.3} s in {}: {}", round.hive, describe_events(&events, round, hive_ahead_us())),
        Err(error) => format!("{wait:.3} s in {}; cannot read the events: {error}", round.hive),
    }
}

/// Reads the events, newest first.
fn events(location: &StoreLocation, hive: &str) -> Result<Vec<Event>, String> {
    let runtime = crate::runtime().map_err(|error| error.to_string())?;
    let call = async {
        let history = Request::History { lease: None, until_ms: None, max: EVENTS_MAX };
        location.open(hive).await?.call(history).await
    };
    match runtime.block_on(call) {
        Ok(Reply::History(events)) => Ok(events),
        Ok(_) => Err("the store's reply does not fit the request".to_owned()),
        Err(failure) => Err(failure.to_string()),
    }
}

/// How far hive time, which is the machine's wall clock here, is ahead of the clock that rounds are timed by.
fn hive_ahead_us() -> i64 {
    let wall = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_micros();
    let hive = i64::try_from(wall).unwrap_or(i64::MAX) - HIVE_TIME_START_MS * 1000;
    hive - BootClock.now().0.cast_signed()
}

fn describe_events(events: &[Event], round: &Round, ahead_us: i64) -> String {
    let at_us = |event: &Event| event.at_ms.saturating_mul(1000).saturating_add_signed(-ahead_us);
    let until_us = round.since_us + u64::try_from(round.whole().as_micros()).unwrap_or(u64::MAX);
    let during = |event: &&Event| (round.since_us.saturating_sub(TOLERANCE_US)..=until_us).contains(&at_us(event));
    let mut parts: Vec<String> = events
        .iter()
        .rev()
        .filter(during)
        .map(|event| {
            let after_ms = at_us(event).saturating_sub(round.since_us) / 1000;
            let lease = event.lease.as_deref().unwrap_or("");
            format!("{} {lease} ({}) after {after_ms} ms", event.kind, event.cause)
        })
        .collect();
    parts.push(format!("first write as queen after {} ms", round.until_us.saturating_sub(round.since_us) / 1000));
    if let Some(shards) = round.shards {
        parts.push(format!("writes under all shards after {} ms", shards.as_millis()));
    }
    parts.join(", ")
}
