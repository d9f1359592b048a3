//! Three nodes behind proxies, one of them 200 ms away: the latency of all requests, two seconds after the delay began.

use std::{sync::Arc, time::Duration};

use honeyflow_chaos::pool::{Nodes, proxy::LinkMode};

use super::{
    PEER,
    load::{self, Operation},
    side::{self, ClusterAccess, Ours, Side, Theirs},
};
use crate::{
    Result,
    figure::{Better, Measurement, Reporter},
};

const DELAY: Duration = Duration::from_millis(200);
const AT_A_TIME: [u32; 2] = [16, 256];
const BEFORE: Duration = Duration::from_secs(1);
const ONSET: Duration = Duration::from_secs(2);
const SLICE: Duration = Duration::from_secs(5);

pub fn pl_183_measure(reporter: &mut Reporter, runtime: &tokio::runtime::Runtime) -> Result<()> {
    let figures = ["slow-node-p99", "slow-node-p99-aware", "slow-node-throughput"];
    if !figures.iter().any(|figure| reporter.wants(figure)) {
        return Ok(());
    }
    let nodes = Nodes::start()?;
    let access = ClusterAccess {
        servers: nodes.proxies().iter().map(|proxy| proxy.address).collect(),
        translations: nodes.translate().table.into_iter().collect(),
        ..ClusterAccess::default()
    };
    let mut rows: [Vec<(f64, f64)>; 3] = Default::default();
    runtime.block_on(async {
        let session = Ours::session(&access)?;
        side::create_table(&session, 3).await?;
        for _ in 0..reporter.runs {
            let mut each = Vec::new();
            // A new session each time: what a driver learns about the slow node is what is measured.
            each.push(measure_delay(&nodes, &Arc::new(Ours::open(&access).await?)).await?);
            each.push(measure_delay(&nodes, &Arc::new(Theirs::open(&access, false).await?)).await?);
            each.push(measure_delay(&nodes, &Arc::new(Theirs::open(&access, true).await?)).await?);
            for (row, one) in rows.iter_mut().zip(each) {
                row.push(one);
            }
        }
        Ok::<_, crate::Error>(())
    })?;
    let [ours, default, aware] = rows;
    let p99 = |row: &[(f64, f64)]| row.iter().map(|(p99, _)| *p99).collect::<Vec<_>>();
    let throughput = |row: &[(f64, f64)]| row.iter().map(|(_, throughput)| *throughput).collect::<Vec<_>>();
    for (figure, unit, better, ours, peer) in [
        (figures[0], "us", Better::Lower, p99(&ours), (PEER, p99(&default))),
        (figures[1], "us", Better::Lower, p99(&ours), ("scylla, latency-aware", p99(&aware))),
        (figures[2], "1/s", Better::Higher, throughput(&ours), (PEER, throughput(&default))),
    ] {
        if reporter.wants(figure) {
            reporter.report(&Measurement { figure, unit, better, ours, peer: Some(peer) });
        }
    }
    Ok(())
}

/// Returns the p99 in microseconds after the first two seconds, and the requests per second over the whole delay, as
/// geometric means.
async fn measure_delay<S: Side>(nodes: &Nodes, side: &Arc<S>) -> Result<(f64, f64)> {
    let (mut p99s, mut throughputs) = (Vec::new(), Vec::new());
    for at_a_time in AT_A_TIME {
        load::run(side, Operation::Get, at_a_time, BEFORE).await?;
        nodes.proxies()[2].set(LinkMode::Late(DELAY));
        let onset = load::run(side, Operation::Get, at_a_time, ONSET).await;
        let after = load::run(side, Operation::Get, at_a_time, SLICE).await;
        nodes.proxies()[2].set(LinkMode::Open);
        let (onset, after) = (onset?, after?);
        eprintln!("  {at_a_time:>4}: p99 {:.0} us, {:.0} 1/s", after.p99_us, after.per_second);
        p99s.push(after.p99_us);
        let all = onset.per_second * ONSET.as_secs_f64() + after.per_second * SLICE.as_secs_f64();
        throughputs.push(all / (ONSET + SLICE).as_secs_f64());
        tokio::time::sleep(BEFORE).await;
    }
    Ok((super::geometric(p99s.into_iter()), super::geometric(throughputs.into_iter())))
}
