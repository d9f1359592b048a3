//! The bare loop, peer of `drain`: the same statement, 500 keys at a time, straight into an equal index. One thread
//! reads ahead while the other writes and commits; documents go from the row into the index without a JSON tree in
//! between.

use std::{
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    time::{Duration, Instant},
};

use rusqlite::{Connection, Row};
use serde::Serialize;
use serde_json::value::RawValue;
use tantivy::{
    Index, IndexWriter, TantivyDocument, Term,
    indexer::{IndexWriterOptions, LogMergePolicy, UserOperation},
    schema::Field,
    tokenizer::{Language, LowerCaser, RemoveLongFilter, SimpleTokenizer, Stemmer, StopWordFilter, TextAnalyzer},
};

use crate::{Error, Result, shop::Shop};

const BATCH: usize = 500;
const BATCHES_AHEAD: usize = 4;
/// The sink's defaults.
const HEAP_BYTES: usize = 50_000_000;
const THREADS: usize = 1;
const MERGE_THREADS: usize = 1;
const COMMIT_WRITES: usize = 8_000;
const COMMIT_INTERVAL: Duration = Duration::from_millis(100);
const DELETED_SHARE_MAX: f32 = 0.4;
const SMALL_SEGMENT_MAX: u32 = 500;
const WORD_BYTES_MAX: usize = 255;

type Batch = Vec<UserOperation<TantivyDocument>>;

/// Writes every book again; returns their number.
pub fn run(shop: &Shop) -> Result<u64> {
    let index = open_index(shop)?;
    let fields = Fields::of(&index)?;
    let statement = statement(shop)?;
    let connection = shop.connect()?;
    let (batches, read) = sync_channel(BATCHES_AHEAD);
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || read_ahead(&connection, &statement, &fields, &batches));
        let written = write(&index, &read);
        drop(read);
        reader.join().map_err(|_| Error::from("the reader panicked"))??;
        written
    })
}

/// The document statement as the store executes it.
fn statement(shop: &Shop) -> Result<String> {
    let entity = shop.config.entities.first().ok_or("the shop has no entity")?;
    Ok(entity.document.replace("$keys", "(select value as id from json_each(?1))"))
}

fn read_ahead(connection: &Connection, sql: &str, fields: &Fields, batches: &SyncSender<Batch>) -> Result<()> {
    let ids: Vec<i64> = connection
        .prepare("select id from book order by id")?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let mut load = connection.prepare(sql)?;
    // Takes the part of the engine's stamps: higher than those in the index.
    let mut version = u64::MAX / 2;
    for keys in ids.chunks(BATCH) {
        let keys = serde_json::to_string(keys)?;
        let mut batch = Vec::with_capacity(2 * BATCH);
        let mut rows = load.query([keys])?;
        while let Some(row) = rows.next()? {
            version += 1;
            fields.write(row, version, &mut batch)?;
        }
        if batches.send(batch).is_err() {
            break; // The writer has failed, and returns the error.
        }
    }
    Ok(())
}

fn write(index: &Index, batches: &Receiver<Batch>) -> Result<u64> {
    let options = IndexWriterOptions::builder()
        .num_worker_threads(THREADS)
        .memory_budget_per_thread(HEAP_BYTES / THREADS)
        .num_merge_threads(MERGE_THREADS)
        .build();
    let mut writer: IndexWriter = index.writer_with_options(options)?;
    let mut merges = LogMergePolicy::default();
    merges.set_del_docs_ratio_before_merge(DELETED_SHARE_MAX);
    merges.set_min_layer_size(SMALL_SEGMENT_MAX);
    writer.set_merge_policy(Box::new(merges));
    let (mut written, mut uncommitted, mut first_at) = (0, 0, Instant::now());
    for batch in batches {
        if uncommitted == 0 {
            first_at = Instant::now();
        }
        let count = batch.len() / 2;
        writer.run(batch)?;
        written += count as u64;
        uncommitted += count;
        if uncommitted >= COMMIT_WRITES || first_at.elapsed() >= COMMIT_INTERVAL {
            writer.commit()?;
            uncommitted = 0;
        }
    }
    writer.commit()?;
    Ok(written)
}

