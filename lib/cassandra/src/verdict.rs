//! Judges errors: whether to retry, and whether the error counts against the health of the server.
//!
//! | answer of the server                          | executed | retry          | health |
//! |-----------------------------------------------|----------|----------------|--------|
//! | unavailable                                   | no       | once elsewhere |        |
//! | bootstrapping                                 | no       | elsewhere      | counts |
//! | read timeout, enough replicas, no data        | no       | once elsewhere | counts |
//! | read timeout otherwise                        | no       | never          | counts |
//! | write timeout of a batch log                  | no       | once elsewhere | counts |
//! | write timeout otherwise                       | unknown  | elsewhere      | counts |
//! | overloaded                                    | unknown  | elsewhere      | counts |
//! | server error                                  | unknown  | elsewhere      |        |
//! | failures, truncate, conditional unknown       | unknown  | never          |        |
//! | wrong requests                                | no       | never          |        |
//!
//! If a request may have been executed, the pool retries it only if it is idempotent.

use honeyflow_pool::{Execution, Fault, Kind, RetryPolicy, Verdict};

use crate::error::Cause;
use crate::wire::{Code, Refusal};

pub fn verdict(cause: &Cause) -> Verdict {
    match cause {
        Cause::Connect(_) | Cause::Tls(_) | Cause::Version { .. } | Cause::Closed => Verdict::unreachable(),
        Cause::Login(_) => Verdict::login(),
        // Other servers may speak a version that can carry it; if none does, the request is at fault.
        Cause::KeyspaceUnspoken(_) => {
            Verdict { kind: Kind::Caller, again: RetryPolicy::Elsewhere, ..Verdict::refused(0) }
        }
        // Neither the server nor the request is at fault: other servers speak the right version.
        Cause::OtherVersion { .. } => Verdict { kind: Kind::Protocol, health: false, ..Verdict::unreachable() },
        Cause::Lost { sent: false, .. } => Verdict { kind: Kind::Protocol, ..Verdict::unreachable() },
        Cause::Silent { asked: "QUERY" | "PREPARE" | "EXECUTE" | "BATCH", .. } => {
            Verdict { kind: Kind::UseTimeout, ..Verdict::lost() }
        }
        // This is in the handshake: no request was sent yet.
        Cause::Silent { .. } => Verdict::unreachable(),
        Cause::Lost { .. }
        | Cause::Ended(_)
        | Cause::Malformed(_)
        | Cause::Unexpected { .. }
        | Cause::Stranger(_)
        | Cause::Stuck(_) => Verdict::lost(),
        Cause::Unfit(_) | Cause::TooLong(_) | Cause::TimestampOnConditional | Cause::KeyspaceOfPrepared(_) => {
            Verdict { kind: Kind::Caller, ..Verdict::refused(0) }
        }
        Cause::Refused(refusal) => refused(refusal),
    }
}

