//! Lists the keys of the application's tables, in key order.

use honeyflow_event::{Key, key};
use honeyflow_store::KeyColumn;

use crate::{
    driver::{self, AssertSqlSafe, Error, PgConnection, Row},
    key_text, literal,
    rewrite::Batch,
    session,
};

pub(crate) async fn keys(
    connection: &mut PgConnection,
    table: &str,
    key: &[KeyColumn],
    after: Option<&Key>,
    limit: u32,
) -> Result<Vec<Key>, Error> {
    let names: Vec<String> = key.iter().map(|column| literal::name(&column.name)).collect();
    let texts = key.iter().zip(&names).map(|(column, name)| key_text::of_column(name, column.kind));
    let texts = texts.collect::<Vec<_>>().join(", ");
    let present = names.iter().map(|name| format!("{name} is not null")).collect::<Vec<_>>().join(" and ");
    let mut batch = Batch::new(key);
    let mut above = String::new();
    if let Some(after) = after {
        batch.push(key, after).map_err(|why| Error::Encode(format!("key `{after}`: {why}").into()))?;
        let bound = key.iter().zip(1..).map(|(column, n)| key_text::value(&format!("${n}::text"), column.kind));
        above = format!(" and ({}) > ({})", names.join(", "), bound.collect::<Vec<_>>().join(", "));
    }
    let columns = names.join(", ");
    let table = table.split('.').map(literal::name).collect::<Vec<_>>().join(".");
    let text =
        format!("select array[{texts}]::text[] from {table} where {present}{above} order by {columns} limit {limit}");
    let parts = batch.parts.iter().filter_map(|part| part.first());
    let query = parts.fold(driver::query(AssertSqlSafe(text)), driver::query::Query::bind);
    let rows = session::run_bound(connection, query).await?;
    rows.iter().map(|row| Ok(key::join(&row.try_get::<Vec<String>, _>(0)?).into())).collect()
}
