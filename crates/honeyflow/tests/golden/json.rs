//! The names in a JSON text: one line per path, and the words that stand for states and kinds.

use std::collections::BTreeSet;

use serde_json::Value;

/// Members whose values are words of the program, not of its data.
const WORDS: &[&str] =
    &["state", "kind", "class", "code", "why", "roles", "phase", "outcome", "health", "mode", "severity", "trigger"];

/// Every path of the values, `[]` for the elements of a list. Several values give the union.
pub fn paths(values: &[Value]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for value in values {
        walk(value, "", "", &mut found);
    }
    found
}

fn walk(value: &Value, path: &str, name: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let path = format!("{path}.{name}");
                found.insert(path.clone());
                walk(value, &path, name, found);
            }
        }
        Value::Array(elements) => {
            for element in elements {
                walk(element, &format!("{path}[]"), name, found);
            }
        }
        Value::String(word) if WORDS.contains(&name) && is_word(word) => {
            found.insert(format!("{path} = {word}"));
        }
        _ => {}
    }
}

pub fn is_word(text: &str) -> bool {
    !text.is_empty() && text.len() < 40 && text.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-')
}
