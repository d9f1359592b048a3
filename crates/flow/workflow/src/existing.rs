//! Decides which workflows are reached by rows that nothing has changed: rows that were there before the workflow, or
//! that are queued again by a reindex, the build of a generation, or a repair.
//!
//! A workflow with a sink is reached by all of them, because its documents would be missing otherwise. A workflow
//! without a sink is reached by its first fill alone, and only if its `on` says `existing = true`.

use crate::{
    catalogue::{Catalogue, Role},
    definition::{Definition, StepDefinition},
};

/// Why a row is queued although nothing has changed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Requeue {
    /// The row was there before the workflow.
    FirstFill,
    /// A reindex, the build of a generation, or a repair: the workflow has handled the row before.
    Again,
}

impl Definition {
    /// Whether a row of the entity that is queued for this reason begins a run.
    pub fn is_reached(&self, entity: &str, why: Requeue, kinds: &Catalogue) -> bool {
        let mut ons = self.on.iter().filter(|on| *on.entity == *entity).peekable();
        if ons.peek().is_none() {
            return false;
        }
        self.has_sink(kinds) || (why == Requeue::FirstFill && ons.any(|on| on.existing == Some(true)))
    }

    pub fn has_sink(&self, kinds: &Catalogue) -> bool {
        self.steps.iter().any(|step| role(step, kinds) == Some(Role::Sink))
    }

    /// Returns the steps that have an effect beside the workflow's documents, or delay them: all but loads, transforms
    /// and sinks that compare versions.
    pub fn side_effects(&self, kinds: &Catalogue, is_fenced: impl Fn(&str) -> bool) -> Vec<&StepDefinition> {
        let into = |step: &StepDefinition| step.settings.get("into")?.as_str().map(&is_fenced);
        let has_effect = |step: &&StepDefinition| match role(step, kinds) {
            Some(Role::Load) | None => false,
            Some(Role::Work) => &*step.kind != "transform",
            Some(Role::Sink) => into(step) == Some(false),
            Some(Role::Sleep | Role::Wait | Role::Emit) => true,
        };
        self.steps.iter().filter(has_effect).collect()
    }
}

fn role(step: &StepDefinition, kinds: &Catalogue) -> Option<Role> {
    kinds.get(&step.kind).map(|kind| kind.role)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{read, sample::catalogue};

    fn workflow(existing: Option<bool>, steps: &[&str]) -> Definition {
        let mut on = json!({ "source": "shop", "entity": "book" });
        if let Some(existing) = existing {
            on["existing"] = existing.into();
        }
        let all = json!({
            "load": { "use": "sql.load" },
            "shape": { "use": "transform", "expression": "." },
            "call": { "use": "http.call", "url": "https://example.com" },
            "nap": { "use": "sleep", "for": "1s" },
            "index": { "use": "search.index", "needs": ["load"], "into": "books" },
        });
        let mut steps: serde_json::Map<String, Value> =
            steps.iter().map(|step| ((*step).to_owned(), all[*step].clone())).collect();
        steps.insert("load".to_owned(), all["load"].clone());
        read("book", &json!({ "on": [on], "step": steps }), &catalogue()).unwrap_or_else(|why| panic!("{why:#?}"))
    }

    #[test]
    fn ob_97_a_workflow_with_a_sink_is_always_reached() {
        for workflow in [workflow(None, &["shape", "index"]), workflow(Some(true), &["call", "index"])] {
            assert!(workflow.is_reached("book", Requeue::FirstFill, &catalogue()));
            assert!(workflow.is_reached("book", Requeue::Again, &catalogue()));
            assert!(!workflow.is_reached("author", Requeue::FirstFill, &catalogue()));
        }
    }

    #[test]
    fn ob_97_a_workflow_without_a_sink_is_reached_once_if_it_says_so() {
        for existing in [None, Some(false), Some(true)] {
            let workflow = workflow(existing, &["call"]);
            assert_eq!(workflow.is_reached("book", Requeue::FirstFill, &catalogue()), existing == Some(true));
            assert!(!workflow.is_reached("book", Requeue::Again, &catalogue()));
        }
    }

    #[test]
    fn ob_97_loads_transforms_and_fenced_sinks_have_no_side_effect() {
        let names = |steps: &[&str], fenced: bool| {
            let workflow = workflow(None, steps);
            let found = workflow.side_effects(&catalogue(), |_| fenced);
            found.iter().map(|step| step.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(&["shape", "index"], true), [""; 0]);
        assert_eq!(names(&["shape", "index"], false), ["index"]);
        assert_eq!(names(&["call", "nap", "index"], true), ["call", "nap"]);
    }
}
