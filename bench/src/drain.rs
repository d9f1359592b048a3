//! `drain`: documents per second while a node works off a backlog of distinct keys and the application is idle. The
//! peer loads and writes the same documents without outbox and engine.

use std::time::{Duration, Instant};

use honeyflow::node::{Node, Options};
use tokio::runtime::Runtime;

use crate::{
    Result,
    figure::{Better, Measurement, Reporter},
    peer,
    shop::{self, Shop},
};

pub fn measure(runtime: &Runtime, template: &Shop, reporter: &mut Reporter) -> Result<()> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for run in 1..=reporter.runs {
        eprintln!("drain: run {run} of {}", reporter.runs);
        ours.push(runtime.block_on(node(template))?);
        theirs.push(bare_loop(template)?);
    }
    reporter.report(&Measurement {
        figure: "drain",
        unit: "docs/s",
        better: Better::Higher,
        ours,
        peer: Some(("bare loop", theirs)),
    });
    Ok(())
}

async fn node(template: &Shop) -> Result<f64> {
    let shop = template.copy()?;
    let waiting = shop.change_every_book()?;
    let (node, service) = Node::open(&shop.config, &Options::default()).await?;
    let begun = Instant::now();
    let mut running = shop::run(&node, &shop.config, service)?;
    let (ended, shop) = tokio::task::spawn_blocking(move || (shop.wait_until_empty(), shop)).await?;
    let took = ended?.duration_since(begun);
    node.drain(&mut running, Duration::from_secs(10)).await;
    let status = node.engine.status();
    if status.steps != 2 * waiting.unsigned_abs() || status.parked > 0 || status.retries > 0 {
        return Err(format!("{waiting} events, but {} steps, {} parked", status.steps, status.parked).into());
    }
    drop(shop);
    Ok(waiting as f64 / took.as_secs_f64())
}

fn bare_loop(template: &Shop) -> Result<f64> {
    let shop = template.copy()?;
    let waiting = shop.change_every_book()?;
    let begun = Instant::now();
    let written = peer::run(&shop)?;
    let took = begun.elapsed();
    if written != waiting.unsigned_abs() {
        return Err(format!("{waiting} books changed, but the bare loop wrote {written}").into());
    }
    Ok(waiting as f64 / took.as_secs_f64())
}
