//! The files of one generation, as the session of one writer sees them. It adds five properties to Tantivy's directory:
//!
//! - **A closed session changes nothing.** Merges outlive their writer; a merge that finished late would otherwise put
//!   an old `meta.json` over the next writer's commit.
//! - **Removing files delays no write.** After a merge there are dozens of files to remove, and the file system may
//!   take milliseconds for each: once to remove its name and once more to remove its last memory map. A separate thread
//!   does both. No commit names these files any more, and the next writer removes those that a crash leaves behind.
//! - **A commit that returns is durable.** Tantivy renames `meta.json` into place and leaves the folder unsynced. Here
//!   the folder is synced after the rename, before the commit returns.
//! - **Two rounds of syncs per commit, not ten.** A file has no effect before a `meta.json` names it, so the files of a
//!   commit, the new `meta.json` and the folder are synced together, in parallel; then comes the rename, then the
//!   folder is synced once more.
//! - **The folder is the list of its files.** For garbage collection Tantivy keeps a list in `.managed.json` and
//!   replaces it for every file it creates. On a disk that discards freed blocks at once, each time may take a tenth of
//!   a second.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write as _},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{SyncSender, sync_channel},
    },
};

use tantivy::{
    Directory,
    directory::{
        AntiCallToken, DirectoryLock, FileHandle, Lock, MmapDirectory, TerminatingWrite, WatchCallback, WatchHandle,
        WritePtr,
        error::{DeleteError, LockError, OpenReadError, OpenWriteError},
    },
};

use crate::planted;

const META: &str = "meta.json";
const MANAGED: &str = ".managed.json";
const SEGMENT_DIGITS: usize = 32;
/// The largest number of files that stay open until the common sync of their commit; further ones are synced at once.
const UNSYNCED_MAX: usize = 64;
/// How many syncs run in parallel: the file system makes one journal entry of syncs that arrive together.
const SYNCS_AT_ONCE: usize = 8;

/// The largest number of removals in the queue; further ones are done on the thread of the caller.
const REMOVALS_MAX: usize = 1024;

/// A resource that is no longer needed and that the remover thread releases.
enum Removal {
    File(PathBuf),
    /// A searcher, or a value that holds one: dropping it unmaps its files.
    Maps(Box<dyn Send>),
}

/// The first disk error of a session; Tantivy itself only reports that a thread ended.
#[derive(Clone, Debug)]
pub(crate) struct DiskError {
    pub error: Arc<io::Error>,
    /// The error came from a sync, and the disk was not full: data written before may be lost.
    pub suspect: bool,
}

#[derive(Default)]
struct State {
    closed: bool,
    unsynced: Vec<File>,
    /// A sync has failed. A later sync would succeed although the data of this one is lost, so nothing is committed any
    /// more.
    sync_failed: bool,
    disk_error: Option<DiskError>,
}

pub(crate) struct Session {
    state: Mutex<State>,
    remover: Mutex<Option<SyncSender<Removal>>>,
    /// Held while a file is removed. The value is true after the session was closed.
    removing: Arc<Mutex<bool>>,
    sync_fails: bool,
}

impl Session {
    pub fn new() -> Arc<Session> {
        Arc::new(Session {
            state: Mutex::default(),
            remover: Mutex::default(),
            removing: Arc::default(),
            sync_fails: planted::on("sync-fails"),
        })
    }

    /// Closes the session. When this returns, the session can no longer change the index.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.unsynced.clear();
        drop(state);
        *self.removing.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Drops a searcher, or a value that holds one, on the remover thread, without waiting for its files to be
    /// unmapped.
    pub fn drop_later(&self, maps: impl Send + 'static) {
        // if the queue refuses the value, it is dropped here
        let _ = self.remove_later(Removal::Maps(Box::new(maps)));
    }

