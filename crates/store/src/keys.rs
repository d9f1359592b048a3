//! Finds `$keys` in a statement from the configuration.
//!
//! The lexer ignores `$keys` inside strings, comments, quoted names and dollar quotes. It knows no grammar and no
//! database: it only finds the ranges that the row set of the keys replaces, and the end of the statement.

use std::ops::Range;

use honeyflow_runtime::Failure;

use crate::{codes, statement::Statement};

const PLACEHOLDER: &str = "$keys";

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scan {
    /// The byte ranges of `$keys`.
    pub places: Vec<Range<usize>>,
    /// The end of the first statement's last word, before a closing semicolon and before comments.
    pub end: usize,
    /// True if something that is neither blank nor comment follows the first semicolon.
    pub more: bool,
}

/// Scans `text` in one pass.
pub fn scan(text: &str) -> Scan {
    let bytes = text.as_bytes();
    let mut scan = Scan::default();
    let mut closed = false;
    let mut at = 0;
    while at < bytes.len() {
        let next = match bytes[at] {
            blank if blank.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            b'-' if bytes[at..].starts_with(b"--") => {
                at = position(bytes, at, b"\n").map_or(bytes.len(), |line| line + 1);
                continue;
            }
            b'/' if bytes[at..].starts_with(b"/*") => {
                at = position(bytes, at + 2, b"*/").map_or(bytes.len(), |close| close + 2);
                continue;
            }
            b';' => {
                closed = true;
                at += 1;
                continue;
            }
            // A doubled quote ends one literal and starts the next one immediately, so it needs no special rule.
            quote @ (b'\'' | b'"' | b'`') => position(bytes, at + 1, &[quote]).map_or(bytes.len(), |close| close + 1),
            b'[' => position(bytes, at + 1, b"]").map_or(at + 1, |close| close + 1),
            b'$' => {
                if let Some(end) = dollar_quote(bytes, at) {
                    end
                } else if is_placeholder(bytes, at) {
                    let place = at..at + PLACEHOLDER.len();
                    if !closed {
                        scan.places.push(place.clone());
                    }
                    place.end
                } else {
                    at + 1
                }
            }
            // A name is read whole, so that `a$keys` stays a name.
            start if is_word(start) => {
                at + bytes[at..].iter().take_while(|byte| is_word(**byte) || **byte == b'$').count()
            }
            _ => at + 1,
        };
        if closed {
            scan.more = true;
        } else {
            scan.end = next;
        }
        at = next;
    }
    scan
}

/// Returns the statement with every `$keys` replaced by `row_set`, without the text after its end.
/// Refuses a statement without `$keys` (every key would look deleted) and more than one statement.
pub fn rewrite(statement: &Statement, row_set: &str) -> Result<String, Failure> {
    let text = &statement.text;
    let Scan { places, end, more } = scan(text);
    if places.is_empty() {
        return Err(Failure::fatal(
            codes::NO_KEYS,
            format!("{}: the statement does not use $keys; write `… where id in $keys`", statement.place),
        ));
    }
    if more {
        return Err(Failure::fatal(
            codes::TWO_STATEMENTS,
            format!("{}: more than one statement; write one, without `;` inside", statement.place),
        ));
    }
    let mut rewritten = String::with_capacity(text.len() + places.len() * row_set.len());
    let mut from = 0;
    for place in places {
        rewritten.push_str(&text[from..place.start]);
        rewritten.push_str(row_set);
        from = place.end;
    }
    rewritten.push_str(&text[from..end]);
    Ok(rewritten)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn is_placeholder(bytes: &[u8], at: usize) -> bool {
    let after = bytes.get(at + PLACEHOLDER.len());
    bytes[at..].starts_with(PLACEHOLDER.as_bytes()) && after.is_none_or(|byte| !is_word(*byte) && *byte != b'$')
}

/// Returns the end of PostgreSQL's `$tag$ … $tag$`, after the closing tag. Without a closing tag it is no quote.
fn dollar_quote(bytes: &[u8], at: usize) -> Option<usize> {
    let tag_len = bytes[at + 1..].iter().take_while(|byte| is_word(**byte)).count();
    let body = at + tag_len + 2;
    if bytes.get(body - 1) != Some(&b'$') || bytes[at + 1].is_ascii_digit() {
        return None;
    }
    position(bytes, body, &bytes[at..body]).map(|close| close + tag_len + 2)
}

fn position(bytes: &[u8], from: usize, needle: &[u8]) -> Option<usize> {
    bytes.get(from..)?.windows(needle.len()).position(|window| window == needle).map(|offset| from + offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(text: &str) -> Result<String, String> {
        let statement = Statement {
            place: "entity.book.document".into(),
            text: text.into(),
            key: vec![],
            result_key: vec![],
            json: vec![],
        };
        rewrite(&statement, "(K)").map_err(|failure| failure.code.into_owned())
    }

    #[test]
    fn keys_are_found_only_where_sql_is() {
        for (text, expected) in [
            ("select 1 where id in $keys", "select 1 where id in (K)"),
            ("select 1 from $keys k, t where t.id in $keys;", "select 1 from (K) k, t where t.id in (K)"),
            ("select '$keys', 'it''s $keys' in $keys", "select '$keys', 'it''s $keys' in (K)"),
            ("select \"$keys\", `$keys`, [$keys] in $keys", "select \"$keys\", `$keys`, [$keys] in (K)"),
            ("select 1 -- $keys\n in $keys -- end;", "select 1 -- $keys\n in (K)"),
            ("select 1 /* $keys ; */ in $keys /* open", "select 1 /* $keys ; */ in (K)"),
            ("select $$ $keys $$, $q$ ; $keys $$ $q$ in $keys", "select $$ $keys $$, $q$ ; $keys $$ $q$ in (K)"),
            ("select a$keys, $keysx, $1 in $keys", "select a$keys, $keysx, $1 in (K)"),
            ("select ä in $keys ;; -- nothing more", "select ä in (K)"),
        ] {
            assert_eq!(rewritten(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_statement_without_keys_is_refused() {
        for text in ["select * from book", "select '$keys'", "select 1 -- $keys", "", "$", "$keys$", "select 1; $keys"]
        {
            assert_eq!(rewritten(text).unwrap_err(), "no-keys", "{text}");
        }
        assert_eq!(rewritten("select 1 in $keys; delete from book").unwrap_err(), "two-statements");
    }

    #[test]
    fn no_text_makes_the_lexer_panic() {
        let pieces = ["$", "$keys", "'", "\"", "`", "[", "]", "--", "/*", "*/", ";", "\n", "ä", "a", "$q$", " ", "1"];
        let mut seed = 7_u64;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..(seed % 9) {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.push_str(pieces[usize::try_from(seed >> 33).unwrap_or(0) % pieces.len()]);
            }
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let found = scan(&text);
            assert!(text.is_char_boundary(found.end));
            assert!(found.places.iter().all(|place| &text[place.clone()] == "$keys"), "{text}");
        }
    }
}
