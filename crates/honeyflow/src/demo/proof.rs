//! The proof: compares every document with its row, with separate SQL and a full scan of the index. It shares no code
//! with the pipeline, because the code under test cannot prove itself.

use std::{collections::HashMap, sync::Arc};

use honeyflow_runtime::Failure;
use honeyflow_sink::Sink;
use rusqlite::Connection;
use serde::Serialize;
use serde_json::{Value, json};

use crate::codes;

#[derive(Default, Serialize)]
pub struct Proof {
    pub documents_expected: usize,
    pub documents_found: usize,
    pub missing: usize,
    pub stale: usize,
    pub unexpected: usize,
    /// The first few differences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
}

impl Proof {
    pub fn holds(&self) -> bool {
        self.missing == 0 && self.stale == 0 && self.unexpected == 0
    }

    fn example(&mut self, text: String) {
        if self.examples.len() < 10 {
            self.examples.push(text);
        }
    }
}

pub async fn prove(database: &std::path::Path, sink: &Arc<dyn Sink>) -> Result<Proof, Failure> {
    let path = database.to_owned();
    let mut expected = tokio::task::spawn_blocking(move || rows(&path))
        .await
        .map_err(|_| Failure::fatal(codes::PROOF, "the proof's query panicked"))?
        .map_err(|error| Failure::fatal(codes::PROOF, format!("cannot read the shop: {error}")))?;
    let mut proof = Proof { documents_expected: expected.len(), ..Proof::default() };
    let mut after = None;
    loop {
        let (hits, next) = sink.list(after, 1000).await?;
        for hit in hits {
            proof.documents_found += 1;
            match expected.remove(&hit.key) {
                None => {
                    proof.unexpected += 1;
                    proof.example(format!("book {} is in the index, but not in the shop", hit.key));
                }
                Some(row) if row != *hit.document => {
                    proof.stale += 1;
                    proof.example(format!("book {}: the row gives {row}, the index holds {}", hit.key, hit.document));
                }
                Some(_) => {}
            }
        }
        match next {
            Some(cursor) => after = Some(cursor),
            None => break,
        }
    }
    proof.missing = expected.len();
    for key in expected.keys().take(10) {
        proof.example(format!("book {key} is in the shop, but not in the index"));
    }
    Ok(proof)
}

/// Every book as the index should contain it.
fn rows(database: &std::path::Path) -> rusqlite::Result<HashMap<String, Value>> {
    let db = Connection::open(database)?;
    let mut authors: HashMap<i64, Vec<String>> = HashMap::new();
    let mut names = db.prepare(
        "select book_author.book_id, author.name from author, book_author where author.id = book_author.author_id
         order by book_author.book_id, author.id",
    )?;
    let mut found = names.query([])?;
    while let Some(row) = found.next()? {
        authors.entry(row.get(0)?).or_default().push(row.get(1)?);
    }
    let mut publishers: HashMap<i64, String> = HashMap::new();
    let mut found = db.prepare("select id, name from publisher")?;
    let mut found = found.query([])?;
    while let Some(row) = found.next()? {
        publishers.insert(row.get(0)?, row.get(1)?);
    }
    let mut books = HashMap::new();
    let mut found = db.prepare("select id, title, isbn, price, revision, publisher_id from book")?;
    let mut found = found.query([])?;
    while let Some(row) = found.next()? {
        let id: i64 = row.get(0)?;
        let price: f64 = row.get(3)?;
        let publisher: Option<i64> = row.get(5)?;
        let book = json!({
            "id": id,
            "title": row.get::<_, String>(1)?,
            "isbn": row.get::<_, Option<String>>(2)?,
            "price": honeyflow_event::document::canonical_number(price),
            "revision": row.get::<_, i64>(4)?,
            "publisher": publisher.and_then(|id| publishers.get(&id)),
            "authors": authors.get(&id).cloned().unwrap_or_default(),
        });
        books.insert(id.to_string(), book);
    }
    Ok(books)
}
