//! What an error of Redis or of the way to it means: which class, which code, what to do, and whether the connection can
//! be used on.
//!
//! Whatever may pass by itself is `Retry`. What only a person can mend is `Fatal`: whoever joins with it is told at once.

use std::fmt::Display;

use honeyflow_runtime::{Class, Failure};
use redis::{ErrorKind, RedisError};

pub(crate) struct Outcome {
    pub failure: Failure,
    /// The server has answered: the next request may use the same connection.
    pub answered: bool,
}

/// Of a request that was sent.
pub(crate) fn judge(error: &RedisError, doing: &str, place: impl Display) -> Outcome {
    judge_as(error, "connection-lost", doing, place)
}

/// Of a connection that could not be made.
pub(crate) fn unconnected(error: &RedisError, doing: &str, place: impl Display) -> Failure {
    judge_as(error, "no-connection", doing, place).failure
}

fn judge_as(error: &RedisError, broken: &'static str, doing: &str, place: impl Display) -> Outcome {
    let said = error.to_string();
    let (class, code) = match error.kind() {
        ErrorKind::AuthenticationFailed => (Class::Fatal, "access-denied"),
        ErrorKind::InvalidClientConfig => (Class::Fatal, "no-tls"),
        ErrorKind::Io if error.is_timeout() && broken != "no-connection" => (Class::Retry, "no-answer"),
        ErrorKind::Server(_) | ErrorKind::Extension => answer(error.code().unwrap_or_default(), &said),
        _ => (Class::Retry, broken),
    };
    let is_answer = matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
    // One that only reads for now may be another server than the next connection leads to.
    let answered = is_answer && !matches!(code, "read-only" | "server-starting" | "access-denied");
    let message = format!("{doing} at {place}: {said}{}", hint(code));
    Outcome { failure: Failure::new(class, code, message), answered }
}

/// Before 7.0 an error inside a script comes as `ERR`, or with its place first, and its own code somewhere in the text.
fn answer(code: &str, said: &str) -> (Class, &'static str) {
    let wrapped = code == "ERR" || code.starts_with('@');
    let is = |name: &str| code == name || (wrapped && said.contains(&format!("-{name} ")));
    const CODES: &[(&str, Class, &str)] = &[
        ("READONLY", Class::Retry, "read-only"),
        ("LOADING", Class::Retry, "server-starting"),
        ("MASTERDOWN", Class::Retry, "server-starting"),
        ("NOREPLICAS", Class::Retry, "no-replica"),
        ("MISCONF", Class::Retry, "server-cannot-save"),
        ("OOM", Class::Retry, "out-of-memory"),
        ("BUSY", Class::Retry, "server-busy"),
        ("MOVED", Class::Retry, "cluster-moving"),
        ("ASK", Class::Retry, "cluster-moving"),
        ("TRYAGAIN", Class::Retry, "cluster-moving"),
        ("CLUSTERDOWN", Class::Retry, "cluster-down"),
        ("NOAUTH", Class::Fatal, "access-denied"),
        ("WRONGPASS", Class::Fatal, "access-denied"),
        ("NOPERM", Class::Fatal, "no-privilege"),
        ("WRONGTYPE", Class::Fatal, "key-taken"),
    ];
    if let Some((_, class, code)) = CODES.iter().find(|(name, ..)| is(name)) {
        return (*class, code);
    }
    match said {
        said if said.contains("NORUNID") => (Class::Fatal, "no-run-id"),
        said if said.contains("max number of clients") => (Class::Retry, "too-many-connections"),
        // A script of ours has ended in the middle: nothing that passes by itself.
        said if said.contains("user_script") => (Class::Fatal, "hive-error"),
        _ => (Class::Retry, "hive-error"),
    }
}

fn hint(code: &str) -> &'static str {
    match code {
        "no-connection" => "; is the server up, and the address right?",
        "no-answer" | "connection-lost" => "; what has become of the request is unknown",
        "no-tls" => "; does the server speak TLS, and is its certificate known to this machine?",
        "access-denied" => "; look at user and password in the address",
        "no-privilege" => {
            "; its user needs +@scripting +@read +@write +info +time +wait on keys ~{hive:*, for example: \
             ACL SETUSER honeyflow on >… ~{hive:* +@scripting +@read +@write +info +time +wait"
        }
        "read-only" => "; this server only reads: give the address of the primary, or wait until one is promoted",
        "no-replica" => "; the server wants more replicas than it has (min-replicas-to-write)",
        "server-cannot-save" => "; the server cannot write its snapshot to disk: look at its log",
        "out-of-memory" => "; raise maxmemory, or give the hive a server of its own",
        "key-taken" => "; another program keeps something else under a key of this hive: name the hive otherwise",
        "too-many-connections" => "; raise maxclients: a node has up to three connections",
        "no-run-id" => "; the server does not tell its run_id (INFO server), and so not whether it was replaced",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Redis 6.2 says it, and as later ones do.
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
