//! Golden texts: the message for each kind of mistake, and the values that a correct file gives.

use std::path::Path;

use super::*;
use crate::registry;

/// A file without a mistake; tests break one thing in it.
const GOOD: &str = r#"[source.shop]
url = "sqlite:shop.db"

[entity.book]
source   = "shop"
table    = "book"
key      = ["id"]
columns  = ["title", "publisher_id"]
document = "select b.id, b.title, p.name as publisher from book b left join publisher p on p.id = b.publisher_id where b.id in $keys"

[[entity.book.edge]]
table   = "publisher"
columns = ["name"]
to      = "select id from book where publisher_id in $keys"

[sink.books]
url   = "tantivy:books"
field = { title = { type = "text", language = "en" }, publisher = "keyword" }

[workflow.book]
on = [{ source = "shop", entity = "book" }]
step.load  = { use = "sql.load" }
step.index = { use = "search.index", needs = ["load"], into = "books" }
"#;

fn loaded(text: &str) -> LoadedConfig {
    match parse(Path::new("honeyflow.toml"), text.to_owned(), &registry::kinds()) {
        Ok(loaded) => loaded,
        Err(report) => panic!("{}", report.text(false)),
    }
}

/// All messages about a file.
fn report_text(text: &str) -> String {
    match parse(Path::new("honeyflow.toml"), text.to_owned(), &registry::kinds()) {
        Ok(loaded) => loaded.report(Vec::new()).text(false),
        Err(report) => report.text(false),
    }
}

/// The messages about the good file with one thing changed.
fn broken(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    report_text(&GOOD.replace(from, to))
}

#[test]
fn a_right_file_is_read_with_its_defaults() {
    let config = loaded(GOOD).config.expect("no problems");
    assert_eq!(report_text(GOOD), "");
    assert_eq!(config.node.listen.to_string(), "127.0.0.1:7171");
    assert_eq!(config.node.data, Path::new("data"));
    assert_eq!(config.engine.max_runs, 20_000);
    assert_eq!(config.sources[0].payload_bytes_max, 1 << 20);
    let book = config.entity("book").unwrap();
    assert_eq!((book.priority, &book.columns), (4, &Columns::Some(vec!["title".into(), "publisher_id".into()])));
    assert_eq!(book.edges[0].by, EdgeBy::Statement("select id from book where publisher_id in $keys".into()));
    assert_eq!(config.sinks[0].fields[1].language.as_deref(), Some("en"));
    assert_eq!(config.entities_into("books"), [honeyflow_event::Name::from("book")]);
}

#[test]
fn paths_are_relative_to_the_file() {
    let read =
        parse(Path::new("/etc/honeyflow/shop.toml"), GOOD.to_owned(), &registry::kinds()).unwrap_or_else(|_| panic!());
    assert_eq!(read.config.unwrap().node.data, Path::new("/etc/honeyflow/data"));
}

