//! Reads the description of the tables that the search path finds without a schema name.

use honeyflow_store::{
    Catalogue,
    catalogue::{Column, Table},
};

use crate::{
    driver::{Error, PgConnection},
    row, session,
};

/// Leaves out Honeyflow's tables and the server's own.
const COLUMNS: &str = "
    select c.relname, c.relkind in ('v', 'm'), a.attname,
           format_type(a.atttypid, null) || case when exists (select from pg_collation l
             where l.oid = a.attcollation and not l.collisdeterministic)
             then ' with a nondeterministic collation' else '' end,
           a.attnotnull,
           a.attgenerated <> '',
           (select k.n - 1 from pg_index i, unnest(i.indkey::int2[]) with ordinality k(number, n)
            where i.indrelid = c.oid and i.indisprimary and k.number = a.attnum)
    from pg_class c
    join pg_namespace s on s.oid = c.relnamespace
    join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    where c.relkind in ('r', 'p', 'v', 'm') and pg_table_is_visible(c.oid)
      and s.nspname not in ('pg_catalog', 'information_schema')
      and c.relname not like 'honeyflow\\_%' and c.relname not like 'hive\\_%'
    order by c.relname, a.attnum";

pub(crate) async fn read(connection: &mut PgConnection) -> Result<Catalogue, Error> {
    let answers = session::run(connection, COLUMNS.to_owned()).await?;
    let mut catalogue = Catalogue::default();
    for row in answers.iter().flatten() {
        let text = |column| row::text(row, column).map(|text| text.unwrap_or_default().to_owned());
        let flag = |column| row::text(row, column).map(|text| text == Some("t"));
        let name = text(0)?;
        if catalogue.tables.last().is_none_or(|table| table.name != name) {
            catalogue.tables.push(Table { name, view: flag(1)?, strict: true, ..Table::default() });
        }
        let column = Column {
            name: text(2)?,
            declared_type: text(3)?,
            not_null: flag(4)?,
            generated: flag(5)?,
            key_position: row::optional(row, 6)?,
        };
        if let Some(table) = catalogue.tables.last_mut() {
            table.columns.push(column);
        }
    }
    Ok(catalogue)
}
