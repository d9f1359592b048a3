//! The cost of a fence. `fenced-delete-<backend>`: a delete of 500 rows that carries its fence, against the same delete
//! without. `beat-during-fence-<backend>`: a heartbeat beside a fenced transaction, against one without a transaction
//! (PostgreSQL), or beside the same transactions without a fence (SQLite has one writer: a heartbeat waits for the
//! current write, fenced or not).

mod postgres;
mod sqlite;

use std::time::{Duration, Instant};

use honeyflow_hive::{HiveStore, NodeId, Reply, Request, Term, contract::State, member};

use crate::{
    Result,
    figure::{Better, Measurement, Reporter},
};

#[derive(clap::Args)]
pub struct Options {
    /// Number of deletes of each side in a run
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..10_000))]
    deletes: u32,
    /// Number of heartbeats of each side in a run
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..100_000))]
    beats: u32,
}

const ROWS: i64 = 500;
const LEASE: &str = "shard/shop/0";

/// One backend, with a member of its hive that holds a lease.
trait Bench {
    /// Deletes [`ROWS`] rows. Inserting them first is not measured.
    fn delete(&mut self, fenced: bool) -> Result<Duration>;

    /// Sends `count` heartbeats, beside a fenced transaction or without one.
    fn beats(&mut self, fenced: bool, count: u32) -> Result<Duration>;

    /// The name of the other side of `beats`.
    fn peer_of_beats(&self) -> &'static str;
}

type OpenBench = fn() -> Result<Option<Box<dyn Bench>>>;

pub fn measure(options: &Options, reporter: &mut Reporter) -> Result<()> {
    let backends: [(&'static str, &'static str, OpenBench); 2] = [
        ("fenced-delete-sqlite", "beat-during-fence-sqlite", sqlite::open),
        ("fenced-delete-postgres", "beat-during-fence-postgres", postgres::open),
    ];
    for (delete, beat, open) in backends {
        if !reporter.wants(delete) && !reporter.wants(beat) {
            continue;
        }
        let Some(mut bench) = open()? else {
            eprintln!("  skipping {delete} and {beat}: no server is available");
            continue;
        };
        if reporter.wants(delete) {
            let sides = sides(reporter.runs, || deletes(&mut *bench, options.deletes))?;
            report(reporter, delete, "the same delete, unfenced", sides);
        }
        if reporter.wants(beat) {
            let peer = bench.peer_of_beats();
            let sides = sides(reporter.runs, || beats(&mut *bench, options.beats))?;
            report(reporter, beat, peer, sides);
        }
    }
    Ok(())
}

/// The times with and without the fence, in milliseconds.
type Sides = (Vec<f64>, Vec<f64>);

fn sides(runs: u32, mut run: impl FnMut() -> Result<(f64, f64)>) -> Result<Sides> {
    // The first run warms up caches, plans and connections.
    run()?;
    let mut sides = (Vec::new(), Vec::new());
    for _ in 0..runs {
        let (fenced, plain) = run()?;
        sides.0.push(fenced);
        sides.1.push(plain);
    }
    Ok(sides)
}

fn report(reporter: &mut Reporter, figure: &'static str, peer: &'static str, (ours, plain): Sides) {
    reporter.report(&Measurement { figure, unit: "ms", better: Better::Lower, ours, peer: Some((peer, plain)) });
}

fn deletes(bench: &mut dyn Bench, count: u32) -> Result<(f64, f64)> {
    let (mut fenced, mut plain) = (Duration::ZERO, Duration::ZERO);
    for number in 0..count {
        // The sides take turns in beginning, so that neither always finds its pages cached.
        for is_fenced in [number % 2 == 0, number % 2 != 0] {
            *(if is_fenced { &mut fenced } else { &mut plain }) += bench.delete(is_fenced)?;
        }
    }
    Ok((millis(fenced, count), millis(plain, count)))
}

fn beats(bench: &mut dyn Bench, count: u32) -> Result<(f64, f64)> {
    let (mut fenced, mut plain) = (Duration::ZERO, Duration::ZERO);
    let part = (count / 4).max(1);
    for number in 0..4 {
        for is_fenced in [number % 2 == 0, number % 2 != 0] {
            *(if is_fenced { &mut fenced } else { &mut plain }) += bench.beats(is_fenced, part)?;
        }
    }
    Ok((millis(fenced, part * 4), millis(plain, part * 4)))
}

fn millis(all: Duration, count: u32) -> f64 {
    all.as_secs_f64() * 1000.0 / f64::from(count)
}

async fn take_lease(store: &dyn HiveStore) -> Result<Term> {
    Ok(member::take(store, NodeId(uuid::Uuid::new_v4()), LEASE).await?)
}

async fn beat(store: &dyn HiveStore, node: NodeId, count: u32) -> Result<Duration> {
    let state = State { ready: true, eligible: true, ..State::default() };
    let began = Instant::now();
    for _ in 0..count {
        match store.call(Request::Beat { node, read_only: false, state: state.clone() }).await? {
            Reply::Beat(status) if status.member && status.renewed => {}
            other => return Err(format!("the heartbeat was not written: {other:?}").into()),
        }
    }
    Ok(began.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HV-95: both sides do the work that is compared.
    #[test]
    fn hv_95_both_sides_delete_and_beat() {
        let mut bench = sqlite::open().unwrap().expect("a file needs no server");
        let (fenced, plain) = deletes(&mut *bench, 2).unwrap();
        assert!(fenced > 0.0 && plain > 0.0);
        let (fenced, plain) = beats(&mut *bench, 4).unwrap();
        assert!(fenced > 0.0 && plain > 0.0);
    }
}
