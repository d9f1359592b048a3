//! The settings of a `transform` step.

use std::time::Duration;

use honeyflow_workflow::catalogue::{Kind, Role, Setting, SettingValue};
use honeyflow_workflow::definition::Checkpoint;

/// Returns the entry of the catalogue.
pub fn kind() -> Kind {
    Kind {
        name: "transform",
        settings: &[Setting {
            name: "expression",
            required: true,
            value: SettingValue::Expression,
            doc: "jq expression over the step's input; its value is the step's output",
        }],
        role: Role::Work,
        checkpoint: Checkpoint::Never,
        batch_max: 500,
        timeout: Duration::from_secs(5),
    }
}
