//! Texts in which `{expression}` stands: where one begins and ends. jq has braces of its own, and strings that may hold any.

/// The expressions in a text, as written. What is not closed is left out: whoever reads the text as a whole says so.
pub fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let inside = &rest[rest.find('{')? + 1..];
        let end = closing(inside)?;
        rest = &inside[end + 1..];
        Some(&inside[..end])
    })
}

/// Where the brace that was opened just before `text` is closed: jq has braces of its own, and strings that may hold
/// any, with expressions inside.
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
    fn placeholders_end_where_their_own_brace_is_closed() {
        let text = r#"https://host/{.id}/{ {a: "}"} | .a }?q={"\("x{")"}&r={unclosed"#;
        let found: Vec<_> = placeholders(text).collect();
        assert_eq!(found, [".id", r#" {a: "}"} | .a "#, r#""\("x{")""#]);
    }
}
