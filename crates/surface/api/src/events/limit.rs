//! The limit of the event endpoint. It is checked before the body is read, so a refused request costs only its headers.

use axum::{
    body::Body,
    http::{HeaderMap, Response, StatusCode},
};
use honeyflow_hive::limit::Permit;
use honeyflow_hive_layer::{HeldBody, field};

use crate::{
    answer::{Refusal, quoted},
    codes,
    node::EventLimit,
};

/// A request that the limit has admitted.
pub struct AdmittedRequest {
    /// The limit's key of the client.
    key: String,
    /// The slot of a concurrency limit.
    slot: Option<Permit<'static>>,
}

pub async fn admit(config: &EventLimit, headers: &HeaderMap) -> Result<AdmittedRequest, Refusal> {
    let value = config.key.as_ref().and_then(|name| headers.get(name));
    // A value that is not UTF-8 is still a key: its client is counted separately.
    let key = value.map_or_else(String::new, |value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let denied = match config.limit.key(&key).try_take(1).await {
        Ok(permit) => {
            let slot = permit.is_slot().then(|| permit.into_owned());
            return Ok(AdmittedRequest { key, slot });
        }
        Err(_) if config.shadow => return Ok(AdmittedRequest { key, slot: None }),
        Err(denied) => denied,
    };
    let whose = if key.is_empty() { String::new() } else { format!(" of {}", quoted(&key)) };
    let message = format!("the limit `{}`{whose} is used up ({})", denied.limit, denied.reason.name());
    let mut fields = HeaderMap::new();
    field::write(&mut fields, &config.limit, &key, Some(denied.retry_after), config.legacy_headers);
    Err(Refusal {
        fields: Some(Box::new(fields)),
        ..Refusal::new(StatusCode::TOO_MANY_REQUESTS, codes::refusal::LIMIT, message)
    }
    .hint("send it again after the time in Retry-After; nothing was stored")
    .closing())
}

impl AdmittedRequest {
    /// Adds the limit's headers to the answer. The slot is released when the whole answer has been sent, or when the
    /// client has gone.
    pub fn answer(self, config: &EventLimit, mut response: Response<Body>) -> Response<Body> {
        if !config.shadow {
            field::write(response.headers_mut(), &config.limit, &self.key, None, config.legacy_headers);
        }
        match self.slot {
            Some(slot) => response.map(|body| Body::new(HeldBody::new(body, slot))),
            None => response,
        }
    }
}
