//! Builds answers: JSON, errors in one format, and the headers that every answer has, refusals included.
//!
//! An internal error is logged under an id; the caller gets the id, never the error.

use std::{fmt::Write as _, time::Duration};

use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header},
};
use honeyflow_runtime::Failure;
use maud::{DOCTYPE, html};
use serde::Serialize;
use serde_json::json;
use uuid::Uuid;

use crate::codes;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
                      connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

const COMMON_HEADERS: [(HeaderName, HeaderValue); 5] = [
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
];

/// Sets the headers that every answer has. A browser may cache only answers that set their own header (static files).
pub(crate) fn with_common_headers(mut response: Response<Body>) -> Response<Body> {
    let headers = response.headers_mut();
    for (name, value) in COMMON_HEADERS {
        headers.insert(name, value);
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

pub(crate) fn with_type(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

pub(crate) fn json<T: Serialize>(status: StatusCode, value: &T) -> Response<Body> {
    match serde_json::to_vec(value) {
        Ok(bytes) => with_type(status, "application/json", bytes),
        Err(error) => Refusal::internal("cannot write the answer", &error).as_json(),
    }
}

/// Why a request is not served: what happened, and what to do about it.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub status: StatusCode,
    pub code: &'static str,
    pub message: String,
    pub hint: String,
    pub id: Option<Box<Uuid>>,
    pub retry_after: Option<Duration>,
    /// The headers of a limit.
    pub fields: Option<Box<HeaderMap>>,
    pub allow: Option<&'static str>,
    /// The body has not been read, so the connection cannot be reused.
    pub close: bool,
}

impl Refusal {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Refusal {
        Refusal {
            status,
            code,
            message: message.into(),
            hint: String::new(),
            id: None,
            retry_after: None,
            fields: None,
            allow: None,
            close: false,
        }
    }

    pub fn bad_request(code: &'static str, message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// Refuses because of a failure of this node, a store or a sink. The failure is logged in full; the caller gets an
    /// id.
    pub fn unavailable(code: &'static str, message: impl Into<String>, failure: &Failure) -> Refusal {
        let id = Uuid::now_v7();
        let message = message.into();
        tracing::warn!(%id, code, failure_code = %failure.code, failure = %visible(&failure.message), "{message}");
        Refusal { id: Some(Box::new(id)), ..Refusal::new(StatusCode::SERVICE_UNAVAILABLE, code, message) }
            .hint("retry; the log shows the reason under this id")
            .retry_after(failure.after.unwrap_or(Duration::from_secs(1)))
    }

    fn internal(message: &'static str, error: &dyn std::error::Error) -> Refusal {
        let id = Uuid::now_v7();
        tracing::error!(%id, %error, "{message}");
        Refusal {
            id: Some(Box::new(id)),
            ..Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, codes::refusal::INTERNAL, message)
        }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Refusal {
        self.hint = hint.into();
        self
    }

    pub fn retry_after(mut self, wait: Duration) -> Refusal {
        self.retry_after = Some(wait);
        self
    }

    pub fn closing(mut self) -> Refusal {
        self.close = true;
        self
    }

    /// Returns JSON for paths beneath `/v1`, which programs use, and a page for others.
    pub fn answer(&self, path: &str) -> Response<Body> {
        if path.starts_with("/v1") { self.as_json() } else { self.as_page() }
    }

    fn as_json(&self) -> Response<Body> {
        let mut error = json!({ "code": self.code, "message": self.message, "hint": self.hint });
        if let Some(id) = &self.id {
            error["id"] = id.to_string().into();
        }
        self.finish(with_type(self.status, "application/json", json!({ "error": error }).to_string()))
    }

    fn as_page(&self) -> Response<Body> {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head { meta charset="utf-8"; title { (self.status.as_u16()) " · Honeyflow" } }
                body {
                    h1 { (self.status.as_u16()) " " (self.status.canonical_reason().unwrap_or("")) }
                    p { (self.message) }
                    @if !self.hint.is_empty() { p { (self.hint) } }
                    @if let Some(id) = &self.id { p { "id " code { (id) } } }
                    p { a href="/" { "first page" } }
                }
            }
        };
        self.finish(with_type(self.status, "text/html; charset=utf-8", page.into_string()))
    }

    fn finish(&self, mut response: Response<Body>) -> Response<Body> {
        let headers = response.headers_mut();
        if let Some(wait) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
        }
        for (name, value) in self.fields.iter().flat_map(|fields| fields.iter()) {
            headers.insert(name, value.clone());
        }
        if let Some(allow) = self.allow {
            headers.insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        if self.close {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Replaces control characters and characters that reorder text by visible escapes, for logs and error texts.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' => {
                let _ = write!(shown, "{}", character.escape_unicode());
            }
            control if control.is_control() => {
                let _ = write!(shown, "{}", control.escape_default());
            }
            other => shown.push(other),
        }
    }
    shown
}

/// Returns a caller's text for use in a message: short, quoted and with escapes.
pub(crate) fn quoted(text: &str) -> String {
    const SHOWN_MAX: usize = 64;
    let mut shown = visible(&text.chars().take(SHOWN_MAX).collect::<String>());
    if text.chars().nth(SHOWN_MAX).is_some() {
        shown.push('…');
    }
    format!("`{shown}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn se_30_control_characters_in_messages_are_escaped() {
        assert_eq!(quoted("\u{1b}[31mred\n\u{202e}x"), "`\\u{1b}[31mred\\n\\u{202e}x`");
        assert_eq!(quoted(&"a".repeat(70)).chars().count(), 67);
    }
}
