//! Detects conditional statements: they cannot have a timestamp, and must not run twice at the same time.
//!
//! This is a small lexer, not a parser: it skips strings, quoted names and comments, and looks for the words.

/// True for INSERT, UPDATE, DELETE and batches that contain the word IF.
pub fn is_conditional(statement: &str) -> bool {
    let mut words = Words { rest: statement };
    let first = words.next().unwrap_or_default();
    let writes = ["INSERT", "UPDATE", "DELETE", "BEGIN"].iter().any(|verb| first.eq_ignore_ascii_case(verb));
    // IF is a reserved word: without quotes it has no other meaning in these statements.
    writes && words.any(|word| word.eq_ignore_ascii_case("IF"))
}

struct Words<'s> {
    rest: &'s str,
}

impl<'s> Words<'s> {
    fn skip(&mut self, opening: usize, closing: &str) {
        let inside = self.rest.get(opening..).unwrap_or_default();
        self.rest = inside.find(closing).map_or("", |at| &inside[at + closing.len()..]);
    }
}

impl<'s> Iterator for Words<'s> {
    type Item = &'s str;

    fn next(&mut self) -> Option<&'s str> {
        loop {
            let first = self.rest.chars().next()?;
            if first.is_alphanumeric() || first == '_' {
                let end = self.rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(self.rest.len());
                let (word, rest) = self.rest.split_at(end);
                self.rest = rest;
                return Some(word);
            }
            // A doubled quote is read as the end of one string and the start of the next; there is no word between
            // them.
            match self.rest.as_bytes() {
                [b'\'', ..] => self.skip(1, "'"),
                [b'"', ..] => self.skip(1, "\""),
                [b'$', b'$', ..] => self.skip(2, "$$"),
                [b'-', b'-', ..] | [b'/', b'/', ..] => self.skip(2, "\n"),
                [b'/', b'*', ..] => self.skip(2, "*/"),
                _ => self.rest = &self.rest[first.len_utf8()..],
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cq_14_the_word_if_makes_a_write_conditional() {
        for conditional in [
            "INSERT INTO t (k) VALUES (1) IF NOT EXISTS",
            "update t set v = 'x' where k = 1 if v = 'y'",
            "-- note\nDELETE FROM t WHERE k = 1 IF EXISTS",
            "BEGIN BATCH INSERT INTO t (k) VALUES (1) IF NOT EXISTS; APPLY BATCH",
            "/* a */ UPDATE t SET v = 'it''s' WHERE k = 1\nIF v = 1",
        ] {
            assert!(is_conditional(conditional), "{conditional}");
        }
        for plain in [
            "INSERT INTO t (k, v) VALUES (1, 'IF')",
            "INSERT INTO t (k, v) VALUES (1, 'it''s IF only')",
            "UPDATE t SET \"if\" = 1 WHERE k = 1",
            "UPDATE t SET v = $$ IF $$ WHERE k = 1",
            "UPDATE t SET v = 1 WHERE k = 1 -- IF v = 2",
            "DELETE gif FROM t WHERE k = 1 /* IF */",
            "CREATE TABLE IF NOT EXISTS t (k int PRIMARY KEY)",
            "SELECT * FROM t",
            "",
            "'",
            "INSERT '",
        ] {
            assert!(!is_conditional(plain), "{plain}");
        }
    }
}
