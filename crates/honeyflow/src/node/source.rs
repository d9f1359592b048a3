//! An opened source: its database and the entities that were checked against it.

use std::{path::Path, sync::Arc};

use honeyflow_event::Name;
use honeyflow_runtime::Failure;
use honeyflow_source_outbox::{Entity, OutboxSource, capture_tables};
use honeyflow_store::{CaptureTable, Statement};

use crate::{
    codes,
    config::{Config, SourceConfig},
    registry::{self, BoundEntity, Database, Installation},
};

pub struct OpenSource {
    pub name: Name,
    pub database: Database,
    pub bound: Vec<BoundEntity>,
    /// The entities that have messages only.
    pub messages: Vec<Name>,
}

impl OpenSource {
    /// Opens the source. If entities do not fit the database, the failure lists all problems at once.
    pub async fn open(config: &Config, source: &SourceConfig) -> Result<OpenSource, Failure> {
        let database = Database::open(source, config.file.parent().unwrap_or(Path::new(""))).await?;
        let entities: Vec<_> = config.entities_of(&source.name).collect();
        let (bound, problems) = registry::bind(&database, &entities).await;
        if !problems.is_empty() {
            let messages: Vec<String> =
                problems.iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect();
            let message = format!("{}; `honeyflow check` shows where", messages.join("\n"));
            return Err(Failure::fatal(codes::DOES_NOT_FIT, message));
        }
        let messages = config.messages_of(&source.name).cloned().collect();
        Ok(OpenSource { name: source.name.clone(), database, bound, messages })
    }

    pub fn entities(&self) -> Vec<Entity> {
        self.bound.iter().map(|bound| bound.entity.clone()).collect()
    }

    pub fn entity(&self, name: &str) -> Option<&BoundEntity> {
        self.bound.iter().find(|bound| &*bound.entity.name == name)
    }

    pub fn document(&self, entity: &str) -> Option<&Arc<Statement>> {
        self.entity(entity).map(|bound| &bound.document)
    }

    /// The intake of the source's events.
    pub fn outbox(&self, shards: u16) -> OutboxSource {
        OutboxSource::new(self.database.store.clone(), &self.entities(), &self.messages).sharded(shards)
    }

    pub fn capture(&self) -> Vec<CaptureTable> {
        capture_tables(&self.entities())
    }

    /// The id of the installation.
    pub async fn install_id(&self) -> Result<String, Failure> {
        self.installed().await.map(|installed| installed.install_id.to_string())
    }

    async fn installed(&self) -> Result<Installation, Failure> {
        match self.database.installed().await? {
            Some(installed) => Ok(installed),
            None => Err(Failure::fatal(
                codes::NOT_INSTALLED,
                format!("source {} is not installed: run `honeyflow source install`, or start with --yes", self.name),
            )),
        }
    }
}

/// Returns the installation of each source.
///
/// # Errors
/// If the configuration has another number: rows would be read twice or never.
pub async fn installations(config: &Config, sources: &[OpenSource]) -> Result<Vec<Installation>, Failure> {
    let mut installations = Vec::new();
    for (source, configured) in sources.iter().zip(&config.sources) {
        let installed = source.installed().await?;
        let shards = installed.shards;
        if configured.shards_written && configured.shards != shards {
            let (name, wanted) = (&source.name, configured.shards);
            let message = format!(
                "source.{name}.shards: the source was installed with {shards} shards, the configuration says {wanted}; \
                 write shards = {shards}, or remove the key"
            );
            return Err(Failure::fatal(codes::SHARD_COUNT, message));
        }
        installations.push(installed);
    }
    Ok(installations)
}
