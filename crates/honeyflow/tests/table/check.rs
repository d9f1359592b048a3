//! `check` reports problems of a cluster or table at their place in the file, with a hint.

use crate::cluster::TableShop;

fn check_output(table: &TableShop, from: &str, to: &str) -> String {
    let before = table.shop.config();
    table.shop.replace_in_config(from, to);
    let ran = table.shop.run(&["check"]);
    table.shop.write_config(&before);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    ran.out
}

#[test]
fn problems_of_a_table_are_shown_at_their_place() {
    let Some(table) = TableShop::new(3) else { return };
    let fine = table.shop.run(&["check"]);
    assert_eq!(fine.code, 0, "{}{}", fine.out, fine.err);
    assert!(fine.out.contains("book.write → sink book: fenced"), "{}", fine.out);

    let (keyspace, name) = table.table.split_once('.').expect("a table");
    let short = &name[..name.len() - 1];
    for (from, to, expected) in [
        (
            table.table.as_str(),
            format!("{keyspace}.{short}"),
            &["error[unknown-table]", "has no table", "did you mean"][..],
        ),
        (
            keyspace,
            "honeyflow_shup".to_owned(),
            &["error[unknown-table]", "no keyspace", "did you mean `honeyflow_shop`?"],
        ),
        ("{ name = \"title\" }", "{ nam = \"title\" }".to_owned(), &["error[unknown-column]", "did you mean `name`?"]),
        (
            "{ name = \"title\" }",
            "{ name = \"price\" }".to_owned(),
            &["error[wrong-type]", "column `name` is text", "a number"],
        ),
        (
            "file:password",
            "file:honeyflow.toml".to_owned(),
            &["[cassandra.main.cql]", "refused the login", "check user and password"],
        ),
        ("[\"127.0.0.1:", "[\"127.0.0.2:".to_owned(), &["[cassandra.main]", "could not be connected to"]),
        ("deadline  = \"10s\"", "dedline = \"10s\"".to_owned(), &["error[unknown-key]", "did you mean `deadline`?"]),
    ] {
        let output = check_output(&table, from, &to);
        assert!(expected.iter().all(|part| output.contains(part)), "{expected:?} in\n{output}");
    }
    table.cql(&format!("ALTER TABLE {} DROP honeyflow_version", table.table));
    let ran = table.shop.run(&["check"]);
    assert!(ran.out.contains(&format!("ALTER TABLE {} ADD honeyflow_version bigint", table.table)), "{}", ran.out);
    let start = table.shop.run(&["start", "--yes"]);
    assert_ne!(start.code, 0);
    assert!(start.err.contains("honeyflow_version") && start.err.contains("[sink.book]"), "{}", start.err);
    let installed = table.shop.number("select count(*) from sqlite_master where name like 'honeyflow%'");
    assert_eq!(installed, 0, "OB-110: it was looked at before the triggers were installed");
}
