//! Turns errors of Tantivy and of the disk into failures with a class and a code.

use std::{io, path::Path, sync::Arc};

use honeyflow_runtime::Failure;
use tantivy::{
    TantivyError,
    directory::error::{LockError, OpenReadError, OpenWriteError},
};

use crate::codes;

pub(crate) fn locked(folder: &Path) -> Failure {
    let folder = folder.display();
    Failure::fatal(
        codes::INDEX_LOCKED,
        format!("the index in {folder} has another writer: one process writes to an index, stop the other one first"),
    )
}

pub(crate) fn damaged(folder: &Path, what: impl std::fmt::Display) -> Failure {
    let folder = folder.display();
    Failure::fatal(
        codes::INDEX_DAMAGED,
        format!("the index in {folder} is damaged: {what}; set it aside and rebuild it with `honeyflow reindex`"),
    )
}

/// The failure after a failed sync: the commit may or may not be on the disk, and a second sync would not show which.
pub(crate) fn suspect(folder: &Path, what: &io::Error) -> Failure {
    let folder = folder.display();
    Failure::fatal(
        codes::INDEX_SUSPECT,
        format!("the disk failed to keep the index in {folder} ({what}); rebuild it with `honeyflow reindex`"),
    )
}

/// The failure for a cause outside the index that may pass: a full disk, an unreachable folder.
pub(crate) fn io(folder: &Path, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => codes::INDEX_DISK_FULL,
        _ => codes::INDEX_IO,
    };
    Failure::retry(code, format!("the index in {} cannot be written: {error}", folder.display()))
}

/// The failure for an error while writing. All of these may pass, since an index that could be opened is undamaged.
pub(crate) fn writing(folder: &Path, error: &TantivyError) -> Failure {
    match (error, io_cause(error)) {
        (TantivyError::LockFailure(LockError::LockBusy, _), _) => locked(folder),
        (_, Some(cause)) => io(folder, cause),
        _ => Failure::retry(
            codes::INDEX_COMMIT,
            format!("the index in {} could not be committed: {error}", folder.display()),
        ),
    }
}

/// The failure for an error while opening or reading. Files that cannot be read are damaged, unless the folder itself
/// is unreachable.
pub(crate) fn reading(folder: &Path, error: &TantivyError) -> Failure {
    match io_cause(error) {
        Some(cause)
            if !matches!(
                cause.kind(),
                io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::NotFound
            ) =>
        {
            Failure::retry(codes::INDEX_IO, format!("the index in {} cannot be read: {cause}", folder.display()))
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
