//! The connection pools of a node: one for each Cassandra cluster, shared by all sinks of the cluster.

use std::{collections::BTreeMap, sync::Arc};

use honeyflow_cassandra::Session;
use honeyflow_event::Name;
use honeyflow_pool::{Control, Drain};
use honeyflow_runtime::Failure;
use honeyflow_sink_cassandra::CassandraSink;

use super::source::OpenSource;
use crate::{
    codes,
    config::{CassandraConfig, Config, SinkConfig, TableConfig},
    registry::cassandra,
};

#[derive(Default)]
pub struct Pools(BTreeMap<Name, Session>);

/// The clusters that a sink uses.
pub fn clusters(config: &Config) -> impl Iterator<Item = &CassandraConfig> {
    let used =
        |name: &str| config.sinks.iter().any(|sink| sink.table.as_ref().is_some_and(|table| *table.cluster == *name));
    config.clusters.iter().filter(move |cluster| used(&cluster.name))
}

impl Pools {
    /// Opens a pool for each cluster that a sink uses. It does not wait for connections: servers may start later.
    pub fn open(config: &Config) -> Result<Pools, Failure> {
        let opened = clusters(config).map(|cluster| Ok((cluster.name.clone(), cassandra::connect(cluster)?)));
        opened.collect::<Result<_, Failure>>().map(Pools)
    }

    /// Opens the sink of a table. Fails if the table does not fit.
    pub async fn open_table<'a>(
        &self,
        config: &Config,
        sink: &SinkConfig,
        table: &TableConfig,
        mut sources: impl Iterator<Item = &'a OpenSource>,
    ) -> Result<CassandraSink, Failure> {
        let Some(session) = self.0.get(&table.cluster) else {
            return Err(Failure::fatal(codes::UNKNOWN_CLUSTER, format!("no [cassandra.{}]", table.cluster)));
        };
        let entities = config.entities_into(&sink.name);
        let bound = sources.find_map(|source| source.bound.iter().find(|bound| entities.contains(&bound.entity.name)));
        let key = bound.map(|bound| bound.entity.key.as_slice());
        let options = cassandra::table_options(config, sink, table, key);
        CassandraSink::open(session.clone(), options).await.map_err(|failure| {
            let message = format!("[sink.{}]: {}; `honeyflow check` shows where", sink.name, failure.message);
            Failure { message, ..failure }
        })
    }

    /// The handles to inspect and control the pools.
    pub fn controls(&self) -> impl Iterator<Item = (Name, Arc<dyn Control>)> {
        self.0.iter().map(|(name, session)| (name.clone(), session.pool().control()))
    }

    /// Waits for the requests in flight, then closes all connections.
    pub async fn close(&self) {
        for session in self.0.values() {
            session.pool().control().close(Drain::as_configured()).await;
        }
    }
}
