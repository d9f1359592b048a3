//! What changed in a row: insert, update or delete of the row itself, or a change of a row that its document reads.
//!
//! A set, because a run may serve several rows. The empty set means that the change is unknown.

/// A set of changes, in the outbox a text of words joined by commas.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Changes(u8);

impl Changes {
    /// The writer of the row did not say what changed.
    pub const UNKNOWN: Changes = Changes(0);
    pub const INSERT: Changes = Changes(1);
    pub const UPDATE: Changes = Changes(2);
    pub const DELETE: Changes = Changes(4);
    /// A row of another table changed, and an edge leads from it to this one.
    pub const RELATED: Changes = Changes(8);

    /// The words of the configuration, of `$event.change` and of the outbox column `change`.
    pub const WORDS: &'static [&'static str] = &["insert", "update", "delete", "related"];

    pub fn from_word(word: &str) -> Option<Changes> {
        Changes::WORDS.iter().position(|known| *known == word).map(|bit| Changes(1 << bit))
    }

    /// Reads the outbox column. A word that this program does not know is left out.
    pub fn parse(text: &str) -> Changes {
        text.split(',').filter_map(Changes::from_word).fold(Changes::UNKNOWN, Changes::union)
    }

    /// Returns the text for the outbox column; none if the change is unknown.
    pub fn text(self) -> Option<String> {
        (!self.is_unknown()).then(|| self.words().collect::<Vec<_>>().join(","))
    }

    pub fn words(self) -> impl Iterator<Item = &'static str> {
        Changes::WORDS.iter().enumerate().filter(move |(bit, _)| self.0 & (1 << bit) != 0).map(|(_, word)| *word)
    }

    #[must_use]
    pub fn union(self, other: Changes) -> Changes {
        Changes(self.0 | other.0)
    }

    #[must_use]
    pub fn without(self, other: Changes) -> Changes {
        Changes(self.0 & !other.0)
    }

    pub fn intersects(self, other: Changes) -> bool {
        self.0 & other.0 != 0
    }

    pub fn is_unknown(self) -> bool {
        self.0 == 0
    }
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text().as_deref().unwrap_or("unknown"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ob_1_a_change_is_read_as_it_was_written() {
        let both = Changes::INSERT.union(Changes::RELATED);
        assert_eq!(both.text().as_deref(), Some("insert,related"));
        assert_eq!(Changes::parse("insert,related"), both);
        assert_eq!(Changes::UNKNOWN.text(), None);
        for word in Changes::WORDS {
            assert_eq!(Changes::parse(word).text().as_deref(), Some(*word));
        }
    }

    #[test]
    fn ob_1_a_word_that_is_not_known_says_nothing() {
        assert_eq!(Changes::parse("upsert"), Changes::UNKNOWN);
        assert_eq!(Changes::parse(""), Changes::UNKNOWN);
        assert_eq!(Changes::parse("upsert,delete"), Changes::DELETE);
    }
}
