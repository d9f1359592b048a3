//! What an `http.call` step may be told.

use std::time::Duration;

use honeyflow_workflow::catalogue::{Kind, Role, Setting, SettingValue};
use honeyflow_workflow::definition::Checkpoint;

const fn setting(name: &'static str, value: SettingValue, doc: &'static str) -> Setting {
    Setting { name, required: false, value, doc }
}

const SETTINGS: &[Setting] = &[
    Setting {
        name: "url",
        required: true,
        value: SettingValue::Template,
        doc: "where to call; `{expression}` may stand in path segments and query values, as in https://api/book/{.id}",
    },
    setting("method", SettingValue::Text, "GET, POST (the default), PUT, PATCH, DELETE or HEAD"),
    setting(
        "headers",
        SettingValue::Table,
        "sent with each call; secrets as `env:NAME`, `file:path` or `Bearer env:NAME`",
    ),
    setting("body", SettingValue::Expression, "what is sent as JSON; the input, unless said otherwise"),
    setting(
        "answer",
        SettingValue::Text,
        "\"json\": anything else is a broken answer; \"any\" (the default): text is fine too",
    ),
    setting("http", SettingValue::Boolean, "true where a plain http URL is meant"),
    setting(
        "allow-networks",
        SettingValue::List,
        "private or loopback networks that may be called, as \"10.1.0.0/16\"",
    ),
    setting("connect-timeout", SettingValue::Duration, "how long a connection may take (5s)"),
];

/// The entry of the catalogue.
pub fn kind() -> Kind {
    Kind {
        name: "http.call",
        settings: SETTINGS,
        role: Role::Work,
        checkpoint: Checkpoint::Always,
        batch_max: 64,
        timeout: Duration::from_secs(30),
    }
}
