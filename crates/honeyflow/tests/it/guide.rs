//! The configurations shown in the guides fit the databases shown beside them.

use std::path::Path;

use crate::folder::Folder;

/// The blocks of one language, joined.
fn blocks(text: &str, language: &str) -> String {
    let fence = format!("```{language}\n");
    text.split(&fence).skip(1).filter_map(|rest| rest.split("```").next()).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_configurations_in_the_guides_are_valid() {
    for (guide, database) in [("index-a-table.md", "garden.db"), ("run-a-workflow.md", "shop.db")] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide").join(guide);
        let text = std::fs::read_to_string(path).expect("a guide");
        let folder = Folder::new();
        let connection = rusqlite::Connection::open(folder.path().join(database)).expect("a database");
        connection.execute_batch(&blocks(&text, "sql")).expect("SQL");
        folder.write("honeyflow.toml", &blocks(&text, "toml"));
        let ran = folder.run(&["check"]);
        assert_eq!(ran.code, 0, "{guide}: {}{}", ran.out, ran.err);
        assert!(ran.out.contains("honeyflow.toml is fine"), "{guide}: {}", ran.out);
    }
}
