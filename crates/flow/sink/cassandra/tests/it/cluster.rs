//! The keyspace of these tests on the shared server, with one table per test.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use honeyflow_cassandra::{
    Rows, Session,
    connection::{Password, Secret, Settings},
};
use honeyflow_conformance::sink::Backend;
use honeyflow_event::{Epoch, Stamp};
use honeyflow_sink::Sink;
use honeyflow_sink_cassandra::{CassandraSink, KeyKind, KeyPart, Options};

const KEYSPACE: &str = "honeyflow_sink";
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Cluster {
    pub session: Session,
}

pub fn stamp(epoch: u64, sequence: u32) -> Stamp {
    Stamp::new(Epoch(epoch), sequence)
}

pub fn part(name: &str, kind: KeyKind) -> KeyPart {
    KeyPart { name: name.to_owned(), kind: Some(kind) }
}

impl Cluster {
    /// Returns `None`, and prints that the test is skipped, if there is no server.
    pub async fn join() -> Option<Cluster> {
        let url = honeyflow_services::cassandra()?.url;
        let (login, place) = url.strip_prefix("cassandra://")?.split_once('@')?;
        let (user, password) = login.split_once(':')?;
        let login = Password { user: user.to_owned(), password: Secret::Plain(password.to_owned()) };
        let settings = Settings { login: Some(Arc::new(login)), ..Settings::default() };
        let servers = vec![place.trim_end_matches('/').to_owned()];
        let servers = honeyflow_pool::Settings { servers, discovery: false, ..Default::default() };
        let cluster = Cluster { session: Session::open(settings, servers).expect("settings") };
        let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
        cluster.run(&format!("CREATE KEYSPACE IF NOT EXISTS {KEYSPACE} WITH replication = {replication}")).await;
        Some(cluster)
    }

    pub async fn run(&self, text: &str) -> Rows {
        let how = honeyflow_cassandra::Options::within(PATIENCE);
        let answer = self.session.query(text, &how).await;
        answer.unwrap_or_else(|error| panic!("{text}: {error}: {:?}", error.cause)).into_rows()
    }

    /// Creates a table with these columns and returns its name.
    pub async fn table(&self, columns: &str) -> String {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("t_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        self.run(&format!("CREATE TABLE {KEYSPACE}.{name} ({columns})")).await;
        name
    }

    pub fn options(&self, table: &str, key: Vec<KeyPart>) -> Options {
        Options { deadline: PATIENCE, ..Options::new(KEYSPACE, table, key) }
    }
}

/// A table that stores whole documents under a key of one text column.
pub struct WholeDocuments {
    cluster: Cluster,
    table: String,
}

impl WholeDocuments {
    pub async fn new() -> Option<WholeDocuments> {
        let cluster = Cluster::join().await?;
        let table = cluster.table("key text PRIMARY KEY, document text, honeyflow_version bigint").await;
        Some(WholeDocuments { cluster, table })
    }
}

impl Backend for WholeDocuments {
    fn open(&self) -> Arc<dyn Sink> {
        let options = self.cluster.options(&self.table, vec![part("key", KeyKind::Text)]);
        let options = Options { document: Some("document".to_owned()), ..options };
        Arc::new(CassandraSink::new(self.cluster.session.clone(), options))
    }

    /// False: Cassandra refuses an empty partition key.
    fn takes_empty_key(&self) -> bool {
        false
    }
}
