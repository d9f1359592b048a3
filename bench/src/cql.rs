//! CQL against the crate `scylla`, on the same servers in turn. On one real node: `throughput-mean`, `p99-mean` and
//! `client-cpu`, prepared inserts and selects at 1, 64, 512 and 2,048 at a time, geometric means. `scripted-…`: on a
//! server in this process that does next to nothing, so that the client is the limit; `exclusive-throughput` there, too,
//! against bare connections. `slow-node-…`: three nodes, one of
//! them 200 ms away.

mod exclusive;
pub mod load;
pub mod side;
mod slow;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use honeyflow_chaos::pool::scripted::Cluster;

use crate::{
    Result,
    figure::{Better, Measured, Reporter},
};
use load::{Came, What};
use side::{Ours, Place, Side, Theirs};

#[derive(clap::Args)]
pub struct Options {
    /// How long each side works at each kind and concurrency, in milliseconds
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(100..60_000))]
    slice: u64,
    /// How many requests at a time
    #[arg(long, value_delimiter = ',', default_values_t = [1, 64, 512, 2048])]
    at_a_time: Vec<u32>,
}

const PEER: &str = "scylla";
/// Before what counts, so that both have their connections and the server its compiled code.
const WARM_UP: Duration = Duration::from_millis(500);

pub fn measure(options: &Options, reporter: &mut Reporter) -> Result<()> {
    let runtime = crate::runtime()?;
    if ["throughput-mean", "p99-mean", "client-cpu"].iter().any(|figure| reporter.wants(figure)) {
        let (place, _node) = one_node()?;
        let (ours, theirs) = runtime.block_on(async {
            let session = Ours::session(&place)?;
            side::furnish(&session, 1).await?;
            Ok::<_, crate::Error>((Ours::open(&place).await?, Theirs::open(&place, false).await?))
        })?;
        let means = runtime.block_on(pl_182_compare(options, reporter.runs, &Arc::new(ours), &Arc::new(theirs)))?;
        means.report(reporter, ["throughput-mean", "p99-mean", "client-cpu"]);
    }
    if ["scripted-throughput", "scripted-p99"].iter().any(|figure| reporter.wants(figure)) {
        let cluster = Cluster::start(1)?;
        let servers: Vec<SocketAddr> = cluster.servers().iter().map(|server| server.address).collect();
        let place = Place { servers, bare: true, ..Place::default() };
        let sides = async { Ok::<_, crate::Error>((Ours::open(&place).await?, Theirs::open(&place, false).await?)) };
        let (ours, theirs) = runtime.block_on(sides)?;
        let means = runtime.block_on(pl_182_compare(options, reporter.runs, &Arc::new(ours), &Arc::new(theirs)))?;
        means.report(reporter, ["scripted-throughput", "scripted-p99", ""]);
    }
    if reporter.wants(exclusive::FIGURE) {
        let cluster = Cluster::start(1)?;
        let servers: Vec<SocketAddr> = cluster.servers().iter().map(|server| server.address).collect();
        let place = Place { servers, bare: true, ..Place::default() };
        let slice = Duration::from_millis(options.slice);
        runtime.block_on(exclusive::pl_185_measure(&place, slice, reporter))?;
    }
    slow::pl_183_measure(reporter, &runtime)
}

/// A server of our own: the shared one may be in use.
pub fn one_node() -> Result<(Place, honeyflow_services::Throwaway)> {
    let node = honeyflow_services::throwaway_cassandra().ok_or("Cassandra cannot be had here")?;
    let url = node.url().strip_prefix("cassandra://").and_then(|rest| rest.split_once('@')).ok_or("no URL")?;
    let (user, password) = url.0.split_once(':').ok_or("no login")?;
    let login = Some((user.to_owned(), password.to_owned()));
    let servers = vec![url.1.trim_end_matches('/').parse()?];
    Ok((Place { servers, login, ..Place::default() }, node))
}

/// One value per run for each side: throughput, p99, processor time.
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
            reporter.report(&Measured { figure, unit, better, ours: self.ours[at].clone(), peer });
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
    for what in [What::Put, What::Get] {
        load::run(ours, what, 64, WARM_UP).await?;
        load::run(theirs, what, 64, WARM_UP).await?;
    }
    let mut means = Means::default();
    for run in 0..runs {
        let (mut of_ours, mut of_theirs) = (Vec::new(), Vec::new());
        for what in [What::Put, What::Get] {
            for at_a_time in &options.at_a_time {
                // Who begins changes, so that neither always finds what the other left behind.
                for first in [run % 2 == 0, run % 2 == 1] {
                    if first {
                        of_ours.push(load::run(ours, what, *at_a_time, slice).await?);
                    } else {
                        of_theirs.push(load::run(theirs, what, *at_a_time, slice).await?);
                    }
                }
                tell(what, *at_a_time, of_ours.last(), of_theirs.last());
            }
        }
        for (means, came) in [(&mut means.ours, of_ours), (&mut means.theirs, of_theirs)] {
            means[0].push(geometric(came.iter().map(|came| came.per_second)));
            means[1].push(geometric(came.iter().map(|came| came.p99_us)));
            means[2].push(geometric(came.iter().map(|came| came.cpu_us)));
        }
    }
    Ok(means)
}

fn tell(what: What, at_a_time: u32, ours: Option<&Came>, theirs: Option<&Came>) {
    if let (Some(ours), Some(theirs)) = (ours, theirs) {
        eprintln!(
            "  {what:?} {at_a_time:>4}: {:>8.0} {:>8.0} 1/s, p99 {:>8.0} {:>8.0} us, cpu {:>6.1} {:>6.1} us",
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

    /// PL-182: both drivers through the whole comparison, in small; what the ratios are is for a quiet machine to say.
    #[test]
    fn pl_182_both_drivers_are_measured_alike() {
        let (runtime, cluster) = (crate::runtime().unwrap(), Cluster::start(1).unwrap());
        let servers = cluster.servers().iter().map(|server| server.address).collect();
        let place = Place { servers, bare: true, ..Place::default() };
        let options = Options { slice: 100, at_a_time: vec![1, 16] };
        let means = runtime.block_on(async {
            let ours = Arc::new(Ours::open(&place).await.unwrap());
            let theirs = Arc::new(Theirs::open(&place, false).await.unwrap());
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
