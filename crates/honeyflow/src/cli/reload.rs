//! Watches the configuration file for changes. A changed file with errors is reported once and ignored; the node keeps
//! the last valid configuration.

use std::time::Duration;

use honeyflow_runtime::Failure;
use honeyflow_sink_tantivy::TantivySink;
use tokio::signal::unix::Signal;

use super::Context;
use crate::{
    config::{self, Config},
    node::{self, preflight, rebuild, secrets, shape},
    registry,
};

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Returns the new configuration once the file has changed and is valid. SIGHUP makes it read the file immediately.
pub async fn changed(current: &Config, context: &Context, hang_up: &mut Signal) -> Config {
    let mut seen = std::fs::read_to_string(&context.file).unwrap_or_default();
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            _ = hang_up.recv() => tracing::info!("SIGHUP: reading the configuration"),
        }
        // An editor may remove the file for a moment while it saves: keep the last valid configuration.
        let Ok(text) = std::fs::read_to_string(&context.file) else { continue };
        if text == seen {
            continue;
        }
        seen.clone_from(&text);
        match accept(current, context, text).await {
            Ok(next) => return next,
            Err(why) => tracing::error!("ignored the changed configuration, the last valid one stays in use:\n{why}"),
        }
    }
}

async fn accept(current: &Config, context: &Context, text: String) -> Result<Config, String> {
    let loaded = config::parse(&context.file, text, &registry::kinds()).map_err(|report| report.text(false))?;
    let unreadable = loaded.config.iter().flat_map(secrets::unreadable).map(|secret| secret.error()).collect();
    let report = loaded.report(unreadable);
    let next = loaded.config.filter(|_| report.errors() == 0).ok_or_else(|| report.text(false))?;
    if next.node.data != current.node.data || next.node.listen != current.node.listen {
        return Err("changing [node] data or listen needs a restart".to_owned());
    }
    check_start(&next).await.map_err(|failure| failure.message)?;
    Ok(next)
}

/// Does everything that could fail at a start, before the running node is stopped.
async fn check_start(next: &Config) -> Result<(), Failure> {
    for sink in next.indexes() {
        let options = registry::sink_options(sink, &next.node)?;
        if shape::feeds(next, &sink.name).is_none() && TantivySink::looks_outdated(&options)? {
            return Err(node::cannot_be_rebuilt(&sink.name));
        }
    }
    if let Some(outdated) = rebuild::outdated(next).into_iter().next() {
        let feeds = rebuild::feeds_of(next, std::slice::from_ref(&outdated));
        let entity = feeds.first().map_or("ENTITY", |(entity, _)| entity);
        let message =
            format!("{}: stop the node, run `honeyflow reindex {entity}`, then start it again", outdated.why.message);
        return Err(Failure { message, ..outdated.why });
    }
    preflight::look(next).await.map(drop)
}
