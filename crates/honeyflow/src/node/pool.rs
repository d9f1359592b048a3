//! The clusters that a node is connected to, each through one pool that all its sinks share.

use std::{collections::BTreeMap, sync::Arc};

use honeyflow_cassandra::Session;
use honeyflow_event::Name;
use honeyflow_pool::{Control, Drain};
use honeyflow_runtime::Failure;
use honeyflow_sink_cassandra::CassandraSink;

use super::source::OpenSource;
use crate::{
    config::{Config, SinkConfig, TableConfig},
    registry::cassandra,
};

#[derive(Default)]
pub struct Pools(BTreeMap<Name, Session>);

impl Pools {
    /// Those that sinks lie in. Nothing is waited for: servers may come later.
    pub fn open(config: &Config) -> Result<Pools, Failure> {
        let used = |name: &str| {
            config.sinks.iter().any(|sink| sink.table.as_ref().is_some_and(|table| *table.cluster == *name))
        };
        let used = config.clusters.iter().filter(|cluster| used(&cluster.name));
        let opened = used.map(|cluster| Ok((cluster.name.clone(), cassandra::connect(cluster)?)));
        opened.collect::<Result<_, Failure>>().map(Pools)
    }

    /// Refused if the table is not what it must be.
    pub async fn open_table(
        &self,
        config: &Config,
        sink: &SinkConfig,
        table: &TableConfig,
        sources: &[OpenSource],
    ) -> Result<CassandraSink, Failure> {
        let Some(session) = self.0.get(&table.cluster) else {
            return Err(Failure::fatal("unknown-cluster", format!("no [cassandra.{}]", table.cluster)));
        };
        let entities = config.entities_into(&sink.name);
        let bound = sources.iter().flat_map(|source| &source.bound).find(|bound| entities.contains(&bound.entity.name));
        let key = bound.map(|bound| bound.entity.key.as_slice());
        let options = cassandra::table_options(config, sink, table, key);
        CassandraSink::open(session.clone(), options).await.map_err(|failure| {
            let message = format!("[sink.{}]: {}; `honeyflow check` shows where", sink.name, failure.message);
            Failure { message, ..failure }
        })
    }

    /// To look at them, and to steer them.
    pub fn controls(&self) -> impl Iterator<Item = (Name, Arc<dyn Control>)> {
        self.0.iter().map(|(name, session)| (name.clone(), session.pool().control()))
    }

    /// What is under way may end; then no connection is left.
    pub async fn close(&self) {
        for session in self.0.values() {
            session.pool().control().close(Drain::as_configured()).await;
        }
    }
}
