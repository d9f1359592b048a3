//! F28: damage of the files is found when an index is opened; the failure names it, and the index can be set aside.

use std::{
    fs,
    path::{Path, PathBuf},
};

use honeyflow_conformance::sink::put;
use honeyflow_runtime::Class;
use honeyflow_sink::{Outcome, Sink};
use honeyflow_sink_tantivy::{Options, TantivySink};
use serde_json::json;
use tempfile::TempDir;

use crate::{open, options, stamp};

async fn filled() -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let sink = open(home.path());
    for n in 0..3 {
        let writes = (0..40).map(|k| put(&format!("k{k}"), stamp(1, n), json!({"title": format!("book {k} {n}")})));
        sink.write(writes.collect()).await;
    }
    drop(sink);
    let generation = home.path().join("books/1");
    (home, generation)
}

fn file(generation: &Path, ending: &str) -> PathBuf {
    let meta = fs::read_to_string(generation.join("meta.json")).unwrap();
    let named = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().split('.').next().unwrap();
        meta.replace('-', "").contains(name)
    };
    let mut files: Vec<PathBuf> = fs::read_dir(generation).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.into_iter().filter(named).find(|path| path.extension().is_some_and(|found| found == ending)).unwrap()
}

fn expect_damage(home: &Path, what: &str) {
    let failure = TantivySink::open(options(home)).err().unwrap_or_else(|| panic!("{what} was not found"));
    assert_eq!((failure.class, &*failure.code), (Class::Fatal, "index-damaged"), "{what}: {failure}");
    assert!(failure.message.contains("reindex"), "{failure}");
}

#[tokio::test]
async fn f28_torn_metadata_is_found() {
    let (home, generation) = filled().await;
    let meta = generation.join("meta.json");
    let whole = fs::read(&meta).unwrap();
    for torn in [&whole[..whole.len() / 2], b"", b"{}", b"\0\0\0\0"] {
        fs::write(&meta, torn).unwrap();
        expect_damage(home.path(), "a torn meta.json");
    }
    fs::remove_file(&meta).unwrap();
    expect_damage(home.path(), "a missing meta.json");
    fs::remove_dir_all(&generation).unwrap();
    expect_damage(home.path(), "a missing generation");
}

#[tokio::test]
async fn f28_truncated_missing_and_changed_segments_are_found() {
    for ending in ["idx", "pos", "term", "store", "fast", "fieldnorm"] {
        let (home, generation) = filled().await;
        let path = file(&generation, ending);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        expect_damage(home.path(), &format!("a truncated {ending}"));
        fs::write(&path, b"").unwrap();
        expect_damage(home.path(), &format!("an empty {ending}"));
        let mut flipped = whole.clone();
        flipped[whole.len() / 3] ^= 1;
        fs::write(&path, &flipped).unwrap();
        expect_damage(home.path(), &format!("a flipped bit in {ending}"));
        fs::remove_file(&path).unwrap();
        expect_damage(home.path(), &format!("a missing {ending}"));
        fs::write(&path, &whole).unwrap();
        assert_eq!(open(home.path()).count().await, Ok(40), "{ending}");
    }
}

#[tokio::test]
async fn f28_the_ends_of_files_of_a_large_index_are_checked() {
    let (home, generation) = filled().await;
    let large = || TantivySink::open(Options { checksum_bytes_max: 0, ..options(home.path()) });
    assert_eq!(large().unwrap().count().await, Ok(40));
    let path = file(&generation, "store");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 9]).unwrap();
    assert_eq!(large().err().unwrap().code, "index-damaged");
}

#[tokio::test]
async fn f28_a_damaged_index_is_set_aside_and_rebuilt() {
    let (home, generation) = filled().await;
    let other = tempfile::tempdir().unwrap();
    let unaffected = open(other.path());
    fs::write(generation.join("meta.json"), b"{").unwrap();
    expect_damage(home.path(), "a torn meta.json");
    let aside = TantivySink::set_aside(&home.path().join("books")).unwrap().unwrap();
    assert!(aside.is_dir());
    let sink = open(home.path());
    assert_eq!((sink.generation(), sink.count().await), (2, Ok(0)));
    assert_eq!(sink.write(vec![put("k1", stamp(1, 0), json!({}))]).await, [Outcome::Done]);
    assert_eq!(unaffected.count().await, Ok(0));
}

/// Tantivy needs the list of managed files only for garbage collection.
#[tokio::test]
async fn f28_a_torn_list_of_managed_files_does_no_harm() {
    let (home, generation) = filled().await;
    fs::write(generation.join(".managed.json"), b"[\"half").unwrap();
    fs::write(generation.join("0123456789abcdef0123456789abcdef.store"), b"left by a crash").unwrap();
    let sink = open(home.path());
    assert_eq!(sink.write(vec![put("k1", stamp(2, 0), json!({}))]).await, [Outcome::Done]);
    assert_eq!(sink.count().await, Ok(40));
    assert!(!generation.join("0123456789abcdef0123456789abcdef.store").exists(), "what no commit names is removed");
}

/// This holds also for segments of an earlier writer: the folder itself is the list of files that may be removed.
#[tokio::test]
async fn files_of_merged_segments_are_removed_while_it_writes() {
    let (home, generation) = filled().await;
    let old = file(&generation, "store");
    let sink = open(home.path());
    let unnamed = || {
        let meta = fs::read_to_string(generation.join("meta.json")).unwrap().replace('-', "");
        let names = fs::read_dir(&generation).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let of_segments = names.filter_map(|name| Some(name.split_once('.')?.0.to_owned()));
        of_segments.filter(|id| id.len() == 32 && !meta.contains(id)).count()
    };
    for n in 0.. {
        assert!(n < 2_000, "{} files are left", unnamed());
        let writes = (0..40).map(|k| put(&format!("k{k}"), stamp(2, n), json!({"title": format!("book {k} {n}")})));
        sink.write(writes.collect()).await;
        if n > 20 && !old.exists() && unnamed() == 0 {
            break;
        }
    }
    assert!(!generation.join(".managed.json").exists(), "no list has to be replaced with each file");
}
