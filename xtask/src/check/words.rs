//! Plain words: how often each part of the tree uses words that hide who does what, compared with a baseline that may only fall.
//!
//! Counted are comments, doc comments and the texts of the program; not counted are identifiers, the texts in tests and `docs/spec`.
//! A count above the baseline fails. A count below it fails as well, until the baseline is lowered in the same commit
//! (`cargo xtask check --lower-baseline`), so that the improvement cannot be lost again.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::prose::{Kind, Piece, pieces};
use crate::error::Error;
use crate::files;

pub const BASELINE: &str = "xtask/plain-words.txt";

/// Written in two halves, so that this file does not count.
const WORDS: &[&str] = &[
    concat!("who", "ever"),
    concat!("no", "body"),
    concat!("some", "body"),
    concat!("any", "body"),
    concat!("no ", "one"),
    concat!("an", "ew"),
    concat!("so ", "many"),
    concat!("those ", "who"),
];

/// A doc comment that begins with one of these has no subject.
const BEGINNINGS: &[&str] = &["Of", "By", concat!("Who", "ever"), "So"];

const HEADER: &str = "\
# How often words that hide who does what still stand in comments, doc comments and texts, by part of the tree.
# `begins` counts doc comments that begin with Of, By, or another word without a subject. A count may only fall:
# `cargo xtask check --lower-baseline` writes what there is now. What to write instead: docs/glossary.md.
";

/// (part of the tree, word) → how often.
type Counts = BTreeMap<(String, String), usize>;

pub fn findings(root: &Path) -> Result<Vec<String>, Error> {
    let baseline = read_baseline(&fs::read_to_string(root.join(BASELINE)).unwrap_or_default());
    Ok(differences(&baseline, &count(root)?))
}

/// Writes the counts of now, unless one of them has risen.
pub fn lower_baseline(root: &Path) -> Result<(), Error> {
    let baseline = read_baseline(&fs::read_to_string(root.join(BASELINE)).unwrap_or_default());
    let counts = count(root)?;
    let risen: Vec<String> = differences(&baseline, &counts).into_iter().filter(|line| line.contains("rose")).collect();
    if !risen.is_empty() && !baseline.is_empty() {
        return Err(Error::failed(risen.join("\n")));
    }
    let lines = counts.iter().map(|((part, word), count)| format!("{part}\t{word}\t{count}\n"));
    fs::write(root.join(BASELINE), HEADER.to_owned() + &lines.collect::<String>())
        .map_err(|error| Error::failed(format!("{BASELINE}: {error}")))
}

fn read_baseline(text: &str) -> Counts {
    let line = |line: &str| {
        let mut fields = line.split('\t');
        let (part, word) = (fields.next()?.to_owned(), fields.next()?.to_owned());
        Some(((part, word), fields.next()?.parse().ok()?))
    };
    text.lines().filter(|line| !line.starts_with('#')).filter_map(line).collect()
}

fn differences(baseline: &Counts, counts: &Counts) -> Vec<String> {
    let keys: std::collections::BTreeSet<_> = baseline.keys().chain(counts.keys()).collect();
    let mut findings = Vec::new();
    for key in keys {
        let (before, now) = (baseline.get(key).copied().unwrap_or(0), counts.get(key).copied().unwrap_or(0));
        let (part, word) = key;
        if now > before {
            findings.push(format!(
                "{part}: `{word}` rose from {before} to {now}: say who does what, in the words of docs/glossary.md"
            ));
        } else if now < before {
            findings.push(format!(
                "{part}: `{word}` fell from {before} to {now}: keep it that way with `cargo xtask check --lower-baseline`"
            ));
        }
    }
    findings
}

fn count(root: &Path) -> Result<Counts, Error> {
    let mut counts = Counts::new();
    for path in files::of_repository(root)? {
        let name = path.to_string_lossy();
        let rust = name.ends_with(".rs");
        let markdown = name.ends_with(".md") && !name.starts_with("docs/spec/");
        if !(rust || markdown) {
            continue;
        }
        let Ok(text) = fs::read_to_string(root.join(&path)) else { continue };
        let part = part_of(&name);
        let found = if rust { words_of_rust(&text, is_test(&name)) } else { words_in(&text).collect() };
        for word in found {
            *counts.entry((part.clone(), word.to_owned())).or_default() += 1;
        }
    }
    Ok(counts)
}