    /// Puts a removal into the queue of the remover thread; returns false if there is no room or no thread.
    fn remove_later(&self, removal: Removal) -> bool {
        let mut remover = self.remover.lock().unwrap_or_else(PoisonError::into_inner);
        if remover.is_none() {
            *remover = start_remover(self.removing.clone()).ok();
        }
        remover.as_ref().is_some_and(|queue| queue.try_send(removal).is_ok())
    }

    pub fn disk_error(&self) -> Option<DiskError> {
        self.lock().disk_error.clone()
    }

    /// Ignores poisoning: the state is changed by single assignments, so a panic elsewhere leaves it consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        if self.sync_fails {
            return Err(io::Error::from_raw_os_error(5));
        }
        file.sync_data()
    }

    /// Syncs all files in parallel; returns the first error.
    fn sync_together(&self, files: &[File]) -> io::Result<()> {
        let sync = |part: &[File]| part.iter().try_for_each(|file| self.sync(file));
        let mut parts = files.chunks(files.len().div_ceil(SYNCS_AT_ONCE).max(1));
        let own = parts.next().unwrap_or_default();
        std::thread::scope(|scope| {
            let others: Vec<_> = parts.map(|part| scope.spawn(move || sync(part))).collect();
            let own = sync(own);
            let others =
                others.into_iter().map(|other| other.join().unwrap_or_else(|_| Err(io::Error::other("panic"))));
            others.fold(own, io::Result::and)
        })
    }
}

/// Starts the remover thread. It ends with its session.
fn start_remover(removing: Arc<Mutex<bool>>) -> io::Result<SyncSender<Removal>> {
    let (queue, removals) = sync_channel(REMOVALS_MAX);
    let remove = move || {
        for removal in removals {
            let file = match removal {
                Removal::File(file) => file,
                Removal::Maps(maps) => {
                    drop(maps);
                    continue;
                }
            };
            let closed = removing.lock().unwrap_or_else(PoisonError::into_inner);
            if *closed {
                return;
            }
            if let Err(error) = fs::remove_file(&file) {
                tracing::debug!(file = %file.display(), %error, "could not remove a file of the index: the next writer removes it");
            }
        }
    };
    std::thread::Builder::new().name("index-remover".to_owned()).spawn(remove)?;
    Ok(queue)
}

impl State {
    fn open(&self) -> io::Result<()> {
        match (self.closed, self.sync_failed) {
            (true, _) => Err(io::Error::other("this writer is closed")),
            (_, true) => Err(io::Error::other("a sync has failed")),
            _ => Ok(()),
        }
    }

    fn note<T>(&mut self, syncing: bool, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| {
            let passing = [
                io::ErrorKind::StorageFull,
                io::ErrorKind::QuotaExceeded,
                io::ErrorKind::ReadOnlyFilesystem,
                io::ErrorKind::NotFound,
            ];
            self.sync_failed |= syncing;
            let suspect = syncing && !passing.contains(&error.kind());
            let copy = io::Error::new(error.kind(), error.to_string());
            self.disk_error.get_or_insert_with(|| DiskError { error: Arc::new(error), suspect });
            copy
        })
    }
}

#[derive(Clone)]
pub(crate) struct SessionDirectory {
    files: MmapDirectory,
    path: PathBuf,
    session: Arc<Session>,
}

impl SessionDirectory {
    pub fn new(files: MmapDirectory, path: PathBuf, session: Arc<Session>) -> SessionDirectory {
        SessionDirectory { files, path, session }
    }

    fn replace_meta(&self, content: &[u8], mut files: Vec<File>) -> io::Result<()> {
        let temporary = self.path.join(".meta.next");
        let mut meta = File::create(&temporary)?;
        meta.write_all(content)?;
        files.push(meta);
        files.push(File::open(&self.path)?);
        self.session.sync_together(&files)?;
        let target = self.path.join(META);
        let replaced = File::open(&target);
        fs::rename(&temporary, target)?;
        // the old file's blocks are freed when its last handle is closed
        self.session.drop_later(replaced);
        self.session.sync(&File::open(&self.path)?)
    }

