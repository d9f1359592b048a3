//! What a hive says happened while nobody led, from the events in its store: where the time of a slow round went.

use std::time::SystemTime;

use honeyflow_chaos::hive::Place;
use honeyflow_hive::{
    Reply, Request,
    contract::{Event, HIVE_TIME_START_MS},
};
use honeyflow_runtime::{Clock, time::BootClock};

use super::Round;

const EVENTS_MAX: u32 = 64;
/// A store tells time in whole milliseconds.
const JUST_BEFORE_US: u64 = 2_000;

/// One line.
pub fn of(place: &Place, round: &Round) -> String {
    let wait = round.whole().as_secs_f64();
    match events(place, &round.hive) {
        Ok(events) => format!("{wait:.3} s in {}: {}", round.hive, told(&events, round, hive_ahead_us())),
        Err(error) => format!("{wait:.3} s in {}; what happened cannot be read: {error}", round.hive),
    }
}

/// Newest first.
fn events(place: &Place, hive: &str) -> Result<Vec<Event>, String> {
    let runtime = crate::runtime().map_err(|error| error.to_string())?;
    let asked = async {
        let history = Request::History { lease: None, until_ms: None, max: EVENTS_MAX };
        place.open(hive).await?.call(history).await
    };
    match runtime.block_on(asked) {
        Ok(Reply::History(events)) => Ok(events),
        Ok(_) => Err("it answers something else".to_owned()),
        Err(failure) => Err(failure.to_string()),
    }
}

/// Hive time, which is the machine's wall clock here, against the clock that rounds are timed by.
fn hive_ahead_us() -> i64 {
    let wall = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_micros();
    let hive = i64::try_from(wall).unwrap_or(i64::MAX) - HIVE_TIME_START_MS * 1000;
    hive - BootClock.now().0.cast_signed()
}

fn told(events: &[Event], round: &Round, ahead_us: i64) -> String {
    let at_us = |event: &Event| event.at_ms.saturating_mul(1000).saturating_add_signed(-ahead_us);
    let until_us = round.since_us + u64::try_from(round.whole().as_micros()).unwrap_or(u64::MAX);
    let during = |event: &&Event| (round.since_us.saturating_sub(JUST_BEFORE_US)..=until_us).contains(&at_us(event));
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
    parts.push(format!("written as queen after {} ms", round.until_us.saturating_sub(round.since_us) / 1000));
    if let Some(shards) = round.shards {
        parts.push(format!("under all shards after {} ms", shards.as_millis()));
    }
    parts.join(", ")
}
