//! The requirements in `docs/spec`: a line `- **OB-7** …` is a requirement; a paragraph that begins with `Tests:` names tests
//! that must exist under exactly these names.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::id::Id;

#[derive(Debug, Default)]
pub struct Requirements {
    ids: BTreeMap<Id, String>,
    retired: BTreeSet<Id>,
    tests: Vec<String>,
}

/// A longer requirement should be two.
const LINE_CHARS_MAX: usize = 220;

impl Requirements {
    /// Adds one document; an error names the line.
    pub fn read(&mut self, file: &str, text: &str) -> Result<(), String> {
        let mut names_tests = false;
        for (index, line) in text.lines().enumerate() {
            names_tests = line.trim_start().starts_with("Tests:") || names_tests && line.trim_start().starts_with('`');
            let place = || format!("{file}:{}", index + 1);
            if let Some(rest) = line.strip_prefix("- **") {
                let parts = rest.split_once("** ").and_then(|(id, text)| Some((Id::written(id)?, text)));
                let (id, text) =
                    parts.ok_or_else(|| format!("{}: `- **` begins a requirement, but no id follows", place()))?;
                if text.starts_with("Retired:") {
                    self.retired.insert(id);
                }
                if line.chars().count() > LINE_CHARS_MAX {
                    return Err(format!("{}: {id} is longer than {LINE_CHARS_MAX} characters", place()));
                }
                match self.ids.entry(id) {
                    Entry::Vacant(free) => free.insert(file.to_owned()),
                    Entry::Occupied(first) => {
                        return Err(format!("{}: {id} stands already in {}", place(), first.get()));
                    }
                };
            } else if names_tests {
                self.tests.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
            }
        }
        Ok(())
    }

    pub fn has(&self, id: Id) -> bool {
        self.ids.contains_key(&id)
    }

    /// The requirements that need a test, with their file.
    pub fn living(&self) -> impl Iterator<Item = (Id, &str)> {
        let all = self.ids.iter().map(|(id, file)| (*id, file.as_str()));
        all.filter(|(id, _)| !self.retired.contains(id))
    }

    pub fn tests(&self) -> impl Iterator<Item = &str> {
        self.tests.iter().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_and_named_tests_are_read() {
        let mut requirements = Requirements::default();
        requirements.read("a.md", "# Title\n\n- **OB-7** One.\n- **OB-8** Retired: two.\n- plain\n  Tests: `a_b`,\n  `c`, `d`\nsee `this` and **OB-9**\n`or` that\n").unwrap();
        assert_eq!(requirements.living().map(|(id, _)| id.to_string()).collect::<Vec<_>>(), ["OB-7"]);
        assert!(requirements.has(Id::written("OB-8").unwrap()));
        assert_eq!(requirements.tests().collect::<Vec<_>>(), ["a_b", "c", "d"]);
    }

    #[test]
    fn doubled_unreadable_and_overlong_lines_are_errors() {
        let read = |text: &str| Requirements::default().read("a.md", text).unwrap_err();
        assert_eq!(read("- **OB-7** One.\n- **OB-7** Two.\n"), "a.md:2: OB-7 stands already in a.md");
        assert!(read("- **Note** this\n").starts_with("a.md:1: "));
        assert!(read(&format!("- **OB-7** {}\n", "x".repeat(LINE_CHARS_MAX))).contains("longer"));
    }
}
