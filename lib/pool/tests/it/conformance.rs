//! Runs the suite of all connectors in both modes: on the cluster in memory, and on the line protocol over sockets.

use honeyflow_pool::{Loan, Pool, Server, Settings, SettingsError, testing::Rig};

use crate::{
    lines::{self, Line, LineError, Lines},
    node::Node,
};

struct OverSockets<const STREAMS: u32>(Vec<Node>);

impl<const STREAMS: u32> Rig for OverSockets<STREAMS> {
    type Connector = Lines;

    async fn start(servers: usize) -> Self {
        let mut nodes = Vec::new();
        for _ in 0..servers {
            nodes.push(Node::start().await);
        }
        Self(nodes)
    }

    fn pool(&self, settings: Settings) -> Result<Pool<Lines>, SettingsError> {
        Pool::start(Lines::shared(STREAMS), settings)
    }

    fn server(&self, at: usize) -> Server {
        Server::at(self.0[at].address())
    }

    async fn ask(loan: Loan<Lines>) -> Result<(), LineError> {
        lines::ask(loan, "x").await.map(drop)
    }

    async fn hang(loan: Loan<Lines>) -> Result<(), LineError> {
        lines::ask(loan, "hang").await.map(drop)
    }

    async fn refuse(loan: Loan<Lines>) -> Result<(), LineError> {
        lines::ask(loan, "!").await.map(drop)
    }

    async fn ask_once(on: &Line) -> Result<(), LineError> {
        on.ask("x").await.map(drop)
    }

    async fn stop(&self, at: usize) {
        self.0[at].stop().await;
    }

    async fn restart(&self, at: usize) {
        self.0[at].restart().await;
    }

    fn tell(&self, cluster: &[usize]) {
        let cluster: Vec<Server> = cluster.iter().map(|at| self.0[*at].server(&format!("server-{at}"))).collect();
        self.0.iter().for_each(|node| node.knows(&cluster));
    }

    fn silence(&self, at: usize, silent: bool) {
        self.0[at].mute(silent);
        self.0[at].pause(silent);
    }

    fn open(&self, at: usize) -> usize {
        self.0[at].open()
    }

    fn accepted(&self, at: usize) -> usize {
        self.0[at].accepted()
    }
}

mod exclusive_lines {
    honeyflow_pool::conformance!(super::OverSockets<1>);
}

mod shared_lines {
    honeyflow_pool::conformance!(super::OverSockets<16>);
}

mod exclusive {
    honeyflow_pool::conformance!(honeyflow_pool::testing::memory::Exclusive, start_paused = true);
}

mod shared {
    honeyflow_pool::conformance!(honeyflow_pool::testing::memory::Shared, start_paused = true);
}

/// PL-143: a behaviour that the macro does not list would never run.
#[test]
fn pl_143_the_whole_suite_is_run() {
    let (suite, macros) = (include_str!("../../src/testing/suite.rs"), include_str!("../../src/testing.rs"));
    let behaviours: Vec<&str> =
        suite.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split('<').next()).collect();
    assert!(behaviours.len() >= 12, "{behaviours:?}");
    for name in behaviours {
        assert!(macros.lines().any(|line| line.trim() == name), "{name} is not run");
    }
}
