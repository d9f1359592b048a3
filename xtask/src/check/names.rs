//! Names that say what a thing is: no type is named by a bare participle or a word that could stand for anything, our own types have one
//! name everywhere, and modules have one style. Failure codes are constants with a description, not texts.

use std::fs;
use std::path::Path;

use super::prose::{Kind, pieces};
use crate::error::Error;
use crate::files;

/// Type names that do not say what the value is.
const FORBIDDEN: &[&str] = &[
    "Seen", "Asked", "Held", "Told", "Taken", "Kept", "Known", "Found", "Denied", "Drawn", "Gathered", "Place",
    "Standing", "Wish", "Fate", "Trouble", "Unfit", "Again", "Under", "Next",
];

pub fn findings(root: &Path) -> Result<Vec<String>, Error> {
    let mut findings = Vec::new();
    for path in files::of_repository(root)? {
        let name = path.to_string_lossy();
        if name.ends_with("/mod.rs") {
            findings.push(format!("{name}: write `foo.rs` beside the folder `foo`, not `foo/mod.rs`"));
        }
        if name.ends_with(".rs") {
            let Ok(text) = fs::read_to_string(root.join(&path)) else { continue };
            let mut found = findings_in(&text);
            if is_shipped(&name) {
                found.extend(code_literals(&text));
            }
            findings.extend(found.into_iter().map(|(line, what)| format!("{name}:{line}: {what}")));
        }
    }
    Ok(findings)
}

fn findings_in(source: &str) -> Vec<(usize, String)> {
    let words = code_words(source);
    let mut found = Vec::new();
    for (at, pair) in words.windows(2).enumerate() {
        let [(_, keyword), (line, name)] = pair else { continue };
        // Published crates keep the old name of a type for a while.
        let old_name = words[at.saturating_sub(5)..at].iter().any(|(_, word)| *word == "deprecated");
        if ["struct", "enum", "union", "trait", "type"].contains(keyword) && FORBIDDEN.contains(name) && !old_name {
            found
                .push((*line, format!("type `{name}`: rename it to a noun that says what it is, such as `HeldLease`")));
        }
    }
    let mut rest = &words[..];
    while let Some(at) = rest.iter().position(|(_, word)| *word == "use") {
        let hidden = rest[at.saturating_sub(4)..at].iter().any(|(_, word)| *word == "hidden");
        rest = &rest[at + 1..];
        let end = rest.iter().position(|(_, word)| *word == ";").unwrap_or(rest.len());
        if !hidden {
            found.extend(aliases(&rest[..end]));
        }
        rest = &rest[end..];
    }
    found
}

/// Whether the file is part of a crate that users run: no test, example or benchmark.
fn is_shipped(name: &str) -> bool {
    let is_test = |part: &str| ["tests", "tests.rs", "examples", "benches"].contains(&part);
    (name.starts_with("crates/") || name.starts_with("lib/")) && !name.split('/').any(is_test)
}

/// Codes of failures that are written as texts. They are constants, declared by `codes!` together with a description, so
/// that the reference has them all.
fn code_literals(source: &str) -> Vec<(usize, String)> {
    let shipped = source.find("#[cfg(test)]").map_or(source, |tests| &source[..tests]);
    let mut statement = String::new();
    let mut found = Vec::new();
    for piece in pieces(shipped) {
        match piece.kind {
            Kind::Comment | Kind::DocComment => {}
            Kind::Code => {
                let begin = piece.text.rfind(';').map_or(0, |end| {
                    statement.clear();
                    end + 1
                });
                statement.push(' ');
                statement.push_str(&piece.text[begin..]);
            }
            Kind::Text => {
                let before = statement.trim_end();
                if is_kebab_case(piece.text) && (is_code_argument(before) || is_compared_code(before)) {
                    found.push((piece.line, format!("code {}: use its constant in `codes`", piece.text)));
                }
                // The text as an argument.
                statement.push('_');
            }
        }
    }
    found
}

/// A quoted text in the form of our codes; codes of servers look different.
fn is_kebab_case(text: &str) -> bool {
    let inside = text.trim_matches('"');
    !inside.is_empty()
        && inside.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-')
}

/// Whether the next argument is the code of a new failure.
fn is_code_argument(before: &str) -> bool {
    if ["retry", "reject", "fatal"].iter().any(|class| before.ends_with(&format!("Failure::{class}("))) {
        return true;
    }
    // These have it as their second argument.
    let begins =
        ["Failure::new(", "Failure::retry_after("].iter().filter_map(|call| Some(before.rfind(call)? + call.len()));
    let Some(arguments) = begins.max().map(|begin| &before[begin..]) else { return false };
    let (mut depth, mut commas) = (0_usize, 0);
    for letter in arguments.chars() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => return false,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => commas += 1,
            _ => {}
        }
    }
    commas == 1 && arguments.ends_with(',')
}