/// The folder of the crate; `docs` for texts outside of crates.
fn part_of(path: &str) -> String {
    let crate_folder = ["/src/", "/tests/", "/examples/", "/benches/"]
        .iter()
        .filter_map(|folder| path.find(folder))
        .min()
        .map(|end| path[..end].to_owned());
    crate_folder.filter(|_| path.ends_with(".rs")).unwrap_or_else(|| "docs".to_owned())
}

/// Whether the texts of the file are test data.
fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.starts_with("tests/") || path.ends_with("/tests.rs")
}

fn words_of_rust(source: &str, test: bool) -> Vec<&'static str> {
    let pieces = pieces(source);
    // Unit tests stand at the end of a file.
    let tests_begin = source.lines().position(|line| line.trim() == "#[cfg(test)]").map_or(usize::MAX, |at| at + 1);
    let mut found = Vec::new();
    let mut previous_doc_line = None;
    for piece in &pieces {
        match piece.kind {
            Kind::Code => {}
            Kind::Text if test || piece.line > tests_begin => {}
            Kind::DocComment => {
                if previous_doc_line != Some(piece.line - 1) && begins_without_subject(piece) {
                    found.push("begins");
                }
                previous_doc_line = Some(piece.line);
                found.extend(words_in(piece.text));
            }
            Kind::Comment | Kind::Text => found.extend(words_in(piece.text)),
        }
    }
    found
}

fn begins_without_subject(piece: &Piece<'_>) -> bool {
    let text = piece.text.trim_start_matches(['/', '!', ' ']);
    let first = text.split(|letter: char| !letter.is_alphabetic()).next().unwrap_or_default();
    BEGINNINGS.contains(&first)
}

fn words_in(text: &str) -> impl Iterator<Item = &'static str> {
    let text = text.to_lowercase();
    WORDS.iter().flat_map(move |word| std::iter::repeat_n(*word, whole_words(&text, word)))
}

fn whole_words(text: &str, word: &str) -> usize {
    let inside = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.match_indices(word)
        .filter(|(at, _)| !text[..*at].ends_with(inside) && !text[at + word.len()..].starts_with(inside))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(entries: &[(&str, usize)]) -> Counts {
        entries.iter().map(|(word, count)| (("crates/a".to_owned(), (*word).to_owned()), *count)).collect()
    }

    #[test]
    fn a_rise_and_a_fall_are_both_findings() {
        let before = counts(&[("w", 2), ("x", 2), ("y", 2)]);
        let found = differences(&before, &counts(&[("w", 3), ("x", 2), ("z", 1)]));
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("`w` rose from 2 to 3"));
        assert!(found[1].contains("`y` fell from 2 to 0"));
        assert!(found[2].contains("`z` rose from 0 to 1"));
        assert!(differences(&before, &before).is_empty());
    }

    #[test]
    fn words_count_in_comments_and_texts_but_not_in_names_or_test_data() {
        let word = WORDS[1];
        let source = format!("/// {word} waits\nfn {word}() {{ {word}(); say(\"{word}\"); }} // {word}s\n");
        assert_eq!(words_of_rust(&source, false), [word, word]);
        assert_eq!(words_of_rust(&source, true), [word]);
        let tests = format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{ const A: &str = \"{word}\"; }}");
        assert_eq!(words_of_rust(&tests, false), [""; 0]);
    }

    #[test]
    fn a_doc_comment_without_a_subject_counts_once() {
        let source =
            "/// Of the leases,\n/// By the way.\nfn a() {}\n\n/// Often.\nfn b() {}\n/// So it is.\nfn c() {}\n";
        assert_eq!(words_of_rust(source, false), ["begins", "begins"]);
    }

    #[test]
    fn parts_are_crates() {
        assert_eq!(part_of("crates/hive/redis/src/key.rs"), "crates/hive/redis");
        assert_eq!(part_of("crates/hive/src/tests/it.rs"), "crates/hive");
        assert_eq!(part_of("tests/sim/src/world.rs"), "tests/sim");
        assert_eq!(part_of("docs/guide/operate.md"), "docs");
    }

    #[test]
    fn a_baseline_is_read_as_it_is_written() {
        let text = format!("{HEADER}crates/a\tw\t2\n");
        assert_eq!(read_baseline(&text), counts(&[("w", 2)]));
    }
}
