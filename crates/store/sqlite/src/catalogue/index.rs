//! Parses the text of CREATE INDEX as far as needed: its parts and its condition, which no pragma returns.

#[derive(PartialEq, Eq, Debug)]
pub(super) struct IndexText {
    /// The parts, without ASC or DESC.
    pub parts: Vec<String>,
    pub filter: Option<String>,
}

/// Parses the text; returns none for a text that SQLite would not have stored.
pub(super) fn parse(sql: &str) -> Option<IndexText> {
    let tokens = tokens(sql);
    let open = tokens.iter().position(|token| token == "(")?;
    let mut parts = vec![Vec::new()];
    let mut depth = 0;
    let mut rest = None;
    for (n, token) in tokens.iter().enumerate().skip(open + 1) {
        match token.as_str() {
            ")" if depth == 0 => {
                rest = Some(&tokens[n + 1..]);
                break;
            }
            "," if depth == 0 => {
                parts.push(Vec::new());
                continue;
            }
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        parts.last_mut()?.push(token.as_str());
    }
    let parts = parts.into_iter().map(|mut part| {
        if part.last().is_some_and(|word| word.eq_ignore_ascii_case("asc") || word.eq_ignore_ascii_case("desc")) {
            part.pop();
        }
        part.join(" ")
    });
    let filter = match rest? {
        [word, condition @ ..] if word.eq_ignore_ascii_case("where") => Some(condition.join(" ")),
        _ => None,
    };
    Some(IndexText { parts: parts.collect(), filter })
}

/// Returns words, quoted texts and operators, without blanks and comments. Joined by blanks they have the same meaning.
fn tokens(sql: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut characters = sql.chars().peekable();
    while let Some(first) = characters.next() {
        let mut token = String::from(first);
        match first {
            '\'' | '"' | '`' | '[' => {
                let end = if first == '[' { ']' } else { first };
                while let Some(next) = characters.next() {
                    token.push(next);
                    if next != end {
                        continue;
                    }
                    // A doubled quote is one quote character; brackets have no such rule.
                    match characters.peek() {
                        Some(again) if *again == end && end != ']' => token.extend(characters.next()),
                        _ => break,
                    }
                }
                // The prefix of a blob such as x'00' was read as a separate word.
                if first == '\'' && tokens.last().is_some_and(|last: &String| last.eq_ignore_ascii_case("x")) {
                    token.insert_str(0, &tokens.pop().unwrap_or_default());
                }
            }
            '-' if characters.peek() == Some(&'-') => {
                characters.by_ref().find(|next| *next == '\n');
                continue;
            }
            '/' if characters.peek() == Some(&'*') => {
                characters.next();
                let mut last = ' ';
                characters.by_ref().find(|next| std::mem::replace(&mut last, *next) == '*' && *next == '/');
                continue;
            }
            blank if blank.is_whitespace() => continue,
            word if is_word(word) => {
                let number = word.is_ascii_digit() || word == '.';
                while let Some(next) = characters.next_if(|next| {
                    is_word(*next) || (number && token.ends_with(['e', 'E']) && matches!(next, '+' | '-'))
                }) {
                    token.push(next);
                }
            }
            // Operators of several characters (`<=`, `||`, `->>`) must stay together.
            sign if !matches!(sign, '(' | ')' | ',') => {
                while let Some(next) = characters.next_if(|next| "<>=!|&".contains(*next)) {
                    token.push(next);
                }
            }
            _ => {}
        }
        tokens.push(token);
    }
    tokens
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '$' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(sql: &str, parts: &[&str], filter: Option<&str>) {
        let parts = parts.iter().map(ToString::to_string).collect();
        assert_eq!(parse(sql), Some(IndexText { parts, filter: filter.map(str::to_owned) }));
    }

    #[test]
    fn ob_12_the_text_of_an_index_is_taken_apart() {
        check("CREATE UNIQUE INDEX i ON t (a, b DESC)", &["a", "b"], None);
        check(
            "CREATE UNIQUE INDEX \"i (1)\" ON [t (x)] (lower(a), coalesce(b, ',')) WHERE c>=1 AND d <> 'it''s'",
            &["lower ( a )", "coalesce ( b , ',' )"],
            Some("c >= 1 AND d <> 'it''s'"),
        );
        check(
            "CREATE UNIQUE INDEX i ON t (a -- one, two)\n, /* x) **/ b) where x'00' is a",
            &["a", "b"],
            Some("x'00' is a"),
        );
        check(
            "CREATE UNIQUE INDEX i ON t (a+1.5e-3) WHERE a>=-1 and b<--x\n2",
            &["a + 1.5e-3"],
            Some("a >= - 1 and b < 2"),
        );
        check("CREATE UNIQUE INDEX i ON t (a->>'$.b', c||d)", &["a ->> '$.b'", "c || d"], None);
        assert_eq!(parse("CREATE UNIQUE INDEX i ON t (a"), None);
        assert_eq!(parse("'"), None);
    }
}
