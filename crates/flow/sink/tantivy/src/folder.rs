//! The folder of an index, `<data>/index/<sink>/`. It contains one folder per generation; the file `current`, which
//! names the generation that is served; `next`, which names the one being built; and `lock`, held by the one process
//! that writes.
//!
//! `current` is replaced by rename and synced, so that after a crash it names either the old or the new generation.
//! A process that takes the lock without continuing the build ends the build: its writes would be missing in the next
//! generation.

use std::{
    collections::BTreeSet,
    fs::{self, File, TryLockError},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use honeyflow_runtime::Failure;

use crate::outcome;

const CURRENT: &str = "current";
const NEXT: &str = "next";
/// The file in a generation's folder that says how its documents are made.
const SHAPE: &str = "shape";

#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Once taken, the lock is held until the last generation opened from here is dropped: only this process knows the
    /// stamps of deletes, so no other process may write in between.
    lock: Mutex<Option<File>>,
}

impl Folder {
    pub fn new(path: PathBuf) -> Folder {
        Folder { path, lock: Mutex::new(None) }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn generation(&self, number: u64) -> PathBuf {
        self.path.join(number.to_string())
    }

    /// The generation that is served, if there is one yet.
    pub fn current(&self) -> Result<Option<u64>, Failure> {
        self.number_in(CURRENT)
    }

    pub fn set_current(&self, number: u64) -> Result<(), Failure> {
        self.replace(&self.path.join(CURRENT), &format!("{number}\n"))
    }

    /// Records `number` as the generation that is being built.
    pub fn set_next(&self, number: u64) -> Result<(), Failure> {
        self.replace(&self.path.join(NEXT), &format!("{number}\n"))
    }

    pub fn is_building(&self) -> bool {
        let next = self.number_in(NEXT).unwrap_or(None);
        next.is_some() && next > self.current().unwrap_or(None)
    }

    /// Records that no generation is being built.
    pub fn clear_next(&self) -> Result<(), Failure> {
        match fs::remove_file(self.path.join(NEXT)).and_then(|()| sync(&self.path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(outcome::io(&self.path, &error)),
            _ => Ok(()),
        }
    }

    /// Returns how the documents of a generation are made; `None` if that was never recorded.
    pub fn shape(&self, number: u64) -> Result<Option<BTreeSet<String>>, Failure> {
        match fs::read_to_string(self.generation(number).join(SHAPE)) {
            Ok(text) => Ok(Some(text.lines().map(str::to_owned).collect())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(outcome::io(&self.path, &error)),
        }
    }

    pub fn set_shape(&self, number: u64, shape: &BTreeSet<String>) -> Result<(), Failure> {
        let lines: String = shape.iter().map(|line| format!("{line}\n")).collect();
        self.replace(&self.generation(number).join(SHAPE), &lines)
    }

    fn number_in(&self, name: &str) -> Result<Option<u64>, Failure> {
        let text = match fs::read_to_string(self.path.join(name)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => String::new(),
            Err(error) => return Err(outcome::io(&self.path, &error)),
        };
        match text.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(outcome::damaged(&self.path, format!("`{name}` names no generation"))),
        }
    }

    /// Replaces the file atomically; the change is durable when this returns.
    fn replace(&self, file: &Path, text: &str) -> Result<(), Failure> {
        let temporary = file.with_extension("new");
        let replace = || {
            let mut written = File::create(&temporary)?;
            written.write_all(text.as_bytes())?;
            written.sync_all()?;
            fs::rename(&temporary, file)?;
            sync(file.parent().unwrap_or(&self.path))
        };
        replace().map_err(|error| outcome::io(&self.path, &error))
    }

    /// Returns a number above that of every generation in this folder, including those that were set aside.
    pub fn unused_number(&self) -> Result<u64, Failure> {
        Ok(self.entries()?.filter_map(|name| number_of(&name)).max().unwrap_or(0) + 1)
    }

    /// Creates the empty folder of a generation.
    pub fn make(&self, number: u64) -> Result<PathBuf, Failure> {
        let path = self.generation(number);
        let make = || {
            fs::create_dir_all(&path)?;
            sync(&self.path)?;
            self.path.parent().map_or(Ok(()), sync)
        };
        make().map_err(|error| outcome::io(&self.path, &error))?;
        Ok(path)
    }

    /// Takes the lock, unless this process has it, and ends a build that was in progress.
    pub fn lock(&self) -> Result<(), Failure> {
        if self.take_lock()? { self.clear_next() } else { Ok(()) }
    }

    /// Takes the lock, unless this process has it. If it was newly taken, returns the generation that was being built.
    pub fn lock_and_resume(&self) -> Result<Option<u64>, Failure> {
        if !self.take_lock()? {
            return Ok(None);
        }
        // a torn file names no generation whose build could continue
        Ok(self.number_in(NEXT).unwrap_or(None))
    }

    /// Returns false if this process already has the lock.
    fn take_lock(&self) -> Result<bool, Failure> {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if lock.is_some() {
            return Ok(false);
        }
        let file = fs::create_dir_all(&self.path)
            .and_then(|()| File::options().create(true).truncate(false).write(true).open(self.path.join("lock")))
            .map_err(|error| outcome::io(&self.path, &error))?;
        match file.try_lock() {
            Ok(()) => *lock = Some(file),
            Err(TryLockError::WouldBlock) => return Err(outcome::locked(&self.path)),
            Err(TryLockError::Error(error)) => return Err(outcome::io(&self.path, &error)),
        }
        Ok(true)
    }

    /// Removes all generations but `keep`: those no longer served, or never served. Only the holder of the lock may
    /// call it.
    pub fn remove_others(&self, keep: &[u64]) {
        let Ok(entries) = self.entries() else { return };
        for name in entries {
            if name.parse().is_ok_and(|number: u64| !keep.contains(&number)) {
                // the next call tries again: an old generation only takes up space
                if let Err(error) = fs::remove_dir_all(self.path.join(&name)) {
                    tracing::warn!(folder = %self.path.display(), generation = name, %error, "could not remove an old generation");
                }
            }
        }
    }

    /// Renames the served generation, so that a rebuild can start, and returns its new path.
    pub fn set_aside(&self) -> Result<Option<PathBuf>, Failure> {
        self.lock()?;
        let current = self.path.join(CURRENT);
        let (from, name) = match self.current() {
            Ok(Some(number)) => (self.generation(number), format!("{number}.aside")),
            Ok(None) => return Ok(None),
            Err(_) => (current.clone(), format!("{CURRENT}.aside")),
        };
        let to = (0..)
            .map(|n: u32| self.path.join(if n == 0 { name.clone() } else { format!("{name}.{n}") }))
            .find(|to| !to.exists())
            .unwrap_or_else(|| self.path.join(&name));
        let rename = || {
            if from.exists() {
                fs::rename(&from, &to)?;
            }
            if current.exists() {
                fs::remove_file(&current)?;
            }
            sync(&self.path)
        };
        rename().map_err(|error| outcome::io(&self.path, &error))?;
        Ok(Some(to))
    }

    fn entries(&self) -> Result<impl Iterator<Item = String> + use<>, Failure> {
        let entries = fs::read_dir(&self.path).map_err(|error| outcome::io(&self.path, &error))?;
        Ok(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()))
    }
}

fn number_of(name: &str) -> Option<u64> {
    name.split('.').next()?.parse().ok()
}

fn sync(folder: &Path) -> io::Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_are_numbered_without_reuse() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::new(home.path().join("books"));
        folder.lock().unwrap();
        assert_eq!((folder.current(), folder.unused_number()), (Ok(None), Ok(1)));
        folder.make(1).unwrap();
        folder.set_current(1).unwrap();
        assert_eq!(folder.current(), Ok(Some(1)));
        let aside = folder.set_aside().unwrap().unwrap();
        assert!(aside.ends_with("1.aside") && aside.is_dir());
        assert_eq!((folder.current(), folder.unused_number()), (Ok(None), Ok(2)));
        folder.remove_others(&[2]);
        assert!(aside.is_dir(), "what was set aside stays, so that the operator can examine it");
    }

    #[test]
    fn f28_a_torn_current_is_damage_and_can_be_set_aside() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::new(home.path().to_owned());
        for torn in [&b""[..], b"\xff\xfe", b"one"] {
            fs::write(home.path().join("current"), torn).unwrap();
            assert_eq!(folder.current().unwrap_err().code, "index-damaged");
        }
        assert!(folder.set_aside().unwrap().unwrap().is_file());
        assert_eq!(folder.current(), Ok(None));
    }
}
