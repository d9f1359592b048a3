//! `honeyflow parked show`: shows one parked event with its error and the start of its payload.

use honeyflow_store::{Admin, AdminReply, admin::ParkedFilter};

use crate::{
    cli::{Context, Fault, Outcome, block_on, open, unexpected},
    config::units::bytes_text,
    escape,
};

#[derive(clap::Args)]
pub struct Arguments {
    /// Number of the event, as `parked list` shows it
    id: i64,
    /// Source, as in [source.NAME]; optional if there is only one
    #[arg(long)]
    source: Option<String>,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    let loaded = context.load()?;
    let (config, source) = crate::cli::source::install::select_source(&loaded, arguments.source.as_deref())?;
    let filter = ParkedFilter { id: Some(arguments.id), ..ParkedFilter::default() };
    let request = Admin::Parked { filter, after: 0, limit: 1 };
    let reply = block_on(async { open(config, source).await?.admin(request).await })??;
    let AdminReply::Parked(rows) = reply else { return Err(unexpected(&reply).into()) };
    let Some(row) = rows.first() else {
        context.output.note(&format!("source `{}` has no parked event {}", source.name, arguments.id));
        return Ok(Outcome::Negative);
    };
    if context.output.is_json() {
        context.output.object(row)?;
        return Ok(Outcome::Success);
    }
    let mut lines = vec![
        format!("{} {} of {}", row.entity, row.key, source.name),
        format!("workflow  {}", row.workflow.as_deref().unwrap_or("all")),
        format!("step      {} after {} attempts", row.step, row.attempts),
        format!("error     {} [{}, {}]", row.message, row.code, row.class),
        format!("payload   {}", bytes_text(row.payload_bytes)),
    ];
    lines.extend(row.payload_head.clone());
    context.output.print(&format!("{}\n", escape::lines(&lines.join("\n"))))?;
    Ok(Outcome::Success)
}
