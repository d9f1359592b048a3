//! What a `sql.load` step may be told: little, since the statement is the entity's.

use std::time::Duration;

use honeyflow_workflow::catalogue::{Kind, Role, Setting, SettingValue};
use honeyflow_workflow::definition::Checkpoint;

/// The entry of the catalogue.
pub fn kind() -> Kind {
    Kind {
        name: "sql.load",
        settings: &[Setting {
            name: "query",
            required: false,
            value: SettingValue::Text,
            doc: "a statement with `$keys` to run instead of the entity's `document`; its key columns must be in the result",
        }],
        role: Role::Load,
        checkpoint: Checkpoint::Never,
        batch_max: 500,
        timeout: Duration::from_secs(30),
    }
}
