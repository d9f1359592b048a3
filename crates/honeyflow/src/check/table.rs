//! Checks the Cassandra tables that sinks write to: whether they exist, have the right columns and types, and accept
//! the first rows of the entity.

use std::{sync::Arc, time::Duration};

use honeyflow_store::{Admin, AdminReply, Load, LoadResult, Reply, Request, Store};
use honeyflow_workflow::Problem;
use serde_json::Value;

use crate::{
    config::{Config, SinkConfig, sinks_of},
    registry::{BoundEntity, Database, cassandra},
};

/// Number of rows that are compared with the table's columns.
const ROWS: u32 = 100;
const WITHIN: Duration = Duration::from_secs(30);

pub async fn check_tables(config: &Config, database: &Database, bound: &[BoundEntity], problems: &mut Vec<Problem>) {
    // Without the password, which has been reported, the cluster refuses every connection.
    let can_log_in =
        |name: &str| config.cluster(name).is_none_or(|cluster| cluster.cql.unreadable_password().is_none());
    let is_reachable = |sink: &&SinkConfig| sink.table.as_ref().is_some_and(|table| can_log_in(&table.cluster));
    for sink in config.sinks.iter().filter(is_reachable) {
        let entities = config.entities_into(&sink.name);
        let Some(bound) = bound.iter().find(|bound| entities.contains(&bound.entity.name)) else { continue };
        // A step between load and sink may change the row, so its documents cannot be checked here.
        let straight =
            config.workflows.iter().filter(|workflow| sinks_of(workflow).any(|(_, into)| into == &*sink.name));
        let straight = straight.clone().count() > 0 && straight.into_iter().all(|workflow| workflow.steps.len() == 2);
        let documents = if straight { first_documents(database, bound).await.unwrap_or_default() } else { Vec::new() };
        problems.extend(cassandra::problems(config, sink, &bound.entity.key, &documents).await);
    }
}

async fn first_documents(database: &Database, bound: &BoundEntity) -> Option<Vec<Arc<Value>>> {
    let entity = &bound.entity;
    let keys = Admin::TableKeys { table: entity.table.clone(), key: entity.key.clone(), after: None, limit: ROWS };
    let AdminReply::Keys(keys) = database.admin(keys).await.ok()? else { return None };
    let load = Load { statement: bound.document.clone(), keys, expand: None, timeout: WITHIN };
    let Reply::Loaded(loaded) = database.store.call(Request::Load(load)).await.ok()? else { return None };
    let documents = loaded.into_iter().filter_map(|loaded| match loaded {
        LoadResult::Document(document) => document,
        LoadResult::Rejected(_) => None,
    });
    Some(documents.collect())
}
