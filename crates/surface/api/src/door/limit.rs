//! The limit of the door. It is asked before anything is read: whoever is refused costs no more than its headers.

use axum::http::{HeaderMap, StatusCode};
use honeyflow_hive_layer::field;

use crate::{
    answer::{Refusal, quoted},
    node::DoorLimit,
};

/// By whom this request is counted.
pub async fn pass(door: &DoorLimit, headers: &HeaderMap) -> Result<String, Refusal> {
    let value = door.key.as_ref().and_then(|name| headers.get(name));
    // Not text, it still is what it is: somebody who sends such things counts as one of its own.
    let key = value.map_or_else(String::new, |value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let Err(denied) = door.limit.key(&key).try_take(1).await else { return Ok(key) };
    if door.shadow {
        return Ok(key);
    }
    let whose = if key.is_empty() { String::new() } else { format!(" of {}", quoted(&key)) };
    let message = format!("the limit `{}`{whose} is used up ({})", denied.limit, denied.reason.name());
    let mut fields = HeaderMap::new();
    field::write(&mut fields, &door.limit, &key, Some(denied.retry_after), door.old_fields);
    Err(Refusal { fields: Some(Box::new(fields)), ..Refusal::new(StatusCode::TOO_MANY_REQUESTS, "limit", message) }
        .hint("send it again after the time in Retry-After; nothing was stored")
        .closing())
}

/// What an answer says about the limit it was within.
pub fn tell(door: &DoorLimit, key: &str, fields: &mut HeaderMap) {
    if !door.shadow {
        field::write(fields, &door.limit, key, None, door.old_fields);
    }
}
