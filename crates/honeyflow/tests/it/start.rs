//! `honeyflow start` looks at everything that could fail before it installs anything.

use std::{
    fs::File,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::{
    folder::{CommandOutput, Folder},
    rebuild::{Node, until},
};

const SECRET: &str = "HONEYFLOW_TEST_SECRET_NEVER_SET";

fn configured() -> Folder {
    let folder = Folder::configured();
    folder.write("honeyflow.toml", &folder.read("honeyflow.toml").replace("127.0.0.1:7171", "127.0.0.1:0"));
    folder
}

fn refused_start(folder: &Folder) -> CommandOutput {
    refused_start_with(folder, "honeyflow.toml")
}

/// Runs a start that must end by itself.
fn refused_start_with(folder: &Folder, config: &str) -> CommandOutput {
    let log = folder.path().join("start.log");
    let child = Command::new(env!("CARGO_BIN_EXE_honeyflow"))
        .args(["start", "--yes", "--config", config])
        .current_dir(folder.path())
        .env_remove("HONEYFLOW_CONFIG")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log).expect("a file"))
        .spawn();
    let (mut child, begun) = (child.expect("the binary"), Instant::now());
    let code = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status.code().unwrap_or(-1);
        }
        if begun.elapsed() > Duration::from_secs(30) {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the start was not refused\n{}", folder.read("start.log"));
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    CommandOutput { code, out: String::new(), err: folder.read("start.log") }
}

/// Tables and triggers of Honeyflow.
fn installed(folder: &Folder) -> Vec<Vec<Option<String>>> {
    folder.rows("select name from sqlite_master where name like 'honeyflow%' or name like 'hive%' order by 1")
}

fn assert_nothing_is_installed(folder: &Folder) {
    assert_eq!(installed(folder), Vec::<Vec<_>>::new());
}

fn index(folder: &Folder, sink: &str) -> PathBuf {
    folder.path().join("data/index").join(sink)
}

/// Starts a node and stops it when the documents are equal to the rows.
fn index_once(folder: &Folder) {
    let node = Node::start(folder);
    // A document can be found before its event is acknowledged.
    until(|| folder.run(&["verify"]).code == 0 && folder.rows("select 'left' from honeyflow_outbox").is_empty());
    drop(node);
}

/// Each line: what is added to the file, what is replaced in it, and the key that the messages name.
#[test]
fn ob_110_an_unset_secret_stops_a_start_before_anything_is_installed() {
    let call = format!(
        "\n[workflow.tell]\non = [{{ source = \"shop\", entity = \"book\" }}]\nstep.load = {{ use = \"sql.load\" }}\n\
         step.call = {{ use = \"http.call\", needs = [\"load\"], url = \"https://example.org/book\", \
         headers = {{ Authorization = \"Bearer env:{SECRET}\" }} }}\n"
    );
    let cluster = format!(
        "\n[cassandra.main]\nservers = [\"127.0.0.1:1\"]\n[cassandra.main.cql]\nuser = \"bee\"\npassword = \"env:{SECRET}\"\n\
         [sink.table]\nurl = \"cassandra:main\"\ntable = \"shop.book\"\n\
         [workflow.table]\non = [{{ source = \"shop\", entity = \"book\" }}]\nstep.load = {{ use = \"sql.load\" }}\n\
         step.write = {{ use = \"cassandra.write\", needs = [\"load\"], into = \"table\" }}\n"
    );
    let hive = format!("\n[hive]\nurl = \"env:{SECRET}\"\n");
    let reference = format!("env:{SECRET}");
    for (added, from, path) in [
        (call.as_str(), "", "workflow.tell.step.call.headers.Authorization"),
        (&cluster, "", "cassandra.main.cql.password"),
        (&hive, "", "hive.url"),
        ("", "= \"tantivy:book", "sink.book.url"),
        ("", "= \"sqlite:shop.db", "source.shop.url"),
    ] {
        let folder = configured();
        let text = folder.read("honeyflow.toml");
        let text = if from.is_empty() { text } else { text.replacen(from, &format!("= \"{reference}"), 1) };
        folder.write("honeyflow.toml", &format!("{text}{added}"));
        let checked = folder.run(&["check", "--output", "json"]);
        assert_eq!(checked.code, 0, "{path}: {}{}", checked.out, checked.err);
        let problems: serde_json::Value = serde_json::from_str(&checked.out).unwrap();
        let found = problems.as_array().unwrap().iter().find(|problem| problem["code"] == "unresolved");
        let found = found.unwrap_or_else(|| panic!("{path}: {}", checked.out));
        assert_eq!((found["severity"].as_str(), found["path"].as_str()), (Some("warning"), Some(path)));
        let offline = folder.run(&["check", "--offline"]);
        assert_eq!(offline.code, 0, "{path}: {}", offline.out);
        assert!(!offline.out.contains("unresolved"), "{path}: {}", offline.out);
        let started = refused_start(&folder);
        assert_eq!(started.code, 2, "{path}: {}", started.err);
        let message = format!("error[unresolved]: the environment variable {SECRET} is not set");
        assert!(started.err.contains(&message), "{path}: {}", started.err);
        assert_nothing_is_installed(&folder);
    }
}

