//! CQL against the crate `scylla`, on the same servers in turn. `throughput-mean`, `p99-mean` and `client-cpu`:
//! geometric means on one real node, prepared inserts and selects with 1, 64, 512 and 2,048 requests at a time.
//! `scripted-…`: on a server in this process that does almost nothing, so that the client is the limit.
//! `exclusive-throughput`: on such a server, against bare connections. `slow-node-…`: three nodes, one of them 200 ms
//! away.

mod exclusive;
pub mod load;
pub mod side;
mod slow;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use honeyflow_chaos::pool::scripted::Cluster;

use crate::{
    Result,
    figure::{Better, Measurement, Reporter},
};
use load::{LoadResult, Operation};
use side::{ClusterAccess, Ours, Side, Theirs};

#[derive(clap::Args)]
pub struct Options {
    /// Time of each side for each operation and concurrency, in milliseconds
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(100..60_000))]
    slice: u64,
    /// Numbers of requests at a time
    #[arg(long, value_delimiter = ',', default_values_t = [1, 64, 512, 2048])]
    at_a_time: Vec<u32>,
}

const PEER: &str = "scylla";
/// The warm-up before the measurement: both sides open their connections, and the server compiles its code.
const WARM_UP: Duration = Duration::from_millis(500);

pub fn measure(options: &Options, reporter: &mut Reporter) -> Result<()> {
    let runtime = crate::runtime()?;
    if ["throughput-mean", "p99-mean", "client-cpu"].iter().any(|figure| reporter.wants(figure)) {
        let (access, _node) = one_node()?;
        let (ours, theirs) = runtime.block_on(async {
            let session = Ours::session(&access)?;
            side::create_table(&session, 1).await?;
            Ok::<_, crate::Error>((Ours::open(&access).await?, Theirs::open(&access, false).await?))
        })?;
        let means = runtime.block_on(pl_182_compare(options, reporter.runs, &Arc::new(ours), &Arc::new(theirs)))?;
        means.report(reporter, ["throughput-mean", "p99-mean", "client-cpu"]);
    }
    if ["scripted-throughput", "scripted-p99"].iter().any(|figure| reporter.wants(figure)) {
        let cluster = Cluster::start(1)?;
        let servers: Vec<SocketAddr> = cluster.servers().iter().map(|server| server.address).collect();
        let access = ClusterAccess { servers, bare: true, ..ClusterAccess::default() };
        let sides = async { Ok::<_, crate::Error>((Ours::open(&access).await?, Theirs::open(&access, false).await?)) };
        let (ours, theirs) = runtime.block_on(sides)?;
        let means = runtime.block_on(pl_182_compare(options, reporter.runs, &Arc::new(ours), &Arc::new(theirs)))?;
        means.report(reporter, ["scripted-throughput", "scripted-p99", ""]);
    }
    if reporter.wants(exclusive::FIGURE) {
        let cluster = Cluster::start(1)?;
        let servers: Vec<SocketAddr> = cluster.servers().iter().map(|server| server.address).collect();
        let access = ClusterAccess { servers, bare: true, ..ClusterAccess::default() };
        let slice = Duration::from_millis(options.slice);
        runtime.block_on(exclusive::pl_185_measure(&access, slice, reporter))?;
    }
    slow::pl_183_measure(reporter, &runtime)
}

/// A server that only the bench uses: the shared one may be busy.
pub fn one_node() -> Result<(ClusterAccess, honeyflow_services::Throwaway)> {
    let node = honeyflow_services::throwaway_cassandra().ok_or("Cassandra is not available")?;
    let url = node.url().strip_prefix("cassandra://").and_then(|rest| rest.split_once('@')).ok_or("no URL")?;
    let (user, password) = url.0.split_once(':').ok_or("no login")?;
    let login = Some((user.to_owned(), password.to_owned()));
    let servers = vec![url.1.trim_end_matches('/').parse()?];
    Ok((ClusterAccess { servers, login, ..ClusterAccess::default() }, node))
}

