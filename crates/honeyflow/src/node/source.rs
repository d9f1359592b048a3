//! A source, opened and held against its database: what a node needs of it.

use std::{path::Path, sync::Arc};

use honeyflow_event::Name;
use honeyflow_runtime::Failure;
use honeyflow_source_outbox::{Entity, capture_tables};
use honeyflow_store::{CaptureTable, Statement};

use crate::{
    config::{Config, SourceConfig},
    registry::{self, Bound, Database, Installed},
};

pub struct OpenSource {
    pub name: Name,
    pub database: Database,
    pub bound: Vec<Bound>,
}

impl OpenSource {
    /// Everything that does not fit is said at once.
    pub async fn open(config: &Config, source: &SourceConfig) -> Result<OpenSource, Failure> {
        let database = Database::open(source, config.file.parent().unwrap_or(Path::new(""))).await?;
        let entities: Vec<_> = config.entities_of(&source.name).collect();
        let (bound, problems) = registry::bind(&database, &entities).await;
        if !problems.is_empty() {
            let said: Vec<String> =
                problems.iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect();
            let message = format!("{}; `honeyflow check` shows where", said.join("\n"));
            return Err(Failure::fatal("does-not-fit", message));
        }
        Ok(OpenSource { name: source.name.clone(), database, bound })
    }

    pub fn entities(&self) -> Vec<Entity> {
        self.bound.iter().map(|bound| bound.entity.clone()).collect()
    }

    pub fn entity(&self, name: &str) -> Option<&Bound> {
        self.bound.iter().find(|bound| &*bound.entity.name == name)
    }

    pub fn document(&self, entity: &str) -> Option<&Arc<Statement>> {
        self.entity(entity).map(|bound| &bound.document)
    }

    pub fn capture(&self) -> Vec<CaptureTable> {
        capture_tables(&self.entities())
    }

    /// The identity of the installation.
    pub async fn install_id(&self) -> Result<String, Failure> {
        self.installed().await.map(|installed| installed.install_id.to_string())
    }

    async fn installed(&self) -> Result<Installed, Failure> {
        match self.database.installed().await? {
            Some(installed) => Ok(installed),
            None => Err(Failure::fatal(
                "not-installed",
                format!("source {} is not installed: run `honeyflow source install`, or start with --yes", self.name),
            )),
        }
    }
}

/// By source: how many there are, as the installation has made them.
///
/// # Errors
/// If the configuration says otherwise: rows would be read twice or never.
pub async fn shards(config: &Config, sources: &[OpenSource]) -> Result<Vec<u16>, Failure> {
    let mut counts = Vec::new();
    for (source, configured) in sources.iter().zip(&config.sources) {
        let Installed { shards, .. } = source.installed().await?;
        if configured.shards_written && configured.shards != shards {
            let (name, wanted) = (&source.name, configured.shards);
            let message = format!(
                "source.{name}.shards: the source was installed with {shards} shards, the configuration says {wanted}; \
                 write shards = {shards}, or leave it out"
            );
            return Err(Failure::fatal("shard-count", message));
        }
        counts.push(shards);
    }
    Ok(counts)
}