/// Only this user may read the file of a secret, wherever the node runs.
#[cfg(unix)]
#[test]
fn ob_110_a_secret_that_every_user_can_read_is_an_error_in_check_too() {
    use std::os::unix::fs::PermissionsExt;
    let folder = configured();
    folder.write("address", "sqlite:shop.db\n");
    let mode = |mode| std::fs::set_permissions(folder.path().join("address"), PermissionsExt::from_mode(mode)).unwrap();
    folder.write("honeyflow.toml", &folder.read("honeyflow.toml").replace("sqlite:shop.db", "file:address"));
    mode(0o644);
    let ran = folder.run(&["check"]);
    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(ran.out.contains("error[unresolved]") && ran.out.contains("chmod 600"), "{}", ran.out);
    mode(0o600);
    let ran = folder.run(&["check"]);
    assert_eq!(ran.code, 0, "{}", ran.out);
}

/// A database with one member, and the part of a configuration that indexes it.
fn club(folder: &Folder, document: &str) -> String {
    let club = rusqlite::Connection::open(folder.path().join("club.db")).unwrap();
    let schema = "create table if not exists member (id integer primary key, name text);
                  insert or ignore into member values (1, 'Bo');";
    club.execute_batch(schema).unwrap();
    format!(
        "\n[source.club]\nurl = \"sqlite:club.db\"\n[entity.member]\nsource = \"club\"\nkey = [\"id\"]\n\
         document = \"{document}\"\n[sink.member]\nurl = \"tantivy:member\"\nfield = {{ name = \"text\" }}\n\
         [workflow.member]\non = [{{ source = \"club\", entity = \"member\" }}]\nstep.load = {{ use = \"sql.load\" }}\n\
         step.index = {{ use = \"search.index\", needs = [\"load\"], into = \"member\" }}\n"
    )
}

const MEMBER: &str = "select id, name from member where id in $keys";

/// The first source fits, the second one does not: neither gets a table.
#[test]
fn ob_110_no_source_is_installed_if_another_one_fails() {
    let folder = configured();
    let fitting = folder.read("honeyflow.toml");
    folder.write("honeyflow.toml", &format!("{fitting}{}", club(&folder, &MEMBER.replace("name", "nmae"))));
    let started = refused_start(&folder);
    assert_eq!(started.code, 2, "{}", started.err);
    assert!(started.err.contains("nmae"), "{}", started.err);
    assert_nothing_is_installed(&folder);

    folder.write("honeyflow.toml", &format!("{fitting}{}", club(&folder, MEMBER)));
    index_once(&folder);
    for source in ["shop", "club"] {
        let removed = folder.run(&["source", "uninstall", source, "--yes", "--force"]);
        assert_eq!(removed.code, 0, "{}", removed.err);
    }
    for sink in ["book", "publisher"] {
        std::fs::remove_dir_all(index(&folder, sink)).unwrap();
    }
    let started = refused_start(&folder);
    assert!(started.err.contains("rm -r data/index/member\n"), "{}", started.err);
    assert_nothing_is_installed(&folder);
}

