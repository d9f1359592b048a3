//! One request at a time on each connection: what the pool costs against three bare connections that are used in turn.

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
    load::{self, What},
    side::{GET, Ours, PUT, Place, Side, WITHIN},
};
use crate::{
    Result,
    figure::{Better, Measured, Reporter},
};

pub const FIGURE: &str = "exclusive-throughput";
const CONNECTIONS: u32 = 3;

struct Bare {
    connections: Vec<Connection>,
    turn: AtomicUsize,
    put: Statement,
    get: Statement,
    how: Options,
}

impl Bare {
    async fn open(place: &Place) -> Result<Bare> {
        let settings = connection::Settings { versions: Ours::VERSIONS, ..connection::Settings::default() };
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(Connection::connect(place.servers[0], &settings, connection::Limits::default()).await?);
        }
        let how = Options::within(WITHIN).consistency(Consistency::LocalQuorum).idempotent();
        Ok(Bare { connections, turn: AtomicUsize::new(0), put: Statement::new(PUT), get: Statement::new(GET), how })
    }

    fn next(&self) -> &Connection {
        &self.connections[self.turn.fetch_add(1, Ordering::Relaxed) % self.connections.len()]
    }
}

impl Side for Bare {
    async fn put(&self, id: i32, n: i64) -> Result<()> {
        self.next().execute(&self.put, (id, n, n), &self.how).await?;
        Ok(())
    }

    async fn get(&self, id: i32) -> Result<()> {
        let rows = self.next().execute(&self.get, (id,), &self.how).await?.into_rows();
        std::hint::black_box(rows.first::<(i64,)>()?);
        Ok(())
    }
}

pub async fn pl_185_measure(place: &Place, slice: Duration, reporter: &mut Reporter) -> Result<()> {
    let settings = |servers: &mut honeyflow_pool::Settings| {
        servers.mode = Mode::Exclusive;
        servers.connections_per_server = Some(CONNECTIONS);
    };
    let ours = Arc::new(Ours::open_with(place, settings).await?);
    let bare = Arc::new(Bare::open(place).await?);
    let begun = Instant::now();
    while ours.session.pool().status().open < CONNECTIONS && begun.elapsed() < WITHIN {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (mut of_ours, mut of_bare) = (Vec::new(), Vec::new());
    for run in 0..reporter.runs {
        for first in [run % 2 == 0, run % 2 == 1] {
            for what in [What::Put, What::Get] {
                if first {
                    of_ours.push(load::run(&ours, what, CONNECTIONS, slice).await?.per_second);
                } else {
                    of_bare.push(load::run(&bare, what, CONNECTIONS, slice).await?.per_second);
                }
            }
        }
    }
    let peer = Some(("bare connections", of_bare));
    reporter.report(&Measured { figure: FIGURE, unit: "1/s", better: Better::Higher, ours: of_ours, peer });
    Ok(())
}
