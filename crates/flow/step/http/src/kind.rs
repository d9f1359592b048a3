//! The settings of an `http.call` step.

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
        doc: "the URL to call; path segments and query values may contain `{expression}`, as in https://api/book/{.id}",
    },
    setting("method", SettingValue::Text, "GET, POST (the default), PUT, PATCH, DELETE or HEAD"),
    setting(
        "headers",
        SettingValue::Table,
        "headers of each call; secrets as `env:NAME`, `file:path` or `Bearer env:NAME`",
    ),
    setting("body", SettingValue::Expression, "the JSON body of the call; default: the input"),
    setting(
        "answer",
        SettingValue::Text,
        "\"json\": only JSON is accepted; \"any\" (the default): text is accepted too",
    ),
    setting("http", SettingValue::Boolean, "true allows a plain http URL"),
    setting(
        "allow-networks",
        SettingValue::List,
        "private or loopback networks that may be called, such as \"10.1.0.0/16\"",
    ),
    setting("connect-timeout", SettingValue::Duration, "time limit for opening a connection (5s)"),
];

/// Returns the entry of the catalogue.
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
