//! Indexes that are lost or outdated are rebuilt from the rows.

use std::{
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::folder::Folder;

/// A node that is killed when the test ends.
pub struct Node(Child);

impl Node {
    pub fn start(folder: &Folder) -> Node {
        let child = Command::new(env!("CARGO_BIN_EXE_honeyflow"))
            .args(["start", "--yes"])
            .current_dir(folder.path())
            .env_remove("HONEYFLOW_CONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Node(child.expect("the binary"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn until(mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "waited in vain");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn until_equal(folder: &Folder) {
    until(|| folder.run(&["verify"]).code == 0);
}

fn configured() -> Folder {
    let folder = Folder::configured();
    folder.write("honeyflow.toml", &folder.read("honeyflow.toml").replace("127.0.0.1:7171", "127.0.0.1:0"));
    folder
}

#[test]
fn the_next_start_fills_a_lost_index() {
    let folder = configured();
    let node = Node::start(&folder);
    until_equal(&folder);
    drop(node);
    std::fs::remove_dir_all(folder.path().join("data")).expect("a folder");
    let _node = Node::start(&folder);
    until_equal(&folder);
    assert!(folder.run(&["search", "book", "bees"]).out.contains("Bees"));
}

/// Without a running node, the command starts a temporary one.
#[test]
fn ob_78_reindex_without_a_node_builds_a_generation_with_the_new_fields() {
    let folder = configured();
    drop({
        let node = Node::start(&folder);
        until_equal(&folder);
        node
    });
    let text = folder.read("honeyflow.toml");
    let changed = text.replace(r#"title = "text""#, r#"title = { type = "text", language = "en" }"#);
    assert_ne!(text, changed);
    folder.write("honeyflow.toml", &changed);
    assert!(!folder.run(&["search", "book", "bee"]).out.contains("Bees"), "the index still has its old fields");
    assert!(folder.run(&["search", "book", "bees"]).out.contains("Bees"));
    let ran = folder.run(&["reindex", "book"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("generation 2 is served"), "{}", ran.out);
    assert_eq!(folder.run(&["verify"]).code, 0);
    assert!(folder.run(&["search", "book", "bee"]).out.contains("Bees"), "the new field finds the stem");
}

#[test]
fn f28_a_damaged_index_is_set_aside_and_rebuilt_by_reindex() {
    let folder = configured();
    drop({
        let node = Node::start(&folder);
        until_equal(&folder);
        node
    });
    let generation = folder.path().join("data/index/book/1");
    for entry in std::fs::read_dir(&generation).expect("an index").flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "idx" || extension == "store") {
            let mut bytes = std::fs::read(&path).expect("a file");
            bytes[4] ^= 0xff;
            std::fs::write(&path, bytes).expect("a file");
        }
    }
    let mut refused = Node::start(&folder);
    until(|| refused.0.try_wait().expect("a child").is_some_and(|status| !status.success()));
    let ran = folder.run(&["reindex", "book"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(folder.run(&["verify"]).code, 0);
    assert!(folder.path().join("data/index/book/1.aside").is_dir(), "the old files are kept for inspection");
}
