//! `honeyflow hive accept-restore`: the database was restored, so what the nodes knew is ahead of it. Nobody leads until a
//! person says that the restored state is the right one.

use honeyflow_hive::{Reply, Request};
use serde_json::json;

use super::{misplaced, open_all, shown};
use crate::cli::{Context, Done, Fault, block_on, confirm};

#[derive(clap::Args)]
pub struct Arguments {
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Done, Fault> {
    let config = context.config()?;
    block_on(async {
        let mut accepted = false;
        for hive in open_all(&config).await? {
            if hive.view().await?.head.hold.is_none() {
                continue;
            }
            let question = format!(
                "{}: its state is older than what nodes have seen. What was led and done since is forgotten.",
                shown(&hive)
            );
            if !arguments.yes && !confirm(&question, context)? {
                return Ok(Done::Negative);
            }
            match hive.call(Request::AcceptRestore { cause: "by hand".into() }).await? {
                Reply::Done => accepted = true,
                // somebody else has just done it
                Reply::Refused(_) => {}
                other => return Err(misplaced(&other).into()),
            }
            if context.output.is_json() {
                context.output.object(&json!({ "hive": shown(&hive), "accepted": true }))?;
            } else {
                context.output.note(&format!("{}: accepted; nodes lead again after one time to live", shown(&hive)));
            }
        }
        if !accepted {
            context.output.note("nothing is held: no restore has been seen");
            return Ok(Done::Negative);
        }
        Ok(Done::Well)
    })?
}
