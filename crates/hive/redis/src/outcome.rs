//! Classifies errors of Redis and of the connection: class, code, hint, and whether the connection can be used again.
//!
//! An error that may pass by itself is `Retry`. An error that only a person can fix is `Fatal`: a join that meets it
//! fails at once.

use std::fmt::Display;

use honeyflow_runtime::{Class, Failure};
use redis::{ErrorKind, RedisError};

use crate::codes;

pub(crate) struct Outcome {
    pub failure: Failure,
    /// Whether the server has answered, so that the next request may use the same connection.
    pub answered: bool,
}

/// The outcome of a request that was sent.
pub(crate) fn judge(error: &RedisError, doing: &str, place: impl Display) -> Outcome {
    judge_as(error, codes::CONNECTION_LOST, doing, place)
}

/// The failure of a connection that could not be opened.
pub(crate) fn connect_failure(error: &RedisError, doing: &str, place: impl Display) -> Failure {
    judge_as(error, codes::NO_CONNECTION, doing, place).failure
}

fn judge_as(error: &RedisError, broken: &'static str, doing: &str, place: impl Display) -> Outcome {
    let said = error.to_string();
    let (class, code) = match error.kind() {
        ErrorKind::AuthenticationFailed => (Class::Fatal, codes::ACCESS_DENIED),
        ErrorKind::InvalidClientConfig => (Class::Fatal, codes::NO_TLS),
        ErrorKind::Io if error.is_timeout() && broken != codes::NO_CONNECTION => (Class::Retry, codes::NO_ANSWER),
        ErrorKind::Server(_) | ErrorKind::Extension => answer(error.code().unwrap_or_default(), &said),
        _ => (Class::Retry, broken),
    };
    let is_answer = matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
    // This server is read-only for now; a new connection may lead to another server.
    let answered = is_answer && !matches!(code, codes::READ_ONLY | codes::SERVER_STARTING | codes::ACCESS_DENIED);
    let message = format!("{doing} at {place}: {said}{}", hint(code));
    Outcome { failure: Failure::new(class, code, message), answered }
}

/// Classifies an error answer. Before 7.0 an error inside a script has the code `ERR`, or its position in the script as
/// code, and the real code is somewhere in the text.
fn answer(code: &str, said: &str) -> (Class, &'static str) {
    let wrapped = code == "ERR" || code.starts_with('@');
    let is = |name: &str| code == name || (wrapped && said.contains(&format!("-{name} ")));
    const CODES: &[(&str, Class, &str)] = &[
        ("READONLY", Class::Retry, codes::READ_ONLY),
        ("LOADING", Class::Retry, codes::SERVER_STARTING),
        ("MASTERDOWN", Class::Retry, codes::SERVER_STARTING),
        ("NOREPLICAS", Class::Retry, codes::NO_REPLICA),
        ("MISCONF", Class::Retry, codes::SERVER_CANNOT_SAVE),
        ("OOM", Class::Retry, codes::OUT_OF_MEMORY),
        ("BUSY", Class::Retry, codes::SERVER_BUSY),
        ("MOVED", Class::Retry, codes::CLUSTER_MOVING),
        ("ASK", Class::Retry, codes::CLUSTER_MOVING),
        ("TRYAGAIN", Class::Retry, codes::CLUSTER_MOVING),
        ("CLUSTERDOWN", Class::Retry, codes::CLUSTER_DOWN),
        ("NOAUTH", Class::Fatal, codes::ACCESS_DENIED),
        ("WRONGPASS", Class::Fatal, codes::ACCESS_DENIED),
        ("NOPERM", Class::Fatal, codes::NO_PRIVILEGE),
        ("WRONGTYPE", Class::Fatal, codes::KEY_TAKEN),
    ];
    if let Some((_, class, code)) = CODES.iter().find(|(name, ..)| is(name)) {
        return (*class, code);
    }
    match said {
        said if said.contains("NORUNID") => (Class::Fatal, codes::NO_RUN_ID),
        said if said.contains("max number of clients") => (Class::Retry, codes::TOO_MANY_CONNECTIONS),
        // One of our scripts failed in the middle; that does not pass by itself.
        said if said.contains("user_script") => (Class::Fatal, codes::HIVE_ERROR),
        _ => (Class::Retry, codes::HIVE_ERROR),
    }
}

fn hint(code: &str) -> &'static str {
    match code {
        codes::NO_CONNECTION => "; is the server up, and the address right?",
        codes::NO_ANSWER | codes::CONNECTION_LOST => "; the outcome of the request is unknown",
        codes::NO_TLS => "; does the server support TLS, and does this machine trust its certificate?",
        codes::ACCESS_DENIED => "; check user and password in the address",
        codes::NO_PRIVILEGE => {
            "; its user needs +@scripting +@read +@write +info +time +wait on keys ~{hive:*, for example: \
             ACL SETUSER honeyflow on >… ~{hive:* +@scripting +@read +@write +info +time +wait"
        }
        codes::READ_ONLY => {
            "; this server is read-only: give the address of the primary, or wait until one is promoted"
        }
        codes::NO_REPLICA => "; the server has fewer replicas than it requires (min-replicas-to-write)",
        codes::SERVER_CANNOT_SAVE => "; the server cannot write its snapshot to disk: check its log",
        codes::OUT_OF_MEMORY => "; raise maxmemory, or use a separate server for the hive",
        codes::KEY_TAKEN => "; another program uses a key of this hive for something else: give the hive another name",
        codes::TOO_MANY_CONNECTIONS => "; raise maxclients: a node has up to three connections",
        codes::NO_RUN_ID => {
            "; the server does not report its run_id (INFO server), so the hive cannot see whether it was replaced"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the texts of Redis 6.2, and those of later versions.
    #[test]
    fn hv_1_an_error_inside_a_script_is_told_apart_on_every_version() {
        let read_only = "-READONLY You can't write against a read only replica.";
        let full = "-OOM command not allowed when used memory > 'maxmemory'.";
        for (code, said, means) in [
            ("READONLY", "You can't write against a read only replica. script: 9a1, on @user_script:25.", "read-only"),
            ("@user_script:", &format!("25: {read_only}"), "read-only"),
            ("ERR", &format!("Error running script (call to f_9a1): @user_script:25: {read_only}"), "read-only"),
            ("OOM", "command not allowed when used memory > 'maxmemory'.", "out-of-memory"),
            ("ERR", &format!("Error running script (call to f_9a1): @user_script:30: {full}"), "out-of-memory"),
            ("ERR", "user_script:31: NORUNID script: 9a1", "no-run-id"),
            ("ERR", "max number of clients reached", "too-many-connections"),
            ("ERR", "unknown command", "hive-error"),
        ] {
            assert_eq!(answer(code, said).1, means, "{code} {said}");
        }
        let passes = |said| answer("ERR", said).0 == Class::Retry;
        assert!(passes("whatever comes next") && !passes("@user_script:31: attempt to compare nil with number"));
    }
}
