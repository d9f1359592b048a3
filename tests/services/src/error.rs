//! Two reasons why there is no server: this machine does not have it, or it does not work.

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server is not installed and cannot be installed: suites that need it are skipped, or fail where all are
    /// required.
    #[error("{0}")]
    Missing(String),
    /// The server is installed and does not work: never a reason to skip.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    pub(crate) fn failed(what: impl Into<String>) -> Self {
        Self::Failed(what.into())
    }

    /// An error of a file operation: what was tried, where, and the system's error.
    pub(crate) fn io<'a>(what: &'a str, path: &'a std::path::Path) -> impl FnOnce(std::io::Error) -> Self + 'a {
        move |error| Self::Failed(format!("cannot {what} {}: {error}", path.display()))
    }
}
