//! `honeyflow parked show`

use honeyflow_store::{Admin, AdminReply, admin::ParkedFilter};

use crate::{
    cli::{Context, Done, Fault, block_on, open, unexpected},
    config::units::bytes_text,
    escape,
};

#[derive(clap::Args)]
pub struct Arguments {
    /// The number that `parked list` shows
    id: i64,
    /// The source, as in [source.NAME]; may be left out where there is only one
    #[arg(long)]
    source: Option<String>,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Done, Fault> {
    let loaded = context.load()?;
    let (config, source) = crate::cli::source::install::chosen(&loaded, arguments.source.as_deref())?;
    let filter = ParkedFilter { id: Some(arguments.id), ..ParkedFilter::default() };
    let request = Admin::Parked { filter, after: 0, limit: 1 };
    let reply = block_on(async { open(config, source).await?.admin(request).await })??;
    let AdminReply::Parked(rows) = reply else { return Err(unexpected(&reply).into()) };
    let Some(row) = rows.first() else {
        context.output.note(&format!("nothing is parked in `{}` under {}", source.name, arguments.id));
        return Ok(Done::Negative);
    };
    if context.output.is_json() {
        context.output.object(row)?;
        return Ok(Done::Well);
    }
    let mut lines = vec![
        format!("{} {} of {}", row.entity, row.key, source.name),
        format!("workflow  {}", row.workflow.as_deref().unwrap_or("all")),
        format!("step      {} after {} tries", row.step, row.attempts),
        format!("error     {} [{}, {}]", row.message, row.code, row.class),
        format!("payload   {}", bytes_text(row.payload_bytes)),
    ];
    lines.extend(row.payload_head.clone());
    context.output.print(&format!("{}\n", escape::lines(&lines.join("\n"))))?;
    Ok(Done::Well)
}
