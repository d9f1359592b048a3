//! `service.json`: the record of one instance. It is written whole or not at all, and only its owner can read it,
//! because the URL contains the password.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::process;

const FILE: &str = "service.json";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub name: String,
    /// None after it was stopped; the port is kept for the next start.
    pub pid: Option<u32>,
    pub port: u16,
    pub url: String,
    pub version: String,
    /// The words that it was started with, by which its process is recognized.
    pub command: Vec<String>,
}

impl Record {
    /// Reads the record. An unreadable one counts as missing: the instance is then started again.
    pub(crate) fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(folder.join(FILE)).ok()?).ok()
    }

    pub(crate) fn write(&self, folder: &Path) -> Result<(), Error> {
        let text = serde_json::to_vec_pretty(self).map_err(|error| Error::failed(error.to_string()))?;
        write_private(&folder.join(FILE), &text)
    }

    /// The instance's process, if it is still the one that was started.
    pub fn alive(&self) -> Option<u32> {
        self.pid.filter(|pid| process::command_line(*pid).as_ref() == Some(&self.command))
    }
}

/// Writes a file that only its owner can read, and that no reader sees half written.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let beside = path.with_extension("new");
    let _ = fs::remove_file(&beside);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)
        .map_err(Error::io("create", &beside))?;
    file.write_all(bytes).map_err(Error::io("write", &beside))?;
    fs::rename(&beside, path).map_err(Error::io("write", path))
}
