//! Checks the settings of a step against its kind, and finds secrets that are written inline.

use serde_json::{Map, Value};

use super::table::{Table, one_of, wrong_type};
use super::{STEP_KEYS, STEP_KEYS_LATER};
use crate::catalogue::{Kind, Setting, SettingValue};
use crate::{codes, duration, problem::Problem};

/// Reads the keys that only this kind has. The settings of an unknown kind cannot be checked: the kind is reported
/// once, with the graph, and its keys are kept.
pub(super) fn read_settings(table: &mut Table<'_, '_>, kind: Option<&Kind>, settings: &mut Map<String, Value>) {
    if let Some(kind) = kind {
        let names: Vec<&str> = kind.settings.iter().map(|setting| setting.name).collect();
        table.names(STEP_KEYS, STEP_KEYS_LATER, &names);
        for setting in kind.settings.iter().filter(|setting| setting.required) {
            if table.get(setting.name).is_none() {
                let message = format!("`{}` needs the key `{}`", kind.name, setting.name);
                table
                    .problems
                    .push(Problem::error(&*table.path, codes::problem::MISSING_KEY, message).help(setting.doc));
            }
        }
    }
    for (key, value) in table.fields.iter().filter(|(key, _)| !STEP_KEYS.contains(&key.as_str())) {
        match kind.map(|kind| kind.settings.iter().find(|setting| setting.name == key)) {
            // an unknown key, reported above
            Some(None) => continue,
            Some(Some(setting)) => check_setting(table.at(key), setting, value, table.problems),
            None => {}
        }
        find_secrets(&table.at(key), key, value, table.problems);
        settings.insert(key.clone(), value.clone());
    }
}

fn check_setting(path: String, setting: &Setting, value: &Value, problems: &mut Vec<Problem>) {
    let (fits, expected) = match setting.value {
        SettingValue::Text | SettingValue::Template => (value.is_string(), "a text"),
        SettingValue::Expression => (value.is_string(), "an expression"),
        SettingValue::Duration => {
            (value.as_str().is_some_and(|text| duration::parse(text).is_some()), "a duration such as \"5s\"")
        }
        SettingValue::Number => (value.is_u64(), "a whole number"),
        SettingValue::Boolean => (value.is_boolean(), "true or false"),
        SettingValue::Word(words) => {
            match value.as_str() {
                Some(word) if words.contains(&word) => {}
                Some(word) => {
                    let problem = Problem::error(path, codes::problem::BAD_VALUE, format!("there is no `{word}` here"));
                    problems.push(one_of(problem, word, words));
                }
                None => problems.push(wrong_type(path, "a text").help(setting.doc)),
            }
            return;
        }
        SettingValue::List => (value.is_array(), "a list"),
        SettingValue::Table => (value.is_object(), "a table"),
        SettingValue::Secret => (value.is_string(), "a reference such as \"env:NAME\" or \"file:path\""),
        SettingValue::Any => (true, ""),
    };
    if !fits {
        problems.push(wrong_type(path, expected).help(setting.doc));
    } else if setting.value == SettingValue::Secret && !is_reference(value) {
        problems.push(secret_inline(path));
    }
}

/// Finds secrets, which must not be in a definition, since it is stored, compared and shown. It looks for the usual
/// names of keys, and for passwords in URLs.
fn find_secrets(path: &str, key: &str, value: &Value, problems: &mut Vec<Problem>) {
    const NAMES: &[&str] = &["password", "passwd", "secret", "token", "authorization", "api-key", "apikey"];
    match value {
        Value::String(text) => {
            let key = key.to_ascii_lowercase().replace('_', "-");
            let named = NAMES.iter().any(|name| key.contains(name)) && !text.is_empty() && !is_kept_elsewhere(text);
            if (named || has_password(text)) && !problems.iter().any(|problem| problem.path == path) {
                problems.push(secret_inline(path.to_owned()));
            }
        }
        Value::Array(items) => {
            for (n, item) in items.iter().enumerate() {
                find_secrets(&format!("{path}[{n}]"), key, item, problems);
            }
        }
        Value::Object(fields) => {
            for (field, value) in fields {
                find_secrets(&format!("{path}.{field}"), field, value, problems);
            }
        }
        _ => {}
    }
}

/// `scheme://user:password@host`
fn has_password(text: &str) -> bool {
    let Some((_, rest)) = text.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#', ' ']).next().unwrap_or_default();
    authority
        .rsplit_once('@')
        .and_then(|(user, _)| user.split_once(':'))
        .is_some_and(|(_, password)| !password.is_empty())
}

fn is_reference(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.starts_with("env:") || text.starts_with("file:"))
}

/// Whether the text is a reference, or a scheme and a reference: `Bearer env:NAME`.
fn is_kept_elsewhere(text: &str) -> bool {
    let (scheme, last) = text.rsplit_once(' ').unwrap_or(("", text));
    scheme.chars().all(|letter| letter.is_ascii_alphabetic()) && (last.starts_with("env:") || last.starts_with("file:"))
}

fn secret_inline(path: String) -> Problem {
    Problem::error(path, codes::problem::SECRET_INLINE, "a secret is written out here")
        .help("name where it is kept: \"env:NAME\" or \"file:path\"")
}
