//! The settings of a Tantivy sink: its folder, the fields it indexes, how often it commits, and the limits of
//! everything that it keeps in memory.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use honeyflow_event::Name;
use honeyflow_runtime::Failure;
use tantivy::tokenizer::Language;

use crate::codes;

/// The smallest memory budget that Tantivy accepts for one indexing thread.
const HEAP_BYTES_MIN: usize = 15_000_000;
/// The largest number of indexing threads that Tantivy allows.
const THREADS_MAX: usize = 8;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    pub name: String,
    pub kind: FieldKind,
}

impl Field {
    pub fn new(name: impl Into<String>, kind: FieldKind) -> Field {
        Field { name: name.into(), kind }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FieldKind {
    /// Text that is split into words. A language (`"en"` or `"english"`) adds its stemmer and stop words.
    Text {
        language: Option<String>,
    },
    /// Text that is indexed unchanged, as one term; only the first 32 KiB are indexed.
    Keyword,
    /// A 64-bit floating-point number, for ranges and sorting.
    Decimal,
    /// A signed 64-bit integer.
    Integer,
    Boolean,
    /// RFC 3339, or `YYYY-MM-DD[ HH:MM:SS]` read as UTC. A date before 1677 or after 2262 is stored as the nearest of
    /// the two.
    Date,
}

impl FieldKind {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            FieldKind::Text { .. } => "text",
            FieldKind::Keyword => "keyword",
            FieldKind::Decimal => "decimal",
            FieldKind::Integer => "integer",
            FieldKind::Boolean => "boolean",
            FieldKind::Date => "date",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Options {
    /// `<data>/index/<sink>`: the folder that contains the generations.
    pub folder: PathBuf,
    pub fields: Vec<Field>,
    /// The longest that a write waits for others to share its commit.
    pub commit_interval: Duration,
    /// The writer commits after this number of writes, even if more are arriving.
    pub commit_writes: usize,
    /// The memory of all indexing threads together, while the writer is open.
    pub heap_bytes: usize,
    pub threads: usize,
    /// How many batches may wait in the writer's queue; the callers of further batches wait for room.
    pub queue_batches: usize,
    /// The writer is closed after this time without a write.
    pub idle_close: Duration,
    /// How long the stamp of a delete is remembered …
    pub tombstone_keep: Duration,
    /// … and the largest number of deletes whose stamps are remembered.
    pub tombstones_max: usize,
    /// When an index of at most this size is opened, all its files are read and their checksums compared; of the files
    /// of a larger index only the ends are checked.
    pub checksum_bytes_max: u64,
    /// The identity of the database that feeds this sink. Empty = not compared.
    pub install_id: String,
    /// The source under whose name each commit stores the highest epoch.
    pub source: Name,
    /// How documents are made, as a set of opaque lines. If a line that the index was built with is missing here, the
    /// index is outdated; an additional line does not make it outdated.
    pub shape: BTreeSet<String>,
    /// A build is given up when the new generation refuses more than this number of documents that the served one took.
    pub refused_max: usize,
}

impl Options {
    pub fn new(folder: impl Into<PathBuf>, fields: Vec<Field>) -> Options {
        Options {
            folder: folder.into(),
            fields,
            commit_interval: Duration::from_millis(100),
            commit_writes: 8_000,
            heap_bytes: 50_000_000,
            threads: 1,
            queue_batches: 16,
            idle_close: Duration::from_secs(30),
            tombstone_keep: Duration::from_secs(15 * 60),
            tombstones_max: 200_000,
            checksum_bytes_max: 1 << 30,
            install_id: String::new(),
            source: "".into(),
            shape: BTreeSet::new(),
            refused_max: 100,
        }
    }

    pub(crate) fn heap_bytes_per_thread(&self) -> usize {
        (self.heap_bytes / self.threads()).clamp(HEAP_BYTES_MIN, 1 << 31)
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads.clamp(1, THREADS_MAX)
    }
}

pub(crate) fn check_fields(fields: &[Field]) -> Result<(), Failure> {
    for (n, field) in fields.iter().enumerate() {
        let name = &field.name;
        if name.is_empty() || name.len() > 255 || name.starts_with(['_', '-']) {
            return Err(bad(format!("`{name}` cannot be the name of a field: names beginning with `_` are reserved")));
        }
        if fields[..n].iter().any(|other| other.name == *name) {
            return Err(bad(format!("field `{name}` is configured twice")));
        }
        if let FieldKind::Text { language: Some(text) } = &field.kind {
            language(text).ok_or_else(|| {
                bad(format!("language `{text}` of field `{name}` is unknown: use a code such as `en`, `de` or `fr`"))
            })?;
        }
    }
    Ok(())
}

fn bad(message: String) -> Failure {
    Failure::fatal(codes::BAD_FIELD_CONFIGURATION, message)
}

pub(crate) fn language(text: &str) -> Option<Language> {
    Some(match text.to_ascii_lowercase().as_str() {
        "ar" | "arabic" => Language::Arabic,
        "da" | "danish" => Language::Danish,
        "nl" | "dutch" => Language::Dutch,
        "en" | "english" => Language::English,
        "fi" | "finnish" => Language::Finnish,
        "fr" | "french" => Language::French,
        "de" | "german" => Language::German,
        "el" | "greek" => Language::Greek,
        "hu" | "hungarian" => Language::Hungarian,
        "it" | "italian" => Language::Italian,
        "no" | "nb" | "nn" | "norwegian" => Language::Norwegian,
        "pt" | "portuguese" => Language::Portuguese,
        "ro" | "romanian" => Language::Romanian,
        "ru" | "russian" => Language::Russian,
        "es" | "spanish" => Language::Spanish,
        "sv" | "swedish" => Language::Swedish,
        "ta" | "tamil" => Language::Tamil,
        "tr" | "turkish" => Language::Turkish,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_languages_are_checked_before_an_index_is_made() {
        let check = |name: &str, kind| check_fields(&[Field::new(name, kind)]);
        assert!(check("title", FieldKind::Text { language: Some("EN".into()) }).is_ok());
        assert!(check("title", FieldKind::Text { language: Some("klingon".into()) }).is_err());
        for name in ["", "_key", "-title"] {
            assert_eq!(check(name, FieldKind::Keyword).unwrap_err().code, "bad-field-configuration", "{name}");
        }
        let twice = [Field::new("a", FieldKind::Keyword), Field::new("a", FieldKind::Date)];
        assert!(check_fields(&twice).is_err());
    }
}
