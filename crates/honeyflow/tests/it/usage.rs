//! Wrong usage: exit code 2, nothing on stdout, a hint on stderr.

use super::folder::Folder;

#[test]
fn wrong_usage_exits_with_2() {
    let folder = Folder::configured();
    for (arguments, hint) in [
        (&["serach"][..], "search"),
        (&["source"][..], "Usage"),
        (&["source", "isntall"][..], "install"),
        (&["search"][..], "<SINK>"),
        (&["search", "boook"][..], "did you mean `book`?"),
        (&["search", "book", "--limit", "many"][..], "--limit"),
        (&["search", "book", "bees", "--all"][..], "cannot be used with"),
        (&["explain", "novel", "1"][..], "there is no entity `novel`"),
        (&["workflow", "show", "bok"][..], "did you mean `book`?"),
        (&["workflow", "pause", "bok"][..], "did you mean `book`?"),
        (&["source", "show", "shpo"][..], "did you mean `shop`?"),
        (&["parked", "retry"][..], "--all"),
        (&["parked", "drop", "--all"][..], "--yes"),
        (&["parked", "list", "--entity", "novel"][..], "there is no entity `novel`"),
        (&["parked", "show", "one"][..], "one"),
        (&["check", "--output", "xml"][..], "json"),
    ] {
        let ran = folder.run(arguments);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(hint), "{arguments:?}: {}", ran.err);
        assert!(!ran.err.contains("panicked"), "{arguments:?}: {}", ran.err);
    }
}

#[test]
fn a_wrong_configuration_makes_other_commands_exit_with_2() {
    let folder = Folder::shop();
    folder.write("honeyflow.toml", "[node]\nlisten = \"0.0.0.0:7171\"\n");
    for arguments in [&["status"][..], &["source", "list"], &["source", "install", "--yes"], &["search", "book"]] {
        let ran = folder.run(arguments);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains("honeyflow.toml:2:10: error[open-listen]"), "{}", ran.err);
    }
}

#[test]
fn a_missing_configuration_shows_how_to_create_one() {
    let ran = Folder::new().run(&["status"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("honeyflow init sqlite:PATH"), "{}", ran.err);
}

#[test]
fn a_missing_database_exits_with_1() {
    let folder = Folder::configured();
    std::fs::remove_file(folder.path().join("shop.db")).unwrap();
    let ran = folder.run(&["status"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("shop.db"), "{}", ran.err);
    assert!(!folder.path().join("shop.db").exists(), "the command creates no database");
}

/// SE-30: arguments are escaped like data.
#[test]
fn se_30_arguments_are_escaped_in_messages() {
    let folder = Folder::configured();
    for arguments in [["search", "\u{1b}[31mred"], ["source", "\u{1b}]0;title\u{7}"], ["init", "\u{9b}2J"]] {
        let ran = folder.run(&arguments);
        assert_eq!(ran.code, 2);
        assert!(!ran.err.contains(['\u{1b}', '\u{7}', '\u{9b}']), "{arguments:?}: {:?}", ran.err);
    }
}

#[test]
fn help_names_every_noun() {
    let ran = Folder::new().run(&["--help"]);
    assert_eq!(ran.code, 0);
    for noun in ["init", "check", "status", "source", "workflow", "parked", "search", "explain"] {
        assert!(ran.out.contains(&format!("  {noun} ")), "{noun}: {}", ran.out);
    }
}
