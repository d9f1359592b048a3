//! The two ways in which a command fails: wrong usage, or a negative result.

use std::fmt;
use std::process::ExitCode;

use crate::nearest::nearest;

#[derive(Debug)]
pub enum Error {
    /// Wrong words on the command line: exit code 2.
    Usage(String),
    /// The work was done, or tried, and the result is negative: exit code 1.
    Failed(String),
}

impl Error {
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    /// An unknown word, with the nearest right one if there is one.
    pub fn unknown<'a>(what: &str, word: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        let hint = match nearest(word, known) {
            Some(right) => format!("did you mean `{right}`?"),
            None => "`cargo xtask help` lists what there is".to_owned(),
        };
        Self::Usage(format!("unknown {what} `{word}`; {hint}"))
    }

    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Failed(_) => ExitCode::from(1),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) | Self::Failed(message) => f.write_str(message),
        }
    }
}
