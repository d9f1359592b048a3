//! `honeyflow parked …`: events set aside with their error, until someone retries or drops them, or a newer event of
//! the key heals them.

pub mod list;
pub mod settle;
pub mod show;

use honeyflow_store::admin::ParkedFilter;

use super::{Context, Done, Fault, no_such};
use crate::config::{Config, SourceConfig};

#[derive(clap::Subcommand)]
pub enum Verb {
    /// Parked events
    List(list::Arguments),
    /// One parked event with its error and the beginning of its payload
    Show(show::Arguments),
    /// Give parked events all their tries again
    Retry(settle::Arguments),
    /// Remove parked events for good
    Drop(settle::Arguments),
}

pub fn run(verb: &Verb, context: &Context) -> Result<Done, Fault> {
    match verb {
        Verb::List(arguments) => list::run(arguments, context),
        Verb::Show(arguments) => show::run(arguments, context),
        Verb::Retry(arguments) => settle::run(arguments, settle::How::Retry, context),
        Verb::Drop(arguments) => settle::run(arguments, settle::How::Drop, context),
    }
}

/// Which of them.
#[derive(clap::Args, Default)]
pub struct Filter {
    /// Only this source
    #[arg(long)]
    source: Option<String>,
    #[arg(long)]
    entity: Option<String>,
    #[arg(long)]
    key: Option<String>,
    #[arg(long)]
    workflow: Option<String>,
    /// Code of the error
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

    /// The sources it is about; a name that does not exist is an error, not an empty list.
    pub fn sources<'a>(&self, config: &'a Config) -> Result<Vec<&'a SourceConfig>, Fault> {
        let known = |noun, name: &Option<String>, names: Vec<&str>| match name {
            Some(name) if !names.contains(&name.as_str()) => Err(no_such(noun, name, names.iter().copied())),
            _ => Ok(()),
        };
        known("entity", &self.entity, config.entities.iter().map(|entity| &*entity.name).collect())?;
        known("workflow", &self.workflow, config.workflows.iter().map(|workflow| &*workflow.name).collect())?;
        known("source", &self.source, config.sources.iter().map(|source| &*source.name).collect())?;
        let wanted = |source: &&SourceConfig| self.source.as_deref().is_none_or(|name| name == &*source.name);
        Ok(config.sources.iter().filter(wanted).collect())
    }
}
