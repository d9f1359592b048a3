//! `honeyflow run replay`: a parked key becomes an event again, with all its tries; checkpoints that were kept are used.

use honeyflow_store::{Admin, AdminReply, admin::ParkedFilter};

use crate::cli::{Context, Done, Fault, block_on, open};

#[derive(clap::Args)]
pub struct Arguments {
    workflow: String,
    entity: String,
    key: String,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Done, Fault> {
    let config = context.config()?;
    let filter = ParkedFilter {
        workflow: Some(arguments.workflow.as_str().into()),
        entity: Some(arguments.entity.as_str().into()),
        key: Some(arguments.key.as_str().into()),
        ..ParkedFilter::default()
    };
    let mut replayed = 0;
    for source in &config.sources {
        let retry = Admin::RetryParked(filter.clone());
        let answer = block_on(async { open(&config, source).await?.admin(retry).await })??;
        if let AdminReply::Count(count) = answer {
            replayed += count;
        }
    }
    if replayed == 0 {
        context.output.note("nothing of this key is parked for this workflow; `honeyflow parked list` shows what is");
        return Ok(Done::Negative);
    }
    context.output.note(&format!("{replayed} replayed"));
    Ok(Done::Well)
}
