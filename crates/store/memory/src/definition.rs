//! The definition versions of workflows. They live as long as the process.

use std::collections::BTreeMap;

use honeyflow_event::Name;
use honeyflow_store::admin::{Definition, NewDefinition, Versions};

#[derive(Default)]
pub(crate) struct Definitions(BTreeMap<Name, Vec<Definition>>);

impl Definitions {
    /// Stores the definitions that are not stored yet; returns the workflow and version of each.
    pub fn put(&mut self, wanted: Vec<NewDefinition>, now_ms: i64) -> Vec<(Name, u32)> {
        let numbers = wanted.into_iter().map(|NewDefinition { workflow, content }| {
            let stored = self.0.entry(workflow.clone()).or_default();
            let version = match stored.iter().rev().find(|known| known.content == content) {
                Some(known) => known.version,
                None => {
                    let version = stored.last().map_or(0, |newest| newest.version) + 1;
                    stored.push(Definition { workflow: workflow.clone(), version, content, created_ms: now_ms });
                    version
                }
            };
            (workflow, version)
        });
        numbers.collect()
    }

    pub fn versions(&self, put: &[(Name, u32)], is_named: impl Fn(&str, u32) -> bool) -> Versions {
        let other = |known: &&Definition| {
            !put.iter().any(|(workflow, number)| *workflow == known.workflow && *number == known.version)
                && is_named(&known.workflow, known.version)
        };
        let begun = self.0.values().flatten().filter(other).cloned().collect();
        Versions { numbers: put.iter().map(|(_, number)| *number).collect(), begun }
    }

    pub fn list(&self, workflow: Option<&str>) -> Vec<Definition> {
        let wanted = |known: &&Definition| workflow.is_none_or(|workflow| *known.workflow == *workflow);
        self.0.values().flatten().filter(wanted).cloned().collect()
    }
}
