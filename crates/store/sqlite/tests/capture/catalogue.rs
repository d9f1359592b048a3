//! The catalogue as read from a database.

use honeyflow_store::{
    KeyType,
    catalogue::{Column, ForeignKey},
};
use honeyflow_store_sqlite::{catalogue, schema};
use rusqlite::Connection;

fn read(setup: &str) -> (Connection, honeyflow_store::Catalogue) {
    let mut connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(setup).unwrap();
    schema::migrate(&mut connection).unwrap();
    let read = catalogue::read(&connection).unwrap();
    (connection, read)
}

#[test]
fn ob_25_tables_columns_and_keys_are_read() {
    let (_connection, catalogue) = read(
        "create table publisher (id integer primary key, name text not null);
         create table book (isbn text, edition integer, publisher integer references publisher, total as (edition + 1),
             primary key (edition, isbn));
         create table \"order line\" (a text, b integer, foreign key (b, a) references book(edition, isbn), unique (b));
         create table pair (a text primary key, b any) strict, without rowid;
         create view v as select name from publisher;
         create virtual table search using fts5(text);
         create table hive_lease (a);
         create table seq (id integer primary key autoincrement);",
    );
    let names: Vec<_> = catalogue.tables.iter().map(|table| table.name.as_str()).collect();
    assert_eq!(
        names,
        ["book", "order line", "pair", "publisher", "seq", "v"],
        "neither ours, internal nor virtual ones"
    );

    let book = catalogue.table("BOOK").unwrap();
    assert_eq!(book.primary_key().iter().map(|column| column.name.as_str()).collect::<Vec<_>>(), ["edition", "isbn"]);
    assert!(book.column("total").unwrap().generated && book.rowid && !book.strict);
    let foreign = |columns: &[&str], table: &str, references: &[&str]| ForeignKey {
        columns: columns.iter().map(ToString::to_string).collect(),
        table: table.to_owned(),
        references: references.iter().map(ToString::to_string).collect(),
    };
    assert_eq!(book.foreign_keys, [foreign(&["publisher"], "publisher", &["id"])], "the referenced key is filled in");
    assert!(book.unique[0].primary && book.unique[0].columns() == Some(vec!["edition", "isbn"]));

    let line = catalogue.table("order line").unwrap();
    assert_eq!(line.foreign_keys, [foreign(&["b", "a"], "book", &["edition", "isbn"])]);
    assert_eq!(line.unique[0].columns(), Some(vec!["b"]));
    assert!(line.foreign_key(&["a".into(), "b".into()]).is_some() && line.foreign_key(&["a".into()]).is_none());
    assert_eq!(
        catalogue.referring_to("book").map(|(table, _)| table.name.as_str()).collect::<Vec<_>>(),
        ["order line"]
    );

    let pair = catalogue.table("pair").unwrap();
    assert!(pair.strict && !pair.rowid);
    assert!(catalogue.table("v").unwrap().view && !catalogue.table("v").unwrap().rowid);
    let name = Column { name: "name".into(), declared_type: "TEXT".into(), not_null: true, ..Column::default() };
    assert_eq!(catalogue.table("publisher").unwrap().columns[1], name);
}

#[test]
fn ob_3_the_type_of_a_key_is_declared_and_kept() {
    let (connection, catalogue) = read(
        "create table t (id integer primary key, big bigint, name varchar(20), raw blob, u uuid, num numeric, any, price real,
             mixed text, wrong integer, money decimal(5, 2));
         insert into t values (1, 5, 'a', x'00', 'ab-12', 7, 'text', 1.5, 'a', 'word', 1.5),
                              (2, null, null, null, null, 8, 'more', null, x'00', 'words', 3);
         create table empty (u uuid, num numeric, any);",
    );
    let of = |table: &str, column: &str| {
        catalogue::key_type(&connection, catalogue.table(table).unwrap(), column).map_err(|failure| failure.code)
    };
    assert_eq!(of("t", "id"), Ok(KeyType::Integer));
    assert_eq!(of("t", "big"), Ok(KeyType::Integer));
    assert_eq!(of("t", "name"), Ok(KeyType::Text));
    assert_eq!(of("t", "raw"), Ok(KeyType::Blob));
    assert_eq!(of("t", "u"), Ok(KeyType::Text));
    assert_eq!(of("t", "num"), Ok(KeyType::Integer), "the rows say what the type does not");
    assert_eq!(of("t", "any"), Ok(KeyType::Text));
    assert_eq!(of("empty", "u"), Ok(KeyType::Text));
    for (table, column) in [
        ("t", "price"),
        ("t", "mixed"),
        ("t", "wrong"),
        ("t", "money"),
        ("t", "nowhere"),
        ("empty", "num"),
        ("empty", "any"),
    ] {
        assert_eq!(of(table, column), Err("key-type".into()), "{table}.{column}");
    }
}
