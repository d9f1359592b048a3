//! `honeyflow parked …`: events set aside with their error, until an operator retries or drops them, or a newer event
//! of the key heals them.

pub mod list;
pub mod retry_drop;
pub mod show;

use honeyflow_store::admin::ParkedFilter;

use super::{Context, Fault, Outcome, no_such};
use crate::config::{Config, SourceConfig};

#[derive(clap::Subcommand)]
pub enum Verb {
    /// List parked events
    List(list::Arguments),
    /// Show one parked event with its error and the start of its payload
    Show(show::Arguments),
    /// Retry parked events, with the attempt counter reset
    Retry(retry_drop::Arguments),
    /// Delete parked events permanently
    Drop(retry_drop::Arguments),
}

pub fn run(verb: &Verb, context: &Context) -> Result<Outcome, Fault> {
    match verb {
        Verb::List(arguments) => list::run(arguments, context),
        Verb::Show(arguments) => show::run(arguments, context),
        Verb::Retry(arguments) => retry_drop::run(arguments, retry_drop::Action::Retry, context),
        Verb::Drop(arguments) => retry_drop::run(arguments, retry_drop::Action::Drop, context),
    }
}

/// The options that select parked events.
#[derive(clap::Args, Default)]
pub struct Filter {
    /// Select only this source
    #[arg(long)]
    source: Option<String>,
    /// Select only this entity
    #[arg(long)]
    entity: Option<String>,
    /// Select only this key
    #[arg(long)]
    key: Option<String>,
    /// Select only this workflow
    #[arg(long)]
    workflow: Option<String>,
    /// Select only this error code
    #[arg(long)]
    code: Option<String>,
}

impl Filter {
    pub fn is_empty(&self) -> bool {
        [&self.entity, &self.key, &self.workflow, &self.code].iter().all(|part| part.is_none())
    }

    pub fn parked(&self, id: Option<i64>) -> ParkedFilter {
        ParkedFilter {
            id,
            tenant: None,
            entity: self.entity.as_deref().map(Into::into),
            key: self.key.as_deref().map(Into::into),
            workflow: self.workflow.as_deref().map(Into::into),
            code: self.code.clone(),
        }
    }

    /// The sources that the filter selects. A name that does not exist is an error, not an empty list.
    pub fn sources<'a>(&self, config: &'a Config) -> Result<Vec<&'a SourceConfig>, Fault> {
        let check = |noun, name: &Option<String>, names: Vec<&str>| match name {
            Some(name) if !names.contains(&name.as_str()) => Err(no_such(noun, name, names.iter().copied())),
            _ => Ok(()),
        };
        check("entity", &self.entity, config.entity_names().collect())?;
        check("workflow", &self.workflow, config.workflows.iter().map(|workflow| &*workflow.name).collect())?;
        check("source", &self.source, config.sources.iter().map(|source| &*source.name).collect())?;
        let wanted = |source: &&SourceConfig| self.source.as_deref().is_none_or(|name| name == &*source.name);
        Ok(config.sources.iter().filter(wanted).collect())
    }
}
