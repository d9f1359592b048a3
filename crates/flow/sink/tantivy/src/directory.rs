//! The files of one generation, as one writer's session sees them. Five things are added to Tantivy's own directory:
//!
//! - **The end is the end.** A closed session changes nothing any more. Merges outlive their writer; one that finished
//!   late would otherwise put an old `meta.json` over the next writer's commit.
//! - **Removing files holds nobody up.** After a merge there are dozens, and the file system may take milliseconds for
//!   each: when its name goes, and once more when its last map does. Both are left to a thread of its own. Nothing names
//!   these files any more, and what a crash leaves of them the next writer removes.
//! - **Durable when it says so.** Tantivy renames `meta.json` into place and leaves the folder unsynced. Here the folder
//!   is synced after the rename, before the commit returns.
//! - **Two rounds of syncs per commit, not ten.** Nothing counts before a `meta.json` names it, so the files of a commit,
//!   the new `meta.json` and the folder are synced together, side by side; then comes the rename, then the folder once
//!   more.
//! - **The folder is the list of its files.** Tantivy keeps one in `.managed.json`, for garbage collection, and replaces it
//!   for every file it makes; where freed blocks are discarded at once, each time may take a tenth of a second.

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
/// More files than this do not stay open for a common sync.
const UNSYNCED_MAX: usize = 64;
/// The file system makes one journal entry of syncs that arrive together.
const SYNCS_AT_ONCE: usize = 8;

/// So much waits to go; the rest goes on the thread of whoever asks for it.
const UNNEEDED_MAX: usize = 1024;

/// What nobody needs any more.
enum Unneeded {
    File(PathBuf),
    /// A searcher, or what holds one: its files are unmapped with it.
    Maps(Box<dyn Send>),
}

/// The first thing that went wrong with the disk in a session; Tantivy itself only says that a thread ended.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    pub error: Arc<io::Error>,
    /// It happened in a sync, and not for want of room: what was written before may be gone.
    pub suspect: bool,
}

#[derive(Default)]
struct State {
    closed: bool,
    unsynced: Vec<File>,
    /// A later sync would succeed without having kept what this one lost: nothing is committed any more.
    sync_failed: bool,
    trouble: Option<Trouble>,
}

pub(crate) struct Session {
    state: Mutex<State>,
    remover: Mutex<Option<SyncSender<Unneeded>>>,
    /// Held while a file is removed. True: the session is closed.
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

    /// When this returns, nothing of this session can change the index any more.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.unsynced.clear();
        drop(state);
        *self.removing.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Lets go of a searcher, or what holds one, without waiting for its files.
    pub fn drop_later(&self, maps: impl Send + 'static) {
        // refused, it is dropped here
        let _ = self.remove_later(Unneeded::Maps(Box::new(maps)));
    }

    /// False: not here.
    fn remove_later(&self, unneeded: Unneeded) -> bool {
        let mut remover = self.remover.lock().unwrap_or_else(PoisonError::into_inner);
        if remover.is_none() {
            *remover = start_remover(self.removing.clone()).ok();
        }
        remover.as_ref().is_some_and(|queue| queue.try_send(unneeded).is_ok())
    }

    pub fn trouble(&self) -> Option<Trouble> {
        self.lock().trouble.clone()
    }

    /// The state is changed by single assignments: a panic elsewhere leaves it whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        if self.sync_fails {
            return Err(io::Error::from_raw_os_error(5));
        }
        file.sync_data()
    }

    /// All of them; the first error counts.
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

/// Ends with its session.
fn start_remover(removing: Arc<Mutex<bool>>) -> io::Result<SyncSender<Unneeded>> {
    let (queue, unneeded) = sync_channel(UNNEEDED_MAX);
    let remove = move || {
        for unneeded in unneeded {
            let file = match unneeded {
                Unneeded::File(file) => file,
                Unneeded::Maps(maps) => {
                    drop(maps);
                    continue;
                }
            };
            let closed = removing.lock().unwrap_or_else(PoisonError::into_inner);
            if *closed {
                return;
            }
            if let Err(error) = fs::remove_file(&file) {
                tracing::debug!(file = %file.display(), %error, "a file of the index is left for the next writer to remove");
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
            let again = io::Error::new(error.kind(), error.to_string());
            self.trouble.get_or_insert_with(|| Trouble { error: Arc::new(error), suspect });
            again
        })
    }
}

#[derive(Clone)]
pub(crate) struct Guarded {
    files: MmapDirectory,
    path: PathBuf,
    session: Arc<Session>,
}

impl Guarded {
    pub fn new(files: MmapDirectory, path: PathBuf, session: Arc<Session>) -> Guarded {
        Guarded { files, path, session }
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
        // its blocks are freed when the last one lets go of it
        self.session.drop_later(replaced);
        self.session.sync(&File::open(&self.path)?)
    }

    /// Files of segments: those of the last commit, and what a crash has left.
    fn managed(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name().into_string().ok()));
        let names = names.filter_map(io::Result::transpose).collect::<io::Result<Vec<String>>>()?;
        Ok(names.into_iter().filter(|name| is_of_segment(name)).collect())
    }
}

/// They begin with the segment's identity.
pub(crate) fn is_of_segment(name: &str) -> bool {
    name.split_once('.').is_some_and(|(segment, _)| {
        segment.len() == SEGMENT_DIGITS && segment.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

impl std::fmt::Debug for Guarded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Guarded({})", self.path.display())
    }
}

impl Directory for Guarded {
    fn get_file_handle(&self, path: &Path) -> Result<Arc<dyn FileHandle>, OpenReadError> {
        self.files.get_file_handle(path)
    }

    fn delete(&self, path: &Path) -> Result<(), DeleteError> {
        if self.session.lock().closed {
            return Err(DeleteError::FileDoesNotExist(path.to_owned()));
        }
        if self.session.remove_later(Unneeded::File(self.path.join(path))) {
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
        Ok(BufWriter::new(Box::new(LateSync { file, session: self.session.clone() })))
    }

    fn atomic_read(&self, path: &Path) -> Result<Vec<u8>, OpenReadError> {
        if path != Path::new(MANAGED) {
            return self.files.atomic_read(path);
        }
        let managed = self.managed().and_then(|names| serde_json::to_vec(&names).map_err(io::Error::from));
        managed.map_err(|error| OpenReadError::wrap_io_error(error, path.to_owned()))
    }

    /// The state stays locked while `meta.json` is replaced: a closed session is closed.
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

    /// Whatever needs it is synced with the `meta.json` that names it.
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
struct LateSync {
    file: File,
    session: Arc<Session>,
}

impl io::Write for LateSync {
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

impl TerminatingWrite for LateSync {
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
