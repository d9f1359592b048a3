//! The delivery guarantee of each effect (RL-4): delivery is at least once; some effects are fenced by versions, others
//! get only an idempotency key.

use honeyflow_workflow::{Catalogue, Role};

use crate::{
    config::{Config, sinks_of},
    registry,
};

#[derive(PartialEq, Eq, Debug)]
pub struct Effect {
    pub workflow: String,
    pub step: String,
    pub target: String,
    pub delivery: &'static str,
}

pub const FENCED: &str = "fenced: an older version never overwrites a newer one";
pub const KEY_ONLY: &str = "not fenced: the target gets an idempotency key and the version";

pub fn effects(config: &Config, kinds: &Catalogue) -> Vec<Effect> {
    let mut effects = Vec::new();
    for workflow in &config.workflows {
        for step in &workflow.steps {
            let into = sinks_of(workflow).find(|(name, _)| **name == step.name).and_then(|(_, into)| config.sink(into));
            let role = kinds.get(&step.kind).map(|kind| kind.role);
            let (target, delivery) = match (into, role) {
                (Some(sink), _) if registry::is_fenced(sink) => (format!("sink {}", sink.name), FENCED),
                (Some(sink), _) => (format!("sink {}", sink.name), KEY_ONLY),
                // Calls have an effect outside; loads, transforms and sleeps have none.
                (None, Some(Role::Work)) if &*step.kind != "transform" => (step.kind.to_string(), KEY_ONLY),
                _ => continue,
            };
            let (workflow, step) = (workflow.name.to_string(), step.name.to_string());
            effects.push(Effect { workflow, step, target, delivery });
        }
    }
    effects
}
