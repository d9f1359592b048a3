//! Clocks that are wrong. Wall clocks are stepped by libfaketime, which stands between a bee and its C library; the clock
//! that trust is counted on is no business of the C library, and is made to run fast or slow in the bee itself.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use honeyflow_runtime::{Clock, Moment, time::BootClock};
use honeyflow_services::install;

const PACKAGE: &str = "libfaketime";
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// Just within what leases promise to bear, in thousandths.
pub const DRIFT_MAX: i64 = 49;

/// The library, and a folder for what the clocks show. Gone with the value.
pub struct Clocks {
    library: PathBuf,
    folder: PathBuf,
}

impl Clocks {
    /// Where it is installed already.
    ///
    /// # Errors
    /// Why there is none.
    pub fn found() -> Result<Arc<Clocks>, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let library = library().ok_or_else(|| format!("{LIBRARY} is not installed (package {PACKAGE})"))?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("honeyflow-clocks-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        Ok(Arc::new(Clocks { library, folder }))
    }

    /// The same, installed if need be.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub fn had() -> Result<Arc<Clocks>, String> {
        if library().is_none() {
            install::packages(&[PACKAGE])?;
        }
        Clocks::found()
    }

    /// Before a bee is started: a wall clock of its own, right for now.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn hang(&self, name: &str, command: &mut Command) -> Result<Wall, String> {
        let wall = Wall { file: self.folder.join(name) };
        wall.set(0)?;
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME_TIMESTAMP_FILE", &wall.file)
            .env("FAKETIME_CACHE_DURATION", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        Ok(wall)
    }
}

impl Drop for Clocks {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn library() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?;
    folders.filter_map(Result::ok).map(|folder| folder.path().join(LIBRARY)).find(|path| path.is_file())
}

/// A bee's wall clock; what it is set to is seen within a second or two.
pub struct Wall {
    file: PathBuf,
}

impl Wall {
    /// # Errors
    /// If the file cannot be written.
    pub fn set(&self, seconds: i64) -> Result<(), String> {
        // Never half of it.
        let next = self.file.with_extension("next");
        std::fs::write(&next, format!("{seconds:+}\n"))
            .and_then(|()| std::fs::rename(&next, &self.file))
            .map_err(|error| format!("cannot set the clock {}: {error}", self.file.display()))
    }
}

/// What the library leaves behind of a process that was killed.
pub fn sweep(pid: u32) {
    for name in [format!("faketime_shm_{pid}"), format!("sem.faketime_sem_{pid}")] {
        let _ = std::fs::remove_file(Path::new("/dev/shm").join(name));
    }
}

/// A clock that runs so many thousandths fast, or slow.
pub struct Drifting(pub i64);

impl Clock for Drifting {
    fn now(&self) -> Moment {
        Moment(BootClock.now().0.saturating_mul((1000 + self.0).unsigned_abs()) / 1000)
    }
}
