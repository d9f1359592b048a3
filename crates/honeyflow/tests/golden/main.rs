//! Names that are data: what other programs read, and what an older or newer build finds in a database.
//!
//! A node works on a small shop. Then these tests compare every name that left the process (tables, columns, triggers, JSON fields and
//! words, metrics and labels, the fingerprints of capture and index) with the text files beside this one. Values that differ from run
//! to run are left out. After a change that is meant, write the files again and read the difference:
//!
//! ```text
//! HONEYFLOW_GOLDEN=write cargo test -p honeyflow --test golden
//! ```

mod hives;
mod json;
mod postgres;
mod shop;

use std::{collections::BTreeSet, fmt::Write as _, path::Path};

use json::paths;
use shop::Shop;

/// Compares with the file, or writes it where `HONEYFLOW_GOLDEN` asks for that.
fn assert_golden(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("HONEYFLOW_GOLDEN").is_some_and(|value| value == "write") {
        return std::fs::write(&file, text).expect("a file");
    }
    let golden = std::fs::read_to_string(&file).expect("a golden file");
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (before, now) = (lines(&golden), lines(text));
    let gone: Vec<&String> = before.difference(&now).collect();
    let come: Vec<&String> = now.difference(&before).collect();
    assert!(gone.is_empty() && come.is_empty(), "{name} has changed.\ngone: {gone:#?}\ncome: {come:#?}");
    assert_eq!(golden, text, "{name}: the lines stand in another order");
}

#[test]
fn names_that_leave_a_node() {
    let shop = Shop::worked();
    assert_golden("sqlite_schema.txt", &shop.schema());
    assert_golden("sqlite_values.txt", &shop.stored_names());
    assert_golden("fingerprints.txt", &shop.fingerprints());
    assert_golden("metrics.txt", &shop.metrics());
    assert_golden("http.txt", &shop.http());
    assert_golden("command_line.txt", &command_line(&shop));
}

/// The fields of everything that a command prints with `--output json`.
fn command_line(shop: &Shop) -> String {
    let parked = shop.parked_id();
    let commands: &[&[&str]] = &[
        &["status"],
        &["check"],
        &["source", "list"],
        &["source", "show"],
        &["workflow", "list"],
        &["workflow", "show", "tell"],
        &["run", "list"],
        &["run", "show", "1"],
        &["worker", "list"],
        &["hive", "list"],
        &["hive", "show"],
        &["hive", "why"],
        &["limit", "list"],
        &["limit", "show", "calls"],
        &["parked", "list"],
        &["parked", "show", &parked],
        &["explain", "book", "1"],
        &["explain", "publisher", "1"],
        &["explain", "book", "3"],
        &["search", "book", "bees"],
    ];
    let mut text = String::new();
    for command in commands {
        let _ = writeln!(text, "{}", if command[0] == "parked" { command[..2].join(" ") } else { command.join(" ") });
        for path in paths(&shop.json_of(command)) {
            let _ = writeln!(text, "  {path}");
        }
    }
    text
}
