//! Clocks that are wrong. libfaketime, which stands between a node and its C library, steps the wall clock. The clock
//! on which trust is counted does not go through the C library, so the node process itself makes it run fast or slow.

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

/// Just below the drift that leases promise to tolerate, in thousandths.
pub const DRIFT_MAX: i64 = 49;

/// The library, and a folder with one file per wall clock. The folder is deleted with the value.
pub struct Clocks {
    library: PathBuf,
    folder: PathBuf,
}

impl Clocks {
    /// Finds an installed library.
    ///
    /// # Errors
    /// If the library is not installed, or the folder cannot be created.
    pub fn find() -> Result<Arc<Clocks>, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let library = library().ok_or_else(|| format!("{LIBRARY} is not installed (package {PACKAGE})"))?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("honeyflow-clocks-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        Ok(Arc::new(Clocks { library, folder }))
    }

    /// Installs the library if it is missing, and finds it.
    ///
    /// # Errors
    /// If the library cannot be installed.
    pub fn install() -> Result<Arc<Clocks>, String> {
        if library().is_none() {
            install::packages(&[PACKAGE])?;
        }
        Clocks::find()
    }

    /// Gives a node that is about to start a wall clock of its own, which is right at first.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn attach(&self, name: &str, command: &mut Command) -> Result<WallClock, String> {
        let wall_clock = WallClock { file: self.folder.join(name) };
        wall_clock.set(0)?;
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME_TIMESTAMP_FILE", &wall_clock.file)
            .env("FAKETIME_CACHE_DURATION", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        Ok(wall_clock)
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

/// A node's wall clock. The node sees a change within one or two seconds.
pub struct WallClock {
    file: PathBuf,
}

impl WallClock {
    /// # Errors
    /// If the file cannot be written.
    pub fn set(&self, seconds: i64) -> Result<(), String> {
        // The file is replaced in one step, so that the node never reads half of it.
        let next = self.file.with_extension("next");
        std::fs::write(&next, format!("{seconds:+}\n"))
            .and_then(|()| std::fs::rename(&next, &self.file))
            .map_err(|error| format!("cannot set the clock {}: {error}", self.file.display()))
    }
}

/// Removes what the library leaves behind when a process is killed.
pub fn remove_leftovers(pid: u32) {
    for name in [format!("faketime_shm_{pid}"), format!("sem.faketime_sem_{pid}")] {
        let _ = std::fs::remove_file(Path::new("/dev/shm").join(name));
    }
}

/// A clock that runs fast by this many thousandths; slow, if the number is negative.
pub struct DriftingClock(pub i64);

impl Clock for DriftingClock {
    fn now(&self) -> Moment {
        Moment(BootClock.now().0.saturating_mul((1000 + self.0).unsigned_abs()) / 1000)
    }
}
