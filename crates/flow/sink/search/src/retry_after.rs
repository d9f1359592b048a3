//! The wait that a server asks for: in seconds, or as a date.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, header};

/// A server may not stop its clients for good.
const MAX: Duration = Duration::from_secs(60 * 60);

/// A date is compared with the server's own `Date`, so that a clock that is wrong here does not count.
pub fn read(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let date = |name| headers.get(name)?.to_str().ok().and_then(|text| httpdate::parse_http_date(text.trim()).ok());
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a number has is long in any case.
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        let server_now = date(header::DATE).unwrap_or(now);
        date(header::RETRY_AFTER)?.duration_since(server_now).unwrap_or_default()
    };
    Some(wait.min(MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pl_142_retry_after_is_read_in_both_forms() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let asked = |lines: &[(&'static str, &'static str)]| {
            let headers = lines.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            read(&headers.collect(), now)
        };
        let secs = |secs| Some(Duration::from_secs(secs));
        assert_eq!(asked(&[("retry-after", "7")]), secs(7));
        assert_eq!(asked(&[("retry-after", " 0 ")]), secs(0));
        assert_eq!(asked(&[("retry-after", "99999999999999999999999")]), Some(MAX));
        // 1,000,000,000 s after the epoch is 01:46:40.
        assert_eq!(asked(&[("retry-after", "Sun, 09 Sep 2001 01:47:00 GMT")]), secs(20));
        assert_eq!(asked(&[("retry-after", "Sun, 09 Sep 2001 01:46:00 GMT")]), secs(0));
        let both = [("retry-after", "Sun, 09 Sep 2001 01:47:00 GMT"), ("date", "Sun, 09 Sep 2001 01:46:55 GMT")];
        assert_eq!(asked(&both), secs(5));
        for nonsense in ["", "-1", "soon", "1.5", "Sun, 99 Sep 2001 01:47:00 GMT"] {
            assert_eq!(asked(&[("retry-after", nonsense)]), None, "{nonsense}");
        }
        assert_eq!(asked(&[]), None);
    }
}
