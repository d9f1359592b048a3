//! Reads the wait that an HTTP server asks for with `Retry-After`: a number of seconds, or a date. The caller decides
//! how long it really waits.

use std::time::{Duration, SystemTime};

/// Parses the header. `server_now` is the answer's `Date` header: a date is compared with that if it is given, so that
/// a wrong local clock does no harm. Returns `None` if the header is neither a number nor a date.
pub fn read(asked: &str, server_now: Option<&str>, now: SystemTime) -> Option<Duration> {
    let date = |text: &str| httpdate::parse_http_date(text.trim()).ok();
    let asked = asked.trim();
    if !asked.is_empty() && asked.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that overflows is a very long wait in any case.
        return Some(Duration::from_secs(asked.parse().unwrap_or(u64::MAX)));
    }
    let server_now = server_now.and_then(date).unwrap_or(now);
    Some(date(asked)?.duration_since(server_now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WF-29 PL-142
    #[test]
    fn retry_after_is_read_as_seconds_or_as_a_date() {
        // 1,000,000,000 s after the epoch is 01:46:40.
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let wait = |asked, server_now| read(asked, server_now, now).map(|wait| wait.as_secs());
        assert_eq!(wait("7", None), Some(7));
        assert_eq!(wait(" 0 ", None), Some(0));
        assert_eq!(wait("99999999999999999999999", None), Some(u64::MAX));
        assert_eq!(wait("Sun, 09 Sep 2001 01:47:00 GMT", None), Some(20));
        assert_eq!(wait("Sunday, 09-Sep-01 01:47:00 GMT", None), Some(20));
        assert_eq!(wait("Sun, 09 Sep 2001 01:46:00 GMT", None), Some(0), "it is past");
        assert_eq!(wait("Sun, 09 Sep 2001 01:47:00 GMT", Some("Sun, 09 Sep 2001 01:46:55 GMT")), Some(5));
        assert_eq!(wait("Sun, 09 Sep 2001 01:47:00 GMT", Some("nonsense")), Some(20));
        for nonsense in ["", "-5", "+5", "1.5", "soon", "12 s", "Sun, 99 Sep 2001 01:47:00 GMT"] {
            assert_eq!(wait(nonsense, None), None, "{nonsense}");
        }
    }
}
