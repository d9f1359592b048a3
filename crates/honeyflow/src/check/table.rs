//! Tables of clusters, held against what is written into them: whether they are there, have the columns and types that
//! are wanted, and take the first rows of the entity.

use std::{sync::Arc, time::Duration};

use honeyflow_store::{Admin, AdminReply, Load, Loaded, Reply, Request, Store};
use honeyflow_workflow::Problem;
use serde_json::Value;

use crate::{
    config::{Config, sinks_of},
    registry::{Bound, Database, cassandra},
};

/// Rows that are tried on the table.
const ROWS: u32 = 100;
const WITHIN: Duration = Duration::from_secs(30);

pub async fn look_at_tables(config: &Config, database: &Database, bound: &[Bound], problems: &mut Vec<Problem>) {
    for sink in config.sinks.iter().filter(|sink| sink.table.is_some()) {
        let entities = config.entities_into(&sink.name);
        let Some(bound) = bound.iter().find(|bound| entities.contains(&bound.entity.name)) else { continue };
        // what a step in between makes of a row cannot be told here
        let straight =
            config.workflows.iter().filter(|workflow| sinks_of(workflow).any(|(_, into)| into == &*sink.name));
        let straight = straight.clone().count() > 0 && straight.into_iter().all(|workflow| workflow.steps.len() == 2);
        let documents = if straight { first_documents(database, bound).await.unwrap_or_default() } else { Vec::new() };
        problems.extend(cassandra::problems(config, sink, &bound.entity.key, &documents).await);
    }
}

async fn first_documents(database: &Database, bound: &Bound) -> Option<Vec<Arc<Value>>> {
    let entity = &bound.entity;
    let keys = Admin::TableKeys { table: entity.table.clone(), key: entity.key.clone(), after: None, limit: ROWS };
    let AdminReply::Keys(keys) = database.admin(keys).await.ok()? else { return None };
    let load = Load { statement: bound.document.clone(), keys, expand: None, timeout: WITHIN };
    let Reply::Loaded(loaded) = database.store.call(Request::Load(load)).await.ok()? else { return None };
    let documents = loaded.into_iter().filter_map(|loaded| match loaded {
        Loaded::Document(document) => document,
        Loaded::Rejected(_) => None,
    });
    Some(documents.collect())
}
