//! Proposals for real schemas: the written file must be valid, fit its database, and be readable.

use super::{
    Proposal,
    write::{Frame, toml},
};
use crate::{
    check,
    config::{self, Url},
    registry::{self, Database},
};

struct TriedSchema {
    proposal: Proposal,
    page: String,
}

/// Creates the database, writes the proposal, reads it and checks it against the database. Only the given warnings may
/// remain.
fn try_schema(schema: &str, warnings: &[&str]) -> TriedSchema {
    let folder = tempfile::tempdir().unwrap();
    let connection = rusqlite::Connection::open(folder.path().join("shop.db")).unwrap();
    connection.execute_batch(schema).unwrap();
    drop(connection);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let url = Url::read("sqlite:shop.db", folder.path());
        let database = Database::at(&url, "shop", 1, folder.path()).await.unwrap();
        let proposal = database.propose().await.unwrap();
        let frame =
            Frame { command: "honeyflow init sqlite:shop.db", source: "shop", url: "sqlite:shop.db", index_prefix: "" };
        let page = toml(&proposal, &frame);
        let file = folder.path().join("honeyflow.toml");
        let loaded = config::parse(&file, page.clone(), &registry::kinds())
            .unwrap_or_else(|report| panic!("{page}\n{}", report.text(false)));
        let Some(config) = &loaded.config else { panic!("{page}\n{}", loaded.report(Vec::new()).text(false)) };
        let examined = check::examine(config, &config.sources[0]).await;
        let report = loaded.report(examined.problems);
        let codes = report.json();
        let codes: Vec<&str> =
            codes.as_array().unwrap().iter().filter_map(|problem| problem["code"].as_str()).collect();
        assert_eq!(codes, warnings, "{page}\n{}", report.text(false));
        assert_eq!(examined.bound.len(), proposal.entities.len());
        TriedSchema { proposal, page }
    })
}

fn document(tried: &TriedSchema, entity: &str) -> String {
    tried.proposal.entities.iter().find(|found| found.name == entity).unwrap().document.clone()
}

fn skipped(tried: &TriedSchema) -> String {
    tried.proposal.skipped.iter().map(|skipped| format!("{}: {}\n", skipped.what, skipped.why)).collect()
}

const SHOP: &str = "
    create table publisher (id integer primary key, name text not null, city text);
    create table author (id integer primary key, name text not null, born date);
    create table book (id integer primary key, title text not null, isbn text, price decimal(8,2), in_print boolean,
                       publisher_id integer references publisher(id), cover blob, extra json);
    create table book_author (book_id integer references book(id), author_id integer references author(id), position integer,
                              primary key (book_id, author_id));
    insert into publisher values (1, 'Hive', 'Wien');
    insert into author values (1, 'Ada', '1815-12-10');
    insert into book values (1, 'Bees', '978', 12.5, 1, 1, x'00', '{\"a\": 1}');";