/// Opens the sink's index, which is a plain Tantivy index.
fn open_index(shop: &Shop) -> Result<Index> {
    let folder = shop.path().join("data/index/books");
    let generation = std::fs::read_to_string(folder.join("current"))?;
    let index = Index::open_in_dir(folder.join(generation.trim()))?;
    let words = || {
        TextAnalyzer::builder(SimpleTokenizer::default())
            .filter(RemoveLongFilter::limit(WORD_BYTES_MAX))
            .filter(LowerCaser)
    };
    index.tokenizers().register("text", words().build());
    let stop_words = StopWordFilter::new(Language::English).ok_or("no English stop words")?;
    let english = words().filter(stop_words).filter(Stemmer::new(Language::English)).build();
    index.tokenizers().register("text-english", english);
    Ok(index)
}

/// A book as in `_source`, columns in the order of their names.
#[derive(Serialize)]
struct Book<'a> {
    authors: &'a RawValue,
    id: i64,
    isbn: Option<&'a str>,
    price: Option<f64>,
    publisher: Option<&'a str>,
    revision: i64,
    title: &'a str,
}

struct Fields {
    key: Field,
    version: Field,
    hash: Field,
    source: Field,
    title: Field,
    isbn: Field,
    price: Field,
    revision: Field,
    publisher: Field,
    authors: Field,
}

impl Fields {
    fn of(index: &Index) -> Result<Fields> {
        let schema = index.schema();
        let field = |name| schema.get_field(name);
        let fields = Fields {
            key: field("_key")?,
            version: field("_version")?,
            hash: field("_hash")?,
            source: field("_source")?,
            title: field("title")?,
            isbn: field("isbn")?,
            price: field("price")?,
            revision: field("revision")?,
            publisher: field("publisher")?,
            authors: field("authors")?,
        };
        if schema.fields().count() != 10 {
            return Err("the index has other fields than the bare loop writes".into());
        }
        Ok(fields)
    }

    /// Writes a row of the statement (id, title, isbn, price, revision, publisher, authors).
    fn write(&self, row: &Row<'_>, version: u64, batch: &mut Batch) -> Result<()> {
        let text = |column| -> Result<Option<&str>> { Ok(row.get_ref(column)?.as_str_or_null()?) };
        let id: i64 = row.get(0)?;
        let authors = text(6)?.ok_or("no authors")?;
        let book = Book {
            authors: serde_json::from_str(authors)?,
            id,
            isbn: text(2)?,
            price: row.get(3)?,
            publisher: text(5)?,
            revision: row.get(4)?,
            title: text(1)?.ok_or("no title")?,
        };
        let source = serde_json::to_string(&book)?;
        let key = id.to_string();
        batch.push(UserOperation::Delete(Term::from_field_text(self.key, &key)));
        let mut document = TantivyDocument::default();
        document.add_text(self.key, key);
        document.add_u64(self.version, version);
        document.add_u64(self.hash, xxhash_rust::xxh3::xxh3_64(source.as_bytes()));
        document.add_text(self.source, source);
        document.add_text(self.title, book.title);
        if let Some(isbn) = book.isbn {
            document.add_text(self.isbn, isbn);
        }
        if let Some(price) = book.price {
            document.add_f64(self.price, price);
        }
        document.add_i64(self.revision, book.revision);
        if let Some(publisher) = book.publisher {
            document.add_text(self.publisher, publisher);
        }
        let names: Vec<&str> = serde_json::from_str(authors)?;
        for name in names {
            document.add_text(self.authors, name);
        }
        batch.push(UserOperation::Add(document));
        Ok(())
    }
}
