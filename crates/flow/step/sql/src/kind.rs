//! The settings of a `sql.load` step. There are few, because the statement belongs to the entity.

use std::time::Duration;

use honeyflow_workflow::catalogue::{Kind, Role, Setting, SettingValue};
use honeyflow_workflow::definition::Checkpoint;

/// Returns the entry of the catalogue.
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
