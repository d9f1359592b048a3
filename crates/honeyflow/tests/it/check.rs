//! `honeyflow check`: problems, exit codes and the summary.

use super::folder::Folder;

#[test]
fn what_init_writes_is_fine() {
    let folder = Folder::configured();
    let ran = folder.run(&["check"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    for line in [
        "honeyflow.toml is fine",
        "not installed yet: honeyflow source install",
        "book reads book (id, title, publisher_id), publisher (id, name)",
        "book.index → sink book: fenced",
        "bind       127.0.0.1:7171, this machine only",
        "durability shop: journal wal",
    ] {
        assert!(ran.out.contains(line), "{line}\n{}", ran.out);
    }
}

#[test]
fn wf_17_problems_go_to_stdout_and_the_exit_code_is_1() {
    let folder = Folder::configured();
    folder.write("honeyflow.toml", &folder.read("honeyflow.toml").replacen("columns  =", "colums   =", 1));
    let ran = folder.run(&["check"]);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("error[unknown-key]: [entity.book] has no key `colums`"), "{}", ran.out);
    assert!(ran.out.contains("= help: did you mean `columns`?"), "{}", ran.out);
    assert!(ran.out.ends_with("honeyflow.toml has 1 error\n"), "{}", ran.out);
    let ran = folder.run(&["check", "--output", "json"]);
    let problems: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, problems[0]["code"].as_str()), (1, Some("unknown-key")));
    assert_eq!(problems[0]["path"], "entity.book.colums");
}

#[test]
fn broken_toml_and_a_missing_file_are_negative_results() {
    let folder = Folder::new();
    assert_eq!(folder.run(&["check"]).code, 1);
    folder.write("honeyflow.toml", "[node\n");
    let ran = folder.run(&["check"]);
    assert_eq!(ran.code, 1);
    assert!(ran.out.contains("honeyflow.toml:1:6: error[bad-toml]"), "{}", ran.out);
    let ran = folder.run(&["check", "--output", "json"]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&ran.out).unwrap()[0]["line"], 1);
}

/// Each line: a change of the file, and part of the message.
#[test]
fn ob_25_names_and_statements_are_checked_against_the_database() {
    for (from, to, message) in [
        ("table    = \"book\"", "table    = \"boook\"", "error[unknown-table]: the database has no table `boook`"),
        (
            "key      = [\"id\"]\ncolumns  = [\"title\"",
            "key      = [\"idd\"]\ncolumns  = [\"title\"",
            "error[unknown-column]",
        ),
        ("columns  = [\"title\"", "columns  = [\"titel\"", "did you mean `title`?"),
        ("b.title", "b.titel", "error[missing-column]"),
        ("select b.id, ", "select ", "error[no-key-column]"),
        ("select id from book where", "select id, title from book where", "error[bad-edge]"),
        ("table   = \"publisher\"", "table   = \"book\"", "error[no-edge]: the document reads the table `publisher`"),
        ("columns  = [\"title\", \"publisher_id\"]", "columns  = [\"title\"]", "warning[unwatched-column]"),
    ] {
        let folder = Folder::configured();
        let text = folder.read("honeyflow.toml");
        assert!(text.contains(from), "{from}\n{text}");
        folder.write("honeyflow.toml", &text.replacen(from, to, 1));
        let ran = folder.run(&["check"]);
        assert!(ran.out.contains(message), "{to}\n{}{}", ran.out, ran.err);
        assert_eq!(ran.code, i32::from(message.starts_with("error") || message.starts_with("did")), "{}", ran.out);
    }
}

