//! What an error means for further tries and for the health of a server.
//!
//! | what the server said                          | executed | again          | health |
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
//! Where it may have been executed, only idempotent requests are tried again; the pool sees to that.

use honeyflow_pool::{Again, Executed, Fault, Kind, Verdict};

use crate::error::Cause;
use crate::wire::{Code, Refusal};

pub fn verdict(cause: &Cause) -> Verdict {
    match cause {
        Cause::Connect(_) | Cause::Tls(_) | Cause::Version { .. } | Cause::Closed => Verdict::unreachable(),
        Cause::Login(_) => Verdict::login(),
        // Others may speak a version that can; where none does, it stays the request's own fault.
        Cause::KeyspaceUnspoken(_) => Verdict { kind: Kind::Caller, again: Again::Elsewhere, ..Verdict::refused(0) },
        // No fault of anybody: others speak the right one.
        Cause::OtherVersion { .. } => Verdict { kind: Kind::Protocol, health: false, ..Verdict::unreachable() },
        Cause::Lost { sent: false, .. } => Verdict { kind: Kind::Protocol, ..Verdict::unreachable() },
        Cause::Silent { asked: "QUERY" | "PREPARE" | "EXECUTE" | "BATCH", .. } => {
            Verdict { kind: Kind::UseTimeout, ..Verdict::lost() }
        }
        // In the handshake: nothing was asked for yet.
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
        Code::Unavailable { .. } => server(Executed::No, Again::ElsewhereOnce, false),
        Code::Bootstrapping => server(Executed::No, Again::Elsewhere, true),
        Code::ReadTimeout { received, required, data_present, .. } => {
            let only_data_is_missing = received >= required && !data_present;
            server(Executed::No, if only_data_is_missing { Again::ElsewhereOnce } else { Again::Never }, true)
        }
        Code::WriteTimeout { kind, .. } if kind == "BATCH_LOG" => server(Executed::No, Again::ElsewhereOnce, true),
        Code::WriteTimeout { .. } | Code::Overloaded => server(Executed::Unknown, Again::Elsewhere, true),
        Code::Server => server(Executed::Unknown, Again::Elsewhere, false),
        Code::ReadFailure { .. } | Code::FunctionFailure { .. } => server(Executed::No, Again::Never, false),
        Code::Unprepared { .. } => server(Executed::No, Again::Elsewhere, false),
        Code::WriteFailure { .. }
        | Code::CdcWriteFailure
        | Code::CasUnknown { .. }
        | Code::Truncate
        | Code::Protocol
        | Code::Other(_) => server(Executed::Unknown, Again::Never, false),
        Code::BadCredentials => Verdict::login(),
        // Nothing about the request would help: somebody has to grant it.
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

    fn judged(code: Code) -> (Executed, Again, bool) {
        let verdict = verdict(&Cause::Refused(Refusal { code, message: String::new() }));
        (verdict.executed, verdict.again, verdict.health)
    }

    #[test]
    fn cq_15_further_tries_follow_the_table() {
        let write =
            |kind: &str| Code::WriteTimeout { consistency: Quorum, received: 0, required: 2, kind: kind.to_owned() };
        let read =
            |received, data_present| Code::ReadTimeout { consistency: Quorum, received, required: 2, data_present };
        let (no, unknown) = (Executed::No, Executed::Unknown);
        for (code, expected) in [
            (Code::Unavailable { consistency: Quorum, required: 2, alive: 1 }, (no, Again::ElsewhereOnce, false)),
            (Code::Bootstrapping, (no, Again::Elsewhere, true)),
            (read(2, false), (no, Again::ElsewhereOnce, true)),
            (read(1, false), (no, Again::Never, true)),
            (read(2, true), (no, Again::Never, true)),
            (write("BATCH_LOG"), (no, Again::ElsewhereOnce, true)),
            (write("SIMPLE"), (unknown, Again::Elsewhere, true)),
            (Code::Overloaded, (unknown, Again::Elsewhere, true)),
            (Code::Server, (unknown, Again::Elsewhere, false)),
            (Code::Truncate, (unknown, Again::Never, false)),
            (Code::CasUnknown { consistency: Quorum, received: 1, required: 2 }, (unknown, Again::Never, false)),
            (Code::Syntax, (no, Again::Never, false)),
            (Code::Invalid, (no, Again::Never, false)),
            (Code::Unauthorized, (no, Again::Never, false)),
        ] {
            assert_eq!(judged(code.clone()), expected, "{code}");
        }
    }

    #[test]
    fn cq_15_a_lost_connection_tells_whether_the_request_had_left() {
        let lost = |sent| verdict(&Cause::Lost { why: Box::new(Cause::Closed), sent });
        assert_eq!((lost(true).executed, lost(false).executed), (Executed::Unknown, Executed::No));
        assert!(lost(true).health);
        let silent = |asked| verdict(&Cause::Silent { asked, within: std::time::Duration::ZERO });
        assert_eq!((silent("EXECUTE").kind, silent("EXECUTE").executed), (Kind::UseTimeout, Executed::Unknown));
        assert_eq!((silent("STARTUP").kind, silent("STARTUP").executed), (Kind::Connect, Executed::No));
        let login = verdict(&Cause::Login(String::new()));
        assert_eq!((login.kind, login.health), (Kind::Login, false));
        let unfit = verdict(&Cause::TimestampOnConditional);
        assert_eq!((unfit.kind, unfit.executed), (Kind::Caller, Executed::No));
    }
}
