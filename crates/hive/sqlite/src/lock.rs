//! Kernel locks: a node holds `<database>.honeyflow/<node>.lock` for as long as it lives.
//!
//! The kernel releases a lock however the process ends, so a free lock means that its node is dead. A node
//! takes its lock before it writes its row, and tries the locks of other nodes only inside a write transaction. So a
//! node that sees a row can always decide whether the row's node is alive.

use std::{
    fs::{self, File, OpenOptions},
    io::ErrorKind,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use honeyflow_hive::NodeId;
use honeyflow_runtime::Failure;
use rustix::fs::{FlockOperation, flock};

use crate::codes;

/// `NFS`, `SMB`, `CIFS`, `SMB2`, `9P`: locks on these filesystems are not reliable.
const NETWORK_FILESYSTEMS: [u32; 5] = [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997];

pub(crate) struct Locks {
    folder: PathBuf,
}

/// The kernel lock of one node. It is held until the value is dropped.
pub(crate) struct NodeLock {
    file: File,
    path: PathBuf,
    /// When the node last sent a heartbeat.
    heard_at: Instant,
}

pub(crate) enum LockState {
    /// No process holds the lock: the node is dead. The lock file has been removed.
    Free,
    Held,
}

impl Locks {
    pub fn beside(database: &Path) -> Locks {
        let mut folder = database.as_os_str().to_owned();
        folder.push(".honeyflow");
        Locks { folder: folder.into() }
    }

    /// Takes the lock of the node. Returns `None` if a living process holds it.
    pub fn take(&self, node: NodeId) -> Result<Option<NodeLock>, Failure> {
        let path = self.path(node);
        let failed = |error: std::io::Error| {
            Failure::retry(codes::LOCK_FAILED, format!("lock {}: {error}; may the folder be written?", path.display()))
        };
        fs::create_dir_all(&self.folder).map_err(failed)?;
        self.refuse_network()?;
        let file = open(&path).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(NodeLock { file, path, heard_at: Instant::now() })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(failed(errno.into())),
        }
    }

    /// Tries whether another node is alive. Call it inside a write transaction, so that no two processes try at once.
    pub fn try_lock(&self, node: NodeId) -> Result<LockState, Failure> {
        let path = self.path(node);
        let failed =
            |error: std::io::Error| Failure::retry(codes::LOCK_FAILED, format!("try {}: {error}", path.display()));
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(LockState::Free),
            Err(error) => return Err(failed(error)),
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                fs::remove_file(&path).map_err(failed)?;
                Ok(LockState::Free)
            }
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(LockState::Held),
            Err(errno) => Err(failed(errno.into())),
        }
    }

    /// As [`Locks::try_lock`], but changes nothing. On an error the node counts as alive.
    pub fn is_free(&self, node: NodeId) -> bool {
        match OpenOptions::new().read(true).write(true).open(self.path(node)) {
            Ok(file) => flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok(),
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }

    fn refuse_network(&self) -> Result<(), Failure> {
        let Ok(found) = rustix::fs::statfs(&self.folder) else { return Ok(()) };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the kernel's magic has 32 bits")]
        let magic = found.f_type as u32;
        if NETWORK_FILESYSTEMS.contains(&magic) {
            return Err(Failure::fatal(
                codes::NETWORK_FILESYSTEM,
                format!(
                    "{} is on a network filesystem, where locks do not hold; use a local disk",
                    self.folder.display()
                ),
            ));
        }
        Ok(())
    }

    fn path(&self, node: NodeId) -> PathBuf {
        self.folder.join(format!("{node}.lock"))
    }
}

impl NodeLock {
    /// Whether the locked file is still at its path. If it was removed, another process could lock a new file of that
    /// name.
    pub fn is_in_place(&self) -> bool {
        match (self.file.metadata(), fs::metadata(&self.path)) {
            (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
            _ => false,
        }
    }

    pub fn touch(&mut self) {
        self.heard_at = Instant::now();
    }

    pub fn is_silent(&self, time_to_live: Duration) -> bool {
        self.heard_at.elapsed() >= time_to_live
    }

    pub fn release(self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}