fn refused(refusal: &Refusal) -> Verdict {
    let server = |executed, again, health| Verdict {
        kind: Kind::Server(refusal.code.number()),
        fault: Fault::Server,
        executed,
        again,
        health,
        retry_after: None,
    };
    match &refusal.code {
        Code::Unavailable { .. } => server(Execution::No, RetryPolicy::ElsewhereOnce, false),
        Code::Bootstrapping => server(Execution::No, RetryPolicy::Elsewhere, true),
        Code::ReadTimeout { received, required, data_present, .. } => {
            let only_data_is_missing = received >= required && !data_present;
            server(
                Execution::No,
                if only_data_is_missing { RetryPolicy::ElsewhereOnce } else { RetryPolicy::Never },
                true,
            )
        }
        Code::WriteTimeout { kind, .. } if kind == "BATCH_LOG" => {
            server(Execution::No, RetryPolicy::ElsewhereOnce, true)
        }
        Code::WriteTimeout { .. } | Code::Overloaded => server(Execution::Unknown, RetryPolicy::Elsewhere, true),
        Code::Server => server(Execution::Unknown, RetryPolicy::Elsewhere, false),
        Code::ReadFailure { .. } | Code::FunctionFailure { .. } => server(Execution::No, RetryPolicy::Never, false),
        Code::Unprepared { .. } => server(Execution::No, RetryPolicy::Elsewhere, false),
        Code::WriteFailure { .. }
        | Code::CdcWriteFailure
        | Code::CasUnknown { .. }
        | Code::Truncate
        | Code::Protocol
        | Code::Other(_) => server(Execution::Unknown, RetryPolicy::Never, false),
        Code::BadCredentials => Verdict::login(),
        // No other request would help: the operator has to grant the permission.
        Code::Unauthorized => Verdict { fault: Fault::Caller, ..Verdict::refused(refusal.code.number()) },
        Code::Syntax | Code::Invalid | Code::Config | Code::AlreadyExists { .. } => {
            Verdict::refused(refusal.code.number())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Consistency::Quorum;

    fn judged(code: Code) -> (Execution, RetryPolicy, bool) {
        let verdict = verdict(&Cause::Refused(Refusal { code, message: String::new() }));
        (verdict.executed, verdict.again, verdict.health)
    }

    #[test]
    fn cq_15_retries_follow_the_table() {
        let write =
            |kind: &str| Code::WriteTimeout { consistency: Quorum, received: 0, required: 2, kind: kind.to_owned() };
        let read =
            |received, data_present| Code::ReadTimeout { consistency: Quorum, received, required: 2, data_present };
        let (no, unknown) = (Execution::No, Execution::Unknown);
        for (code, expected) in [
            (Code::Unavailable { consistency: Quorum, required: 2, alive: 1 }, (no, RetryPolicy::ElsewhereOnce, false)),
            (Code::Bootstrapping, (no, RetryPolicy::Elsewhere, true)),
            (read(2, false), (no, RetryPolicy::ElsewhereOnce, true)),
            (read(1, false), (no, RetryPolicy::Never, true)),
            (read(2, true), (no, RetryPolicy::Never, true)),
            (write("BATCH_LOG"), (no, RetryPolicy::ElsewhereOnce, true)),
            (write("SIMPLE"), (unknown, RetryPolicy::Elsewhere, true)),
            (Code::Overloaded, (unknown, RetryPolicy::Elsewhere, true)),
            (Code::Server, (unknown, RetryPolicy::Elsewhere, false)),
            (Code::Truncate, (unknown, RetryPolicy::Never, false)),
            (Code::CasUnknown { consistency: Quorum, received: 1, required: 2 }, (unknown, RetryPolicy::Never, false)),
            (Code::Syntax, (no, RetryPolicy::Never, false)),
            (Code::Invalid, (no, RetryPolicy::Never, false)),
            (Code::Unauthorized, (no, RetryPolicy::Never, false)),
        ] {
            assert_eq!(judged(code.clone()), expected, "{code}");
        }
    }

    #[test]
    fn cq_15_the_verdict_on_a_lost_connection_depends_on_whether_the_request_was_sent() {
        let lost = |sent| verdict(&Cause::Lost { why: Box::new(Cause::Closed), sent });
        assert_eq!((lost(true).executed, lost(false).executed), (Execution::Unknown, Execution::No));
        assert!(lost(true).health);
        let silent = |asked| verdict(&Cause::Silent { asked, within: std::time::Duration::ZERO });
        assert_eq!((silent("EXECUTE").kind, silent("EXECUTE").executed), (Kind::UseTimeout, Execution::Unknown));
        assert_eq!((silent("STARTUP").kind, silent("STARTUP").executed), (Kind::Connect, Execution::No));
        let login = verdict(&Cause::Login(String::new()));
        assert_eq!((login.kind, login.health), (Kind::Login, false));
        let unfit = verdict(&Cause::TimestampOnConditional);
        assert_eq!((unfit.kind, unfit.executed), (Kind::Caller, Execution::No));
    }
}
