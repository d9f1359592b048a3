//! The handle. The table is looked at when the sink is opened; if no server can be reached then, at the first use that
//! finds one. Until then every write is to be tried again.

use std::{fmt::Write as _, sync::Arc, time::Instant};

use bytes::Bytes;
use futures_util::{StreamExt, future::BoxFuture, stream};
use honeyflow_cassandra::{Session, Value};
use honeyflow_event::{Key, document};
use honeyflow_runtime::{Class, Failure};
use honeyflow_sink::{Cursor, Hit, Outcome, Page, Sink, Stat, Write};
use serde_json::Value as Json;
use tokio::sync::OnceCell;

use crate::{
    config::Options,
    count::Counted,
    decode, encode, key, outcome,
    table::{self, Misfit, Refused, Table},
    write::{Writer, stamp},
};

#[derive(Clone)]
pub struct CassandraSink {
    shared: Arc<Shared>,
}

struct Shared {
    session: Session,
    options: Options,
    table: OnceCell<Table>,
    counted: Counted,
}

impl CassandraSink {
    /// Looks at its table when it is first used.
    pub fn new(session: Session, options: Options) -> CassandraSink {
        let shared = Shared { session, options, table: OnceCell::new(), counted: Counted::default() };
        CassandraSink { shared: Arc::new(shared) }
    }

    /// Refused if the table does not fit. A cluster that is away does not keep a sink from being opened.
    pub async fn open(session: Session, options: Options) -> Result<CassandraSink, Failure> {
        let sink = CassandraSink::new(session, options);
        match sink.shared.table().await {
            Ok(_) => {}
            Err(Refused::Unasked(failure)) if failure.class != Class::Fatal => {
                tracing::warn!(table = sink.shared.options.table, %failure, "the cluster cannot be asked yet");
            }
            Err(unfit) => return Err(unfit.failure()),
        }
        Ok(sink)
    }

    /// What does not fit about the table, or about documents that are to be rows of it, without changing anything.
    pub async fn look(session: &Session, options: &Options, documents: &[Arc<Json>]) -> Result<Vec<Misfit>, Refused> {
        let shape = Table::look(session, options).await?;
        let mut misfits: Vec<Misfit> = Vec::new();
        for failure in documents.iter().filter_map(|document| table::cells(&shape.columns, document).err()) {
            let help = "give the column another type, or change the document".to_owned();
            let misfit = Misfit { at: "table".to_owned(), code: "wrong-type", message: failure.message, help };
            // One row is enough to tell; the next may lack something else.
            if !misfits.contains(&misfit) {
                misfits.push(misfit);
            }
        }
        Ok(misfits)
    }
}

impl Shared {
    async fn table(&self) -> Result<&Table, Refused> {
        self.table.get_or_try_init(|| Table::open(&self.session, &self.options)).await
    }

    async fn ready(&self) -> Result<&Table, Failure> {
        self.table().await.map_err(Refused::failure)
    }

    fn how(&self) -> honeyflow_cassandra::Options {
        let Options { deadline, consistency, .. } = self.options;
        honeyflow_cassandra::Options::within(deadline).consistency(consistency).idempotent()
    }

    async fn stat(&self, key: &Key) -> Result<Option<Stat>, Failure> {
        let table = self.ready().await?;
        let kinds: Vec<_> = table.key.iter().map(|column| column.kind.clone()).collect();
        // What cannot be a row is none.
        let Ok(row) = key::cells(key, &kinds) else { return Ok(None) };
        let rows = self.session.execute(&table.statements.row, row, &self.how()).await;
        let rows = rows.map_err(|error| outcome::failure(&error))?.into_rows();
        let Some(cells) = rows.first::<Vec<Value>>().map_err(|why| outcome::unreadable(&why))? else { return Ok(None) };
        let hash = document::hash(&table::held(&table.columns, &cells));
        Ok(Some(Stat { key: key.to_string(), stamp: version(&cells), hash }))
    }

    async fn list(&self, after: Option<Cursor>, limit: u32) -> Result<Page, Failure> {
        let table = self.ready().await?;
        let size = i32::try_from(limit.max(1)).unwrap_or(i32::MAX);
        let mut how = self.how().page_size(size);
        if let Some(after) = after {
            let page =
                encode::from_hex(&after).ok_or_else(|| Failure::reject("bad-cursor", "no place of a listing"))?;
            how = how.page(Bytes::from(page));
        }
        let rows = self.session.execute(&table.statements.list, (), &how).await;
        let rows = rows.map_err(|error| outcome::failure(&error))?.into_rows();
        let mut hits = Vec::with_capacity(rows.len());
        for cells in rows.typed::<Vec<Value>>() {
            hits.extend(hit(table, &cells.map_err(|why| outcome::unreadable(&why))?));
        }
        Ok((hits, rows.next_page().map(|page| hex(page))))
    }

