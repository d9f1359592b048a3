//! The help of every command, compared with `help.txt` beside this file.
//!
//! After a change that is meant, write the file again and read the difference:
//!
//! ```text
//! HONEYFLOW_GOLDEN=write cargo test -p honeyflow --test it help
//! ```

use std::{fmt::Write as _, path::Path};

use crate::folder::Folder;

#[test]
fn the_help_of_every_command_is_that_of_the_golden_file() {
    let mut text = String::new();
    write_help(&Folder::new(), &[], &mut text);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/help.txt");
    if std::env::var_os("HONEYFLOW_GOLDEN").is_some_and(|value| value == "write") {
        return std::fs::write(file, text).expect("a file");
    }
    let golden = std::fs::read_to_string(file).expect("a golden file");
    for (before, now) in golden.lines().zip(text.lines()) {
        assert_eq!(before, now);
    }
    assert_eq!(golden.lines().count(), text.lines().count());
}

/// Appends the help of one command and of all its subcommands.
fn write_help(folder: &Folder, command: &[&str], text: &mut String) {
    let output = folder.run(&[command, &["--help"]].concat());
    assert_eq!(output.code, 0, "{command:?}: {}", output.err);
    let _ = writeln!(text, "$ honeyflow {}\n{}", [command, &["--help"]].concat().join(" "), output.out);
    for name in subcommands(&output.out) {
        write_help(folder, &[command, &[name]].concat(), text);
    }
}

/// The first words of the lines below `Commands:` that are not continued descriptions.
fn subcommands(help: &str) -> Vec<&str> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = lines.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").collect()
}
