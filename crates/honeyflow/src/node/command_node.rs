//! The node that processes work for a command such as `reindex`: the node that already runs on this data folder, or a
//! temporary one that is started for the command.

use std::time::Duration;

use honeyflow_runtime::Failure;

use super::{
    Node, Options, Running, data,
    generation::{self, Phase, Progress},
    source::OpenSource,
    surface,
};
use crate::{codes, config::Config};

const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A temporary node of this command, or none if a node is already running.
pub struct CommandNode(Option<(Node, Running)>);

impl CommandNode {
    pub async fn begin(config: &Config) -> Result<CommandNode, Failure> {
        if data::is_in_use(&config.node.data) {
            return Ok(CommandNode(None));
        }
        let listener = surface::bind(([127, 0, 0, 1], 0).into())?;
        let options = Options { address: listener.local_addr().ok(), ..Options::default() };
        let (node, service) = Node::open(config, &options).await?;
        let running = node.run(config, service, listener)?;
        Ok(CommandNode(Some((node, running))))
    }

    /// Returns once the temporary node has ended by itself, with the failure for that.
    pub async fn ended(&self) -> Failure {
        loop {
            if let Err(failure) = self.sleep_or_fail().await {
                return failure;
            }
        }
    }

    /// Sleeps until the next check. Fails if the temporary node has ended.
    async fn sleep_or_fail(&self) -> Result<(), Failure> {
        if self.0.as_ref().is_some_and(|(_, running)| running.is_finished()) {
            return Err(Failure::fatal(codes::NODE_ENDED, "the node started for this work has ended"));
        }
        tokio::time::sleep(LOOK_EVERY).await;
        Ok(())
    }

    /// Waits until the generation that was requested with this word is served or given up.
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
                        format!("gave up the next generation of {sink}, the current one is still served: {why}");
                    return Err(Failure::reject(codes::NOT_BUILT, message));
                }
                _ => progress(&found),
            }
            self.sleep_or_fail().await?;
        }
    }

    pub async fn end(self, config: &Config) {
        if let Some((node, mut running)) = self.0 {
            node.drain(&mut running, config.node.drain).await;
        }
    }
}
