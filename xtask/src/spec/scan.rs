//! Finds the ids that tests name: in the function's name (`fn ob_7_…`), or in the comments right above a test.
//!
//! It reads lines, not syntax: comments and attributes collect until the function they stand on.

use std::collections::BTreeSet;

use serde::Serialize;

use super::id::Id;

/// One test that names one requirement.
#[derive(Debug, Serialize)]
pub struct Mention {
    pub id: Id,
    pub test: String,
    pub file: String,
    pub line: usize,
}

/// The cases in this folder are plain functions; the test binary of every backend calls them.
const CASES: &str = "tests/conformance/";

pub fn scan(file: &str, text: &str, mentions: &mut Vec<Mention>, functions: &mut BTreeSet<String>) {
    let mut above = Above::default();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(comment) = line.strip_prefix("//") {
            above.comment_ids.extend(Id::all_in(comment));
        } else if line.starts_with("#[") || above.in_attribute {
            above.attribute(line);
        } else if let Some(name) = function_name(line) {
            let is_test = above.is_test || file.starts_with(CASES);
            let mut ids: BTreeSet<Id> = Id::all_of_name(name).into_iter().collect();
            if is_test {
                ids.append(&mut above.comment_ids);
            }
            functions.insert(name.to_owned());
            let found =
                ids.into_iter().map(|id| Mention { id, test: name.to_owned(), file: file.to_owned(), line: index + 1 });
            mentions.extend(found);
            above = Above::default();
        } else {
            above = Above::default();
        }
    }
}

/// The comments and attributes above the next function.
#[derive(Default)]
struct Above {
    comment_ids: BTreeSet<Id>,
    is_test: bool,
    /// Inside an attribute of several lines.
    in_attribute: bool,
}

impl Above {
    fn attribute(&mut self, line: &str) {
        let name = line.trim_start_matches("#[").split(['(', ']', ' ']).next().unwrap_or_default();
        let last = name.rsplit("::").next().unwrap_or_default();
        self.is_test |= !self.in_attribute && matches!(last, "test" | "rstest" | "case" | "test_case");
        self.in_attribute = !line.ends_with(']');
    }
}

/// The name in `pub async fn name(` and similar lines.
fn function_name(line: &str) -> Option<&str> {
    let mut rest = line;
    loop {
        if let Some(name) = rest.strip_prefix("fn ") {
            let end = name.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(name.len());
            return (end > 0).then(|| &name[..end]);
        }
        let (word, after) = rest.split_once(' ')?;
        if !matches!(word, "pub" | "pub(crate)" | "pub(super)" | "async" | "const" | "unsafe") {
            return None;
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found_in(file: &str, text: &str) -> Vec<String> {
        let mut mentions = Vec::new();
        scan(file, text, &mut mentions, &mut BTreeSet::new());
        mentions.iter().map(|mention| format!("{} {}:{}", mention.id, mention.test, mention.line)).collect()
    }

    #[test]
    fn ids_in_names_count() {
        let text = "#[test]\nfn ob_7_key_change() {}\n\n    #[tokio::test(start_paused = true)]\n    async fn rl_10_f_40_conflict() {}\n";
        let found = found_in("a.rs", text);
        assert_eq!(found, ["OB-7 ob_7_key_change:2", "F40 rl_10_f_40_conflict:5", "RL-10 rl_10_f_40_conflict:5"]);
    }

    #[test]
    fn ids_in_comments_count_on_tests_only() {
        let text = "/// OB-7: a rule\n// and WF-140\n#[test]\n#[should_panic(\n  expected = \"x\",\n)]\nfn rule() {}\n\n/// OB-8\nfn helper() {}\n";
        assert_eq!(found_in("a.rs", text), ["OB-7 rule:7", "WF-140 rule:7"]);
    }

    #[test]
    fn a_comment_apart_from_the_test_does_not_count() {
        assert!(found_in("a.rs", "// OB-7\n\n#[test]\nfn rule() {}\n").is_empty());
        assert!(found_in("a.rs", "// OB-7\nlet x = 1;\n#[test]\nfn rule() {}\n").is_empty());
    }

    #[test]
    fn conformance_cases_are_tests() {
        let text = "/// HV-14\npub async fn burial_needs_a_watched_beat(store: &dyn Store) {}\n";
        assert_eq!(found_in("tests/conformance/src/hive.rs", text), ["HV-14 burial_needs_a_watched_beat:2"]);
        assert!(found_in("crates/hive/src/lib.rs", text).is_empty());
    }

    #[test]
    fn function_names_are_found_behind_their_qualifiers() {
        assert_eq!(function_name("pub(crate) async fn go<T>(x: T)"), Some("go"));
        assert_eq!(function_name("fn ob_1()"), Some("ob_1"));
        assert_eq!(function_name("let f = fn_name;"), None);
        assert_eq!(function_name("// fn x()"), None);
    }
}
