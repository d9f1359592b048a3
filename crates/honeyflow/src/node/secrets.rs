//! Finds the secrets of a configuration (`env:NAME`, `file:path`) that cannot be read here. `start` refuses them before
//! it installs anything; `check` warns, because they may be set for the node alone.

use std::path::Path;

use honeyflow_workflow::{Problem, Severity};

use super::{pool, steps};
use crate::{
    codes,
    config::{Config, Url, secret::SecretError},
};

/// A reference to a secret that cannot be read.
pub struct UnreadableSecret {
    /// The key of the configuration.
    path: String,
    error: SecretError,
}

impl UnreadableSecret {
    /// The problem for a command that needs the secret.
    pub fn error(&self) -> Problem {
        Problem::error(&*self.path, codes::problem::UNRESOLVED, self.error.to_string()).help(self.error.help())
    }

    /// The problem for `check`. A file that other users can read is an error, wherever the node runs.
    pub fn finding(&self) -> Problem {
        let severity = match self.error {
            SecretError::Open(_) => Severity::Error,
            SecretError::Unset(_) | SecretError::Unreadable { .. } => Severity::Warning,
        };
        Problem { severity, ..self.error() }
    }
}

/// The secrets that cannot be read, in the order of the file's sections.
pub fn unreadable(config: &Config) -> Vec<UnreadableSecret> {
    let mut all = Vec::new();
    let mut look = |path: String, reference: &Url| {
        if let Err(error) = reference.resolve() {
            all.push(UnreadableSecret { path, error });
        }
    };
    if let Some(url) = &config.hive.url {
        look("hive.url".to_owned(), url);
    }
    for source in &config.sources {
        look(format!("source.{}.url", source.name), &source.url);
    }
    for sink in &config.sinks {
        look(format!("sink.{}.url", sink.name), &sink.url);
    }
    for (path, reference) in steps::secrets(config, config.file.parent().unwrap_or(Path::new(""))) {
        look(path, &reference);
    }
    for cluster in pool::clusters(config) {
        if let Some(error) = cluster.cql.unreadable_password() {
            all.push(UnreadableSecret { path: format!("cassandra.{}.cql.password", cluster.name), error });
        }
    }
    all
}
