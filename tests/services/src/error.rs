//! Two ways of having no server: this machine has none to offer, or it has one that does not work.

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not installed and not to be installed: suites that need it are skipped, or fail where all are required.
    #[error("{0}")]
    Missing(String),
    /// Installed, and it went wrong: never a reason to skip.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    pub(crate) fn failed(what: impl Into<String>) -> Self {
        Self::Failed(what.into())
    }

    /// For the many small things done to files: what was tried, where, and what the system said.
    pub(crate) fn io<'a>(what: &'a str, path: &'a std::path::Path) -> impl FnOnce(std::io::Error) -> Self + 'a {
        move |error| Self::Failed(format!("cannot {what} {}: {error}", path.display()))
    }
}
