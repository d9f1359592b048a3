//! A node is killed and started again: the time from the moment its port accepts until all connections to it exist,
//! `restart-median` and `restart-worst`. Both drivers go through the same restarts. Our pool is full with two
//! connections; the peer keeps one for each server and reports when it has it.

use std::{
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    Result,
    cql::{self, side},
    figure::{Better, Measurement, Reporter, median},
};

#[derive(clap::Args)]
pub struct Options {
    /// Number of times the node is killed and started
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..1000))]
    restarts: u32,
}

const PATIENCE: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(1);

pub fn measure(options: &Options, reporter: &mut Reporter) -> Result<()> {
    let runtime = crate::runtime()?;
    let (access, mut node) = cql::one_node()?;
    let address = access.servers[0];
    let (ours, theirs) = runtime.block_on(async {
        let ours = side::Ours::session(&access)?;
        side::create_table(&ours, 1).await?;
        Ok::<_, crate::Error>((side::Ours::open(&access).await?, side::Theirs::open(&access, false).await?))
    })?;
    let (ours, theirs) = (Arc::new(ours), Arc::new(theirs));
    let ours_full = || {
        let status = ours.session.pool().status();
        status.servers.len() == 1
            && status.servers.iter().all(|server| server.open == server.target && server.closing == 0)
    };
    let ours_gone = || ours.session.pool().status().open == 0;
    let theirs_full = || theirs.session.get_cluster_state().get_nodes_info().iter().all(|node| node.is_connected());
    let theirs_gone = || theirs.session.get_cluster_state().get_nodes_info().iter().all(|node| !node.is_connected());
    let (mut of_ours, mut of_theirs) = (Vec::new(), Vec::new());
    for restart in 0..options.restarts {
        runtime.block_on(until("both are full", || ours_full() && theirs_full()))?;
        node.kill();
        runtime.block_on(until("both have noticed", || ours_gone() && theirs_gone()))?;
        let (ours_took, theirs_took) = std::thread::scope(|scope| {
            let starting = scope.spawn(|| node.start());
            let watched = runtime.block_on(async {
                let accepts = until("its port accepts", || accepts(address)).await?;
                let (mut ours_at, mut theirs_at) = (None, None);
                until("both are full again", || {
                    let now = Instant::now();
                    ours_at = ours_at.or(ours_full().then_some(now));
                    theirs_at = theirs_at.or(theirs_full().then_some(now));
                    ours_at.is_some() && theirs_at.is_some()
                })
                .await?;
                let took = |at: Option<Instant>| at.map_or(PATIENCE, |at| at.saturating_duration_since(accepts));
                Ok::<_, crate::Error>((took(ours_at), took(theirs_at)))
            });
            let started = starting.join().map_err(|_| "the node's starter panicked")?;
            started.map_err(|error| error.to_string())?;
            watched
        })?;
        eprintln!("  restart {}: {:.3} s, {:.3} s", restart + 1, ours_took.as_secs_f64(), theirs_took.as_secs_f64());
        of_ours.push(ours_took.as_secs_f64());
        of_theirs.push(theirs_took.as_secs_f64());
    }
    let worst = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
    for (figure, ours, theirs) in [
        ("restart-median", median(&of_ours), median(&of_theirs)),
        ("restart-worst", worst(&of_ours), worst(&of_theirs)),
    ] {
        if reporter.wants(figure) {
            let peer = Some(("scylla", vec![theirs]));
            reporter.report(&Measurement { figure, unit: "s", better: Better::Lower, ours: vec![ours], peer });
        }
    }
    Ok(())
}

fn accepts(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_millis(100)).is_ok()
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<Instant> {
    let by = Instant::now() + PATIENCE;
    while !is_so() {
        if Instant::now() > by {
            return Err(format!("did not happen within {PATIENCE:?}: {what}").into());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(Instant::now())
}