    /// One at a time, and not given up when nobody waits for it any more.
    async fn count(self: Arc<Self>) -> Result<u64, Failure> {
        let _turn = self.counted.turn.lock().await;
        if let Some(count) = self.counted.fresh() {
            return count;
        }
        let began = Instant::now();
        let count = self.count_rows().await;
        self.counted.note(count.clone(), began.elapsed());
        count
    }

    async fn count_rows(&self) -> Result<u64, Failure> {
        let table = self.ready().await?;
        let rows = self.session.execute(&table.statements.count, (), &self.how()).await;
        let rows = rows.map_err(|error| outcome::failure(&error))?.into_rows();
        let count = rows.first::<(i64,)>().map_err(|why| outcome::unreadable(&why))?.map_or(0, |(count,)| count);
        Ok(u64::try_from(count).unwrap_or(0))
    }
}

impl Sink for CassandraSink {
    fn write(&self, writes: Vec<Write>) -> BoxFuture<'static, Vec<Outcome>> {
        let shared = self.shared.clone();
        Box::pin(async move {
            match shared.ready().await {
                Ok(table) => Writer { session: &shared.session, options: &shared.options, table }.write(writes).await,
                Err(failure) => vec![Outcome::Failed(failure); writes.len()],
            }
        })
    }

    fn stat(&self, keys: Vec<Key>) -> BoxFuture<'static, Result<Vec<Option<Stat>>, Failure>> {
        let shared = self.shared.clone();
        Box::pin(async move {
            let stats = stream::iter(keys).map(|key| {
                let shared = &shared;
                async move { shared.stat(&key).await }
            });
            let stats: Vec<_> = stats.buffered(shared.options.requests_max).collect().await;
            stats.into_iter().collect()
        })
    }

    fn list(&self, after: Option<Cursor>, limit: u32) -> BoxFuture<'static, Result<Page, Failure>> {
        let shared = self.shared.clone();
        Box::pin(async move { shared.list(after, limit).await })
    }

    /// Without a query the first rows; a query is the text of a key, since nothing else is indexed.
    fn search(&self, query: String, limit: u32) -> BoxFuture<'static, Result<Vec<Hit>, Failure>> {
        let shared = self.shared.clone();
        Box::pin(async move {
            if query.is_empty() {
                return shared.list(None, limit).await.map(|(hits, _)| hits);
            }
            let table = shared.ready().await?;
            let kinds: Vec<_> = table.key.iter().map(|column| column.kind.clone()).collect();
            let Ok(row) = key::cells(&query, &kinds) else { return Ok(Vec::new()) };
            let rows = shared.session.execute(&table.statements.row, &row, &shared.how()).await;
            let rows = rows.map_err(|error| outcome::failure(&error))?.into_rows();
            let cells = rows.first::<Vec<Value>>().map_err(|why| outcome::unreadable(&why))?;
            Ok(cells.and_then(|cells| hit(table, &[row, cells].concat())).into_iter().collect())
        })
    }

    fn count(&self) -> BoxFuture<'static, Result<u64, Failure>> {
        let shared = self.shared.clone();
        Box::pin(async move {
            let counting = tokio::spawn(shared.count());
            counting.await.unwrap_or_else(|_| Err(Failure::retry("cassandra-count", "counting was cut off")))
        })
    }

    fn as_held(&self, document: &Arc<Json>) -> Result<Arc<Json>, Failure> {
        let table = self.shared.table.get();
        let table = table.ok_or_else(|| Failure::retry(outcome::AWAY, "the table has not been seen yet"))?;
        Ok(Arc::new(table::held(&table.columns, &table::cells(&table.columns, document)?)))
    }
}

/// Key, columns, stamp. None: a row that we could not have written.
fn hit(table: &Table, cells: &[Value]) -> Option<Hit> {
    let (row, cells) = cells.split_at_checked(table.key.len())?;
    let mut document = table::held(&table.columns, cells);
    let whole = table.columns.iter().any(|column| column.filled == table::Filled::Document);
    if let Some(fields) = document.as_object_mut().filter(|_| !whole) {
        fields.extend(table.key.iter().zip(row).map(|(column, cell)| (column.field.clone(), decode::json(cell))));
    }
    Some(Hit { key: key::text(row)?, stamp: version(cells), document: Arc::new(document), score: 1.0 })
}

/// The last cell.
fn version(cells: &[Value]) -> honeyflow_event::Stamp {
    match cells.last() {
        Some(Value::Bigint(version)) => stamp(*version),
        _ => stamp(0),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
