//! The tree stands alone: no file mentions one machine, one day's work, or an unfinished merge.
//!
//! The texts are written in two halves so that this file passes its own check.

use std::fs;
use std::path::Path;

use crate::error::Error;
use crate::files;

/// Texts that no file may contain, in any case of letters, and what is wrong with them.
const FORBIDDEN: &[(&str, &str)] = &[
    (concat!("../", "shared/"), "a path outside the repository"),
    (concat!("/wo", "rk/shared"), "a path of one machine"),
    (concat!("/wo", "rk/main"), "a path of one machine"),
    (concat!("/root/", "."), "a path of one machine"),
    (concat!("file:///", "home/"), "a path of one machine"),
    (concat!("sub", "agent"), "speaks of who wrote it, not of what it is"),
    (concat!("sub-", "agent"), "speaks of who wrote it, not of what it is"),
    (concat!("ai ", "agent"), "speaks of who wrote it, not of what it is"),
    (concat!("other ", "engineer"), "speaks of who wrote it, not of what it is"),
    (concat!("another ", "engineer"), "speaks of who wrote it, not of what it is"),
    (concat!("<<<<", "<<< "), "a merge that was not finished"),
    (concat!(">>>>", ">>> "), "a merge that was not finished"),
];

/// Larger files are data, not text.
const BYTES_MAX: u64 = 2 * 1024 * 1024;

pub fn findings(root: &Path) -> Result<Vec<String>, Error> {
    let mut findings = Vec::new();
    for path in files::of_repository(root)? {
        let whole = root.join(&path);
        if fs::metadata(&whole).map_or(true, |about| about.len() > BYTES_MAX) {
            continue;
        }
        // A file that is not UTF-8 is not text.
        let Ok(text) = fs::read_to_string(&whole) else { continue };
        findings
            .extend(findings_in(&text).into_iter().map(|(line, what)| format!("{}:{line}: {what}", path.display())));
    }
    Ok(findings)
}

fn findings_in(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.to_lowercase();
        for (forbidden, why) in FORBIDDEN {
            if line.contains(forbidden) {
                found.push((index + 1, format!("`{}`: {why}", forbidden.trim())));
            }
        }
        if names_an_issue(&line) {
            found.push((index + 1, "the number of an issue: say what was decided instead".to_owned()));
        }
    }
    found
}

/// The word and a number, with a space, `#`, `/` or `-` between: a tracker's numbers mean nothing to a reader here.
fn names_an_issue(line: &str) -> bool {
    line.match_indices("issue").any(|(at, word)| {
        let rest = line[at + word.len()..].trim_start_matches('s').trim_start_matches([' ', '#', '/', '-']);
        let glued = rest.len() == line.len() - at - word.len();
        !glued && rest.starts_with(|first: char| first.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_text_is_found_with_its_line() {
        let text = format!("fine\nsee {}DESIGN.md\n", FORBIDDEN[0].0);
        assert_eq!(findings_in(&text).len(), 1);
        assert_eq!(findings_in(&text)[0].0, 2);
    }

    #[test]
    fn case_does_not_hide_it() {
        assert_eq!(findings_in(&FORBIDDEN[5].0.to_uppercase()).len(), 1);
    }

    #[test]
    fn issue_numbers_are_found_and_issued_permits_are_not() {
        for digit in ['1', '7'] {
            for between in [" ", " #", "s/", "-"] {
                assert!(names_an_issue(&format!("see issue{between}{digit}")), "{between}{digit}");
            }
        }
        assert!(!names_an_issue("issued_u 12"));
        assert!(!names_an_issue("12 issues"));
        assert!(!names_an_issue("an issue with 3 parts"));
    }

    #[test]
    fn this_file_passes_its_own_check() {
        assert_eq!(findings_in(include_str!("wording.rs")), []);
    }
}