/// A node with an embedded index already works on the first source.
#[test]
fn ob_110_no_source_is_installed_beside_a_node_that_excludes_this_one() {
    let folder = configured();
    let text = folder.read("honeyflow.toml");
    let _node = Node::start(&folder);
    until(|| folder.run(&["verify"]).code == 0);
    let other = text.replace("data   = \"data\"", "data   = \"other\"");
    folder.write("other.toml", &format!("{other}{}", club(&folder, MEMBER)));
    let started = refused_start_with(&folder, "other.toml");
    assert!(started.err.contains("error[another-node]"), "{}", started.err);
    let club = rusqlite::Connection::open(folder.path().join("club.db")).unwrap();
    let tables: i64 =
        club.query_row("select count(*) from sqlite_master where name <> 'member'", [], |row| row.get(0)).unwrap();
    assert_eq!(tables, 0);
}

#[test]
fn ob_111_after_an_uninstallation_a_start_names_the_index_to_remove() {
    let folder = configured();
    index_once(&folder);
    let removed = folder.run(&["source", "uninstall", "--yes"]);
    assert_eq!(removed.code, 0, "{}", removed.err);
    for left in ["data/index/book", "data/index/publisher", "the data folder", "rm -r"] {
        assert!(removed.err.contains(left), "{left}: {}", removed.err);
    }
    let started = refused_start(&folder);
    assert_eq!(started.code, 1, "{}", started.err);
    for part in ["error[index-foreign]", "source shop is not installed", "rm -r data/index/book data/index/publisher\n"]
    {
        assert!(started.err.contains(part), "{part}: {}", started.err);
    }
    assert_nothing_is_installed(&folder);
    // As the message of the uninstallation says.
    for sink in ["book", "publisher"] {
        std::fs::remove_dir_all(index(&folder, sink)).unwrap();
    }
    folder.sql("update book set title = 'Wasps' where id = 1;");
    index_once(&folder);
    assert!(folder.run(&["search", "book", "wasps"]).out.contains("Wasps"));
}

#[test]
fn ob_111_an_index_of_an_earlier_installation_is_named_with_its_folder() {
    let folder = configured();
    index_once(&folder);
    for verb in ["uninstall", "install"] {
        let ran = folder.run(&["source", verb, "--yes"]);
        assert_eq!(ran.code, 0, "{verb}: {}", ran.err);
    }
    let started = refused_start(&folder);
    assert_eq!(started.code, 1, "{}", started.err);
    for part in ["error[index-foreign]", "installed again since", "rm -r data/index/book data/index/publisher\n"] {
        assert!(started.err.contains(part), "{part}: {}", started.err);
    }
    assert!(
        folder.rows("select 'queued' from honeyflow_outbox").is_empty(),
        "no row was queued for a start that fails"
    );
    for sink in ["book", "publisher"] {
        std::fs::remove_dir_all(index(&folder, sink)).unwrap();
    }
    index_once(&folder);
}

