//! Work asked for on the command line: done by the node that runs here, or by one that is started for it alone.

use std::time::Duration;

use honeyflow_runtime::Failure;
use honeyflow_store::{Admin, AdminReply};

use super::{
    Node, Options, Running, data,
    generation::{self, Phase, Progress},
    reindex::ask,
    source::OpenSource,
    surface,
};
use crate::config::Config;

const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Whoever does the work: a node of our own, or (none) the one that runs already.
pub struct Worker(Option<(Node, Running)>);

impl Worker {
    pub async fn begin(config: &Config) -> Result<Worker, Failure> {
        if data::is_in_use(&config.node.data) {
            return Ok(Worker(None));
        }
        let listener = surface::bind(([127, 0, 0, 1], 0).into())?;
        let options = Options { address: listener.local_addr().ok(), ..Options::default() };
        let (node, service) = Node::open(config, &options).await?;
        let running = node.run(config, service, listener)?;
        Ok(Worker(Some((node, running))))
    }

    /// Returns once nothing is waiting in the source, then lets the node go; `progress` hears how much is left.
    pub async fn finish(self, config: &Config, source: &OpenSource, progress: impl FnMut(u64)) -> Result<(), Failure> {
        self.until_idle(source, progress).await?;
        self.end(config).await;
        Ok(())
    }

    pub async fn until_idle(&self, source: &OpenSource, mut progress: impl FnMut(u64)) -> Result<(), Failure> {
        loop {
            let AdminReply::Lag(lag) = ask(&source.database.store, Admin::Lag).await? else { break };
            // What is scheduled for later is not waited for.
            let left = lag.waiting;
            progress(left);
            if left == 0 {
                break;
            }
            self.pause().await?;
        }
        Ok(())
    }

    /// Between two looks; ends with an error if nobody works any more.
    async fn pause(&self) -> Result<(), Failure> {
        if self.0.as_ref().is_some_and(|(_, running)| running.is_finished()) {
            return Err(Failure::fatal("node-ended", "the node started for this work has ended"));
        }
        tokio::time::sleep(LOOK_EVERY).await;
        Ok(())
    }

    /// Returns once the generation that was asked for by this word is served, or given up.
    pub async fn until_built(
        &self,
        source: &OpenSource,
        sink: &str,
        word: &str,
        mut progress: impl FnMut(&Progress),
    ) -> Result<Progress, Failure> {
        loop {
            let found = generation::progress(&source.database.store, sink).await?;
            let is_ours = found.asked.as_deref() == Some(word);
            match found.phase {
                Phase::Served if is_ours => return Ok(found),
                Phase::GivenUp if is_ours => {
                    let why = found.failure.as_deref().unwrap_or("unknown");
                    let message =
                        format!("the next generation of {sink} was given up, the old one is still served: {why}");
                    return Err(Failure::reject("not-built", message));
                }
                _ => progress(&found),
            }
            self.pause().await?;
        }
    }

    pub async fn end(self, config: &Config) {
        if let Some((node, mut running)) = self.0 {
            node.drain(&mut running, config.node.drain).await;
        }
    }
}
