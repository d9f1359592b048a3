//! The four failure classes. Loops decide by the class alone; the rest of a failure is for operators.

use std::{borrow::Cow, time::Duration};

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// The target is down or refuses us: back off and retry without limit; this costs no counted attempt.
    Retry,
    /// The target said when to retry.
    RetryAfter,
    /// This item is bad: retry a few times, then park it with its error.
    Reject,
    /// A bug or a bad configuration: stop that workflow and report it.
    Fatal,
}

/// What did not happen: what to do about it (`class`), a stable name to look up (`code`), and a text (`message`).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub class: Class,
    /// Kebab-case and stable, because tests and dashboards refer to it.
    pub code: Cow<'static, str>,
    pub message: String,
    /// The wait that the target asked for; set only with [`Class::RetryAfter`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Duration>,
}

impl Failure {
    /// Replaces NUL characters in the message: it may quote a server, and some databases that store it cannot store a
    /// NUL.
    pub fn new(class: Class, code: &'static str, message: impl Into<String>) -> Failure {
        let mut message = message.into();
        if message.contains('\0') {
            message = message.replace('\0', "\u{FFFD}");
        }
        Failure { class, code: Cow::Borrowed(code), message, after: None }
    }

    pub fn retry(code: &'static str, message: impl Into<String>) -> Failure {
        Failure::new(Class::Retry, code, message)
    }

    pub fn retry_after(after: Duration, code: &'static str, message: impl Into<String>) -> Failure {
        Failure { after: Some(after), ..Failure::new(Class::RetryAfter, code, message) }
    }

    pub fn reject(code: &'static str, message: impl Into<String>) -> Failure {
        Failure::new(Class::Reject, code, message)
    }

    pub fn fatal(code: &'static str, message: impl Into<String>) -> Failure {
        Failure::new(Class::Fatal, code, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_database_can_store_a_message() {
        let failure = Failure::reject("bad-answer", "the server said \0oops");
        assert_eq!(failure.message, "the server said \u{FFFD}oops");
    }
}