#[test]
fn broken_toml_shows_the_place() {
    insta::assert_snapshot!(broken(r#"url = "sqlite:shop.db""#, r#"url = sqlite:shop.db"#), @r#"
    honeyflow.toml:2:7: error[bad-toml]: string values must be quoted, expected literal string
       2 │ url = sqlite:shop.db
         │       ^^^^^^^^^^^^^^
    "#);
    insta::assert_snapshot!(report_text("[source.shop\nurl = \"sqlite:shop.db\"\n"), @r#"
    honeyflow.toml:1:13: error[bad-toml]: unclosed table, expected `]`
       1 │ [source.shop
         │             ^
    "#);
    insta::assert_snapshot!(report_text("[node]\ndata = \"a\"\ndata = \"b\"\n"), @r#"
    honeyflow.toml:3:1: error[bad-toml]: duplicate key
       3 │ data = "b"
         │ ^^^^
    "#);
}

#[test]
fn wf_3_an_unknown_key_gets_the_nearest_right_word() {
    insta::assert_snapshot!(broken("document =", "documnet ="), @r#"
    honeyflow.toml:9:1: error[unknown-key]: [entity.book] has no key `documnet`
       9 │ documnet = "select b.id, b.title, p.name as publisher from book b left join publisher p on p.id = b.publisher_id where b.id in $keys…
         │ ^^^^^^^^
         = help: did you mean `document`?
    "#);
    insta::assert_snapshot!(broken(r#"needs = ["load"]"#, r#"need = ["load"]"#), @r#"
    honeyflow.toml:23:38: error[unknown-key]: there is no key `need` here
      23 │ step.index = { use = "search.index", need = ["load"], into = "books" }
         │                                      ^^^^
         = help: did you mean `needs`?
    "#);
    insta::assert_snapshot!(broken("to      =", "toward  ="), @r#"
    honeyflow.toml:11:1: error[bad-edge]: an edge needs `to` or `key`
      11 │ [[entity.book.edge]]
         │ ^^^^^^^^^^^^^^^^^^^^
         = help: `to` is a statement that returns keys of the entity for keys of the table; `key` names columns that contain the entity's key

    honeyflow.toml:14:1: error[unknown-key]: [[entity.book.edge]] has no key `toward`
      14 │ toward  = "select id from book where publisher_id in $keys"
         │ ^^^^^^
         = help: its keys are `table`, `columns`, `to`, `key`, `fan-out`
    "#);
}

#[test]
fn an_unknown_section_gets_the_nearest_right_word() {
    insta::assert_snapshot!(broken("[sink.books]", "[sinks.books]"), @r#"
    honeyflow.toml:16:2: error[unknown-section]: there is no section [sinks]
      16 │ [sinks.books]
         │  ^^^^^
         = help: did you mean [sink]?

    honeyflow.toml:23:63: error[unknown-sink]: there is no [sink.books]
      23 │ step.index = { use = "search.index", needs = ["load"], into = "books" }
         │                                                               ^^^^^^^
         = help: add a section [sink.books]
    "#);
    insta::assert_snapshot!(report_text("[cluster]\nsize = 3\n"), @r#"
    honeyflow.toml:1:2: error[unknown-section]: there is no section [cluster]
       1 │ [cluster]
         │  ^^^^^^^
         = help: the sections are [node], [engine], [hive], [source], [entity], [sink], [cassandra], [workflow], [limit]
    "#);
    insta::assert_snapshot!(report_text("listen = \"127.0.0.1:80\"\n"), @r#"
    honeyflow.toml:1:1: error[unknown-section]: `listen` is outside of any section
       1 │ listen = "127.0.0.1:80"
         │ ^^^^^^
         = help: the sections are [node], [engine], [hive], [source], [entity], [sink], [cassandra], [workflow], [limit]
    "#);
}

#[test]
fn a_wrong_type_says_what_is_expected() {
    insta::assert_snapshot!(broken(r#"key      = ["id"]"#, r#"key      = "id""#), @r#"
    honeyflow.toml:7:12: error[wrong-type]: `key` must be a list of texts, this is a text
       7 │ key      = "id"
         │            ^^^^
         = help: write ["id"]
    "#);
    insta::assert_snapshot!(report_text("[engine]\nmax-runs = \"many\"\npoll-rows = 0\n"), @r#"
    honeyflow.toml:2:12: error[wrong-type]: `max-runs` must be a whole number, this is a text
       2 │ max-runs = "many"
         │            ^^^^^^

    honeyflow.toml:3:13: error[out-of-range]: `poll-rows` must be from 1 to 100000, not 0
       3 │ poll-rows = 0
         │             ^
    "#);
    insta::assert_snapshot!(report_text("[source]\nurl = \"sqlite:shop.db\"\n"), @r#"
    honeyflow.toml:2:1: error[missing-name]: [source] needs a name: `url` is a key of the source
       2 │ url = "sqlite:shop.db"
         │ ^^^
         = help: write [source.NAME] and put `url` below it
    "#);
    insta::assert_snapshot!(broken("[[entity.book.edge]]", "[entity.book.edge]"), @r#"
    honeyflow.toml:11:1: error[wrong-type]: `edge` must be a list of tables, this is a table
      11 │ [entity.book.edge]
         │ ^^^^^^^^^^^^^^^^^^
         = help: write [[entity.book.edge]] with double brackets
    "#);
}

#[test]
fn a_bad_unit_shows_good_ones() {
    insta::assert_snapshot!(report_text("[node]\ndrain = \"5 sec\"\n[limit.api]\nrate = \"500 per s\"\n"), @r#"
    honeyflow.toml:2:9: error[bad-unit]: `5 sec` is not a duration
       2 │ drain = "5 sec"
         │         ^^^^^^^
         = help: a whole number and a unit: `200ms`, `5s`, `10m`, `2h`, `1d`

    honeyflow.toml:4:8: error[bad-limit]: limit "500 per s": there is no slash
       4 │ rate = "500 per s"
         │        ^^^^^^^^^^^
         = help: write a count, a slash and a unit, as in "500/s", "1000/min burst 50", "3/h" or "10000/month"
    "#);
    insta::assert_snapshot!(broken("sqlite:shop.db\"", "sqlite:shop.db\"\npayload-max = \"1MB\""), @r#"
    honeyflow.toml:3:15: error[bad-unit]: `1MB` is not a size
       3 │ payload-max = "1MB"
         │               ^^^^^
         = help: a whole number and a unit: `512B`, `64KiB`, `8MiB`, `1GiB`
    "#);
}

#[test]
fn wf_18_a_cycle_is_printed() {
    insta::assert_snapshot!(broken(r#"{ use = "sql.load" }"#, r#"{ use = "sql.load", needs = ["index"] }"#), @r#"
    honeyflow.toml:23:46: error[cycle]: these steps wait for each other: index → load → index
      23 │ step.index = { use = "search.index", needs = ["load"], into = "books" }
         │                                              ^^^^^^^^
    "#);
}

#[test]
fn names_that_do_not_exist_get_the_nearest_one() {
    insta::assert_snapshot!(broken(r#"into = "books""#, r#"into = "boks""#), @r#"
    honeyflow.toml:23:63: error[unknown-sink]: there is no [sink.boks]
      23 │ step.index = { use = "search.index", needs = ["load"], into = "boks" }
         │                                                               ^^^^^^
         = help: did you mean `books`?
    "#);
    insta::assert_snapshot!(broken(r#"entity = "book" }"#, r#"entity = "novel" }"#), @r#"
    honeyflow.toml:21:35: error[unknown-entity]: there is no [entity.novel]
      21 │ on = [{ source = "shop", entity = "novel" }]
         │                                   ^^^^^^^
         = help: available: `book`
    "#);
    insta::assert_snapshot!(broken(r#"source   = "shop""#, r#"source   = "shpo""#), @r#"
    honeyflow.toml:5:12: error[unknown-source]: there is no [source.shpo]
       5 │ source   = "shpo"
         │            ^^^^^^
         = help: did you mean `shop`?
    "#);
    insta::assert_snapshot!(broken(r#"into = "books""#, r#"into = "books", limit = "api""#), @r#"
    honeyflow.toml:23:80: error[unknown-limit]: there is no [limit.api]
      23 │ step.index = { use = "search.index", needs = ["load"], into = "books", limit = "api" }
         │                                                                                ^^^^^
         = help: add a section [limit.api]
    "#);
}

#[test]
fn a_statement_without_keys_is_refused() {
    insta::assert_snapshot!(broken(" where b.id in $keys", ""), @r#"
    honeyflow.toml:9:12: error[no-keys]: the statement does not contain `$keys`: it would read the whole table for every batch
       9 │ document = "select b.id, b.title, p.name as publisher from book b left join publisher p on p.id = b.publisher_id"
         │            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
         = help: `$keys` stands for the keys of the batch: … where id in $keys
    "#);
    insta::assert_snapshot!(broken("where publisher_id in $keys", "-- where publisher_id in $keys"), @r#"
    honeyflow.toml:14:11: error[no-keys]: the statement does not contain `$keys`: it would read the whole table for every batch
      14 │ to      = "select id from book -- where publisher_id in $keys"
         │           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
         = help: `$keys` stands for the keys of the batch: … where author_id in $keys
    "#);
}

#[test]
fn se_20_a_secret_in_the_file_is_an_error_and_is_not_shown() {
    let shown = broken("sqlite:shop.db", "postgres://shop:canary@db/shop");
    assert!(!shown.contains("canary"));
    insta::assert_snapshot!(shown, @r#"
    honeyflow.toml:2:7: error[secret-inline]: the file contains a password
       2 │ url = "***"
         │       ^^^^^
         = help: put the address into an environment variable or a separate file, and refer to it: url = "env:DATABASE_URL" or url = "file:database-url"
    "#);
    let json = loaded(&GOOD.replace("tantivy:books", "https://u:canary@search:9200")).report(Vec::new()).json();
    assert!(!json.to_string().contains("canary"));
    // Nor is it shown if the line has another mistake.
    for with in ["url = postgres://shop:canary@db/shop", "ulr = \"postgres://shop:canary@db/shop\""] {
        assert!(!broken("url = \"sqlite:shop.db\"", with).contains("canary"));
    }
}

#[test]
fn a_bad_name_shows_a_good_one() {
    insta::assert_snapshot!(broken("[sink.books]", "[sink.Books-1]"), @r#"
    honeyflow.toml:16:7: error[bad-name]: `Books-1` cannot be the name of a sink
      16 │ [sink.Books-1]
         │       ^^^^^^^
         = help: lower-case letters, digits and `_`, a letter first: [sink.books_1]

    honeyflow.toml:23:63: error[unknown-sink]: there is no [sink.books]
      23 │ step.index = { use = "search.index", needs = ["load"], into = "books" }
         │                                                               ^^^^^^^
         = help: available: `Books-1`
    "#);
    insta::assert_snapshot!(broken("step.index ", "step.\"in dex\" "), @r#"
    honeyflow.toml:23:6: error[bad-name]: `in dex` cannot be the name of a step
      23 │ step."in dex" = { use = "search.index", needs = ["load"], into = "books" }
         │      ^^^^^^^^
         = help: a name is a lowercase letter, then lowercase letters, digits and _
    "#);
}

#[test]
fn se_5_an_address_for_others_is_refused() {
    insta::assert_snapshot!(report_text("[node]\nlisten = \"0.0.0.0:7171\"\n"), @r#"
    honeyflow.toml:2:10: error[open-listen]: 0.0.0.0:7171 can be reached from other machines, and there are neither access tokens nor TLS yet
       2 │ listen = "0.0.0.0:7171"
         │          ^^^^^^^^^^^^^^
         = help: use listen = "127.0.0.1:7171" behind a proxy that authenticates its users
    "#);
    insta::assert_snapshot!(report_text("[node]\nlisten = \"7171\"\n"), @r#"
    honeyflow.toml:2:10: error[bad-address]: `7171` is not an address with a port
       2 │ listen = "7171"
         │          ^^^^^^
         = help: for example 127.0.0.1:7171
    "#);
    for mine in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1"] {
        assert_eq!(report_text(&format!("[node]\nlisten = {mine:?}\n")), "");
    }
}

#[test]
fn se_29_an_index_stays_in_its_folder() {
    for bad in ["../books", "/etc", "a/b", "..", "", "a\\\\b", "ü", "a\\u0000"] {
        assert!(broken("tantivy:books", &format!("tantivy:{bad}")).contains("error[bad-url]"), "{bad}");
    }
    insta::assert_snapshot!(broken("tantivy:books", "tantivy:../books"), @r#"
    honeyflow.toml:17:9: error[bad-url]: `../books` cannot be the name of an index
      17 │ url   = "tantivy:../books"
         │         ^^^^^^^^^^^^^^^^^^
         = help: letters, digits, `_` and `-`; the index is in the node's data folder: tantivy:books
    "#);
}

#[test]
fn an_edge_has_exactly_one_of_to_and_key() {
    insta::assert_snapshot!(broken("to      = ", "key = [\"id\"]\nto      = "), @r#"
    honeyflow.toml:11:1: error[bad-edge]: an edge has `to` or `key`, not both
      11 │ [[entity.book.edge]]
         │ ^^^^^^^^^^^^^^^^^^^^
         = help: `to` is a statement that returns keys of the entity for keys of the table; `key` names columns that contain the entity's key
    "#);
    insta::assert_snapshot!(broken("to      = \"select id from book where publisher_id in $keys\"", ""), @r#"
    honeyflow.toml:11:1: error[bad-edge]: an edge needs `to` or `key`
      11 │ [[entity.book.edge]]
         │ ^^^^^^^^^^^^^^^^^^^^
         = help: `to` is a statement that returns keys of the entity for keys of the table; `key` names columns that contain the entity's key
    "#);
    insta::assert_snapshot!(broken("to      = ", "fan-out = \"shalow\"\nto      = "), @r#"
    honeyflow.toml:14:11: error[bad-value]: `fan-out` cannot be `shalow`
      14 │ fan-out = "shalow"
         │           ^^^^^^^^
         = help: did you mean `shallow`? One of `all`, `shallow`, `none`
    "#);
}

#[test]
fn one_word_does_not_mean_a_table_and_another_entity() {
    let clash = "[entity.publisher]\nsource = \"shop\"\ntable = \"firm\"\nkey = [\"id\"]\ndocument = \"select id from firm where id in $keys\"\n\n[sink.books]";
    insta::assert_snapshot!(broken("[sink.books]", clash), @r#"
    honeyflow.toml:16:1: error[ambiguous-name]: the entity `publisher` uses the table `firm`, but has the name of another captured table (of the entity `book`)
      16 │ [entity.publisher]
         │ ^^^^^^^^^^^^^^^^^^
         = help: an event for `publisher` could mean both: give the entity another name
    "#);
}

#[test]
fn ob_35_two_entities_do_not_share_a_sink() {
    let second = r#"
[entity.author]
source = "shop"
key = ["id"]
document = "select id, name from author where id in $keys"
[workflow.author]
on = [{ source = "shop", entity = "author" }]
step.load  = { use = "sql.load" }
step.index = { use = "search.index", needs = ["load"], into = "books" }
"#;
    insta::assert_snapshot!(report_text(&format!("{GOOD}{second}")), @r#"
    honeyflow.toml:23:63: error[same-target]: `index` of [workflow.author] writes documents of another entity into `books`, and their keys may be equal
      23 │ step.index = { use = "search.index", needs = ["load"], into = "books" }
         │                                                               ^^^^^^^
         = help: use a sink for each entity
    "#);
}

#[test]
fn an_unused_limit_is_a_warning() {
    insta::assert_snapshot!(report_text(&format!("{GOOD}[limit.api]\nrate = \"500/s\"\n")), @r#"
    honeyflow.toml:24:1: warning[unused]: no step uses this limit, nor does [node]
      24 │ [limit.api]
         │ ^^^^^^^^^^^
         = help: set limit = "api" in a step, or under [node] for the event endpoint
    "#);
    let for_endpoint = format!("{GOOD}[node]\nlimit = \"api\"\n[limit.api]\nrate = \"500/s\"\n");
    assert_eq!(report_text(&for_endpoint), "");
}

/// HV-65
#[test]
fn hv_65_a_limit_too_small_for_batches_is_a_warning() {
    let small = format!("{GOOD}[node]\nlimit = \"api\"\n[limit.api]\nrate = \"3/h\"\n");
    insta::assert_snapshot!(report_text(&small), @r#"
    honeyflow.toml:27:8: warning[exact-limit]: limit api asks the store for every decision: a burst of 3 at this rate is too small for batches
      27 │ rate = "3/h"
         │        ^^^^^
         = help: set mode = "exact" if this is intended; a larger burst lets nodes take batches
    "#);
    assert_eq!(report_text(&format!("{small}mode = \"exact\"\n")), "");
}

/// HV-68: a concurrency limit needs no other key, and is never reported as too small.
#[test]
fn hv_68_a_limit_may_limit_concurrency() {
    let text = format!("{GOOD}[node]\nlimit = \"api\"\n[limit.api]\nconcurrent = 1\nkey = \"x-client\"\n");
    assert_eq!(report_text(&text), "");
    let loaded = loaded(&text);
    let limit = loaded.config.as_ref().and_then(|config| config.limit("api")).expect("a limit");
    assert_eq!(limit.definition.kind, honeyflow_hive::limit::definition::LimitKind::Slots { max: 1 });
    assert!(limit.key.is_some());
}

#[test]
fn mistakes_in_limits_are_shown_at_their_place() {
    let says = |lines: &str, wanted: &[&str]| {
        let shown = report_text(&format!("[node]\nlimit = \"api\"\n{lines}"));
        wanted.iter().for_each(|wanted| assert!(shown.contains(wanted), "{wanted} is not in\n{shown}"));
    };
    says(
        "[limit.api]\nrate = \"5/m\"\nburst = 0\nkey = \"x client\"\non-outage = \"shut\"\n",
        &[
            "honeyflow.toml:4:8: error[bad-limit]: limit \"5/m\": \"m\" may be a minute or a month",
            "honeyflow.toml:5:9: error[out-of-range]: `burst` must be from 1",
            "honeyflow.toml:6:7: error[bad-value]: `x client` cannot be the name of a request header",
            "honeyflow.toml:7:13: error[bad-value]: `on-outage` cannot be `shut`",
        ],
    );
    says(
        "[limit.api]\nrate = \"5/s burst 5\"\nburst = 3\n",
        &["5:9: error[bad-limit]: `rate` already contains a burst"],
    );
    says(
        "[limit.api]\nburst = 3\n",
        &[
            "honeyflow.toml:3:1: error[missing-key]: [limit.api] needs `rate` or `concurrent`",
            "help: rate = \"500/s\" limits the number per time; concurrent = 20 limits the number at once",
        ],
    );
    says(
        "[limit.api]\nrate = \"9/s\"\nconcurrent = 4\n",
        &[
            "honeyflow.toml:5:14: error[bad-limit]: a limit has either `rate` or `concurrent`, not both",
            "help: remove one of them; use a second limit for the other",
        ],
    );
    says(
        "[limit.api]\nconcurrent = 4\nburst = 3\n",
        &["honeyflow.toml:5:9: error[bad-limit]: `burst` belongs to `rate`", "help: remove `burst`"],
    );
    says("[limit.api]\nconcurrent = 4\nmode = \"exact\"\n", &["5:8: error[bad-limit]: `mode` belongs to `rate`"]);
    says("[limit.api]\nconcurrent = 0\n", &["4:14: error[out-of-range]: `concurrent` must be from 1 to 1000000000"]);
    says("[limit.api]\nconcurrent = \"4/s\"\n", &["4:14: error[wrong-type]"]);
    says("[limit.api]\nconcurent = 4\n", &["4:1: error[unknown-key]", "did you mean `concurrent`?"]);
    says("[limit.api]\nrate = \"5/month\"\nburst = 3\n", &["5:9: error[bad-limit]: a calendar quota has no burst"]);
    says("[limit.api]\nrate = \"9/s burst 9\"\nshadow = \"yes\"\n", &["5:10: error[wrong-type]"]);
    says(
        "[limit.apo]\nrate = \"9/s burst 9\"\n",
        &["2:9: error[unknown-limit]: there is no [limit.api]", "did you mean `apo`?"],
    );
}

#[test]
fn wf_17_all_problems_are_reported_at_once_in_order_of_place() {
    let report =
        loaded("[node]\nlisten = \"0.0.0.0:1\"\ndta = \"x\"\n[sink.s]\nurl = \"nothing\"\n[workflow.w]\non = []\n")
            .report(Vec::new());
    let codes: Vec<String> = report
        .json()
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| format!("{}:{}", entry["line"], entry["code"].as_str().unwrap()))
        .collect();
    assert_eq!(codes, ["2:open-listen", "3:unknown-key", "5:bad-url", "6:missing-key"]);
}

#[test]
fn wf_17_one_mistake_does_not_hide_another() {
    let text = GOOD
        .replace(r#"key      = ["id"]"#, r#"key      = "id""#)
        .replace(r#"source   = "shop""#, r#"source   = "shpo""#)
        .replace(r#"needs = ["load"], into = "books""#, r#"need = ["load"], into = "boks""#);
    let report = loaded(&text).report(Vec::new()).json();
    let codes: Vec<&str> = report.as_array().unwrap().iter().map(|entry| entry["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["unknown-source", "wrong-type", "unknown-key", "unknown-sink"]);
}

#[test]
fn se_30_what_steers_a_terminal_is_escaped() {
    let shown = report_text("[node]\n\"a\\u001b[31m\" = \"\u{202e}\"\n[source.s]\nurl = \"env:X\" # \u{9b}2J\n");
    assert!(!shown.contains(['\u{1b}', '\u{202e}', '\u{9b}']), "{shown:?}");
}

#[test]
fn long_lines_are_shown_around_the_place() {
    let text = format!("[entity.book]\nsource = {{ a = {:?}, columns = 5, b = 1}}\n", "x".repeat(400));
    insta::assert_snapshot!(report_text(&text), @r#"
    honeyflow.toml:1:1: error[missing-key]: [entity.book] needs the key `key`
       1 │ [entity.book]
         │ ^^^^^^^^^^^^^
         = help: The columns that identify a row, in order

    honeyflow.toml:1:1: error[missing-key]: [entity.book] needs the key `document`
       1 │ [entity.book]
         │ ^^^^^^^^^^^^^
         = help: The statement that reads documents for many keys at once: `$keys` stands for the row set of the keys, in `where id in $keys` or `join $keys k on …`

    honeyflow.toml:2:1: error[wrong-type]: `source` must be a text, this is a table
       2 │ source = { a = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
         │ ^^^^^^
    "#);
}

#[test]
fn every_default_can_be_read_and_every_key_is_described() {
    fn tables(keys: &'static [keys::Key]) {
        let mut problems = Vec::new();
        values::Values::read(None, keys, "x", &mut problems);
        assert!(problems.iter().all(|problem| problem.code == "missing-key"), "{problems:?}");
        assert!(keys.iter().all(|key| key.doc.ends_with('.')), "{keys:?}");
    }
    keys::SECTIONS.iter().for_each(|section| tables(section.keys));
    tables(keys::EDGE);
    tables(keys::CQL);
}

/// The workflow crate reads these keys; here they are only described.
#[test]
fn the_described_keys_of_workflows_and_steps_are_those_that_exist() {
    for (known, described, text) in
        [(true, keys::WORKFLOW, "[workflow.w]\nKEY = 1\n"), (true, keys::STEP, "[workflow.w.step.s]\nKEY = 1\n")]
    {
        for (name, ..) in described {
            assert_eq!(!report_text(&text.replace("KEY", name)).contains("error[unknown-key]"), known, "{name}");
        }
    }
}

#[test]
fn the_reference_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/configuration.md");
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == reference::markdown(&registry::kinds()),
        "write it again: cargo run -- check --reference > docs/reference/configuration.md"
    );
}

fn with_hive(text: &str) -> String {
    report_text(&format!("[hive]\n{text}\n{GOOD}"))
}

fn with_node(text: &str) -> String {
    report_text(&format!("[node]\n{text}\n{GOOD}"))
}

#[test]
fn hv_7_the_hive_has_defaults_and_a_fast_profile() {
    let hive = |text: &str| loaded(&format!("{text}{GOOD}")).config.expect("no problems").hive;
    let millis = |hive: &HiveConfig| (hive.heartbeat.as_millis(), hive.time_to_live.as_millis());
    let normal = hive("");
    assert_eq!(millis(&normal), (2000, 6000));
    assert_eq!((normal.name.as_str(), normal.expected_nodes, normal.url), ("honeyflow", 16, None));
    assert_eq!((normal.store_budget, hive("[hive]\nstore-budget = 2000\n").store_budget), (None, Some(2000)));
    assert_eq!(millis(&hive("[hive]\nprofile = \"fast\"\n")), (500, 1500));
    assert_eq!(millis(&hive("[hive]\nprofile = \"fast\"\ntime-to-live = \"3s\"\n")), (500, 3000));
}

#[test]
fn hv_7_wrong_relations_are_shown_where_they_are_written() {
    insta::assert_snapshot!(with_hive("time-to-live = \"5s\""), @r#"
    honeyflow.toml:2:16: error[wrong-relation]: `time-to-live` is 5s with a `heartbeat` of 2s: one lost heartbeat would expire the node
       2 │ time-to-live = "5s"
         │                ^^^^
         = help: use a `time-to-live` of at least three heartbeats
    "#);
    insta::assert_snapshot!(with_hive("heartbeat = \"10ms\""), @r#"
    honeyflow.toml:2:13: error[wrong-relation]: a heartbeat every 10ms would overload the store
       2 │ heartbeat = "10ms"
         │             ^^^^^^
         = help: use at least 50ms
    "#);
    insta::assert_snapshot!(with_hive("heartbeat = \"10s\""), @r#"
    honeyflow.toml:2:13: error[wrong-relation]: `time-to-live` is 6s with a `heartbeat` of 10s: one lost heartbeat would expire the node
       2 │ heartbeat = "10s"
         │             ^^^^^
         = help: use a `time-to-live` of at least three heartbeats

    honeyflow.toml:2:13: error[wrong-relation]: `count-every` is 5s with a `heartbeat` of 10s
       2 │ heartbeat = "10s"
         │             ^^^^^
         = help: the queen counts at most once per heartbeat
    "#);
    insta::assert_snapshot!(with_hive("engaged-ttl = \"1m\"\ntime-to-live = \"2h\""), @r#"
    honeyflow.toml:2:15: error[wrong-relation]: `engaged-ttl` is 60s with a `heartbeat` of 2s
       2 │ engaged-ttl = "1m"
         │               ^^^^
         = help: use a value between `heartbeat` and 30s: traffic is reported with a heartbeat and counts for at most 30s

    honeyflow.toml:3:16: error[wrong-relation]: with a `time-to-live` of 7200s other nodes would not take over within an hour
       3 │ time-to-live = "2h"
         │                ^^^^
         = help: use at most 1h
    "#);
    insta::assert_snapshot!(with_hive("store-budget = 0"), @r#"
    honeyflow.toml:2:16: error[out-of-range]: `store-budget` must be from 1 to 1000000, not 0
       2 │ store-budget = 0
         │                ^
    "#);
    insta::assert_snapshot!(with_hive("profile = \"quick\"\nexpected-nodes = 0"), @r#"
    honeyflow.toml:2:11: error[bad-value]: `profile` cannot be `quick`
       2 │ profile = "quick"
         │           ^^^^^^^
         = help: one of `normal`, `fast`

    honeyflow.toml:3:18: error[out-of-range]: `expected-nodes` must be from 1 to 100000, not 0
       3 │ expected-nodes = 0
         │                  ^
    "#);
}

#[test]
fn hv_7_a_hive_lives_in_a_database_that_this_build_knows() {
    let message = with_hive("url = \"etcd://somewhere\"");
    assert!(
        message.contains("error[unknown-url]: this build has no hive for `etcd:`") && message.contains("`sqlite:`"),
        "{message}"
    );
    let message = with_hive("url = \"postgres://bee:secret@db/shop\"");
    assert!(message.contains("error[secret-inline]") && !message.contains("bee:secret"), "{message}");
}

#[test]
fn ob_67_pins_must_name_existing_sources_and_shards() {
    insta::assert_snapshot!(with_node("pin = { shop = \"0-15\", stop = \"0\" }"), @r#"
    honeyflow.toml:2:16: error[out-of-range]: there is no shard 15: the source `shop` has 1, from 0
       2 │ pin = { shop = "0-15", stop = "0" }
         │                ^^^^^^

    honeyflow.toml:2:31: error[unknown-source]: there is no [source.stop]
       2 │ pin = { shop = "0-15", stop = "0" }
         │                               ^^^
         = help: did you mean `shop`?
    "#);
    insta::assert_snapshot!(with_node("pin = { shop = \"9-3\" }"), @r#"
    honeyflow.toml:2:16: error[bad-value]: the range 9-3 runs backwards
       2 │ pin = { shop = "9-3" }
         │                ^^^^^
         = help: for example "0-15,20"
    "#);
    assert!(with_node("pin = \"0\"").contains("must be a table"));
    assert_eq!(with_node("pin = { shop = \"0\" }\nstatic-only = true\nweight = 0"), "");
}

#[test]
fn ob_69_an_unknown_role_is_an_error() {
    insta::assert_snapshot!(with_node("roles = [\"sources\", \"queen\"]"), @r#"
    honeyflow.toml:2:10: error[bad-value]: there is no role `sources`
       2 │ roles = ["sources", "queen"]
         │          ^^^^^^^^^
         = help: did you mean `source`?
    "#);
    let none = loaded(&format!("[node]\nroles = []\n{GOOD}")).config.expect("no problems").node.role;
    assert!(!none.source && !none.queen);
}

#[test]
fn ob_73_shards_are_a_power_of_two_and_one_on_sqlite() {
    let message = broken("url = \"sqlite:shop.db\"", "url = \"sqlite:shop.db\"\nshards = 4");
    assert!(message.contains("error[bad-value]: a SQLite database has one writer at a time"), "{message}");
    #[cfg(feature = "postgres")]
    {
        let message = broken("url = \"sqlite:shop.db\"", "url = \"postgres://db/shop\"\nshards = 60");
        assert!(message.contains("error[bad-value]: 60 is not a power of two"), "{message}");
        assert_eq!(broken("url = \"sqlite:shop.db\"", "url = \"postgres://db/shop\"\nshards = 128"), "");
    }
}

/// The good file with its documents in a table.
fn with_table(cluster: &str, sink: &str) -> String {
    let sink = format!("[cassandra.main]\n{cluster}\n[sink.books]\nurl = \"cassandra:main\"\n{sink}\n\n");
    let (before, rest) = GOOD.split_once("[sink.books]").expect("a sink");
    let (_, workflow) = rest.split_once("[workflow").expect("a workflow");
    format!("{before}{sink}[workflow{}", workflow.replace("search.index", "cassandra.write"))
}

const CQL: &str = "servers = [\"10.0.0.1\"]\n[cassandra.main.cql]\nuser = \"bee\"\npassword = \"env:PASSWORD\"";

#[test]
fn a_table_is_read_with_the_settings_of_its_pool() {
    let text = with_table(&format!("deadline = \"2s\"\n{CQL}"), "table = \"shop.book\"\ncolumn = { name = \"title\" }");
    assert_eq!(report_text(&text), "");
    let config = loaded(&text).config.expect("no problems");
    let (cluster, table) = (&config.clusters[0], config.sinks[0].table.as_ref().expect("a table"));
    assert_eq!((cluster.pool.name.as_str(), cluster.pool.deadline), ("main", Duration::from_secs(2)));
    assert_eq!(
        (cluster.cql.user.as_deref(), cluster.cql.password.as_ref()),
        (Some("bee"), Some(&Url::Env("PASSWORD".into())))
    );
    assert_eq!(
        (table.keyspace.as_str(), table.table.as_str(), table.columns["name"].as_str()),
        ("shop", "book", "title")
    );
    assert_eq!((cluster.cql.versions, cluster.cql.frame_bytes_max), ((4, 5), 64 << 20));
    assert_eq!(config.indexes().count(), 0);
    let narrow = format!("{CQL}\nlowest-version = 4\nhighest-version = 4\nmax-frame = \"1MiB\"");
    let config = loaded(&with_table(&narrow, "table = \"shop.book\"")).config.expect("no problems");
    let cql = &config.clusters[0].cql;
    assert_eq!((cql.versions, cql.frame_bytes_max), ((4, 4), 1 << 20));
}

/// PL-60: problems have line, key and nearest word; PL-61: all problems of a pool are reported at once.
#[test]
fn pl_60_problems_of_a_pool_are_shown_at_their_place() {
    let bad = "dedline = \"2s\"\ntries = 99\nport = 1.5\n[cassandra.main.sql]\nuser = \"a\"";
    insta::assert_snapshot!(report_text(&with_table(bad, "table = \"shop.book\"")), @r#"
    honeyflow.toml:17:1: error[unknown-key]: `dedline` is no setting
      17 │ dedline = "2s"
         │ ^^^^^^^
         = help: did you mean `deadline`?

    honeyflow.toml:18:9: error[bad-value]: `tries` is 99, allowed is 1 to 10
      18 │ tries = 99
         │         ^^

    honeyflow.toml:19:8: error[wrong-type]: `port` must be a whole number, a text or a list, this is a number
      19 │ port = 1.5
         │        ^^^

    honeyflow.toml:20:17: error[unknown-key]: there is no section [cassandra.main.sql]
      20 │ [cassandra.main.sql]
         │                 ^^^
         = help: did you mean `cql`?
    "#);
    let inline = report_text(&with_table(&CQL.replace("env:PASSWORD", "canary"), "table = \"book\""));
    assert!(inline.contains("error[secret-inline]") && !inline.contains("canary"), "{inline}");
    assert!(inline.contains("`book` does not name keyspace and table"), "{inline}");
    let versions = format!("{CQL}\nlowest-version = 5\nhighest-version = 4\nmax-frame = \"1KiB\"");
    let versions = report_text(&with_table(&versions, "table = \"shop.book\""));
    for part in ["the highest version, 4, is below the lowest, 5", "`max-frame` is not between"] {
        assert!(versions.contains(part), "{part} in\n{versions}");
    }
    let nowhere = with_table(CQL, "field = { a = \"text\" }").replace("cassandra:main", "cassandra:mian");
    let nowhere = report_text(&nowhere);
    for part in ["needs the key `table`", "`field` is a key of an index, and this is a table", "did you mean `main`?"] {
        assert!(nowhere.contains(part), "{part} in\n{nowhere}");
    }
    let text = with_table(CQL, "table = \"shop.book\"").replace("cassandra.write", "search.index");
    let kind = report_text(&text);
    assert!(kind.contains("error[wrong-kind]") && kind.contains("use = \"cassandra.write\""), "{kind}");
    let no_user = report_text(&with_table(&CQL.replace("user = \"bee\"\n", ""), "table = \"shop.book\""));
    assert!(no_user.contains("`password` is set without `user`"), "{no_user}");
}
