//! Generates the configuration reference from the tables that are used to read the file.

use std::{borrow::Cow, fmt::Write};

use honeyflow_pool::settings::{KEYS, Settings, Value};
use honeyflow_workflow::{Catalogue, SettingValue};

use super::{
    fields::{FieldType, LANGUAGES},
    keys::{CQL, Key, Presence, SECTIONS, STEP, Shape, WORKFLOW},
};

const OPENING: &str = "# Configuration

One file, `honeyflow.toml`; relative paths are relative to its folder. Names of sources, entities, sinks, workflows, steps
and limits are `[a-z][a-z0-9_]*`. Durations are written `\"200ms\"`, `\"5s\"`, `\"10m\"`, `\"2h\"`, `\"1d\"`; sizes `\"64KiB\"`, `\"8MiB\"`. An
unknown key is an error with its line and the most similar key; `honeyflow check` shows all problems at once.

The file contains references to secrets, never the secrets themselves: `env:NAME` is an environment variable, `file:path`
the first line of a file that other users of the machine cannot read.

`honeyflow check --reference` generates this page from the tables that are used to read the file.
";

pub fn markdown(kinds: &Catalogue) -> String {
    let mut page = OPENING.to_owned();
    for section in SECTIONS {
        let name = if section.named { format!("{}.NAME", section.name) } else { section.name.to_owned() };
        let _ = write!(page, "\n## `[{name}]`\n\n{}\n\n", section.doc);
        match section.name {
            "workflow" => workflow(&mut page, kinds),
            "cassandra" => pool(&mut page),
            _ => table(&mut page, section.keys),
        }
        if section.name == "sink" {
            fields(&mut page);
        }
        for key in section.keys {
            if let Shape::Tables(keys) = key.shape {
                let _ = write!(page, "\n### `[[{name}.{}]]`\n\n", key.name);
                table(&mut page, keys);
            }
        }
    }
    page
}

fn table(page: &mut String, keys: &[Key]) {
    page.push_str("| key | value | default | meaning |\n|---|---|---|---|\n");
    for key in keys {
        let default = match key.presence {
            Presence::Required => "required".to_owned(),
            Presence::Default(written) => match key.shape {
                Shape::Count(..) | Shape::Texts | Shape::Fields | Shape::Names | Shape::Boolean => {
                    format!("`{written}`")
                }
                _ => format!("`\"{written}\"`"),
            },
            Presence::Optional(otherwise) => otherwise.to_owned(),
        };
        let _ = writeln!(page, "| `{}` | {} | {default} | {} |", key.name, shape(key.shape), cell(key.doc));
    }
}

/// The keys of `[cassandra.NAME]`, from the list of the pool.
fn pool(page: &mut String) {
    let defaults = Settings::default().table().unwrap_or_default();
    page.push_str("| key | value | default | meaning |\n|---|---|---|---|\n");
    for key in KEYS.iter().filter(|key| key.name != "name") {
        let default = match defaults.get(key.name) {
            Some(Value::List(items)) => {
                format!("`[{}]`", items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
            }
            Some(Value::Table(_)) | None => String::new(),
            Some(value) => format!("`{value}`"),
        };
        let _ = writeln!(page, "| `{}` | {} | {default} | {} |", key.name, cell(key.range), cell(key.about));
    }
    page.push_str(
        "| `compiled` | path | | a file made by `honeyflow config compile NAME`, instead of all keys above; read again every second |\n",
    );
    page.push_str("\n### `[cassandra.NAME.cql]`\n\nSettings of the protocol.\n\n");
    table(page, CQL);
}

fn shape(shape: Shape) -> String {
    match shape {
        Shape::Text => "text".into(),
        Shape::Statement => "SQL with `$keys`".into(),
        Shape::Path => "path".into(),
        Shape::Address => "address and port".into(),
        Shape::Url => "address, or reference".into(),
        Shape::Duration => "duration".into(),
        Shape::Bytes => "size".into(),
        Shape::Rate => "rate".into(),
        Shape::Count(from, to) => format!("{from} … {to}"),
        Shape::Word(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        Shape::Texts => "list of texts".into(),
        Shape::Boolean => "true or false".into(),
        Shape::Pins => "table".into(),
        Shape::Fields | Shape::Names => "table".into(),
        Shape::Reference => "reference".into(),
        Shape::Tables(_) => "list of tables".into(),
    }
}

fn workflow(page: &mut String, kinds: &Catalogue) {
    pairs(page, WORKFLOW);
    page.push_str("\n### Steps\n\nKeys that every step has; each kind adds its own.\n\n");
    pairs(page, STEP);
    page.push_str("\n### Kinds of step\n");
    for kind in kinds.names().filter_map(|name| kinds.get(name)) {
        let timeout = super::units::duration_text(kind.timeout);
        let _ = write!(
            page,
            "\n#### `{}`\n\nBatches of {} at most, `timeout` {timeout}, `checkpoint` `{}`.\n",
            kind.name,
            kind.batch_max,
            kind.checkpoint.word()
        );
        if !kind.settings.is_empty() {
            page.push_str("\n| key | value | | meaning |\n|---|---|---|---|\n");
        }
        for setting in kind.settings {
            let needed = if setting.required { "required" } else { "" };
            let _ =
                writeln!(page, "| `{}` | {} | {needed} | {} |", setting.name, value(setting.value), cell(setting.doc));
        }
    }
}

fn value(value: SettingValue) -> Cow<'static, str> {
    Cow::Borrowed(match value {
        SettingValue::Word(words) => {
            return words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or ").into();
        }
        SettingValue::Text => "text",
        SettingValue::Template => "text with `{expression}`",
        SettingValue::Expression => "expression",
        SettingValue::Duration => "duration",
        SettingValue::Number => "number",
        SettingValue::Boolean => "true or false",
        SettingValue::List => "list",
        SettingValue::Table => "table",
        SettingValue::Secret => "reference to a secret",
        SettingValue::Any => "anything",
    })
}

fn pairs(page: &mut String, keys: &[(&str, &str, &str)]) {
    page.push_str("| key | value | meaning |\n|---|---|---|\n");
    for (name, value, doc) in keys {
        let _ = writeln!(page, "| `{name}` | {} | {} |", cell(value), cell(doc));
    }
}

fn fields(page: &mut String) {
    page.push_str("\n### Types of fields\n\n| type | meaning |\n|---|---|\n");
    for (word, _, doc) in FieldType::WORDS {
        let _ = writeln!(page, "| `{word}` | {doc} |");
    }
    let _ = write!(page, "\nLanguages: {}.\n", LANGUAGES.map(|language| format!("`{language}`")).join(", "));
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
