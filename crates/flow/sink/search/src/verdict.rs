//! What an error means for further tries and for the health of a server.
//!
//! | what happened                            | executed | again          | health |
//! |------------------------------------------|----------|----------------|--------|
//! | no connection, or it ended before        | no       | elsewhere      | counts |
//! | lost, or not HTTP                        | unknown  | elsewhere      | counts |
//! | 429                                      | no       | elsewhere      | counts |
//! | 502, 503, 504                            | unknown  | elsewhere      | counts |
//! | 408, 500 and the other 5xx               | unknown  | once elsewhere |        |
//! | 401                                      | no       | never          |        |
//! | 403, 3xx: somebody has to change a setting | no     | never          |        |
//! | the other 4xx                            | no       | never          |        |
//! | an answer that is too long               | unknown  | never          |        |
//!
//! Where it may have been executed, only idempotent requests are tried again; the pool sees to that.

use std::time::Duration;

use honeyflow_pool::{Again, Executed, Fault, Kind, Verdict};

use crate::error::{Cause, Refusal};

/// For a 429 that does not say; OpenSearch never does.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);

pub fn verdict(cause: &Cause) -> Verdict {
    match cause {
        Cause::Connect(_) | Cause::Tls(_) | Cause::NotHttp2 | Cause::Unreachable { .. } => Verdict::unreachable(),
        // Asked for while connecting or by us: nobody's request was sent.
        Cause::Silent { .. } | Cause::Cluster(_) => Verdict::unreachable(),
        Cause::Secret(_) => Verdict::login(),
        Cause::NotSent(_) => Verdict { kind: Kind::Protocol, ..Verdict::unreachable() },
        Cause::Lost(_) | Cause::Malformed(_) | Cause::Endless => Verdict::lost(),
        Cause::TooLong { .. } => {
            Verdict { fault: Fault::Request, again: Again::Never, health: false, ..Verdict::lost() }
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
            ..server(Executed::No, Again::Elsewhere, true)
        },
        502..=504 => server(Executed::Unknown, Again::Elsewhere, true),
        408 | 500..=599 => server(Executed::Unknown, Again::ElsewhereOnce, false),
        401 => Verdict::login(),
        403 | 300..=399 => Verdict { fault: Fault::Caller, ..Verdict::refused(refusal.status.into()) },
        status => Verdict::refused(status.into()),
    }
}

/// Whether an answer with this status shows a server that can be used: the same that is held against it is no sign of life.
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
        let (no, unknown) = (Executed::No, Executed::Unknown);
        for (status, expected) in [
            (301, (Fault::Caller, no, Again::Never, false)),
            (400, (Fault::Request, no, Again::Never, false)),
            (403, (Fault::Caller, no, Again::Never, false)),
            (404, (Fault::Request, no, Again::Never, false)),
            (405, (Fault::Request, no, Again::Never, false)),
            (408, (Fault::Server, unknown, Again::ElsewhereOnce, false)),
            (409, (Fault::Request, no, Again::Never, false)),
            (413, (Fault::Request, no, Again::Never, false)),
            (429, (Fault::Server, no, Again::Elsewhere, true)),
            (500, (Fault::Server, unknown, Again::ElsewhereOnce, false)),
            (502, (Fault::Server, unknown, Again::Elsewhere, true)),
            (503, (Fault::Server, unknown, Again::Elsewhere, true)),
            (504, (Fault::Server, unknown, Again::Elsewhere, true)),
            (599, (Fault::Server, unknown, Again::ElsewhereOnce, false)),
        ] {
            let verdict = judged(status, None);
            assert_eq!((verdict.fault, verdict.executed, verdict.again, verdict.health), expected, "{status}");
            assert_eq!(verdict.kind, Kind::Server(status.into()));
        }
        assert_eq!(judged(401, None), Verdict::login());
    }

    #[test]
    fn pl_142_a_throttled_request_knows_when_to_come_again() {
        assert_eq!(judged(429, None).retry_after, Some(RETRY_AFTER_DEFAULT));
        assert_eq!(judged(429, Some(7)).retry_after, Some(Duration::from_secs(7)));
        assert_eq!(judged(503, Some(7)).retry_after, Some(Duration::from_secs(7)));
        assert_eq!(judged(503, None).retry_after, None);
    }

    #[test]
    fn pl_142_what_never_left_was_not_executed() {
        assert_eq!(verdict(&Cause::NotSent(None)).executed, Executed::No);
        assert!(verdict(&Cause::NotSent(None)).health);
        assert_eq!(verdict(&Cause::Endless).executed, Executed::Unknown);
        let long = verdict(&Cause::TooLong { bytes_max: 1 });
        assert_eq!((long.executed, long.again, long.health), (Executed::Unknown, Again::Never, false));
        assert_eq!(verdict(&Cause::Secret(String::new())).kind, Kind::Login);
    }
}
