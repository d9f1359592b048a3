//! Periodic checks of a node, apart from events: pauses and requests of operators, and triggers that a migration has
//! dropped. Twice a day it also tells the stores which definition versions are in use, so that they are kept.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use honeyflow_engine::shell;
use honeyflow_event::Name;
use honeyflow_runtime::Failure;
use honeyflow_sink::Sink;
use honeyflow_store::{Admin, AdminReply};
use honeyflow_workflow::Graph;

use super::{
    cancel::Cancels, hive::Hives, operator_request, reindex::ask, source::OpenSource, verify, verify::Verification,
    versions,
};
use crate::registry::{self, BoundEntity};

/// A pause takes effect, and a dropped trigger is found, within twice this time.
const EVERY: Duration = Duration::from_secs(2);

/// A store deletes a version that no node has mentioned for a long time.
const NAME_VERSIONS_EVERY: Duration = Duration::from_secs(12 * 60 * 60);

pub struct Watch {
    pub sources: Arc<Vec<OpenSource>>,
    pub graphs: Vec<Arc<Graph>>,
    pub sinks: Vec<(Name, Arc<dyn Sink>)>,
    pub engine: shell::Handle,
    pub hives: Arc<Hives>,
}

impl Watch {
    pub async fn run(&self) -> Result<(), Failure> {
        let mut tick = tokio::time::interval(EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut named_at = Instant::now();
        let mut cancels = Cancels::default();
        loop {
            tick.tick().await;
            if named_at.elapsed() >= NAME_VERSIONS_EVERY {
                named_at = Instant::now();
                let workflows: Vec<_> = self.graphs.iter().map(|graph| (*graph.definition).clone()).collect();
                if let Err(failure) = versions::put(&workflows, &self.sources).await {
                    tracing::warn!(%failure, "could not tell the store which versions are in use");
                }
            }
            for source in self.sources.iter() {
                // The database may be busy or unreachable: try again in the next round.
                if let Err(failure) = self.check(source, &mut cancels).await {
                    tracing::debug!(source = %source.name, %failure, "could not check the source");
                }
            }
        }
    }

    async fn check(&self, source: &OpenSource, cancels: &mut Cancels) -> Result<(), Failure> {
        if let AdminReply::Paused(paused) = ask(&source.database.store, Admin::Paused).await? {
            for graph in self.graphs.iter().filter(|graph| graph.on.iter().any(|on| on.source == source.name)) {
                let is_paused = paused.iter().any(|pause| pause.noun == "workflow" && *pause.name == *graph.name);
                self.engine.pause(graph.name.clone(), is_paused).await;
            }
        }
        if let AdminReply::Tasks(tasks) = ask(&source.database.store, Admin::Tasks).await? {
            operator_request::carry_out_requests(&tasks, &source.database.store, &self.hives).await?;
            cancels.carry_out(tasks, source, &self.engine, &self.hives).await?;
        }
        // Only one node repairs triggers: the holder of the first shard.
        if !self.hives.holds(&source.name, 0) {
            return Ok(());
        }
        let drift = source.database.drift(source.capture()).await?;
        source.database.put_triggers_back(&source.name, &drift, source.capture()).await?;
        self.run_owed_comparisons(source).await
    }

    /// Compares documents and rows of tables whose triggers were missing for a while, to find the changes that made no
    /// event, including deleted rows.
    async fn run_owed_comparisons(&self, source: &OpenSource) -> Result<(), Failure> {
        for table in source.database.owed_comparisons().await? {
            source.database.begin_comparison(&table).await?;
            let touched = |other: &str| other.eq_ignore_ascii_case(&table);
            for bound in &source.bound {
                if touched(&bound.entity.table) || bound.entity.edges.iter().any(|edge| touched(&edge.table)) {
                    self.verify(source, bound).await?;
                }
            }
            source.database.comparison_done(&table).await?;
        }
        Ok(())
    }

    async fn verify(&self, source: &OpenSource, bound: &BoundEntity) -> Result<(), Failure> {
        let entity = &bound.entity.name;
        let fed = |graph: &&Arc<Graph>| graph.on.iter().any(|on| on.entity == *entity) && verify::is_possible(graph);
        for graph in self.graphs.iter().filter(fed) {
            let into = graph.steps.iter().find_map(|step| step.settings.get("into")?.as_str());
            let Some((_, sink)) = self.sinks.iter().find(|(name, _)| Some(&**name) == into) else { continue };
            let verification = Verification { store: &source.database.store, bound, sink: &**sink, graph };
            let mut verified = verification.run(|_| {}).await?;
            let repairs = verification.queue_repairs(&mut verified).await?;
            tracing::warn!(%entity, missed = repairs.len(), "verified, because changes may have been missed");
            if verified.unreadable > 0 {
                tracing::warn!(%entity, unreadable = verified.unreadable, "rows of this entity give no document");
            }
            if verified.held > 0 {
                tracing::error!(
                    %entity,
                    "{} documents no longer have a row, without a delete event; they are kept until `honeyflow source confirm {} {entity}`",
                    verified.held,
                    source.name
                );
            }
        }
        self.warn_of_missed(entity);
        Ok(())
    }

    /// Names the workflows that have no documents to compare: changes that made no event did not run them.
    fn warn_of_missed(&self, entity: &Name) {
        let kinds = registry::kinds();
        let runs = |graph: &&Arc<Graph>| graph.on.iter().any(|on| on.entity == *entity);
        let graphs = self.graphs.iter().filter(runs).filter(|graph| !graph.definition.has_sink(&kinds));
        let workflows: Vec<&Name> = graphs.map(|graph| &graph.name).collect();
        if !workflows.is_empty() {
            tracing::warn!(
                %entity,
                ?workflows,
                "these workflows write no documents, so missed changes cannot be found: they did not run for them"
            );
        }
    }
}
