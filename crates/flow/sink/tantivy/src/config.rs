//! What a Tantivy sink is told: where it lies, which fields it indexes, how often it commits, and the limit of
//! everything it keeps in memory.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use honeyflow_event::Name;
use honeyflow_runtime::Failure;
use tantivy::tokenizer::Language;

/// The least that Tantivy's indexing threads take, each.
const HEAP_BYTES_MIN: usize = 15_000_000;
/// Tantivy's own limit.
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
    /// Words. A language (`"en"` or `"english"`) adds its stemmer and stop words.
    Text {
        language: Option<String>,
    },
    /// One word, as it is; only the first 32 KiB are indexed.
    Keyword,
    /// A double, for ranges and sorting.
    Decimal,
    /// 64 bits, signed.
    Integer,
    Boolean,
    /// RFC 3339, or `YYYY-MM-DD[ HH:MM:SS]` taken as UTC. Beyond 1677–2262 it counts as that end.
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
    /// `<data>/index/<sink>`; the generations lie in it.
    pub folder: PathBuf,
    pub fields: Vec<Field>,
    /// The longest that a write waits for others to share its commit.
    pub commit_interval: Duration,
    /// So many writes make a commit due, whatever is still coming.
    pub commit_writes: usize,
    /// Memory of the indexing threads together, while the writer is open.
    pub heap_bytes: usize,
    pub threads: usize,
    /// Batches waiting for the writer; further ones wait with their caller.
    pub queue_batches: usize,
    /// The writer is closed after this long without a write.
    pub idle_close: Duration,
    /// How long the stamp of a delete is remembered …
    pub tombstone_keep: Duration,
    /// … and of how many deletes at most.
    pub tombstones_max: usize,
    /// An index up to this size is read and its checksums compared when it is opened; of a larger one only the ends
    /// of its files.
    pub checksum_bytes_max: u64,
    /// Identity of the database that feeds this sink. Empty = not compared.
    pub install_id: String,
    /// The source under whose name the highest epoch is kept in the commit.
    pub source: Name,
    /// What documents are made by, as lines that only have to be compared. One that is no longer there makes the index
    /// outdated; one that is new does not.
    pub shape: BTreeSet<String>,
    /// A generation being built that refuses more documents than this, which the served one has taken, is given up.
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
    Failure::fatal("bad-field-configuration", message)
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
        let of = |name: &str, kind| check_fields(&[Field::new(name, kind)]);
        assert!(of("title", FieldKind::Text { language: Some("EN".into()) }).is_ok());
        assert!(of("title", FieldKind::Text { language: Some("klingon".into()) }).is_err());
        for name in ["", "_key", "-title"] {
            assert_eq!(of(name, FieldKind::Keyword).unwrap_err().code, "bad-field-configuration", "{name}");
        }
        let twice = [Field::new("a", FieldKind::Keyword), Field::new("a", FieldKind::Date)];
        assert!(check_fields(&twice).is_err());
    }
}
