//! A mount namespace with a small file system, so that a test can fill a disk without filling the machine's disk. A
//! sleeping process keeps the namespace open; its files are reached through that process.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::wait;

pub struct Namespace {
    keeper: Child,
}

impl Namespace {
    /// Creates the namespace and mounts the disk.
    ///
    /// # Errors
    /// Says why that is not possible on this machine.
    pub fn with_disk(folder: &Path, mebibytes: u32) -> Result<Namespace, String> {
        std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        let script =
            format!("mount -t tmpfs -o size={mebibytes}m tmpfs \"$1\" && touch \"$1/.mounted\" && exec sleep 600");
        let keeper = Command::new("unshare")
            .args(["--mount", "sh", "-c", &script, "sh"])
            .arg(folder)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("no unshare: {error}"))?;
        let mut namespace = Namespace { keeper };
        wait::until("the disk is mounted, or cannot be", || {
            if namespace.seen_from_here(folder).join(".mounted").exists() {
                return Some(Ok(()));
            }
            let ended = namespace.keeper.try_wait().expect("a child")?;
            Some(Err(format!("unshare and mount are not allowed here: {ended}")))
        })?;
        Ok(namespace)
    }

    pub fn seen_from_here(&self, path: &Path) -> PathBuf {
        let inside = path.strip_prefix("/").unwrap_or(path);
        PathBuf::from(format!("/proc/{}/root", self.keeper.id())).join(inside)
    }

    pub fn enter(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.keeper.id())).args(["--", program]);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}
