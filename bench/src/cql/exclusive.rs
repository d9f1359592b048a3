//! One request at a time on each connection: the cost of the pool against three bare connections that are used in turn.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use honeyflow_cassandra::{Connection, Consistency, Options, Statement, connection};
use honeyflow_pool::settings::Mode;

use super::{
    load::{self, Operation},
    side::{ClusterAccess, GET, Ours, PUT, Side, WITHIN},
};
use crate::{
    Result,
    figure::{Better, Measurement, Reporter},
};

pub const FIGURE: &str = "exclusive-throughput";
const CONNECTIONS: u32 = 3;

struct BareConnections {
    connections: Vec<Connection>,
    turn: AtomicUsize,
    put: Statement,
    get: Statement,
    options: Options,
}

impl BareConnections {
    async fn open(access: &ClusterAccess) -> Result<BareConnections> {
        let settings = connection::Settings { versions: Ours::VERSIONS, ..connection::Settings::default() };
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(Connection::connect(access.servers[0], &settings, connection::Limits::default()).await?);
        }
        let options = Options::within(WITHIN).consistency(Consistency::LocalQuorum).idempotent();
        Ok(BareConnections {
            connections,
            turn: AtomicUsize::new(0),
            put: Statement::new(PUT),
            get: Statement::new(GET),
            options,
        })
    }

    fn next(&self) -> &Connection {
        &self.connections[self.turn.fetch_add(1, Ordering::Relaxed) % self.connections.len()]
    }
}

impl Side for BareConnections {
    async fn put(&self, id: i32, n: i64) -> Result<()> {
        self.next().execute(&self.put, (id, n, n), &self.options).await?;
        Ok(())
    }

    async fn get(&self, id: i32) -> Result<()> {
        let rows = self.next().execute(&self.get, (id,), &self.options).await?.into_rows();
        std::hint::black_box(rows.first::<(i64,)>()?);
        Ok(())
    }
}

pub async fn pl_185_measure(access: &ClusterAccess, slice: Duration, reporter: &mut Reporter) -> Result<()> {
    let settings = |servers: &mut honeyflow_pool::Settings| {
        servers.mode = Mode::Exclusive;
        servers.connections_per_server = Some(CONNECTIONS);
    };
    let ours = Arc::new(Ours::open_with(access, settings).await?);
    let bare = Arc::new(BareConnections::open(access).await?);
    let begun = Instant::now();
    while ours.session.pool().status().open < CONNECTIONS && begun.elapsed() < WITHIN {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (mut of_ours, mut of_bare) = (Vec::new(), Vec::new());
    for run in 0..reporter.runs {
        for first in [run % 2 == 0, run % 2 == 1] {
            for operation in [Operation::Put, Operation::Get] {
                if first {
                    of_ours.push(load::run(&ours, operation, CONNECTIONS, slice).await?.per_second);
                } else {
                    of_bare.push(load::run(&bare, operation, CONNECTIONS, slice).await?.per_second);
                }
            }
        }
    }
    let peer = Some(("bare connections", of_bare));
    reporter.report(&Measurement { figure: FIGURE, unit: "1/s", better: Better::Higher, ours: of_ours, peer });
    Ok(())
}
