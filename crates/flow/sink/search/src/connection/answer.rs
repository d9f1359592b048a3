//! Reads an answer to its end. An answer that is too long or incomplete is an error.

use std::{
    error::Error,
    time::{Duration, SystemTime},
};

use bytes::{Bytes, BytesMut};
use honeyflow_runtime::retry_after;
use http::{HeaderMap, Response, Version, header};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use serde::Deserialize;

use crate::{
    error::{Cause, Refusal},
    request::Answer,
};

/// The largest buffer that is allocated before the first byte has come, even if the head announces more.
const RESERVED_BYTES_MAX: u64 = 1 << 20;
const KIND_BYTES_MAX: usize = 64;
/// The longest `retry-after` that is obeyed, so that a server cannot stop its clients for ever.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60 * 60);

pub struct ReceivedAnswer {
    pub status: u16,
    retry_after: Option<Duration>,
    body: Bytes,
}

/// Reads the whole body, also of a refusal: only then the connection can carry the next request.
pub async fn receive(response: Response<Incoming>, bytes_max: usize) -> Result<ReceivedAnswer, Cause> {
    let (head, mut body) = response.into_parts();
    let announced = body.size_hint().exact();
    let chunked = head.headers.contains_key(header::TRANSFER_ENCODING);
    if head.version < Version::HTTP_2 && announced.is_none() && !chunked {
        return Err(Cause::Endless);
    }
    let too_long = || Cause::TooLong { bytes_max };
    if announced.is_some_and(|length| length > bytes_max as u64) {
        return Err(too_long());
    }
    let mut received = BytesMut::with_capacity(announced.unwrap_or(0).min(RESERVED_BYTES_MAX) as usize);
    while let Some(frame) = body.frame().await {
        // Trailers are ignored.
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        if data.len() > bytes_max - received.len() {
            return Err(too_long());
        }
        // Copied: many small pieces would each keep a large buffer alive.
        received.extend_from_slice(&data);
    }
    let retry_after = wanted_wait(&head.headers);
    Ok(ReceivedAnswer { status: head.status.as_u16(), retry_after, body: received.freeze() })
}

impl ReceivedAnswer {
    pub fn into_result(self) -> Result<Answer, Cause> {
        if (200..300).contains(&self.status) {
            return Ok(Answer { status: self.status, body: self.body });
        }
        let kind = kind(&self.body);
        let mut body = self.body;
        body.truncate(Refusal::BODY_BYTES_MAX);
        Err(Cause::Refused(Refusal { status: self.status, kind, retry_after: self.retry_after, body }))
    }
}

fn wanted_wait(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok();
    let wait = retry_after::read(text(header::RETRY_AFTER)?, text(header::DATE), SystemTime::now())?;
    Some(wait.min(RETRY_AFTER_MAX))
}

/// The server's one-word type of the error. Longer texts are not used: they may quote documents.
fn kind(body: &[u8]) -> Option<Box<str>> {
    #[derive(Deserialize)]
    struct ErrorBody {
        error: ErrorType,
    }
    #[derive(Deserialize)]
    struct ErrorType {
        #[serde(rename = "type")]
        kind: String,
    }
    let refused: ErrorBody = serde_json::from_slice(body).ok()?;
    let kind = refused.error.kind;
    let is_word = kind.len() <= KIND_BYTES_MAX && kind.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_word.then(|| kind.into())
}

/// The cause of an exchange that did not complete.
pub fn broken(error: hyper::Error) -> Cause {
    if is_protocol_error(&error) { Cause::Malformed(error) } else { Cause::Lost(error) }
}

/// hyper's text for bytes that arrive without a request; there is no other way to recognise that error.
const UNEXPECTED: &str = "received unexpected message from connection";

/// Whether the server has violated HTTP. The cause that ended the connection may be deeper in the chain than what it
/// meant for a request.
pub fn is_protocol_error(error: &hyper::Error) -> bool {
    let outermost: &(dyn Error + 'static) = error;
    let mut chain = std::iter::successors(Some(outermost), |error| (**error).source());
    chain.any(|error| match (error.downcast_ref::<hyper::Error>(), error.downcast_ref::<h2::Error>()) {
        (Some(hyper), _) => hyper.is_parse() || hyper.to_string() == UNEXPECTED,
        // Detected by this side, not reported by the server.
        (_, Some(two)) => two.is_library(),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pl_142_retry_after_is_obeyed_within_reason() {
        let wait = |lines: &[(&'static str, &'static str)]| {
            let headers = lines.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            wanted_wait(&headers.collect()).map(|wait| wait.as_secs())
        };
        assert_eq!(wait(&[]), None);
        assert_eq!(wait(&[("retry-after", "7")]), Some(7));
        assert_eq!(wait(&[("retry-after", "99999999999999999999999")]), Some(60 * 60));
        let both = [("retry-after", "Sun, 09 Sep 2001 01:47:00 GMT"), ("date", "Sun, 09 Sep 2001 01:46:55 GMT")];
        assert_eq!(wait(&both), Some(5));
        assert_eq!(wait(&[("retry-after", "soon")]), None);
    }

    #[test]
    fn the_kind_of_a_refusal_is_one_word() {
        let kind_of = |text: &str| kind(text.as_bytes()).map(|kind| kind.to_string());
        assert_eq!(
            kind_of(r#"{"error":{"type":"mapper_parsing_exception","reason":"x"},"status":400}"#).unwrap(),
            "mapper_parsing_exception"
        );
        for text in
            ["", "Unauthorized", r#"{"error":"text"}"#, r#"{"error":{"type":"two words"}}"#, r#"{"error":{"type":7}}"#]
        {
            assert_eq!(kind_of(text), None, "{text}");
        }
    }
}
