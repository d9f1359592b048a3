//! The rate-limit fields of a response: `RateLimit-Policy` and `RateLimit` as structured fields, `Retry-After` in whole
//! seconds, and optionally the three older `X-RateLimit-*` fields.

use std::time::Duration;

use honeyflow_hive::limit::{Limit, Terms, definition::Decider};
use http::{HeaderMap, HeaderName, HeaderValue, header::RETRY_AFTER};

use crate::grpc::base64;

/// A multiple of three, so that its base64 needs no padding.
const PARTITION_BYTES: usize = 9;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const STATE: HeaderName = HeaderName::from_static("ratelimit");
const OLD_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const OLD_LEFT: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const OLD_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Whole seconds, rounded up so that a client that waits for them is not too early.
pub(crate) fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// Quotes a name for a structured field; characters that are not allowed there become `_`.
fn quoted(name: &str) -> String {
    let plain = |byte: char| if byte.is_ascii_graphic() && byte != '"' && byte != '\\' { byte } else { '_' };
    format!("\"{}\"", name.chars().map(plain).collect::<String>())
}

/// The partition key: which bucket it is, if a limit has one for each key. It is a part of the key's hash, which is
/// enough to distinguish two keys and does not reveal the key.
fn partition(key: &str, hash: u128) -> String {
    if key.is_empty() { String::new() } else { format!(";pk=:{}:", base64(&hash.to_be_bytes()[..PARTITION_BYTES])) }
}

/// Quota and window in whole seconds; for a shorter period the permits of one second. A concurrency limit has no
/// window.
fn policy(name: &str, terms: &Terms) -> String {
    if terms.decider == Decider::Slots {
        return format!("{};q={};qu=\"concurrent-requests\"", quoted(name), terms.burst);
    }
    let (quota, window) = match terms.rate.period_ms {
        period_ms if period_ms >= 1000 && period_ms % 1000 == 0 => (terms.rate.permits, period_ms / 1000),
        _ => ((terms.rate.as_per_second().floor() as u64).max(1), 1),
    };
    format!("{};q={quota};w={window}", quoted(name))
}

/// Writes the fields of a response. `retry` is set if the request was refused.
pub fn write(headers: &mut HeaderMap, limit: &Limit, key: &str, retry: Option<Duration>, old: bool) {
    let terms = limit.terms();
    let keyed = limit.key(key);
    let (peek, pk) = (keyed.peek(), partition(key, keyed.hash()));
    // A refused request is shown 0 permits left, even if a request with a lower cost might pass.
    let (left, reset) = match retry {
        Some(retry) => (0, seconds(retry).max(1)),
        None => (peek.left, seconds(peek.retry_after).max(1)),
    };
    let mut set = |name: HeaderName, value: String| {
        // Digits and a quoted name are always a valid value.
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    };
    set(POLICY, format!("{}{pk}", policy(limit.name(), &terms)));
    // It is not known when a slot becomes free, so only a refused request gets a time after which to try again.
    let has_reset = terms.decider != Decider::Slots || retry.is_some();
    let t = if has_reset { format!(";t={reset}") } else { String::new() };
    set(STATE, format!("{};r={left}{t}{pk}", quoted(limit.name())));
    if let Some(retry) = retry {
        set(RETRY_AFTER, seconds(retry).max(1).to_string());
    }
    if old {
        set(OLD_LIMIT, terms.burst.to_string());
        set(OLD_LEFT, left.to_string());
        set(OLD_RESET, reset.to_string());
    }
}

#[cfg(test)]
mod tests {
    use honeyflow_hive::limit::Definition;

    use super::*;

    /// HV-73
    #[test]
    fn hv_73_waits_are_rounded_up() {
        assert_eq!(seconds(Duration::ZERO), 0);
        assert_eq!(seconds(Duration::from_nanos(1)), 1);
        assert_eq!(seconds(Duration::from_millis(1000)), 1);
        assert_eq!(seconds(Duration::from_millis(1001)), 2);
    }

    #[test]
    fn hv_73_policies_are_structured_fields() {
        let terms = |quota: &str| Terms::from_definition(&Definition::parse("x", quota).unwrap()).unwrap();
        assert_eq!(policy("search", &terms("1000/s")), "\"search\";q=1000;w=1");
        assert_eq!(policy("mail", &terms("3/h")), "\"mail\";q=3;w=3600");
        let slots = Terms::from_definition(&Definition::slots("x", 8)).unwrap();
        assert_eq!(policy("workers", &slots), "\"workers\";q=8;qu=\"concurrent-requests\"");
        assert_eq!((partition("", 7), partition("a", 7).len()), (String::new(), 18));
        assert_ne!(partition("a", 7 << 100), partition("b", 8 << 100));
        assert_eq!(policy("tick", &terms("1/100ms")), "\"tick\";q=10;w=1");
        assert_eq!(policy("a\"b\\c\u{e9}", &terms("1/s")), "\"a_b_c_\";q=1;w=1");
    }
}
