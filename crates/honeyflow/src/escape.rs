//! Makes text from data, files and servers safe for a terminal: characters that could move the cursor, colour the
//! screen, ring the bell or reverse the reading direction are escaped (SE-30).

use std::borrow::Cow;

/// Escapes a value for one line: line breaks and tabs are escaped, too.
pub fn line(text: &str) -> Cow<'_, str> {
    escape(text, |_| false)
}

/// Escapes a text of several lines: line breaks and tabs stay.
pub fn lines(text: &str) -> Cow<'_, str> {
    escape(text, |character| matches!(character, '\n' | '\t'))
}

fn escape(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(|character| is_unsafe(character) && !stays(character)) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_unsafe(character) && !stays(character) {
            safe.extend(character.escape_default());
        } else {
            safe.push(character);
        }
    }
    Cow::Owned(safe)
}

fn is_unsafe(character: char) -> bool {
    // Besides control characters: line separators, marks that reorder text, and invisible characters.
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn se_30_nothing_that_steers_a_terminal_gets_through() {
        assert_eq!(line("\x1b[31mred\x07"), "\\u{1b}[31mred\\u{7}");
        assert_eq!(line("a\r\nb\tc"), "a\\r\\nb\\tc");
        assert_eq!(line("\u{9b}2J \u{202e}txt"), "\\u{9b}2J \\u{202e}txt");
        assert_eq!(lines("a\n\tb\r\x1b"), "a\n\tb\\r\\u{1b}");
        assert!(matches!(line("Bücher – 本"), Cow::Borrowed(_)));
    }
}
