//! Checks the events of a request, item by item and field by field. The refusal names the first wrong field with its
//! path.

use std::{fmt, sync::Arc};

use axum::http::StatusCode;
use honeyflow_event::{Changes, Key, Kind, Name, PRIORITY_DEFAULT, PRIORITY_LEVELS, Priority, key::KEY_BYTES_MAX};
use honeyflow_store::NewEvent;
use honeyflow_workflow::{duration, problem::nearest};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::{
    answer::{Refusal, quoted},
    codes,
    node::Node,
};

const FIELDS: [&str; 7] = ["source", "entity", "key", "payload", "priority", "delay", "dedupe"];
const DEDUPE_BYTES_MAX: usize = 512;

/// Returns the one source of all events, and the events.
pub(super) fn read(text: &str, node: &Node) -> Result<(usize, Vec<NewEvent>), Refusal> {
    let many = text.trim_start().starts_with('[');
    let items: Vec<&RawValue> =
        if many { serde_json::from_str(text) } else { serde_json::from_str(text).map(|one| vec![one]) }.map_err(
            |error| Refusal::bad_request(codes::refusal::BAD_JSON, format!("the body is not JSON: {error}")),
        )?;
    if items.is_empty() {
        return Err(Refusal::bad_request(codes::refusal::NO_EVENTS, "the array is empty"));
    }
    let events_max = node.limits.events_max;
    if items.len() > events_max {
        let message = format!("{} events in one request, {events_max} is the most", items.len());
        return Err(Refusal::bad_request(codes::refusal::TOO_MANY_EVENTS, message).hint("send several requests"));
    }
    let mut shared: Option<usize> = None;
    let mut events = Vec::with_capacity(items.len());
    for (at, item) in items.into_iter().enumerate() {
        let path = ItemPath { index: many.then_some(at) };
        let (source, event) = event(item, node, path)?;
        if *shared.get_or_insert(source) != source {
            let message = "events of two sources in one request: they cannot be stored all or none";
            return Err(path.wrong("source", message).hint("send one request for each source"));
        }
        events.push(event);
    }
    shared
        .map(|source| (source, events))
        .ok_or_else(|| Refusal::bad_request(codes::refusal::NO_EVENTS, "the body has no event"))
}

/// The path of an event in the request's body, for messages.
#[derive(Clone, Copy)]
struct ItemPath {
    /// None: the body is the event itself.
    index: Option<usize>,
}

impl ItemPath {
    fn name(self, field: &str) -> String {
        match self.index {
            Some(index) => format!("[{index}].{field}"),
            None => field.to_owned(),
        }
    }

    fn wrong(self, field: &str, what: impl fmt::Display) -> Refusal {
        Refusal::bad_request(codes::refusal::BAD_EVENT, format!("{}: {what}", self.name(field)))
    }
}

/// The members of an object, in order and as written; a map would silently keep only the last of two equal names.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members<'a>, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry::<String, &RawValue>()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

