//! Turns an answer, or its absence, into an outcome. No text from the URL, the headers or the answer goes into a
//! message: any of them may contain a secret of the two ends.

use std::{error::Error as _, time::Duration, time::SystemTime};

use honeyflow_event::Document;
use honeyflow_runtime::{Failure, retry_after};
use reqwest::{
    StatusCode,
    header::{self, HeaderMap},
};
use serde_json::Value;

use crate::{body::broken, client::NoneAllowed, codes, config::Answer};

/// The wait after a 429 without `Retry-After`.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(5);
/// A shorter wait would be a busy loop.
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);
/// A server cannot stop a workflow for longer.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);

const NESTING_MAX: usize = 64;
const MEMBERS_MAX: usize = 100_000;

/// Returns the failure of a status; none for 2xx.
pub fn status_failure(status: StatusCode, headers: &HeaderMap) -> Option<Failure> {
    if status.is_success() {
        return None;
    }
    let said = format!("the server answered {}", status.as_u16());
    if let Some(after) = wanted_wait(headers) {
        return Some(Failure::retry_after(after, codes::TOLD_TO_WAIT, said));
    }
    Some(match status.as_u16() {
        429 => Failure::retry_after(RETRY_AFTER_DEFAULT, codes::TOLD_TO_WAIT, said),
        401 | 403 => Failure::retry(codes::REFUSED, format!("{said}: check the step's credentials")),
        408 | 425 | 500..=599 => Failure::retry(codes::SERVER_ERROR, said),
        300..=399 => {
            Failure::reject(codes::REDIRECTED, format!("{said}: redirects are not followed, write the final URL"))
        }
        _ => Failure::reject(codes::REJECTED, said),
    })
}

/// Returns the wait that the server asks for, from 1 s to one day.
fn wanted_wait(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok();
    let wait = retry_after::read(text(header::RETRY_AFTER)?, text(header::DATE), SystemTime::now())?;
    Some(wait.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX))
}

/// Returns the failure of a call without a complete answer: whether the server acted is unknown, so it is repeated.
pub fn error_failure(error: &reqwest::Error) -> Failure {
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(NoneAllowed(refused)) = inner.downcast_ref() {
            return Failure::retry(codes::ADDRESS_REFUSED, refused.to_string());
        }
        cause = inner.source();
    }
    if error.is_timeout() {
        timed_out()
    } else if error.is_connect() {
        Failure::retry(codes::UNREACHABLE, format!("the server cannot be reached: {}", innermost(error)))
    } else if error.is_builder() {
        Failure::reject(codes::BAD_REQUEST, "no request can be made of this item")
    } else {
        broken(&innermost(error))
    }
}

pub fn timed_out() -> Failure {
    Failure::retry(codes::TIMEOUT, "there was no complete answer in time")
}

/// Returns the text of the innermost cause: the operating system, TLS and the protocol do not name the URL, the outer
/// layers do.
fn innermost(error: &reqwest::Error) -> String {
    let mut cause = error.source();
    let mut text = None;
    while let Some(inner) = cause {
        text = Some(inner.to_string());
        cause = inner.source();
    }
    text.unwrap_or_else(|| "no cause is given".to_owned())
}

/// Returns the output of a 2xx answer.
pub fn body_output(content_type: Option<&str>, body: Vec<u8>, answer: Answer) -> Result<Document, Failure> {
    if body.is_empty() {
        return Ok(None);
    }
    let media_type =
        content_type.and_then(|text| text.split(';').next()).unwrap_or_default().trim().to_ascii_lowercase();
    let is_said_json = media_type == "application/json" || media_type.ends_with("+json");
    // a text that looks like a number stays a text
    let may_be_json = media_type.is_empty() || matches!(body.trim_ascii_start().first(), Some(b'{' | b'['));
    if is_said_json || may_be_json || answer == Answer::Json {
        check_bounds(&body)?;
        match serde_json::from_slice::<Value>(&body) {
            Ok(value) => return Ok((!value.is_null()).then(|| value.into())),
            Err(_) if is_said_json || answer == Answer::Json => return Err(broken("it is not JSON")),
            Err(_) => {}
        }
    }
    let text = String::from_utf8(body)
        .map_err(|_| Failure::reject(codes::NOT_TEXT, "the answer is neither JSON nor text in UTF-8"))?;
    Ok(Some(Value::String(text).into()))
}

