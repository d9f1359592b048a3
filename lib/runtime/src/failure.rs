//! The four failure classes. Loops look at the class alone; people read the rest.

use std::{borrow::Cow, time::Duration};

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// The target is down or refuses us: back off, without end, nothing is charged.
    Retry,
    /// The target said when to come back.
    RetryAfter,
    /// This item is bad: a few tries, then it is parked with its error.
    Reject,
    /// A bug or bad configuration: stop that workflow and say so.
    Fatal,
}

/// Why something did not happen: what to do about it (`class`), what to look up (`code`), what to read (`message`).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub class: Class,
    /// Kebab-case and stable: tests and dashboards name it.
    pub code: Cow<'static, str>,
    pub message: String,
    /// Only with [`Class::RetryAfter`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Duration>,
}

impl Failure {
    /// A message may quote what some server said. It is kept in databases, not all of which can keep a NUL.
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
    fn a_message_can_be_kept_by_every_database() {
        let failure = Failure::reject("bad-answer", "the server said \0oops");
        assert_eq!(failure.message, "the server said \u{FFFD}oops");
    }
}
