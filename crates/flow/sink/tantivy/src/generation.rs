//! One opened generation: its checked files, the fields it was built with, and its reader.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use honeyflow_event::{Epoch, Name};
use honeyflow_runtime::Failure;
use serde::{Deserialize, Serialize};
use tantivy::{
    Index, IndexReader, IndexSettings, ReloadPolicy,
    directory::{Directory as _, META_LOCK, MmapDirectory},
    index::SegmentMeta,
};

use crate::{
    codes,
    directory::{Session, SessionDirectory, is_of_segment},
    outcome,
    schema::Layout,
};

const SUSPECT: &str = "suspect";

/// The payload that each commit stores.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Payload {
    pub install: String,
    /// The highest epoch of each source whose writes are in the index.
    pub epochs: std::collections::BTreeMap<Name, Epoch>,
}

pub(crate) struct Generation {
    pub number: u64,
    pub path: PathBuf,
    pub layout: Arc<Layout>,
    /// The index for reading; each writer opens its own.
    pub index: Index,
    pub reader: IndexReader,
    files: MmapDirectory,
    /// If set, dropping this value removes the folder. Other processes that read it keep the files they have opened.
    pub is_superseded: AtomicBool,
}

impl Generation {
    /// Creates an empty index. It is durable when this returns.
    pub fn create(number: u64, path: PathBuf, layout: Arc<Layout>) -> Result<Generation, Failure> {
        let create = || {
            let files = MmapDirectory::open(&path)?;
            let directory = SessionDirectory::new(files, path.clone(), Session::new());
            Index::create(directory, layout.schema.clone(), IndexSettings::default())
        };
        create().map_err(|error| outcome::writing(&path, &error))?;
        Generation::open(number, path, layout, None)
    }

    /// Opens a generation with the fields it was built with, which may differ from those of `wanted`.
    /// `checksum_bytes_max`: `None` = check only the files that are needed for reading.
    pub fn open(
        number: u64,
        path: PathBuf,
        wanted: Arc<Layout>,
        checksum_bytes_max: Option<u64>,
    ) -> Result<Generation, Failure> {
        let unreadable = outcome::damaged(&path, "its files cannot be read");
        // a damaged file may make Tantivy panic
        catch_unwind(AssertUnwindSafe(move || Generation::try_open(number, path, wanted, checksum_bytes_max)))
            .unwrap_or(Err(unreadable))
    }

    fn try_open(
        number: u64,
        path: PathBuf,
        wanted: Arc<Layout>,
        checksum_bytes_max: Option<u64>,
    ) -> Result<Generation, Failure> {
        let failed = |error: tantivy::TantivyError| outcome::reading(&path, &error);
        if !path.is_dir() {
            return Err(outcome::damaged(&path, "its folder is missing"));
        }
        if path.join(SUSPECT).exists() {
            return Err(outcome::damaged(&path, "the disk reported an error while it was written"));
        }
        let files = MmapDirectory::open(&path).map_err(|error| failed(error.into()))?;
        let mut index =
            Index::open(SessionDirectory::new(files.clone(), path.clone(), Session::new())).map_err(failed)?;
        let schema = index.schema();
        let layout = if schema == wanted.schema { Some(wanted) } else { Layout::outdated(&schema).map(Arc::new) };
        let Some(layout) = layout else {
            return Err(Failure::fatal(
                codes::INDEX_FIELDS_CHANGED,
                format!(
                    "the index in {} was not built by this program, or by another version of it; rebuild it with `honeyflow reindex`",
                    path.display()
                ),
            ));
        };
        index.set_tokenizers(layout.tokenizers());
        if let Some(bytes_max) = checksum_bytes_max {
            verify(&index, &path, bytes_max)?;
        }
        let reader = index.reader_builder().reload_policy(ReloadPolicy::Manual).try_into().map_err(failed)?;
        Ok(Generation { number, path, layout, index, reader, files, is_superseded: AtomicBool::new(false) })
    }

    /// Opens the index for one writer.
    pub fn session(&self, session: Arc<Session>) -> tantivy::Result<Index> {
        let mut index = Index::open(SessionDirectory::new(self.files.clone(), self.path.clone(), session))?;
        index.set_tokenizers(self.layout.tokenizers());
        Ok(index)
    }

    /// Returns the payload of the last commit; `None` if it was not made by this program.
    pub fn payload(&self) -> tantivy::Result<Option<Payload>> {
        Ok(self.index.load_metas()?.payload.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// Marks the generation after a failed sync: these files may not contain what was written.
    pub fn mark_suspect(&self) {
        // the disk already has errors; without the mark a restart would take the index for undamaged
        if let Err(error) = fs::write(self.path.join(SUSPECT), b"") {
            tracing::error!(folder = %self.path.display(), %error, "could not mark the index as suspect");
        }
    }

    /// Removes what a crash has left behind: files of segments that no commit names. Only the holder of the lock may
    /// call it, and only while no writer is open.
    pub fn remove_orphans(&self) -> tantivy::Result<()> {
        // with this lock, no reader is between reading meta.json and opening the files that it names
        let _lock = self.index.directory().acquire_lock(&META_LOCK)?;
        let segments = self.index.searchable_segment_metas()?;
        let named: Vec<PathBuf> = segments.iter().flat_map(segment_files).collect();
        for entry in fs::read_dir(&self.path)?.flatten() {
            let name = entry.file_name();
            if name.to_str().is_some_and(is_of_segment) && !named.iter().any(|file| file.as_os_str() == name) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if self.is_superseded.load(Ordering::Acquire)
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            tracing::warn!(folder = %self.path.display(), %error, "could not remove an old generation: the next start removes it");
        }
    }
}

fn segment_files(segment: &SegmentMeta) -> Vec<PathBuf> {
    use tantivy::index::SegmentComponent as Part;
    let mut parts = vec![Part::Postings, Part::Positions, Part::Terms, Part::Store, Part::FastFields, Part::FieldNorms];
    if segment.has_deletes() {
        parts.push(Part::Delete);
    }
    parts.into_iter().map(|part| segment.relative_path(part)).collect()
}

/// Compares checksums if the index has at most `bytes_max` bytes; otherwise checks only that the files exist and end
/// correctly. Tries twice: a file that another process removed meanwhile, because it writes, is not damage.
fn verify(index: &Index, path: &Path, bytes_max: u64) -> Result<(), Failure> {
    for last in [false, true] {
        let segments = index.searchable_segment_metas().map_err(|error| outcome::reading(path, &error))?;
        let files: Vec<PathBuf> = segments.iter().flat_map(segment_files).collect();
        let bytes: u64 = files.iter().filter_map(|file| Some(path.join(file).metadata().ok()?.len())).sum();
        let damage = files.iter().find_map(|file| {
            let name = file.display();
            let directory = index.directory();
            if bytes > bytes_max {
                return directory.open_read(file).err().map(|error| format!("{name}: {error}"));
            }
            match directory.validate_checksum(file) {
                Ok(true) => None,
                Ok(false) => Some(format!("the checksum of {name} does not match")),
                Err(error) => Some(format!("{name}: {error}")),
            }
        });
        match damage {
            None => return Ok(()),
            Some(damage) if last => return Err(outcome::damaged(path, damage)),
            Some(_) => {}
        }
    }
    Ok(())
}