/// `check` reports a step that `start` would refuse.
#[test]
fn se_22_check_refuses_an_unencrypted_call() {
    let folder = Folder::configured();
    let call = |rest: &str| {
        format!(
            "{}\n[workflow.tell]\non = [{{ source = \"shop\", entity = \"book\" }}]\n\
             step.call = {{ use = \"http.call\", url = \"http://example.org/book\"{rest} }}\n",
            folder.read("honeyflow.toml")
        )
    };
    let (refused, allowed) = (call(""), call(", http = true"));
    folder.write("honeyflow.toml", &refused);
    let ran = folder.run(&["check"]);
    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(ran.out.contains("error[bad-step]: plain http sends all data unencrypted"), "{}", ran.out);
    let ran = folder.run(&["start", "--yes"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("error[bad-step]: plain http sends all data unencrypted"), "{}", ran.err);
    let ran = folder.run(&["source", "show"]);
    assert!(ran.out.contains("not installed"), "nothing was installed before it was refused: {}", ran.out);
    folder.write("honeyflow.toml", &allowed);
    let ran = folder.run(&["check"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
}

#[test]
fn a_plan_that_does_not_use_the_whole_key_is_a_warning() {
    let folder = Folder::new();
    folder.sql("pragma journal_mode = wal; create table line (a integer, b integer, note text, primary key (a, b));");
    assert_eq!(folder.run(&["init", "sqlite:shop.db"]).code, 0);
    assert!(!folder.run(&["check"]).out.contains("slow-plan"));
    let text = folder.read("honeyflow.toml");
    let join = "join $keys k on k.a = l.a and k.b = l.b";
    assert!(text.contains(join), "{text}");
    for slow in ["where l.a in (select a from $keys)", "where l.a || '' in (select a from $keys)"] {
        folder.write("honeyflow.toml", &text.replace(join, slow));
        let ran = folder.run(&["check"]);
        assert!(ran.out.contains("warning[slow-plan]"), "{slow}\n{}", ran.out);
    }
}

#[test]
fn ob_25_a_table_may_be_marked_as_untracked() {
    let folder = Folder::configured();
    folder.sql("create table vat (rate integer);");
    let reading =
        folder.read("honeyflow.toml").replacen("select b.id,", "select (select max(rate) from vat) as vat, b.id,", 1);
    folder.write("honeyflow.toml", &reading);
    assert!(folder.run(&["check"]).out.contains("error[no-edge]: the document reads the table `vat`"));
    folder.write(
        "honeyflow.toml",
        &reading.replacen("table    = \"book\"", "table    = \"book\"\nuntracked = [\"vat\"]", 1),
    );
    let ran = folder.run(&["check"]);
    assert_eq!(ran.code, 0, "{}", ran.out);
}

/// SE-38: every line of the report that can be bad becomes a warning.
#[cfg(unix)]
#[test]
fn se_38_bad_set_ups_are_reported() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::configured();
    let mode = |name: &str, mode| {
        std::fs::set_permissions(folder.path().join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("honeyflow.toml", 0o666);
    mode("shop.db", 0o666);
    std::fs::create_dir(folder.path().join("data")).unwrap();
    mode("data", 0o755);
    folder.sql("pragma journal_mode = delete;");
    let ran = folder.run(&["check"]);
    assert_eq!(ran.out.matches("warning[file-mode]").count(), 3, "{}", ran.out);
    assert!(ran.out.contains("warning[no-wal]"), "{}", ran.out);
    assert!(ran.out.ends_with("honeyflow.toml is fine, with 4 warnings\n"), "{}", ran.out);
}

/// SE-20: for a secret in the file and in a reference, also when the command fails.
#[test]
fn se_20_no_output_shows_a_secret() {
    let folder = Folder::configured();
    let text = folder.read("honeyflow.toml");
    for url in ["postgres://u:canary@db/x", "file:secret"] {
        folder.write("secret", "postgres://u:canary@db/x\n");
        folder.write("honeyflow.toml", &text.replace("sqlite:shop.db", url));
        for arguments in
            [&["check"][..], &["check", "--output", "json"], &["status"], &["source", "list"], &["source", "install"]]
        {
            let ran = folder.run(arguments);
            assert!(
                !ran.out.contains("canary") && !ran.err.contains("canary"),
                "{arguments:?}\n{}{}",
                ran.out,
                ran.err
            );
        }
    }
    let ran = folder.run(&["init", "postgres://u:canary@db/x", "--force"]);
    assert_eq!(ran.code, 2);
    assert!(!ran.err.contains("canary"), "{}", ran.err);
}

#[test]
fn colour_is_used_only_on_a_terminal_or_on_request() {
    let folder = Folder::new();
    folder.write("honeyflow.toml", "[nod]\n");
    assert!(!folder.run(&["check"]).out.contains('\u{1b}'));
    assert!(folder.run(&["check", "--color", "always"]).out.contains("\u{1b}[1;31merror[unknown-section]"));
}

/// The mode does not depend on the umask of the parent process.
#[test]
fn se_38_new_files_are_readable_only_by_their_owner() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::configured();
    folder.write("honeyflow.toml", &folder.read("honeyflow.toml").replace("127.0.0.1:7171", "127.0.0.1:0"));
    assert_eq!(folder.run(&["source", "install", "--yes"]).code, 0);
    assert_eq!(folder.run(&["reindex", "book"]).code, 0);
    let mut open = vec![folder.path().join("data")];
    let mut seen = 0;
    while let Some(path) = open.pop() {
        let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        if path.is_dir() {
            assert_eq!(mode, 0o700, "{}", path.display());
            open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            assert_eq!(mode, 0o600, "{}", path.display());
            seen += 1;
        }
    }
    assert!(seen > 5, "an index, a lock and node.json");
    let ran = folder.run(&["check"]);
    assert!(!ran.out.contains("file-mode"), "{}", ran.out);
}

/// A workflow asks for changes of a column: the table must have it, and its changes must make an event.
#[test]
fn wf_142_columns_of_an_on_are_checked_against_the_table() {
    let folder = Folder::configured();
    let good = folder.read("honeyflow.toml");
    folder.sql("alter table book add column note text");
    for (column, code, message) in [
        ("title", 0, ""),
        ("TITLE", 0, ""),
        (
            "titel",
            1,
            "error[unknown-column]: a workflow names the column `titel`, which the table `book` does not have",
        ),
        (
            "id",
            1,
            "error[bad-change]: a workflow asks for updates of `id`, which is the key: another key is another row",
        ),
        ("note", 1, "error[bad-change]: a workflow asks for changes of `note`, which make no event"),
    ] {
        let more = format!(
            "\n[workflow.tell]\non = [{{ source = \"shop\", entity = \"book\", columns = [\"{column}\"] }}]\n\
             step.call = {{ use = \"http.call\", url = \"https://example.org/\" }}\n"
        );
        folder.write("honeyflow.toml", &format!("{good}{more}"));
        let ran = folder.run(&["check"]);
        assert_eq!(ran.code, code, "{column}: {}{}", ran.out, ran.err);
        assert!(ran.out.contains(message), "{column}: {}", ran.out);
    }
}
