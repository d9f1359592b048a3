//! `honeyflow hive accept-restore`: an operator confirms the state of a restored database. The nodes have seen a newer
//! state than the restored one, so no node holds a lease until an operator accepts it.

use honeyflow_hive::{Reply, Request};
use serde_json::json;

use super::{misplaced, open_all, shown};
use crate::cli::{Context, Fault, Outcome, block_on, confirm};

#[derive(clap::Args)]
pub struct Arguments {
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    block_on(async {
        let mut accepted = false;
        for hive in open_all(&config).await? {
            if hive.view().await?.head.hold.is_none() {
                continue;
            }
            let question = format!(
                "{}: its state is older than the state that the nodes have seen. Accepting it forgets the newer leases and events.",
                shown(&hive)
            );
            if !arguments.yes && !confirm(&question, context)? {
                return Ok(Outcome::Negative);
            }
            match hive.call(Request::AcceptRestore { cause: "by hand".into() }).await? {
                Reply::Done => accepted = true,
                // Another operator has just accepted it.
                Reply::Refused(_) => {}
                other => return Err(misplaced(&other).into()),
            }
            if context.output.is_json() {
                context.output.object(&json!({ "hive": shown(&hive), "accepted": true }))?;
            } else {
                context
                    .output
                    .note(&format!("{}: accepted; the nodes take leases again after one time-to-live", shown(&hive)));
            }
        }
        if !accepted {
            context.output.note("no restore is waiting to be accepted");
            return Ok(Outcome::Negative);
        }
        Ok(Outcome::Success)
    })?
}