fn event(item: &RawValue, node: &Node, path: ItemPath) -> Result<(usize, NewEvent), Refusal> {
    let Ok(Members(members)) = serde_json::from_str::<Members<'_>>(item.get()) else {
        let at = path.index.map_or_else(|| "the body".to_owned(), |index| format!("[{index}]"));
        let message = format!("{at}: an event is an object");
        return Err(Refusal::bad_request(codes::refusal::BAD_EVENT, message).hint(r#"{"entity": "book", "key": "42"}"#));
    };
    for (at, (name, _)) in members.iter().enumerate() {
        if !FIELDS.contains(&name.as_str()) {
            let hint = match nearest(name, FIELDS) {
                Some(word) => format!("did you mean `{word}`?"),
                None => format!("there are: {}", FIELDS.join(", ")),
            };
            return Err(path.wrong(&quoted(name), "unknown field").hint(hint));
        }
        if members[..at].iter().any(|(earlier, _)| earlier == name) {
            return Err(path.wrong(name, "given twice"));
        }
    }
    let field = |name: &str| {
        members.iter().find(|(own, _)| own == name).map(|(_, value)| *value).filter(|value| value.get() != "null")
    };
    let source = source(field("source"), node, path)?;
    let payload = payload(field("payload"), node, path)?;
    let event = NewEvent {
        kind: if payload.is_some() { Kind::Message } else { Kind::Row },
        tenant: Name::from(""),
        entity: entity(field("entity"), source, node, path)?,
        key: key(field("key"), path)?,
        priority: priority(field("priority"), path)?,
        workflow: None,
        delay: field("delay").map(|value| delay(value, path)).transpose()?,
        dedupe: field("dedupe").map(|value| dedupe(value, path)).transpose()?,
        traceparent: None,
        root: None,
        change: Changes::UNKNOWN,
        columns: None,
        payload,
    };
    Ok((source, event))
}

fn text(value: &RawValue, field: &str, path: ItemPath) -> Result<String, Refusal> {
    let text: String = serde_json::from_str(value.get()).map_err(|_| path.wrong(field, "not a string"))?;
    // No supported database stores a NUL character correctly.
    if text.contains('\0') { Err(path.wrong(field, "contains a NUL character")) } else { Ok(text) }
}

fn source(value: Option<&RawValue>, node: &Node, path: ItemPath) -> Result<usize, Refusal> {
    let names = || node.sources.iter().map(|(name, _)| &**name);
    let listed = || format!("sources: {}", names().collect::<Vec<_>>().join(", "));
    let Some(value) = value else {
        return match node.sources.len() {
            1 => Ok(0),
            _ => Err(path.wrong("source", "missing, and there is not exactly one source").hint(listed())),
        };
    };
    let name = text(value, "source", path)?;
    names().position(|own| own == name).ok_or_else(|| {
        let hint = nearest(&name, names()).map_or_else(listed, |word| format!("did you mean `{word}`?"));
        path.wrong("source", format!("there is no source {}", quoted(&name))).hint(hint)
    })
}

fn entity(value: Option<&RawValue>, source: usize, node: &Node, path: ItemPath) -> Result<Name, Refusal> {
    let source = &node.sources[source].0;
    let known = || node.entities.iter().filter(|(own, _)| own == source).map(|(_, entity)| entity);
    let listed = || format!("entities: {}", known().map(|name| &**name).collect::<Vec<_>>().join(", "));
    let value = value.ok_or_else(|| path.wrong("entity", "missing").hint(listed()))?;
    let name = text(value, "entity", path)?;
    known().find(|entity| ***entity == *name).cloned().ok_or_else(|| {
        let hint =
            nearest(&name, known().map(|name| &**name)).map_or_else(listed, |word| format!("did you mean `{word}`?"));
        path.wrong("entity", format!("source `{source}` has no entity {}", quoted(&name))).hint(hint)
    })
}

/// Returns the key. A number is accepted as its text, because most keys are numbers.
fn key(value: Option<&RawValue>, path: ItemPath) -> Result<Key, Refusal> {
    let value = value.ok_or_else(|| path.wrong("key", "missing"))?;
    let key = match serde_json::from_str::<i64>(value.get()) {
        Ok(number) => number.to_string(),
        Err(_) => text(value, "key", path).map_err(|refusal| {
            if value.get().starts_with('"') { refusal } else { path.wrong("key", "not a string or whole number") }
        })?,
    };
    match key.len() {
        0 => Err(path.wrong("key", "empty")),
        1..=KEY_BYTES_MAX => Ok(key.into()),
        bytes => Err(path.wrong("key", format!("{bytes} bytes, {KEY_BYTES_MAX} is the most"))),
    }
}

fn payload(value: Option<&RawValue>, node: &Node, path: ItemPath) -> Result<Option<Arc<str>>, Refusal> {
    let Some(value) = value else { return Ok(None) };
    let (bytes, bytes_max) = (value.get().len(), node.limits.payload_bytes_max);
    if bytes > bytes_max {
        let message = format!("{}: {bytes} bytes, {bytes_max} is the most", path.name("payload"));
        return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, codes::refusal::PAYLOAD_TOO_LARGE, message)
            .hint("put large data into the database and send its key"));
    }
    Ok(Some(value.get().into()))
}

fn priority(value: Option<&RawValue>, path: ItemPath) -> Result<Priority, Refusal> {
    let Some(value) = value else { return Ok(PRIORITY_DEFAULT) };
    let given = serde_json::from_str::<Priority>(value.get()).ok();
    given.filter(|level| usize::from(*level) < PRIORITY_LEVELS).ok_or_else(|| {
        path.wrong("priority", format!("not a whole number from 0 (first) to {} (last)", PRIORITY_LEVELS - 1))
    })
}

fn delay(value: &RawValue, path: ItemPath) -> Result<std::time::Duration, Refusal> {
    let written = text(value, "delay", path).map_err(|refusal| refusal.hint(r#"for example "5s""#))?;
    duration::parse(&written).ok_or_else(|| {
        path.wrong("delay", format!("{} is not a duration", quoted(&written)))
            .hint(r#"one number and one unit: "200ms", "5s", "10m", "2h", "1d""#)
    })
}

fn dedupe(value: &RawValue, path: ItemPath) -> Result<Arc<str>, Refusal> {
    let dedupe = text(value, "dedupe", path)?;
    if (1..=DEDUPE_BYTES_MAX).contains(&dedupe.len()) {
        return Ok(dedupe.into());
    }
    Err(path.wrong("dedupe", format!("{} bytes, it must have 1 to {DEDUPE_BYTES_MAX}", dedupe.len())))
}
