//! The handle of the sink. It checks the table when the sink is opened; if no server can be reached then, the first use
//! that reaches one checks it. Until then every write fails with `Retry`.

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
    codes,
    config::Options,
    count::CachedCount,
    decode, encode, key, outcome,
    table::{self, Misfit, Table, TableError},
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
    counted: CachedCount,
}

impl CassandraSink {
    /// Creates a sink that checks its table at the first use.
    pub fn new(session: Session, options: Options) -> CassandraSink {
        let shared = Shared { session, options, table: OnceCell::new(), counted: CachedCount::default() };
        CassandraSink { shared: Arc::new(shared) }
    }

    /// Creates a sink and checks its table; fails if the table does not fit. The sink also opens if the cluster cannot
    /// be reached.
    pub async fn open(session: Session, options: Options) -> Result<CassandraSink, Failure> {
        let sink = CassandraSink::new(session, options);
        match sink.shared.table().await {
            Ok(_) => {}
            Err(TableError::NotChecked(failure)) if failure.class != Class::Fatal => {
                tracing::warn!(table = sink.shared.options.table, %failure, "cannot reach the cluster yet: the table is checked at the first use");
            }
            Err(error) => return Err(error.failure()),
        }
        Ok(sink)
    }

    /// Reports what does not fit in the table, or in documents that would become rows of it. Changes nothing.
    pub async fn look(
        session: &Session,
        options: &Options,
        documents: &[Arc<Json>],
    ) -> Result<Vec<Misfit>, TableError> {
        let shape = Table::look(session, options).await?;
        let mut misfits: Vec<Misfit> = Vec::new();
        for failure in documents.iter().filter_map(|document| table::cells(&shape.columns, document).err()) {
            let help = "give the column another type, or change the document".to_owned();
            let misfit =
                Misfit { at: "table".to_owned(), code: codes::problem::WRONG_TYPE, message: failure.message, help };
            // Each misfit is reported once; another document may have a different one.
            if !misfits.contains(&misfit) {
                misfits.push(misfit);
            }
        }
        Ok(misfits)
    }
}

impl Shared {
    async fn table(&self) -> Result<&Table, TableError> {
        self.table.get_or_try_init(|| Table::open(&self.session, &self.options)).await
    }

    async fn checked_table(&self) -> Result<&Table, Failure> {
        self.table().await.map_err(TableError::failure)
    }

    fn request_options(&self) -> honeyflow_cassandra::Options {
        let Options { deadline, consistency, .. } = self.options;
        honeyflow_cassandra::Options::within(deadline).consistency(consistency).idempotent()
    }

    async fn stat(&self, key: &Key) -> Result<Option<Stat>, Failure> {
        let table = self.checked_table().await?;
        let kinds: Vec<_> = table.key.iter().map(|column| column.kind.clone()).collect();
        // A key that cannot be a row has no row.
        let Ok(row) = key::cells(key, &kinds) else { return Ok(None) };
        let rows = self.session.execute(&table.statements.row, row, &self.request_options()).await;
        let rows = rows.map_err(|error| outcome::from_error(&error))?.into_rows();
        let Some(cells) = rows.first::<Vec<Value>>().map_err(|why| outcome::unreadable(&why))? else { return Ok(None) };
        let hash = document::hash(&table::document_from(&table.columns, &cells));
        Ok(Some(Stat { key: key.to_string(), stamp: version(&cells), hash }))
    }

    async fn list(&self, after: Option<Cursor>, limit: u32) -> Result<Page, Failure> {
        let table = self.checked_table().await?;
        let size = i32::try_from(limit.max(1)).unwrap_or(i32::MAX);
        let mut how = self.request_options().page_size(size);
        if let Some(after) = after {
            let page = encode::from_hex(&after)
                .ok_or_else(|| Failure::reject(codes::BAD_CURSOR, "the cursor is not valid"))?;
            how = how.page(Bytes::from(page));
        }
        let rows = self.session.execute(&table.statements.list, (), &how).await;
        let rows = rows.map_err(|error| outcome::from_error(&error))?.into_rows();
        let mut hits = Vec::with_capacity(rows.len());
        for cells in rows.typed::<Vec<Value>>() {
            hits.extend(hit(table, &cells.map_err(|why| outcome::unreadable(&why))?));
        }
        Ok((hits, rows.next_page().map(|page| hex(page))))
    }

    /// Counts the rows, one count at a time. The count continues if its caller stops waiting.
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
        let table = self.checked_table().await?;
        let rows = self.session.execute(&table.statements.count, (), &self.request_options()).await;
        let rows = rows.map_err(|error| outcome::from_error(&error))?.into_rows();
        let count = rows.first::<(i64,)>().map_err(|why| outcome::unreadable(&why))?.map_or(0, |(count,)| count);
        Ok(u64::try_from(count).unwrap_or(0))
    }
}

impl Sink for CassandraSink {
    fn write(&self, writes: Vec<Write>) -> BoxFuture<'static, Vec<Outcome>> {
        let shared = self.shared.clone();
        Box::pin(async move {
            match shared.checked_table().await {
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

    /// Returns the row whose key is `query`, since only keys are indexed; the first rows if `query` is empty.
    fn search(&self, query: String, limit: u32) -> BoxFuture<'static, Result<Vec<Hit>, Failure>> {
        let shared = self.shared.clone();
        Box::pin(async move {
            if query.is_empty() {
                return shared.list(None, limit).await.map(|(hits, _)| hits);
            }
            let table = shared.checked_table().await?;
            let kinds: Vec<_> = table.key.iter().map(|column| column.kind.clone()).collect();
            let Ok(row) = key::cells(&query, &kinds) else { return Ok(Vec::new()) };
            let rows = shared.session.execute(&table.statements.row, &row, &shared.request_options()).await;
            let rows = rows.map_err(|error| outcome::from_error(&error))?.into_rows();
            let cells = rows.first::<Vec<Value>>().map_err(|why| outcome::unreadable(&why))?;
            Ok(cells.and_then(|cells| hit(table, &[row, cells].concat())).into_iter().collect())
        })
    }

    fn count(&self) -> BoxFuture<'static, Result<u64, Failure>> {
        let shared = self.shared.clone();
        Box::pin(async move {
            let counting = tokio::spawn(shared.count());
            counting
                .await
                .unwrap_or_else(|_| Err(Failure::retry(codes::CASSANDRA_COUNT, "counting the rows was interrupted")))
        })
    }

    fn as_held(&self, document: &Arc<Json>) -> Result<Arc<Json>, Failure> {
        let table = self.shared.table.get();
        let table = table.ok_or_else(|| {
            Failure::retry(codes::CASSANDRA_AWAY, "the table has not been checked yet: no server was reached")
        })?;
        Ok(Arc::new(table::document_from(&table.columns, &table::cells(&table.columns, document)?)))
    }
}

/// Converts a row (key, columns, stamp) to a hit; `None` = this sink cannot have written the row.
fn hit(table: &Table, cells: &[Value]) -> Option<Hit> {
    let (row, cells) = cells.split_at_checked(table.key.len())?;
    let mut document = table::document_from(&table.columns, cells);
    let whole = table.columns.iter().any(|column| column.content == table::ColumnContent::Document);
    if let Some(fields) = document.as_object_mut().filter(|_| !whole) {
        fields.extend(table.key.iter().zip(row).map(|(column, cell)| (column.field.clone(), decode::json(cell))));
    }
    Some(Hit { key: key::text(row)?, stamp: version(cells), document: Arc::new(document), score: 1.0 })
}

/// Reads the stamp, which is the last cell.
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
