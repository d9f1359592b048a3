//! A problem of a definition: a place, a code that tests and people can look up, a message, and a hint.
//!
//! Places are paths such as `workflow.book.step.load.needs[0]`; the binary turns them into file, line and column.

use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    Error,
    Warning,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Problem {
    pub path: String,
    pub code: &'static str,
    pub message: String,
    pub help: Option<String>,
    pub severity: Severity,
}

impl Problem {
    pub fn error(path: impl Into<String>, code: &'static str, message: impl Into<String>) -> Problem {
        Problem { path: path.into(), code, message: message.into(), help: None, severity: Severity::Error }
    }

    pub fn help(mut self, help: impl Into<String>) -> Problem {
        self.help = Some(help.into());
        self
    }

    /// Adds the hint "did you mean …" if one of `words` is similar enough to `written`.
    pub fn nearest<'a>(self, written: &str, words: impl IntoIterator<Item = &'a str>) -> Problem {
        match nearest(written, words) {
            Some(word) => self.help(format!("did you mean `{word}`?")),
            None => self,
        }
    }
}

/// `path code message (help)`, as golden tests and plain logs show it.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.path, self.code, self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

/// Returns the word with the fewest edits, if they are at most a third of the letters (but at least one is allowed).
pub fn nearest<'a>(written: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // a text longer than any word of ours is no typing error, and would only cost time
    if written.len() > 64 {
        return None;
    }
    let edits_max = (written.chars().count() / 3).max(1);
    words
        .into_iter()
        .map(|word| (edits(written, word), word))
        .filter(|(edits, _)| *edits <= edits_max)
        .min()
        .map(|(_, word)| word)
}

/// Returns how many letters must be inserted, deleted, changed or swapped with their neighbour to turn one word into
/// the other.
fn edits(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows = vec![vec![0; to.len() + 1]; from.len() + 1];
    for (n, row) in rows.iter_mut().enumerate() {
        row[0] = n;
    }
    rows[0] = (0..=to.len()).collect();
    for i in 1..=from.len() {
        for j in 1..=to.len() {
            let changed = rows[i - 1][j - 1] + usize::from(from[i - 1] != to[j - 1]);
            let mut fewest = changed.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                fewest = fewest.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = fewest;
        }
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found_and_a_far_one_is_not_guessed() {
        let words = ["needs", "trigger", "when", "use", "url"];
        assert_eq!(nearest("need", words), Some("needs"));
        assert_eq!(nearest("tirgger", words), Some("trigger"));
        assert_eq!(nearest("ues", words), Some("use"));
        assert_eq!(nearest("colour", words), None);
        assert_eq!(nearest(&"x".repeat(1_000_000), words), None);
    }
}
