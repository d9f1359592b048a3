//! `honeyflow init`: the written file, the messages and the exit codes.

use super::folder::Folder;

#[test]
fn it_writes_a_file_and_shows_the_next_steps() {
    let folder = Folder::shop();
    folder.sql("create table log (line text);");
    let ran = folder.run(&["init", "sqlite:shop.db"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("create table honeyflow_outbox") && ran.out.contains("CREATE TRIGGER"), "{}", ran.out);
    for text in [
        "honeyflow.toml: 2 entities",
        "log  no primary key",
        "honeyflow check",
        "honeyflow source install",
        "honeyflow start",
    ] {
        assert!(ran.err.contains(text), "{text}\n{}", ran.err);
    }
    assert!(folder.read("honeyflow.toml").contains("[entity.book]"));
}

#[test]
fn it_never_overwrites_without_force() {
    let folder = Folder::shop();
    folder.write("honeyflow.toml", "# mine\n");
    let ran = folder.run(&["init", "sqlite:shop.db"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("--force"), "{}", ran.err);
    assert_eq!(folder.read("honeyflow.toml"), "# mine\n");
    let ran = folder.run(&["init", "sqlite:shop.db", "--print"]);
    assert_eq!(ran.code, 0);
    assert!(ran.out.contains("[workflow.book]"));
    assert_eq!(folder.read("honeyflow.toml"), "# mine\n");
    assert_eq!(folder.run(&["init", "sqlite:shop.db", "--force"]).code, 0);
    assert!(folder.read("honeyflow.toml").contains("[workflow.book]"));
}

#[test]
fn the_database_is_found_from_another_folder() {
    let folder = Folder::shop();
    std::fs::create_dir(folder.path().join("conf")).unwrap();
    assert_eq!(folder.run(&["init", "sqlite:shop.db", "tantivy:shop", "--out", "conf/shop.toml"]).code, 0);
    assert!(folder.read("conf/shop.toml").contains("\"tantivy:shop_book\""));
    let ran = folder.run(&["check", "--config", "conf/shop.toml"]);
    assert_eq!(ran.code, 0, "{}", ran.out);
}

#[test]
fn a_database_that_cannot_be_read_is_reported() {
    let folder = Folder::shop();
    folder.write("text.db", "this is no database, but it is long enough to look like a file with something in it");
    folder.write("empty.db", "");
    for (address, code, message) in [
        ("sqlite:nowhere.db", 1, "nowhere.db"),
        ("sqlite:text.db", 1, "not a database"),
        ("sqlite:empty.db", 2, "no tables"),
        ("sqlite:", 1, "contains no file"),
        ("shop.db", 2, "did you mean sqlite:shop.db?"),
        ("mysql://db/shop", 2, "does not read MySQL and MariaDB yet"),
        ("postgres://db/shop", 2, "does not read PostgreSQL yet"),
        ("postgres://db/shop", 2, "[entity.NAME] with key and document"),
        ("oracle://db/shop", 2, "is not the address of a database"),
        ("env:HONEYFLOW_NOT_SET", 1, "HONEYFLOW_NOT_SET is not set"),
    ] {
        let ran = folder.run(&["init", address, "--out", "other.toml"]);
        assert_eq!(ran.code, code, "{address}: {}", ran.err);
        assert!(ran.err.contains(message), "{address}: {}", ran.err);
        assert!(!folder.path().join("other.toml").exists() && !folder.path().join("nowhere.db").exists());
    }
    assert_eq!(folder.run(&["init", "sqlite:shop.db", "kafka:topic"]).code, 2);
}
