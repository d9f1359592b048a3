//! Kernel locks: `<database>.honeyflow/<node>.lock`, held by a node for its life.
//!
//! The kernel lets go of them however a process ends, so a lock that can be had means that its node is dead. A lock is
//! taken before the node's row is written, and others' are only tried inside a write transaction: whoever sees a row
//! can judge it.

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

/// `NFS`, `SMB`, `CIFS`, `SMB2`, `9P`: locks there are not to be trusted.
const NETWORK_FILESYSTEMS: [u32; 5] = [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997];

pub(crate) struct Locks {
    folder: PathBuf,
}

/// Held while it lives.
pub(crate) struct Held {
    file: File,
    path: PathBuf,
    /// When its node last asked for anything.
    heard_at: Instant,
}

pub(crate) enum Tried {
    /// Nobody has it: the node is dead. Its file has been removed.
    Free,
    Held,
}

impl Locks {
    pub fn beside(database: &Path) -> Locks {
        let mut folder = database.as_os_str().to_owned();
        folder.push(".honeyflow");
        Locks { folder: folder.into() }
    }

    /// None if a living process has it.
    pub fn take(&self, node: NodeId) -> Result<Option<Held>, Failure> {
        let path = self.path(node);
        let failed = |error: std::io::Error| {
            Failure::retry("lock-failed", format!("lock {}: {error}; may the folder be written?", path.display()))
        };
        fs::create_dir_all(&self.folder).map_err(failed)?;
        self.refuse_network()?;
        let file = open(&path).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Held { file, path, heard_at: Instant::now() })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(failed(errno.into())),
        }
    }

    /// Whether another node lives. To be called inside a write transaction, so that no two try at once.
    pub fn attempt(&self, node: NodeId) -> Result<Tried, Failure> {
        let path = self.path(node);
        let failed = |error: std::io::Error| Failure::retry("lock-failed", format!("try {}: {error}", path.display()));
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Tried::Free),
            Err(error) => return Err(failed(error)),
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                fs::remove_file(&path).map_err(failed)?;
                Ok(Tried::Free)
            }
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(Tried::Held),
            Err(errno) => Err(failed(errno.into())),
        }
    }

    /// As [`Locks::attempt`], but leaves everything as it is. Where it cannot be said, nobody is dead.
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
                "network-filesystem",
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

impl Held {
    /// The file still stands at its path: someone who removed it could lock another of that name.
    pub fn stands(&self) -> bool {
        match (self.file.metadata(), fs::metadata(&self.path)) {
            (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
            _ => false,
        }
    }

    pub fn heard(&mut self) {
        self.heard_at = Instant::now();
    }

    pub fn is_silent(&self, time_to_live: Duration) -> bool {
        self.heard_at.elapsed() >= time_to_live
    }

    pub fn give_up(self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}
