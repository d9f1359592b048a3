//! Control kinds: `sleep`, `event.wait`, `event.emit`. The engine executes them itself, since they hold no worker and
//! end with their own write; this crate only defines their settings.

pub mod codes;

use std::time::Duration;

use futures_util::future::BoxFuture;
use honeyflow_runtime::Failure;
use honeyflow_step::{Batch, Outcome, Step};
use honeyflow_workflow::{Checkpoint, Kind, Role, Setting, SettingValue};

const SLEEP: &[Setting] = &[Setting {
    name: "for",
    required: true,
    value: SettingValue::Duration,
    doc: "How long to sleep; a sleep above one second survives restarts.",
}];

const WAIT: &[Setting] = &[
    Setting {
        name: "name",
        required: true,
        value: SettingValue::Text,
        doc: "Name of the awaited events: the entity that they lead to, or the name of a message.",
    },
    Setting {
        name: "key",
        required: false,
        value: SettingValue::Expression,
        doc: "Key of the awaited events, evaluated in the run. Default: the key of the run; with `match` alone any key.",
    },
    Setting {
        name: "match",
        required: false,
        value: SettingValue::Expression,
        doc: "Whether an event matches: `.` and `$event` are the event, `$steps` and `$run` those of the waiting run.",
    },
    Setting {
        name: "on-timeout",
        required: false,
        value: SettingValue::Word(&["fail", "skip"]),
        doc: "Whether the step fails or is skipped if no event arrives within `timeout` (one day).",
    },
];

/// The time-out of a wait that sets none.
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

/// A placeholder step for kinds that the engine executes itself.
pub struct Inline;

impl Step for Inline {
    fn execute(&self, batch: Batch) -> BoxFuture<'static, Vec<Outcome>> {
        let failure = Failure::fatal(codes::INLINE, "control kinds are carried out by the engine itself");
        Box::pin(async move { batch.items.iter().map(|_| Outcome::Failed(failure.clone())).collect() })
    }
}
