//! The data folder: a lock that lets only one node use it, and `node.json`, which tells commands how to reach that
//! node.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

use honeyflow_hive::NodeId;
use honeyflow_runtime::Failure;
use serde::{Deserialize, Serialize};

use crate::codes;

/// The content of `<data>/node.json`: what a command needs to reach the running node.
#[derive(Clone, Serialize, Deserialize)]
pub struct Running {
    pub incarnation: String,
    pub pid: u32,
    pub address: Option<String>,
}

/// A locked data folder. The kernel's lock on `<data>/lock` is released when the process ends, in whatever way.
pub struct DataFolder {
    folder: PathBuf,
    running: Running,
    _lock: File,
}

impl DataFolder {
    pub fn lock(folder: &Path, incarnation: NodeId) -> Result<DataFolder, Failure> {
        make(folder)?;
        let cannot = |what: &str, error: &std::io::Error| cannot(folder, what, error);
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(folder.join("lock"))
            .map_err(|error| cannot("open the lock in", &error))?;
        if rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(another_node(folder));
        }
        let running = Running { incarnation: incarnation.to_string(), pid: std::process::id(), address: None };
        let data = DataFolder { folder: folder.to_owned(), running, _lock: lock };
        data.write(None).map_err(|error| cannot("write node.json into", &error))?;
        Ok(data)
    }

    /// Writes `node.json` with the address on which the node listens.
    pub fn write(&self, address: Option<String>) -> std::io::Result<()> {
        let running = Running { address, ..self.running.clone() };
        let text = serde_json::to_string_pretty(&running).unwrap_or_default();
        let path = self.folder.join("node.json");
        let fresh = self.folder.join("node.json.new");
        File::create(&fresh)?.write_all(text.as_bytes())?;
        fs::rename(fresh, path)
    }
}

/// Creates the data folder if it does not exist.
pub fn make(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(|error| cannot(folder, "create", &error))
}

fn cannot(folder: &Path, what: &str, error: &std::io::Error) -> Failure {
    Failure::fatal(codes::DATA_FOLDER, format!("cannot {what} {}: {error}", folder.display()))
}

/// Refuses early, with the name of the other node: later checks could only report that a port or lock is in use.
pub fn refuse_if_in_use(folder: &Path) -> Result<(), Failure> {
    if is_in_use(folder) { Err(another_node(folder)) } else { Ok(()) }
}

fn another_node(folder: &Path) -> Failure {
    let holder = running(folder).map_or_else(
        || "another process".to_owned(),
        |node| format!("node {} (process {})", node.incarnation, node.pid),
    );
    let folder = folder.display();
    let message = format!("{folder} is in use by {holder}: stop it first, or give this node its own data folder");
    Failure::fatal(codes::ANOTHER_NODE, message)
}

/// Reads `node.json`; it may be from a node that is no longer running.
pub fn running(folder: &Path) -> Option<Running> {
    serde_json::from_str(&fs::read_to_string(folder.join("node.json")).ok()?).ok()
}

/// Whether a node holds the folder now.
pub fn is_in_use(folder: &Path) -> bool {
    let Ok(lock) = File::open(folder.join("lock")) else { return false };
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockShared).is_err()
}
