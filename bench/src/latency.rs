//! `latency-p50`, `latency-p99`: from the application's COMMIT to the index commit that contains the change, at a fixed
//! rate that does not wait for the node. The peer is the duration of a single index commit in the same run.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use honeyflow::{
    demo::{
        dice::Dice,
        shop::{price, title},
        timing::{AnswerTimes, TimedSink, percentile},
    },
    node::{self, Node},
};
use honeyflow_sink::Sink;
use rusqlite::{Connection, TransactionBehavior, params};
use tokio::runtime::Runtime;

use crate::{
    Result,
    commits::{self, Commit},
    embedded::Options,
    figure::{Better, Measurement, Reporter, median},
    shop::{self, Shop},
};

/// The warm-up: the first changes open files and writers, so they are not counted.
const WARM_UP: Duration = Duration::from_secs(1);

struct Run {
    p50: f64,
    p99: f64,
    commit: f64,
    commit_p99: f64,
    commits: usize,
}

pub fn measure(runtime: &Runtime, template: &Shop, options: &Options, reporter: &mut Reporter) -> Result<()> {
    let mut all = Vec::new();
    for run in 1..=reporter.runs {
        eprintln!("latency: run {run} of {}", reporter.runs);
        let measured = runtime.block_on(one(template, options))?;
        let Run { p50, p99, commit, commit_p99, commits } = measured;
        eprintln!("  p50 {p50:.2} ms, p99 {p99:.2} ms; {commits} commits of {commit:.2} ms, p99 {commit_p99:.2} ms");
        all.push(measured);
    }
    let each = |value: fn(&Run) -> f64| all.iter().map(value).collect::<Vec<f64>>();
    for (figure, ours) in [("latency-p50", each(|run| run.p50)), ("latency-p99", each(|run| run.p99))] {
        let peer = Some(("index commit, median", each(|run| run.commit)));
        reporter.report(&Measurement { figure, unit: "ms", better: Better::Lower, ours, peer });
    }
    Ok(())
}

async fn one(template: &Shop, options: &Options) -> Result<Run> {
    let shop = template.copy()?;
    let answer_times = Arc::new(AnswerTimes::default());
    let times = answer_times.clone();
    let wrap = move |sink: Arc<dyn Sink>| -> Arc<dyn Sink> { Arc::new(TimedSink::new(sink, times.clone())) };
    let watching = node::Options { wrap_sink: Some(Box::new(wrap)), ..node::Options::default() };
    let (node, service) = Node::open(&shop.config, &watching).await?;
    let mut running = shop::run(&node, &shop.config, service)?;
    let (rate, books) = (options.rate, options.books);
    let lasts = Duration::from_secs(options.seconds);
    let application = tokio::task::spawn_blocking(move || -> Result<_> {
        let mut connection = shop.connect()?;
        change(&mut connection, books, rate, WARM_UP)?;
        commits::take();
        let made = change(&mut connection, books, rate, lasts)?;
        shop.wait_until_empty()?;
        Ok((made, commits::take(), shop))
    });
    let (made, commits, shop) = application.await??;
    node.drain(&mut running, Duration::from_secs(10)).await;
    drop(shop);
    let latencies = latencies(&answer_times, &made, &commits)?;
    let mut commits: Vec<f64> = commits.iter().map(|commit| commit.took.as_secs_f64() * 1000.0).collect();
    commits.sort_by(f64::total_cmp);
    let (Some(p50), Some(p99)) = (percentile(&latencies, 50), percentile(&latencies, 99)) else {
        return Err("nothing was changed".into());
    };
    let commit_p99 = percentile(&commits, 99).unwrap_or(f64::NAN);
    Ok(Run { p50, p99, commit: median(&commits), commit_p99, commits: commits.len() })
}

/// Milliseconds from COMMIT to the return of the index commit that contains the change, sorted.
fn latencies(answer_times: &AnswerTimes, made: &[(i64, i64, Instant)], commits: &[Commit]) -> Result<Vec<f64>> {
    let mut millis = Vec::with_capacity(made.len());
    for (book, revision, committed) in made {
        let answered = answer_times.answered(*book, *revision);
        // The sink answers after the commit that holds the write: the last one before the answer.
        let indexed = answered.and_then(|at| commits.iter().rev().find(|commit| commit.at <= at));
        let Some(indexed) = indexed else {
            return Err(format!("revision {revision} of book {book} was not seen in the index").into());
        };
        // The change may be in the index before the application's COMMIT has returned.
        millis.push(indexed.at.saturating_duration_since(*committed).as_secs_f64() * 1000.0);
    }
    millis.sort_by(f64::total_cmp);
    Ok(millis)
}

/// Makes changes at a fixed rate (an open loop): each change has its time, however long the one before it took.
fn change(connection: &mut Connection, books: i64, rate: u32, lasts: Duration) -> Result<Vec<(i64, i64, Instant)>> {
    let mut dice = Dice::new(u64::from(rate) + lasts.as_secs());
    let mut made = Vec::new();
    let begun = Instant::now();
    for n in 0.. {
        let at = Duration::from_secs(1) * n / rate;
        if at >= lasts {
            break;
        }
        std::thread::sleep(at.saturating_sub(begun.elapsed()));
        let book = 1 + dice.below(books);
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let revision: i64 = transaction
            .prepare_cached(
                "update book set price = ?2, title = ?3, revision = revision + 1 where id = ?1 returning revision",
            )?
            .query_row(params![book, price(&mut dice), title(&mut dice)], |row| row.get(0))?;
        transaction.commit()?;
        made.push((book, revision, Instant::now()));
    }
    Ok(made)
}