/// Throughput, p99 and processor time of each side, one value per run.
#[derive(Default)]
struct Means {
    ours: [Vec<f64>; 3],
    theirs: [Vec<f64>; 3],
}

impl Means {
    fn report(&self, reporter: &mut Reporter, figures: [&'static str; 3]) {
        let kinds = [("1/s", Better::Higher), ("us", Better::Lower), ("us", Better::Lower)];
        for (at, (figure, (unit, better))) in figures.into_iter().zip(kinds).enumerate() {
            if figure.is_empty() || !reporter.wants(figure) {
                continue;
            }
            let peer = Some((PEER, self.theirs[at].clone()));
            reporter.report(&Measurement { figure, unit, better, ours: self.ours[at].clone(), peer });
        }
    }
}

async fn pl_182_compare<A: Side, B: Side>(
    options: &Options,
    runs: u32,
    ours: &Arc<A>,
    theirs: &Arc<B>,
) -> Result<Means> {
    let slice = Duration::from_millis(options.slice);
    for operation in [Operation::Put, Operation::Get] {
        load::run(ours, operation, 64, WARM_UP).await?;
        load::run(theirs, operation, 64, WARM_UP).await?;
    }
    let mut means = Means::default();
    for run in 0..runs {
        let (mut of_ours, mut of_theirs) = (Vec::new(), Vec::new());
        for operation in [Operation::Put, Operation::Get] {
            for at_a_time in &options.at_a_time {
                // The sides take turns in beginning, so that neither always finds what the other one left behind.
                for first in [run % 2 == 0, run % 2 == 1] {
                    if first {
                        of_ours.push(load::run(ours, operation, *at_a_time, slice).await?);
                    } else {
                        of_theirs.push(load::run(theirs, operation, *at_a_time, slice).await?);
                    }
                }
                print_progress(operation, *at_a_time, of_ours.last(), of_theirs.last());
            }
        }
        for (means, results) in [(&mut means.ours, of_ours), (&mut means.theirs, of_theirs)] {
            means[0].push(geometric(results.iter().map(|results| results.per_second)));
            means[1].push(geometric(results.iter().map(|results| results.p99_us)));
            means[2].push(geometric(results.iter().map(|results| results.cpu_us)));
        }
    }
    Ok(means)
}

fn print_progress(operation: Operation, at_a_time: u32, ours: Option<&LoadResult>, theirs: Option<&LoadResult>) {
    if let (Some(ours), Some(theirs)) = (ours, theirs) {
        eprintln!(
            "  {operation:?} {at_a_time:>4}: {:>8.0} {:>8.0} 1/s, p99 {:>8.0} {:>8.0} us, cpu {:>6.1} {:>6.1} us",
            ours.per_second, theirs.per_second, ours.p99_us, theirs.p99_us, ours.cpu_us, theirs.cpu_us
        );
    }
}

fn geometric(values: impl Iterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = values.map(f64::ln).collect();
    (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PL-182: both drivers pass the whole comparison, in small; the ratios are for a quiet machine to measure.
    #[test]
    fn pl_182_both_drivers_are_measured_alike() {
        let (runtime, cluster) = (crate::runtime().unwrap(), Cluster::start(1).unwrap());
        let servers = cluster.servers().iter().map(|server| server.address).collect();
        let access = ClusterAccess { servers, bare: true, ..ClusterAccess::default() };
        let options = Options { slice: 100, at_a_time: vec![1, 16] };
        let means = runtime.block_on(async {
            let ours = Arc::new(Ours::open(&access).await.unwrap());
            let theirs = Arc::new(Theirs::open(&access, false).await.unwrap());
            pl_182_compare(&options, 1, &ours, &theirs).await.unwrap()
        });
        for values in means.ours.iter().chain(&means.theirs) {
            assert!(values.len() == 1 && values[0].is_finite() && values[0] > 0.0, "{values:?}");
        }
    }

    #[test]
    fn the_geometric_mean_multiplies() {
        assert!((geometric([2.0, 8.0].into_iter()) - 4.0).abs() < 1e-9);
    }
}