#[test]
fn ob_25_a_shop_becomes_a_readable_file() {
    let tried = try_schema(SHOP, &[]);
    insta::assert_snapshot!(tried.page, @r#"
    # Written by `honeyflow init sqlite:shop.db`. Edit it freely; `honeyflow check` checks it against the database.
    # All keys: docs/reference/configuration.md

    [node]
    data   = "data"              # folder of the indexes
    listen = "127.0.0.1:7171"    # dashboard and API, reachable from this machine only

    # The source of events. Triggers write each change into the table honeyflow_outbox, in the same transaction.
    [source.shop]
    url = "sqlite:shop.db"


    # ------------------------------------------------------------------------------
    # author: how its documents are built. `$keys` stands for the keys of a whole batch.
    [entity.author]
    source   = "shop"
    table    = "author"
    key      = ["id"]
    columns  = ["name", "born"]   # a change of other columns makes no event
    json     = ["books"]   # these contain JSON
    document = """
      select a.id, a.name, a.born,
             (select json_group_array(b.title order by ba.position, b.title)
              from book_author ba join book b on b.id = ba.book_id where ba.author_id = a.id) as books
      from author a
      where a.id in $keys"""

    [[entity.author.edge]]   # a row of this table adds to the list `books` and contains the key of the document
    table   = "book_author"
    columns = ["book_id", "position"]
    key     = ["author_id"]

    [[entity.author.edge]]   # its title is part of the list `books`
    table   = "book"
    columns = ["title"]
    to      = "select author_id from book_author where book_id in $keys"

    [sink.author]
    url   = "tantivy:author"
    field = { id = "integer", name = "text", born = "date", books = "text" }

    [workflow.author]
    on = [{ source = "shop", entity = "author" }]
    step.load  = { use = "sql.load" }
    step.index = { use = "search.index", needs = ["load"], into = "author" }


    # ------------------------------------------------------------------------------
    # book: how its documents are built. `$keys` stands for the keys of a whole batch.
    [entity.book]
    source   = "shop"
    table    = "book"
    key      = ["id"]
    columns  = ["title", "isbn", "price", "in_print", "publisher_id", "extra"]   # a change of other columns makes no event
    json     = ["extra", "authors"]   # these contain JSON
    document = """
      select b.id, b.title, b.isbn, b.price, b.in_print, b.publisher_id, b.extra, p.name as publisher,
             (select json_group_array(a.name order by ba.position, a.name)
              from book_author ba join author a on a.id = ba.author_id where ba.book_id = b.id) as authors
      from book b
      left join publisher p on p.id = b.publisher_id
      where b.id in $keys"""

    [[entity.book.edge]]   # its name is part of these documents
    table   = "publisher"
    columns = ["name"]
    to      = "select id from book where publisher_id in $keys"

    [[entity.book.edge]]   # a row of this table adds to the list `authors` and contains the key of the document
    table   = "book_author"
    columns = ["author_id", "position"]
    key     = ["book_id"]

    [[entity.book.edge]]   # its name is part of the list `authors`
    table   = "author"
    columns = ["name"]
    to      = "select book_id from book_author where author_id in $keys"

    [sink.book]
    url   = "tantivy:book"
    field = { id = "integer", title = "text", isbn = "keyword", price = "decimal", in_print = "boolean", publisher_id = "integer", publisher = "text", authors = "text" }

    [workflow.book]
    on = [{ source = "shop", entity = "book" }]
    step.load  = { use = "sql.load" }
    step.index = { use = "search.index", needs = ["load"], into = "book" }


    # ------------------------------------------------------------------------------
    # publisher: how its documents are built. `$keys` stands for the keys of a whole batch.
    [entity.publisher]
    source   = "shop"
    table    = "publisher"
    key      = ["id"]
    columns  = ["name", "city"]   # a change of other columns makes no event
    document = """
      select p.id, p.name, p.city
      from publisher p
      where p.id in $keys"""

    [sink.publisher]
    url   = "tantivy:publisher"
    field = { id = "integer", name = "text", city = "text" }

    [workflow.publisher]
    on = [{ source = "shop", entity = "publisher" }]
    step.load  = { use = "sql.load" }
    step.index = { use = "search.index", needs = ["load"], into = "publisher" }
    "#);
    insta::assert_snapshot!(skipped(&tried), @r#"
    book_author: a link table: its rows become lists in author and book
    book.cover: binary data is not searchable
    "#);
}

#[test]
fn ob_25_self_references_and_composite_keys() {
    let tried = try_schema(
        "create table category (id integer primary key, name text, parent_id integer references category);
         create table \"order\" (id integer primary key, placed_at text);
         create table \"order line\" (\"order\" integer references \"order\"(id), line integer, category_id integer references category(id),
                                    note text, primary key (\"order\", line));
         create table shipment (id integer primary key, \"order\" integer, line integer, carrier text,
                                foreign key (\"order\", line) references \"order line\"(\"order\", line));",
        &[],
    );
    insta::assert_snapshot!(document(&tried, "category"), @r#"
    select c.id, c.name, c.parent_id, c2.name as parent
    from category c
    left join category c2 on c2.id = c.parent_id
    where c.id in $keys
    "#);
    insta::assert_snapshot!(document(&tried, "order_line"), @r#"
    select ol."order", ol.line, ol.category_id, ol.note, o.placed_at as order_placed_at, c.name as category
    from "order line" ol
    join $keys k on k."order" = ol."order" and k.line = ol.line
    left join "order" o on o.id = ol."order"
    left join category c on c.id = ol.category_id
    "#);
    insta::assert_snapshot!(document(&tried, "shipment"), @r#"
    select s.id, s."order", s.line, s.carrier, ol.note as order_line_note
    from shipment s
    left join "order line" ol on ol."order" = s."order" and ol.line = s.line
    where s.id in $keys
    "#);
}

#[test]
fn ob_25_unusual_names_are_quoted_and_simplified() {
    let tried = try_schema(
        "create table \"Größe \"\"x\"\"\" (\"the id\" integer primary key, \"unit price\" real, \"a\"\"b\" text, \"_hidden\" text);
         create table \"select\" (\"from\" text primary key, \"where\" int);
         create table \"order_line\" (id integer primary key, name text);
         create table \"order line\" (id integer primary key, name text);
         create table \"  \" (id integer primary key);
         create table \"9 lives\" (id integer primary key, name text);
         create table \"back\\slash\" (id integer primary key, \"tri\"\"\"\"\"\"ple\" text);",
        &[],
    );
    let names: Vec<String> =
        tried.proposal.entities.iter().map(|entity| format!("{} = {:?}", entity.name, entity.table)).collect();
    insta::assert_snapshot!(names.join("\n"), @r#"
    t = "  "
    t_9_lives = "9 lives"
    groesse_x = "Größe \"x\""
    back_slash = "back\\slash"
    order_line_2 = "order line"
    order_line = "order_line"
    select = "select"
    "#);
    insta::assert_snapshot!(document(&tried, "groesse_x"), @r#"
    select gx."the id", gx."unit price" as unit_price, gx."a""b" as a_b, gx._hidden as hidden
    from "Größe ""x""" gx
    where gx."the id" in $keys
    "#);
}

#[test]
fn skipped_tables_and_columns_are_listed_with_the_reason() {
    let tried = try_schema(
        "create table log (at text, line text);
         create view cheap as select 1 as id;
         create table ratio (r real primary key, name text);
         create table schema_migrations (version text primary key);
         create table account (id integer primary key, name text, password_hash text, country text references country(code), gone_id integer references gone(id));
         create table country (id integer primary key, code text unique, name text);
         create table follows (follower_id integer references account(id), followed_id integer references account(id), primary key (follower_id, followed_id));",
        &[],
    );
    insta::assert_snapshot!(skipped(&tried), @r#"
    cheap: a view: only tables can be captured
    follows: a link table: its rows become a list in account
    log: no primary key
    ratio: `ratio.r` cannot be a key: its declared type `REAL` is unclear; name another key, or fix the column
    schema_migrations: a table of a migration tool
    account.password_hash: it looks like a secret
    account.country: it does not refer to the primary key of country
    account.gone_id: it refers to a table that does not exist: gone
    "#);
    insta::assert_snapshot!(document(&tried, "account"), @r#"
    select a.id, a.name, a.country, a.gone_id,
           (select json_group_array(a2.name order by a2.name)
            from follows f join account a2 on a2.id = f.follower_id where f.followed_id = a.id) as followers,
           (select json_group_array(a3.name order by a3.name)
            from follows f2 join account a3 on a3.id = f2.followed_id where f2.follower_id = a.id) as followed
    from account a
    where a.id in $keys
    "#);
}

#[test]
fn a_declared_type_that_the_rows_break_is_not_used() {
    let tried = try_schema(
        "create table reading (id integer primary key, taken_at datetime, level int, ok boolean, extra json, amount numeric);
         insert into reading values (1, '2024-01-01 10:00:00', 5, 1, '{}', 1.5), (2, 1700000000, 'high', 'yes', 'no json', 'much');",
        &[],
    );
    let types: Vec<String> =
        tried.proposal.entities[0].fields.iter().map(|(name, kind)| format!("{name}: {}", kind.word())).collect();
    assert_eq!(
        types,
        ["id: integer", "taken_at: keyword", "level: keyword", "ok: keyword", "extra: text", "amount: keyword"]
    );
}

/// The proposal is valid and its statements can be prepared, even with such a schema.
#[test]
fn two_foreign_keys_to_one_parent_and_colliding_names() {
    let tried = try_schema(
        "create table address (id integer primary key, street text, city text);
         create table person (id integer primary key, first_name text, last_name text, home_id integer references address(id), work_id integer references address(id), home text);
         create table tag (id integer primary key, name text);
         create table person_tag (id integer primary key, person_id integer references person(id), tag_id integer references tag(id), unique (person_id, tag_id));
         create table note (id integer primary key, person integer references person(id), body text);",
        &[],
    );
    insta::assert_snapshot!(document(&tried, "person"), @r#"
    select p.id, p.first_name, p.last_name, p.home_id, p.work_id, p.home, a.street as home_street,
           a.city as home_city, a2.street as work_street, a2.city as work_city,
           (select json_group_array(t.name order by t.name)
            from person_tag pt join tag t on t.id = pt.tag_id where pt.person_id = p.id) as tags
    from person p
    left join address a on a.id = p.home_id
    left join address a2 on a2.id = p.work_id
    where p.id in $keys
    "#);
    insta::assert_snapshot!(document(&tried, "note"), @r#"
    select n.id, n.person, n.body, p.first_name as person_first_name, p.last_name as person_last_name
    from note n
    left join person p on p.id = n.person
    where n.id in $keys
    "#);
    insta::assert_snapshot!(document(&tried, "tag"), @r#"
    select t.id, t.name,
           (select json_group_array(concat_ws(' ', p.first_name, p.last_name) order by concat_ws(' ', p.first_name, p.last_name))
            from person_tag pt join person p on p.id = pt.person_id where pt.tag_id = t.id) as persons
    from tag t
    where t.id in $keys
    "#);
}
