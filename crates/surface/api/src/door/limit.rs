//! The limit of the door. It is asked before anything is read: whoever is refused costs no more than its headers.

use axum::{
    body::Body,
    http::{HeaderMap, Response, StatusCode},
};
use honeyflow_hive::limit::Permit;
use honeyflow_hive_layer::{HeldBody, field};

use crate::{
    answer::{Refusal, quoted},
    node::DoorLimit,
};

/// A request that may come in.
pub struct Passed {
    /// By whom it is counted.
    key: String,
    /// Of a limit on how many at once.
    place: Option<Permit<'static>>,
}

pub async fn pass(door: &DoorLimit, headers: &HeaderMap) -> Result<Passed, Refusal> {
    let value = door.key.as_ref().and_then(|name| headers.get(name));
    // Not text, it still is what it is: somebody who sends such things counts as one of its own.
    let key = value.map_or_else(String::new, |value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let denied = match door.limit.key(&key).try_take(1).await {
        Ok(permit) => {
            let place = permit.is_slot().then(|| permit.owned());
            return Ok(Passed { key, place });
        }
        Err(_) if door.shadow => return Ok(Passed { key, place: None }),
        Err(denied) => denied,
    };
    let whose = if key.is_empty() { String::new() } else { format!(" of {}", quoted(&key)) };
    let message = format!("the limit `{}`{whose} is used up ({})", denied.limit, denied.reason.name());
    let mut fields = HeaderMap::new();
    field::write(&mut fields, &door.limit, &key, Some(denied.retry_after), door.old_fields);
    Err(Refusal { fields: Some(Box::new(fields)), ..Refusal::new(StatusCode::TOO_MANY_REQUESTS, "limit", message) }
        .hint("send it again after the time in Retry-After; nothing was stored")
        .closing())
}

impl Passed {
    /// The answer says what it knows about the limit; its place is free once all of it is sent, or nobody wants it
    /// any more.
    pub fn answer(self, door: &DoorLimit, mut response: Response<Body>) -> Response<Body> {
        if !door.shadow {
            field::write(response.headers_mut(), &door.limit, &self.key, None, door.old_fields);
        }
        match self.place {
            Some(place) => response.map(|body| Body::new(HeldBody::new(body, place))),
            None => response,
        }
    }
}
