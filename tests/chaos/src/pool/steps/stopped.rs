//! A server is stopped (SIGSTOP) while speculative requests are off: how soon requests are as fast as before.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use honeyflow_cassandra::{Consistency, Options};
use honeyflow_pool::settings::SpeculateAfter;

use super::{Nodes, Step, open};
use crate::pool::load::WITHIN;

const WRITERS: i32 = 64;
const BEFORE: Duration = Duration::from_secs(2);
const AFTER: Duration = Duration::from_secs(6);
const WINDOW: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(50);
const BACK_WITHIN: Duration = Duration::from_millis(1500);
/// On a busy machine, a 99th percentile below this says little.
const NOISE: Duration = Duration::from_millis(50);

type Times = Arc<Mutex<Vec<(Instant, Duration)>>>;

pub async fn pl_184_measure(nodes: &Nodes) -> Result<Step, String> {
    let session = open(nodes, SpeculateAfter::Off)?;
    let put = "INSERT INTO chaos.t (id, n) VALUES (?, ?)";
    let put = session.prepare(put).await.map_err(|error| error.to_string())?;
    let (times, end) = (Times::default(), Instant::now() + BEFORE + AFTER);
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| {
            let (session, put, times) = (session.clone(), put.clone(), times.clone());
            let options = Options::within(WITHIN).consistency(Consistency::LocalQuorum).idempotent();
            tokio::spawn(async move {
                while Instant::now() < end {
                    let begun = Instant::now();
                    let _ = session.execute(&put, (1_000_000 + number, 1_i64), &options).await;
                    times.lock().unwrap_or_else(PoisonError::into_inner).push((begun, begun.elapsed()));
                }
            })
        })
        .collect();
    tokio::time::sleep(BEFORE).await;
    let stopped_at = Instant::now();
    nodes.pause(2)?;
    for writer in writers {
        let _ = writer.await;
    }
    nodes.resume(2)?;
    let times = times.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut before: Vec<Duration> =
        times.iter().filter(|(begun, took)| *begun + *took < stopped_at).map(|(_, took)| *took).collect();
    before.sort_unstable();
    let p99 = before.get(before.len() * 99 / 100).copied().unwrap_or_default();
    let normal = (p99 * 2).max(NOISE);
    let back = (0_u32..).map(|step| STEP * step).take_while(|after| *after + WINDOW < AFTER).find(|after| {
        let from = stopped_at + *after;
        let window = times.iter().filter(|(begun, _)| (from..from + WINDOW).contains(begun));
        let (all, slow) =
            window.fold((0_usize, 0_usize), |(all, slow), (_, took)| (all + 1, slow + usize::from(*took > normal)));
        all > 0 && slow * 100 <= all
    });
    Ok(Step {
        id: "PL-184",
        what: "one server is stopped, speculation is off: the time until writes are as fast as before",
        holds: back.is_some_and(|back| back <= BACK_WITHIN),
        seen: format!("after {back:?}; p99 before {p99:?}, {} writes in all", times.len()),
    })
}
