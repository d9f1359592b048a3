//! The payload of a captured row: OLD and NEW values of the columns by which edges name their containers.

use honeyflow_event::{Key, key};
use honeyflow_runtime::Failure;
use serde_json::{Map, Value};
use smallvec::SmallVec;

use crate::codes;

/// `{"old": {…}, "new": {…}}`, either side of which may be missing.
#[derive(Default)]
pub(crate) struct Payload {
    old: Option<Map<String, Value>>,
    new: Option<Map<String, Value>>,
}

/// The keys that a payload names.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct LinkedKeys {
    /// The keys of OLD and NEW, each once; a key with a NULL part is left out.
    pub keys: SmallVec<[Key; 2]>,
    /// The key of OLD.
    pub old: Option<Key>,
    /// The key of NEW.
    pub new: Option<Key>,
    /// The row was updated without a change of these keys.
    pub unmoved: bool,
}

impl Payload {
    pub fn parse(text: Option<&str>) -> Result<Payload, Failure> {
        let Some(text) = text else { return Ok(Payload::default()) };
        let unreadable = |why: String| Failure::reject(codes::UNREADABLE_PAYLOAD, format!("the payload {why}"));
        let value: Value = serde_json::from_str(text).map_err(|error| unreadable(format!("is no JSON: {error}")))?;
        let Value::Object(mut sides) = value else { return Err(unreadable("is no JSON object".to_owned())) };
        let mut side = |name| match sides.remove(name) {
            Some(Value::Object(side)) => Ok(Some(side)),
            None | Some(Value::Null) => Ok(None),
            Some(_) => Err(unreadable(format!("has no object under `{name}`"))),
        };
        Ok(Payload { old: side("old")?, new: side("new")? })
    }

    /// Returns the keys; `None` if the payload lacks these columns. It may have been written before they were captured,
    /// or by hand.
    pub fn linked_keys(&self, columns: &[String]) -> Option<LinkedKeys> {
        let old = self.old.as_ref().map(|side| linked_key(side, columns));
        let new = self.new.as_ref().map(|side| linked_key(side, columns));
        let unmoved = matches!((&old, &new), (Some(old), Some(new)) if old == new);
        let sides = (old.clone().flatten().flatten(), new.clone().flatten().flatten());
        let mut keys = SmallVec::new();
        for end in [old, new].into_iter().flatten() {
            if let Some(key) = end?
                && !keys.contains(&key)
            {
                keys.push(key);
            }
        }
        (self.old.is_some() || self.new.is_some()).then_some(LinkedKeys { keys, old: sides.0, new: sides.1, unmoved })
    }
}

/// Returns the key on one side; `None` if a column is missing, `Some(None)` if a part is NULL, so that there is no key.
fn linked_key(side: &Map<String, Value>, columns: &[String]) -> Option<Option<Key>> {
    let mut parts = SmallVec::<[String; 2]>::new();
    let mut whole = true;
    for column in columns {
        let same_name = || side.iter().find(|(name, _)| name.eq_ignore_ascii_case(column)).map(|(_, value)| value);
        match part(side.get(column).or_else(same_name)?) {
            Some(text) => parts.push(text),
            None => whole = false,
        }
    }
    Some(whole.then(|| key::join(&parts).into()))
}

fn part(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => Some(text.clone()),
        Value::Object(blob) => blob.get("blob")?.as_str().map(str::to_ascii_lowercase),
        Value::Null | Value::Bool(_) | Value::Array(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(text: &str, columns: &[&str]) -> Option<(Vec<String>, bool)> {
        let columns: Vec<_> = columns.iter().map(ToString::to_string).collect();
        let ends = Payload::parse(Some(text)).unwrap().linked_keys(&columns)?;
        Some((ends.keys.iter().map(ToString::to_string).collect(), ends.unmoved))
    }

    #[test]
    fn ob_8_the_old_and_the_new_key_are_found() {
        let named = |keys: &[&str], unmoved| Some((keys.iter().map(ToString::to_string).collect(), unmoved));
        assert_eq!(ends(r#"{"old":{"a":1},"new":{"a":2}}"#, &["a"]), named(&["1", "2"], false));
        assert_eq!(ends(r#"{"old":{"a":1},"new":{"A":1}}"#, &["a"]), named(&["1"], true));
        assert_eq!(ends(r#"{"old":{"a":null},"new":{"a":2}}"#, &["a"]), named(&["2"], false));
        assert_eq!(ends(r#"{"new":{"a":"x|y","b":{"blob":"00FF"}}}"#, &["a", "b"]), named(&[r"x\|y|00ff"], false));
        assert_eq!(ends(r#"{"new":{"a":9223372036854775807}}"#, &["a"]), named(&["9223372036854775807"], false));
    }

    #[test]
    fn ob_8_a_payload_without_the_columns_names_no_keys() {
        assert_eq!(ends("{}", &["a"]), None);
        assert_eq!(ends(r#"{"new":{"b":1}}"#, &["a"]), None);
        assert_eq!(ends(r#"{"old":{"a":1},"new":{"b":1}}"#, &["a"]), None);
    }

    #[test]
    fn ob_23_an_unreadable_payload_is_rejected() {
        for text in ["", "old.a:text:41", "[]", "1", r#"{"old":1}"#] {
            assert_eq!(Payload::parse(Some(text)).err().map(|failure| failure.code), Some("unreadable-payload".into()));
        }
    }
}