/// Whether a code is compared with the text that follows.
fn is_compared_code(before: &str) -> bool {
    let left = before.strip_suffix("==").or_else(|| before.strip_suffix("!=")).map(str::trim_end);
    let name = left.and_then(|left| left.strip_suffix("code"));
    name.is_some_and(|before| !before.ends_with(|letter: char| letter.is_alphanumeric() || letter == '_'))
}

/// `X as Y` in a `use` of our own crates, where both are types.
fn aliases(statement: &[(usize, &str)]) -> Vec<(usize, String)> {
    let ours = |word: &str| ["crate", "super", "self"].contains(&word) || word.starts_with("honeyflow");
    if !statement.first().is_some_and(|(_, word)| ours(word)) {
        return Vec::new();
    }
    let is_type =
        |word: &str| word.starts_with(|first: char| first.is_uppercase()) && word.contains(char::is_lowercase);
    let mut found = Vec::new();
    for three in statement.windows(3) {
        let [(line, from), (_, "as"), (_, to)] = three else { continue };
        if is_type(from) && is_type(to) {
            found.push((
                *line,
                format!("`{from} as {to}`: one name for one type; qualify it by its module or rename it"),
            ));
        }
    }
    found
}

/// The identifiers and semicolons of the code, without comments and texts.
fn code_words(source: &str) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    for piece in pieces(source).into_iter().filter(|piece| piece.kind == Kind::Code) {
        let mut begin = None;
        for (at, letter) in piece.text.char_indices().chain([(piece.text.len(), ' ')]) {
            let inside = letter.is_alphanumeric() || letter == '_';
            match begin {
                None if inside => begin = Some(at),
                Some(from) if !inside => {
                    words.push((piece.line, &piece.text[from..at]));
                    begin = None;
                }
                _ => {}
            }
            if letter == ';' {
                words.push((piece.line, ";"));
            }
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_named_by_a_participle_is_found() {
        let source =
            "// struct Held\npub(crate) struct Held<'a> {}\nenum State { Held }\ntype Seen = u8;\nstruct HeldLease;\n";
        assert_eq!(findings_in(source).iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 4]);
        let old = "#[deprecated(since = \"0.1.0\", note = \"renamed\")]\npub type Held = HeldLease;\n";
        assert!(findings_in(old).is_empty());
    }

    #[test]
    fn a_failure_code_that_is_no_constant_is_found() {
        let source = "// Failure::retry(\"a\", b)\nFailure::retry(\"a\", b);\nFailure::fatal(\n    \"b\",\n    format!(\"c\"),\n);\n\
                      Failure::retry_after(wait(1, 2), \"d\", e);\nFailure::new(class, \"f\", \"g\");\n\
                      Failure::reject(codes::H, \"h\");\nFailure::new(class, codes::I, \"i\");\n\
                      #[cfg(test)]\nmod tests { Failure::retry(\"j\", k); }\n";
        assert_eq!(code_literals(source).iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 4, 7, 8]);
    }

    #[test]
    fn a_comparison_of_a_code_with_a_text_is_found() {
        let source = "failure.code == \"a\";\nif code != \"b\" {}\nfailure.code == codes::C;\nopcode == \"d\";\ncode == \"ERR\";\n";
        assert_eq!(code_literals(source).iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn tests_examples_and_tools_may_write_codes_as_texts() {
        for (name, expected) in [
            ("crates/hive/src/member.rs", true),
            ("lib/runtime/src/failure.rs", true),
            ("crates/hive/src/member/tests/shards.rs", false),
            ("crates/hive/src/member/tests.rs", false),
            ("crates/surface/api/examples/page.rs", false),
            ("tests/sim/src/check.rs", false),
        ] {
            assert_eq!(is_shipped(name), expected, "{name}");
        }
    }

    #[test]
    fn a_second_name_for_a_type_of_ours_is_found() {
        let old_trait = "#[doc(hidden)]\npub use self::Pooled as Carried;\n";
        assert!(findings_in(old_trait).is_empty(), "a trait of a published crate keeps its old name for a while");
        let source = "use honeyflow_pool::{\n    Kind,\n    Settings as PoolSettings,\n};\nuse std::fmt::Write as _;\n\
                      use serde_json::Value as Json;\nuse crate::limits as other;\n";
        assert_eq!(findings_in(source).iter().map(|(line, _)| *line).collect::<Vec<_>>(), [3]);
    }
}
