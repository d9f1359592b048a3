//! Control kinds: `sleep`, `event.wait`, `event.emit`. The engine carries them out itself, since they hold no worker and end with a
//! write of their own; here is only what they may be told.

use std::time::Duration;

use futures_util::future::BoxFuture;
use honeyflow_runtime::Failure;
use honeyflow_step::{Batch, Outcome, Step};
use honeyflow_workflow::{Checkpoint, Kind, Role, Setting, SettingValue};

const SLEEP: &[Setting] = &[Setting {
    name: "for",
    required: true,
    value: SettingValue::Duration,
    doc: "How long; above one second it survives restarts.",
}];

const WAIT: &[Setting] = &[
    Setting {
        name: "name",
        required: true,
        value: SettingValue::Text,
        doc: "Of the events waited for: the entity they lead to, or the name a message bears.",
    },
    Setting {
        name: "key",
        required: false,
        value: SettingValue::Expression,
        doc: "The key they must have, seen from the run; without it and without `match`: the run's own.",
    },
    Setting {
        name: "match",
        required: false,
        value: SettingValue::Expression,
        doc: "Whether an event is the one: `.` and `$event` are the event, `$steps` and `$run` those of the waiting run.",
    },
    Setting {
        name: "on-timeout",
        required: false,
        value: SettingValue::Word(&["fail", "skip"]),
        doc: "What becomes of the step if no event came within `timeout` (one day): it fails, or is skipped.",
    },
];

/// How long a wait takes that does not say.
const WAIT_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

pub fn kinds() -> Vec<Kind> {
    let kind = |name, settings, role| Kind {
        name,
        settings,
        role,
        checkpoint: Checkpoint::Always,
        batch_max: 500,
        timeout: Duration::from_secs(60),
    };
    vec![
        kind("sleep", SLEEP, Role::Sleep),
        Kind { timeout: WAIT_TIMEOUT, ..kind("event.wait", WAIT, Role::Wait) },
        // Its `input` is the event, or a list of them: `{entity, key, payload?, priority?, delay-ms?}`.
        kind("event.emit", &[], Role::Emit),
    ]
}

/// Stands where a step is expected but the engine does the work.
pub struct Inline;

impl Step for Inline {
    fn execute(&self, batch: Batch) -> BoxFuture<'static, Vec<Outcome>> {
        let failure = Failure::fatal("inline", "control kinds are carried out by the engine itself");
        Box::pin(async move { batch.items.iter().map(|_| Outcome::Failed(failure.clone())).collect() })
    }
}
