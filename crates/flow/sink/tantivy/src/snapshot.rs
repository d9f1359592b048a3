//! One committed state of the index: looks up the state of a key, and lists all documents in the order of their keys.

use std::{path::Path, sync::Arc};

use honeyflow_event::Stamp;
use honeyflow_runtime::Failure;
use honeyflow_sink::Hit;
use serde_json::Value;
use tantivy::{
    DocAddress, DocId, DocSet, InvertedIndexReader, Searcher, TERMINATED, TantivyDocument,
    columnar::Column,
    postings::TermInfo,
    schema::{IndexRecordOption, Value as _},
};

use crate::{
    outcome,
    pending::KeyState,
    schema::{HASH, Layout, VERSION},
};

pub(crate) struct Snapshot {
    searcher: Searcher,
    segments: Vec<Segment>,
}

struct Segment {
    keys: Arc<InvertedIndexReader>,
    versions: Column<u64>,
    hashes: Column<u64>,
    /// The highest stamp in the segment, deleted documents included.
    newest: Stamp,
}

impl Snapshot {
    pub fn new(searcher: Searcher, layout: &Layout) -> tantivy::Result<Snapshot> {
        let segments = searcher
            .segment_readers()
            .iter()
            .map(|reader| {
                let versions = reader.fast_fields().u64(VERSION)?;
                Ok(Segment {
                    keys: reader.inverted_index(layout.key)?,
                    newest: Stamp(versions.max_value()),
                    hashes: reader.fast_fields().u64(HASH)?,
                    versions,
                })
            })
            .collect::<tantivy::Result<_>>()?;
        Ok(Snapshot { searcher, segments })
    }

    /// The highest stamp of any document: a newer write need not be compared with stored ones.
    pub fn newest(&self) -> Option<Stamp> {
        self.segments.iter().map(|segment| segment.newest).max()
    }

    pub fn find(&self, key: &str) -> tantivy::Result<Option<KeyState>> {
        for (ordinal, segment) in self.segments.iter().enumerate() {
            if let Some(term) = segment.keys.terms().get(key)?
                && let Some(document) = self.alive(ordinal, &term)?
            {
                return Ok(Some(KeyState {
                    stamp: Stamp(segment.versions.first(document).unwrap_or(0)),
                    hash: Some(segment.hashes.first(document).unwrap_or(0)),
                }));
            }
        }
        Ok(None)
    }

    fn alive(&self, ordinal: usize, term: &TermInfo) -> tantivy::Result<Option<DocId>> {
        let reader = &self.searcher.segment_readers()[ordinal];
        let mut postings = self.segments[ordinal].keys.read_postings_from_terminfo(term, IndexRecordOption::Basic)?;
        let mut document = postings.doc();
        while document != TERMINATED && reader.is_deleted(document) {
            document = postings.advance();
        }
        Ok((document != TERMINATED).then_some(document))
    }

    /// Returns up to `limit` documents after the key `after`, in the order of their keys' bytes, and whether there are
    /// more.
    pub fn page(&self, after: Option<&str>, limit: usize) -> tantivy::Result<(Vec<DocAddress>, bool)> {
        let mut streams = Vec::with_capacity(self.segments.len());
        for segment in &self.segments {
            let range = segment.keys.terms().range();
            let mut stream = match after {
                Some(key) => range.gt(key).into_stream()?,
                None => range.into_stream()?,
            };
            streams.push(stream.advance().then_some(stream));
        }
        let mut addresses = Vec::new();
        // an updated key is in several segments; in one of them its document is not deleted
        while let Some(key) =
            streams.iter().flatten().map(tantivy::termdict::TermStreamer::key).min().map(<[u8]>::to_vec)
        {
            for (ordinal, place) in streams.iter_mut().enumerate() {
                let Some(stream) = place.as_mut().filter(|stream| stream.key() == key) else { continue };
                if let Some(document) = self.alive(ordinal, stream.value())? {
                    if addresses.len() == limit {
                        return Ok((addresses, true));
                    }
                    addresses.push(DocAddress::new(u32::try_from(ordinal).unwrap_or(u32::MAX), document));
                }
                if !stream.advance() {
                    *place = None;
                }
            }
        }
        Ok((addresses, false))
    }
}

/// Returns the document at `address`, as it was written.
pub(crate) fn hit(
    searcher: &Searcher,
    layout: &Layout,
    folder: &Path,
    address: DocAddress,
    score: f32,
) -> Result<Hit, Failure> {
    let stored: TantivyDocument = searcher.doc(address).map_err(|error| outcome::reading(folder, &error))?;
    let missing = |field: &str| outcome::damaged(folder, format!("a document without `{field}`"));
    let key = stored.get_first(layout.key).and_then(|value| value.as_str()).ok_or_else(|| missing("_key"))?;
    let version = stored.get_first(layout.version).and_then(|value| value.as_u64()).ok_or_else(|| missing(VERSION))?;
    let source = stored.get_first(layout.source).and_then(|value| value.as_str()).ok_or_else(|| missing("_source"))?;
    let document: Value = serde_json::from_str(source).map_err(|error| outcome::damaged(folder, error))?;
    Ok(Hit { key: key.to_owned(), stamp: Stamp(version), document: Arc::new(document), score })
}