/// Messages have a source but no row: their index belongs to an installation like any other.
#[test]
fn ob_111_an_index_built_from_messages_is_named_with_its_folder() {
    let folder = configured();
    folder.write(
        "honeyflow.toml",
        &format!(
            "{}\n[entity.note]\nsource = \"shop\"\nkind = \"message\"\n\
             [sink.note]\nurl = \"tantivy:note\"\nfield = {{ text = \"text\" }}\n\
             [workflow.note]\non = [{{ source = \"shop\", entity = \"note\" }}]\n\
             step.index = {{ use = \"search.index\", input = \"$event.payload\", into = \"note\" }}\n",
            folder.read("honeyflow.toml")
        ),
    );
    index_once(&folder);
    folder.sql(
        "insert into honeyflow_outbox(kind, entity, entity_key, payload) values ('message', 'note', '1', '{\"text\": \"Wax\"}');",
    );
    index_once(&folder);
    assert!(folder.run(&["search", "note", "wax"]).out.contains("Wax"));
    let removed = folder.run(&["source", "uninstall", "--yes"]);
    assert_eq!(removed.code, 0, "{}", removed.err);
    assert!(removed.err.contains("the index of [sink.note]"), "{}", removed.err);
    for sink in ["book", "publisher"] {
        std::fs::remove_dir_all(index(&folder, sink)).unwrap();
    }
    let started = refused_start(&folder);
    assert!(started.err.contains("error[index-foreign]"), "{}", started.err);
    assert!(
        started.err.contains("came from messages") && started.err.contains("rm -r data/index/note\n"),
        "{}",
        started.err
    );
    assert_nothing_is_installed(&folder);
}

/// The triggers of the second source cannot be installed: neither source gets a table, and no journal is switched.
#[test]
fn ob_110_no_source_is_installed_if_the_triggers_of_another_one_do_not_fit() {
    let folder = configured();
    let text = folder.read("honeyflow.toml");
    let edge = "[[entity.member.edge]]\ntable = \"card\"\nkey = [\"member_id\"]\n";
    // Sources are installed by name: this one would come last.
    let club = club(&folder, MEMBER).replace("source.club", "source.zoo").replace("\"club\"", "\"zoo\"");
    folder.write("honeyflow.toml", &format!("{text}{club}{edge}"));
    std::fs::remove_file(folder.path().join("club.db")).unwrap();
    let club = rusqlite::Connection::open(folder.path().join("club.db")).unwrap();
    let schema = "pragma encoding = 'UTF-16le';
                  create table member (id integer primary key, name text);
                  create table card (id integer primary key, member_id integer);";
    club.execute_batch(schema).unwrap();
    let started = refused_start(&folder);
    assert!(started.err.contains("error[encoding]"), "{}", started.err);
    assert_nothing_is_installed(&folder);
    let club = rusqlite::Connection::open(folder.path().join("club.db")).unwrap();
    let journal: String = club.query_row("pragma journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(journal, "delete");
}

/// An unreachable cluster is not a reason to refuse: the node works for the other sinks, and waits for this one.
#[test]
fn ob_110_a_cluster_that_is_away_does_not_stop_a_start() {
    let folder = configured();
    folder.write(
        "honeyflow.toml",
        &format!(
            "{}\n[cassandra.main]\nservers = [\"127.0.0.1:1\"]\ndeadline = \"1s\"\n\
             [sink.table]\nurl = \"cassandra:main\"\ntable = \"shop.book\"\n\
             [workflow.table]\non = [{{ source = \"shop\", entity = \"book\" }}]\nstep.load = {{ use = \"sql.load\" }}\n\
             step.write = {{ use = \"cassandra.write\", needs = [\"load\"], into = \"table\" }}\n",
            folder.read("honeyflow.toml")
        ),
    );
    let _node = Node::start(&folder);
    until(|| folder.run(&["search", "book", "bees"]).out.contains("Bees"));
}

/// The tables of the first version, as an earlier release has installed them.
#[test]
fn f55_a_start_migrates_the_tables_of_an_earlier_version() {
    let folder = configured();
    folder.sql(include_str!("../../../store/sqlite/src/schema/0001_tables.sql"));
    folder.sql(
        "insert into honeyflow_meta(name, value) values
           ('install', 'cfe9a5a5-5a39-4f50-a25f-6e1b3bb0e3b1'), ('shards', '1'), ('schema', '1');
         insert into honeyflow_outbox(entity, entity_key) values ('book', '1');",
    );
    index_once(&folder);
    assert_ne!(folder.rows("select value from honeyflow_meta where name = 'schema'")[0][0].as_deref(), Some("1"));
    assert!(folder.run(&["source", "show"]).out.contains("as they should be"));
}