    /// Lists the files of segments: those of the last commit, and those that a crash has left behind.
    fn managed(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name().into_string().ok()));
        let names = names.filter_map(io::Result::transpose).collect::<io::Result<Vec<String>>>()?;
        Ok(names.into_iter().filter(|name| is_of_segment(name)).collect())
    }
}

/// Whether a file belongs to a segment: its name begins with the segment's id.
pub(crate) fn is_of_segment(name: &str) -> bool {
    name.split_once('.').is_some_and(|(segment, _)| {
        segment.len() == SEGMENT_DIGITS && segment.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

impl std::fmt::Debug for SessionDirectory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SessionDirectory({})", self.path.display())
    }
}

impl Directory for SessionDirectory {
    fn get_file_handle(&self, path: &Path) -> Result<Arc<dyn FileHandle>, OpenReadError> {
        self.files.get_file_handle(path)
    }

    fn delete(&self, path: &Path) -> Result<(), DeleteError> {
        if self.session.lock().closed {
            return Err(DeleteError::FileDoesNotExist(path.to_owned()));
        }
        if self.session.remove_later(Removal::File(self.path.join(path))) {
            return Ok(());
        }
        self.files.delete(path)
    }

    fn exists(&self, path: &Path) -> Result<bool, OpenReadError> {
        self.files.exists(path)
    }

    fn open_write(&self, path: &Path) -> Result<WritePtr, OpenWriteError> {
        let mut state = self.session.lock();
        let opened =
            state.open().and_then(|()| OpenOptions::new().write(true).create_new(true).open(self.path.join(path)));
        let file = state.note(false, opened).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => OpenWriteError::FileAlreadyExists(path.to_owned()),
            _ => OpenWriteError::wrap_io_error(error, path.to_owned()),
        })?;
        Ok(BufWriter::new(Box::new(DeferredSyncFile { file, session: self.session.clone() })))
    }

    fn atomic_read(&self, path: &Path) -> Result<Vec<u8>, OpenReadError> {
        if path != Path::new(MANAGED) {
            return self.files.atomic_read(path);
        }
        let managed = self.managed().and_then(|names| serde_json::to_vec(&names).map_err(io::Error::from));
        managed.map_err(|error| OpenReadError::wrap_io_error(error, path.to_owned()))
    }

    /// Replaces `meta.json` with the state locked: once `close` has returned, no replacement is in progress.
    fn atomic_write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut state = self.session.lock();
        state.open()?;
        if path == Path::new(MANAGED) {
            return Ok(());
        }
        debug_assert_eq!(path, Path::new(META));
        let files = std::mem::take(&mut state.unsynced);
        let replaced = self.replace_meta(content, files);
        state.note(true, replaced)
    }

    /// Does nothing but check the session: files are synced together with the `meta.json` that names them.
    fn sync_directory(&self) -> io::Result<()> {
        self.session.lock().open()
    }

    fn acquire_lock(&self, lock: &Lock) -> Result<DirectoryLock, LockError> {
        self.files.acquire_lock(lock)
    }

    fn watch(&self, callback: WatchCallback) -> tantivy::Result<WatchHandle> {
        self.files.watch(callback)
    }
}

/// A file that is synced with the others of its commit.
struct DeferredSyncFile {
    file: File,
    session: Arc<Session>,
}

impl io::Write for DeferredSyncFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes);
        if written.is_err() {
            return self.session.lock().note(false, written);
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TerminatingWrite for DeferredSyncFile {
    fn terminate_ref(&mut self, _: AntiCallToken) -> io::Result<()> {
        self.file.flush()?;
        let file = self.file.try_clone();
        let mut state = self.session.lock();
        let file = state.note(false, file)?;
        if state.unsynced.len() < UNSYNCED_MAX {
            state.unsynced.push(file);
            return Ok(());
        }
        drop(state);
        let synced = self.session.sync(&file);
        self.session.lock().note(true, synced)
    }
}
