//! What went wrong in Tantivy, as one of our failure classes.

use std::{io, path::Path, sync::Arc};

use honeyflow_runtime::Failure;
use tantivy::{
    TantivyError,
    directory::error::{LockError, OpenReadError, OpenWriteError},
};

pub(crate) fn locked(folder: &Path) -> Failure {
    let folder = folder.display();
    Failure::fatal(
        "index-locked",
        format!("the index in {folder} has another writer: one process writes to an index, stop the other one first"),
    )
}

pub(crate) fn damaged(folder: &Path, what: impl std::fmt::Display) -> Failure {
    let folder = folder.display();
    Failure::fatal(
        "index-damaged",
        format!("the index in {folder} is damaged: {what}; set it aside and rebuild it with `honeyflow reindex`"),
    )
}

/// A commit whose sync failed may or may not be on the disk, and a second sync would not tell.
pub(crate) fn suspect(folder: &Path, what: &io::Error) -> Failure {
    let folder = folder.display();
    Failure::fatal(
        "index-suspect",
        format!("the disk failed to keep the index in {folder} ({what}); rebuild it with `honeyflow reindex`"),
    )
}

/// Something outside the index that may pass: a full disk, a folder out of reach.
pub(crate) fn io(folder: &Path, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "index-disk-full",
        _ => "index-io",
    };
    Failure::retry(code, format!("the index in {} cannot be written: {error}", folder.display()))
}

/// While writing: all of it may pass, since an index that opened is whole.
pub(crate) fn writing(folder: &Path, error: &TantivyError) -> Failure {
    match (error, io_cause(error)) {
        (TantivyError::LockFailure(LockError::LockBusy, _), _) => locked(folder),
        (_, Some(cause)) => io(folder, cause),
        _ => Failure::retry("index-commit", format!("the index in {} took no commit: {error}", folder.display())),
    }
}

/// While opening or reading: what cannot be read is damaged, unless the folder itself is out of reach.
pub(crate) fn reading(folder: &Path, error: &TantivyError) -> Failure {
    match io_cause(error) {
        Some(cause)
            if !matches!(
                cause.kind(),
                io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::NotFound
            ) =>
        {
            Failure::retry("index-io", format!("the index in {} cannot be read: {cause}", folder.display()))
        }
        _ => damaged(folder, error),
    }
}

fn io_cause(error: &TantivyError) -> Option<&Arc<io::Error>> {
    match error {
        TantivyError::IoError(cause) | TantivyError::LockFailure(LockError::IoError(cause), _) => Some(cause),
        TantivyError::OpenReadError(OpenReadError::IoError { io_error, .. })
        | TantivyError::OpenWriteError(OpenWriteError::IoError { io_error, .. }) => Some(io_error),
        _ => None,
    }
}
