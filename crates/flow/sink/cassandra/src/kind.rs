//! `cassandra.write`: the step that writes a run's document into a table.

use std::time::Duration;

use honeyflow_workflow::{Checkpoint, Kind, Role, Setting, SettingValue};

/// The catalogue entry of `cassandra.write`.
pub fn kind() -> Kind {
    Kind {
        name: "cassandra.write",
        settings: &[Setting {
            name: "into",
            required: true,
            value: SettingValue::Text,
            doc: "the sink whose table is written; a `null` document deletes its row",
        }],
        role: Role::Sink,
        checkpoint: Checkpoint::Never,
        batch_max: 500,
        timeout: Duration::from_secs(60),
    }
}