/// Checks the limits on the text, before values are built from it: a few bytes of JSON can become many bytes of memory.
fn check_bounds(json: &[u8]) -> Result<(), Failure> {
    let (mut depth, mut members, mut in_string, mut escaped) = (0_usize, 0_usize, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => {
                depth += 1;
                members += 1;
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => members += 1,
            _ => {}
        }
        if depth > NESTING_MAX || members > MEMBERS_MAX {
            return Err(Failure::reject(
                codes::OUTPUT_TOO_LARGE,
                format!("the answer has more than {MEMBERS_MAX} members or nests deeper than {NESTING_MAX}"),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use honeyflow_runtime::Class;
    use serde_json::json;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn wf_29_every_status_has_its_class() {
        let class = |status: u16| {
            status_failure(StatusCode::from_u16(status).unwrap(), &HeaderMap::new()).map(|failure| failure.class)
        };
        for status in 100..1000 {
            let expected = match status {
                200..=299 => None,
                429 => Some(Class::RetryAfter),
                401 | 403 | 408 | 425 | 500..=599 => Some(Class::Retry),
                _ => Some(Class::Reject),
            };
            assert_eq!(class(status), expected, "{status}");
        }
        let refused = status_failure(StatusCode::FORBIDDEN, &HeaderMap::new()).unwrap();
        assert_eq!((refused.class, &*refused.code), (Class::Retry, "refused"));
    }

    #[test]
    fn wf_29_retry_after_is_obeyed_from_one_second_to_one_day() {
        let wait = |pairs: &[(&'static str, &'static str)]| wanted_wait(&headers(pairs)).map(|wait| wait.as_secs());
        assert_eq!(wait(&[]), None);
        assert_eq!(wait(&[("retry-after", "120")]), Some(120));
        assert_eq!(wait(&[("retry-after", "0")]), Some(1), "a shorter wait would be a busy loop");
        assert_eq!(wait(&[("retry-after", "99999999999999999999999999")]), Some(86_400));
        assert_eq!(wait(&[("retry-after", "Sun, 06 Nov 1994 07:00:00 GMT")]), Some(1), "it is past");
        let server_clock = ("date", "Sun, 06 Nov 1994 08:50:07 GMT");
        assert_eq!(wait(&[("retry-after", "Sun, 06 Nov 1994 08:50:37 GMT"), server_clock]), Some(30));
        assert_eq!(wait(&[("retry-after", "soon")]), None);
    }

    #[test]
    fn wf_29_retry_after_goes_before_the_status() {
        for status in [301, 403, 404, 429, 503] {
            let failure =
                status_failure(StatusCode::from_u16(status).unwrap(), &headers(&[("retry-after", "9")])).unwrap();
            assert_eq!((failure.class, failure.after), (Class::RetryAfter, Some(Duration::from_secs(9))), "{status}");
        }
        assert_eq!(status_failure(StatusCode::OK, &headers(&[("retry-after", "9")])), None);
    }

    #[test]
    fn wf_29_an_answer_is_json_text_or_nothing() {
        let any = |kind: Option<&str>, body: &str| body_output(kind, body.as_bytes().to_vec(), Answer::Any);
        let some = |value: Value| Ok(Some(value.into()));
        assert_eq!(any(Some("application/json"), "{\"a\":1}"), some(json!({"a": 1})));
        assert_eq!(any(Some("Application/Problem+JSON; charset=utf-8"), "[1]"), some(json!([1])));
        assert_eq!(any(Some("application/json"), "null"), Ok(None));
        assert_eq!(any(None, "42"), some(json!(42)));
        assert_eq!(any(None, "fine"), some(json!("fine")));
        assert_eq!(any(Some("text/plain"), "42"), some(json!("42")));
        assert_eq!(any(Some("text/plain"), " {\"a\":1}"), some(json!({"a": 1})));
        assert_eq!(any(Some("text/html"), "<p>ok</p>"), some(json!("<p>ok</p>")));
        assert_eq!(any(Some("application/json"), ""), Ok(None));
        let failed =
            |kind: Option<&str>, body: &[u8], answer| body_output(kind, body.to_vec(), answer).unwrap_err().code;
        assert_eq!(failed(Some("application/json"), b"{\"a\":", Answer::Any), "broken-answer");
        assert_eq!(failed(Some("text/html"), b"<p>ok</p>", Answer::Json), "broken-answer");
        assert_eq!(failed(Some("image/png"), b"\x89PNG", Answer::Any), "not-text");
    }

    #[test]
    fn se_23_answers_are_bounded_before_they_are_built() {
        let read = |text: String| body_output(None, text.into_bytes(), Answer::Any).map(|_| ());
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let wide = |members: usize| format!("[{}]", vec!["0"; members].join(","));
        for (at_limit, beyond, far_beyond) in [
            (nested(NESTING_MAX), nested(NESTING_MAX + 1), nested(NESTING_MAX * 1000)),
            (wide(MEMBERS_MAX), wide(MEMBERS_MAX + 1), wide(MEMBERS_MAX * 30)),
        ] {
            assert_eq!(read(at_limit), Ok(()));
            assert_eq!(read(beyond).unwrap_err().code, "output-too-large");
            assert_eq!(read(far_beyond).unwrap_err().code, "output-too-large");
        }
        assert_eq!(read(format!("[\"{}\\\"[\"]", "[{,".repeat(200_000))), Ok(()), "brackets in a text are text");
    }
}
