//! Judges errors: whether to retry, and whether the error counts against the health of the server.
//!
//! | error                                              | executed | retry             | health |
//! |----------------------------------------------------|----------|-------------------|--------|
//! | no connection, or it ended before the request      | no       | elsewhere         | counts |
//! | connection lost, or the answer is not HTTP         | unknown  | elsewhere         | counts |
//! | 429                                                | no       | elsewhere         | counts |
//! | 502, 503, 504                                      | unknown  | elsewhere         | counts |
//! | 408, 500 and the other 5xx                         | unknown  | once elsewhere    |        |
//! | 401                                                | no       | never             |        |
//! | 403, 3xx: the operator has to change a setting     | no       | never             |        |
//! | the other 4xx                                      | no       | never             |        |
//! | an answer that is too long                         | unknown  | never             |        |
//!
//! If a request may have been executed, the pool retries it only if it is idempotent.

use std::time::Duration;

use honeyflow_pool::{Execution, Fault, Kind, RetryPolicy, Verdict};

use crate::error::{Cause, Refusal};

/// The wait after a 429 without `retry-after`; OpenSearch never sends one.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);

pub fn verdict(cause: &Cause) -> Verdict {
    match cause {
        Cause::Connect(_) | Cause::Tls(_) | Cause::NotHttp2 | Cause::Unreachable { .. } => Verdict::unreachable(),
        // These happen while connecting or in discovery: no caller's request was sent.
        Cause::Silent { .. } | Cause::Cluster(_) => Verdict::unreachable(),
        Cause::Secret(_) => Verdict::login(),
        Cause::NotSent(_) => Verdict { kind: Kind::Protocol, ..Verdict::unreachable() },
        Cause::Lost(_) | Cause::Malformed(_) | Cause::Endless => Verdict::lost(),
        Cause::TooLong { .. } => {
            Verdict { fault: Fault::Request, again: RetryPolicy::Never, health: false, ..Verdict::lost() }
        }
        Cause::Request(_) => Verdict { kind: Kind::Caller, ..Verdict::refused(0) },
        Cause::Refused(refusal) => refused(refusal),
    }
}

fn refused(refusal: &Refusal) -> Verdict {
    let kind = Kind::Server(refusal.status.into());
    let server = |executed, again, health| Verdict {
        kind,
        fault: Fault::Server,
        executed,
        again,
        health,
        retry_after: refusal.retry_after,
    };
    match refusal.status {
        429 => Verdict {
            retry_after: Some(refusal.retry_after.unwrap_or(RETRY_AFTER_DEFAULT)),
            ..server(Execution::No, RetryPolicy::Elsewhere, true)
        },
        502..=504 => server(Execution::Unknown, RetryPolicy::Elsewhere, true),
        408 | 500..=599 => server(Execution::Unknown, RetryPolicy::ElsewhereOnce, false),
        401 => Verdict::login(),
        403 | 300..=399 => Verdict { fault: Fault::Caller, ..Verdict::refused(refusal.status.into()) },
        status => Verdict::refused(status.into()),
    }
}

/// Whether an answer to the health check with this status shows a usable server. A status that counts against the
/// server's health does not.
pub fn is_alive(status: u16) -> bool {
    !matches!(status, 401 | 429 | 502..=504)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn judged(status: u16, retry_after: Option<u64>) -> Verdict {
        let retry_after = retry_after.map(Duration::from_secs);
        verdict(&Cause::Refused(Refusal { status, kind: None, retry_after, body: Bytes::new() }))
    }

    #[test]
    fn pl_142_statuses_follow_the_table() {
        let (no, unknown) = (Execution::No, Execution::Unknown);
        for (status, expected) in [
            (301, (Fault::Caller, no, RetryPolicy::Never, false)),
            (400, (Fault::Request, no, RetryPolicy::Never, false)),
            (403, (Fault::Caller, no, RetryPolicy::Never, false)),
            (404, (Fault::Request, no, RetryPolicy::Never, false)),
            (405, (Fault::Request, no, RetryPolicy::Never, false)),
            (408, (Fault::Server, unknown, RetryPolicy::ElsewhereOnce, false)),
            (409, (Fault::Request, no, RetryPolicy::Never, false)),
            (413, (Fault::Request, no, RetryPolicy::Never, false)),
            (429, (Fault::Server, no, RetryPolicy::Elsewhere, true)),
            (500, (Fault::Server, unknown, RetryPolicy::ElsewhereOnce, false)),
            (502, (Fault::Server, unknown, RetryPolicy::Elsewhere, true)),
            (503, (Fault::Server, unknown, RetryPolicy::Elsewhere, true)),
            (504, (Fault::Server, unknown, RetryPolicy::Elsewhere, true)),
            (599, (Fault::Server, unknown, RetryPolicy::ElsewhereOnce, false)),
        ] {
            let verdict = judged(status, None);
            assert_eq!((verdict.fault, verdict.executed, verdict.again, verdict.health), expected, "{status}");
            assert_eq!(verdict.kind, Kind::Server(status.into()));
        }
        assert_eq!(judged(401, None), Verdict::login());
    }

    #[test]
    fn pl_142_a_throttled_request_says_when_to_retry() {
        assert_eq!(judged(429, None).retry_after, Some(RETRY_AFTER_DEFAULT));
        assert_eq!(judged(429, Some(7)).retry_after, Some(Duration::from_secs(7)));
        assert_eq!(judged(503, Some(7)).retry_after, Some(Duration::from_secs(7)));
        assert_eq!(judged(503, None).retry_after, None);
    }

    #[test]
    fn pl_142_a_request_that_was_not_sent_was_not_executed() {
        assert_eq!(verdict(&Cause::NotSent(None)).executed, Execution::No);
        assert!(verdict(&Cause::NotSent(None)).health);
        assert_eq!(verdict(&Cause::Endless).executed, Execution::Unknown);
        let long = verdict(&Cause::TooLong { bytes_max: 1 });
        assert_eq!((long.executed, long.again, long.health), (Execution::Unknown, RetryPolicy::Never, false));
        assert_eq!(verdict(&Cause::Secret(String::new())).kind, Kind::Login);
    }
}
