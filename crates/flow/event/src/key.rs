//! Keys as text. Composite keys join their parts by `|`; `|` and `\` inside a part are escaped by `\`.
//!
//! A key of one part is that part as it is, unescaped.

use std::sync::Arc;

/// The key of a row as text, at most [`KEY_BYTES_MAX`] bytes; compared byte by byte.
pub type Key = Arc<str>;

pub const KEY_BYTES_MAX: usize = 1024;

/// Joins `parts` to a key text.
pub fn join<S: AsRef<str>>(parts: &[S]) -> String {
    if let [only] = parts {
        return only.as_ref().to_owned();
    }
    let mut text = String::new();
    for (n, part) in parts.iter().enumerate() {
        if n > 0 {
            text.push('|');
        }
        for character in part.as_ref().chars() {
            if matches!(character, '|' | '\\') {
                text.push('\\');
            }
            text.push(character);
        }
    }
    text
}

/// Splits a key text into its parts; `None` if there are not exactly `count`.
pub fn split(key: &str, count: usize) -> Option<Vec<String>> {
    if count == 1 {
        return Some(vec![key.to_owned()]);
    }
    let mut parts = vec![String::new()];
    let mut characters = key.chars();
    while let Some(character) = characters.next() {
        match character {
            '|' => parts.push(String::new()),
            '\\' => parts.last_mut()?.push(characters.next()?),
            other => parts.last_mut()?.push(other),
        }
    }
    (parts.len() == count).then_some(parts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ob_3_composite_keys_are_escaped() {
        assert_eq!(join(&["a|b"]), "a|b", "a key of one part is not escaped");
        assert_eq!(join(&["a|b", "c\\d"]), r"a\|b|c\\d");
        assert_eq!(split("a|b|c", 2), None);
        assert_eq!(split(r"a\", 2), None, "a dangling escape is no key");
    }

    proptest! {
        #[test]
        fn ob_3_split_undoes_join(parts in proptest::collection::vec(".{0,12}", 1..4)) {
            prop_assert_eq!(split(&join(&parts), parts.len()), Some(parts));
        }
    }
}
