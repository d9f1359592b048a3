//! Finds the placeholders `{expression}` in a text. jq has its own braces, and strings that may contain any braces.

/// Returns the expressions in a text, as written. An unclosed one is left out: the reader of the whole text reports it.
pub fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let inside = &rest[rest.find('{')? + 1..];
        let end = closing(inside)?;
        rest = &inside[end + 1..];
        Some(&inside[..end])
    })
}

/// Returns the position of the brace that closes the one just before `text`: jq has its own braces, and strings that
/// may contain any braces, with expressions inside.
pub fn closing(text: &str) -> Option<usize> {
    let mut open = vec!['}'];
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        let in_string = open.last() == Some(&'"');
        match character {
            '\\' if in_string => {
                let (_, escaped) = characters.next()?;
                open.extend((escaped == '(').then_some(')'));
            }
            '"' if in_string => {
                open.pop();
            }
            _ if in_string => {}
            '"' => open.push('"'),
            '{' => open.push('}'),
            '(' => open.push(')'),
            '[' => open.push(']'),
            '}' | ')' | ']' => {
                if open.pop()? != character {
                    return None;
                }
                if open.is_empty() {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_ends_at_its_own_closing_brace() {
        let text = r#"https://host/{.id}/{ {a: "}"} | .a }?q={"\("x{")"}&r={unclosed"#;
        let found: Vec<_> = placeholders(text).collect();
        assert_eq!(found, [".id", r#" {a: "}"} | .a "#, r#""\("x{")""#]);
    }
}
