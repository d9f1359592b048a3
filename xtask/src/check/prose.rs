//! Cuts a Rust file into code, comments and string literals, so that a check can read the words that people read.
//!
//! It knows the tokens that can hide a comment or a quote (strings, raw strings, characters, lifetimes, nested block comments) and
//! nothing else of the language.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Code,
    Comment,
    /// `///` or `//!`.
    DocComment,
    Text,
}

/// A piece of one line.
#[derive(PartialEq, Eq, Debug)]
pub struct Piece<'a> {
    pub kind: Kind,
    /// Counted from 1.
    pub line: usize,
    pub text: &'a str,
}

/// The pieces of a file in order. A comment or text of several lines is one piece per line.
pub fn pieces(source: &str) -> Vec<Piece<'_>> {
    let mut cutter = Cutter { source, at: 0, pieces: Vec::new(), line: 1 };
    while cutter.at < source.len() {
        let (kind, length) = cutter.token();
        cutter.push(kind, length);
    }
    cutter.pieces
}

struct Cutter<'a> {
    source: &'a str,
    at: usize,
    line: usize,
    pieces: Vec<Piece<'a>>,
}

impl<'a> Cutter<'a> {
    /// The next token that is not plain code, or the code before it.
    fn token(&self) -> (Kind, usize) {
        let rest = &self.source[self.at..];
        if rest.starts_with("///") && !rest.starts_with("////") || rest.starts_with("//!") {
            return (Kind::DocComment, line_length(rest));
        }
        if rest.starts_with("//") {
            return (Kind::Comment, line_length(rest));
        }
        if rest.starts_with("/*") {
            return (Kind::Comment, block_comment(rest));
        }
        if rest.starts_with('"') {
            return (Kind::Text, quoted(rest));
        }
        if let Some(length) = raw_string(rest) {
            let glued = self.source[..self.at].ends_with(|before: char| before.is_alphanumeric() || before == '_');
            if !glued {
                return (Kind::Text, length);
            }
        }
        if rest.starts_with('\'') {
            return (Kind::Code, character(rest));
        }
        (Kind::Code, rest.chars().next().map_or(1, char::len_utf8))
    }

    fn push(&mut self, kind: Kind, length: usize) {
        let text = &self.source[self.at..self.at + length];
        for (index, part) in text.split('\n').enumerate() {
            self.line += usize::from(index > 0);
            // Neighbouring code is one piece.
            if let Some(last) = self
                .pieces
                .last_mut()
                .filter(|last| kind == Kind::Code && last.kind == Kind::Code && last.line == self.line && index == 0)
            {
                let begin = self.at - last.text.len();
                last.text = &self.source[begin..self.at + part.len()];
            } else if !part.is_empty() || kind != Kind::Code {
                self.pieces.push(Piece { kind, line: self.line, text: part });
            }
        }
        self.at += length;
    }
}

fn line_length(rest: &str) -> usize {
    rest.find('\n').unwrap_or(rest.len())
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn quoted(rest: &str) -> usize {
    let mut escaped = false;
    for (at, letter) in rest.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// `r"…"`, `r#"…"#`, and the same after `b` or `c`.
fn raw_string(rest: &str) -> Option<usize> {
    let after = rest.strip_prefix('r').or_else(|| rest.strip_prefix("br")).or_else(|| rest.strip_prefix("cr"))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let body = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let begin = rest.len() - body.len();
    Some(body.find(&end).map_or(rest.len(), |at| begin + at + end.len()))
}

/// A character literal; the quote of a lifetime stands alone.
fn character(rest: &str) -> usize {
    let mut letters = rest.char_indices().skip(1);
    match letters.next() {
        Some((_, '\\')) => {
            let after = letters.next().map_or(2, |(at, letter)| at + letter.len_utf8());
            rest[after..].find('\'').map_or(1, |at| after + at + 1)
        }
        Some((at, letter)) if rest[at + letter.len_utf8()..].starts_with('\'') => at + letter.len_utf8() + 1,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_kind(source: &str, kind: Kind) -> Vec<&str> {
        pieces(source).into_iter().filter(|piece| piece.kind == kind).map(|piece| piece.text).collect()
    }

    #[test]
    fn comments_and_texts_are_told_from_code() {
        let source = "//! head\nlet a = \"// no comment\"; // why\n/// doc\nfn f<'a>(x: &'a str) { '\"'; '\\''; }\n";
        assert_eq!(of_kind(source, Kind::DocComment), ["//! head", "/// doc"]);
        assert_eq!(of_kind(source, Kind::Comment), ["// why"]);
        assert_eq!(of_kind(source, Kind::Text), ["\"// no comment\""]);
    }

    #[test]
    fn raw_and_escaped_texts_end_where_they_end() {
        let source = r####"let a = r##"one "# two"##; let b = "x\"y"; let color = 1; /* a /* b */ c */ nobody"####;
        assert_eq!(of_kind(source, Kind::Text), [r###"r##"one "# two"##"###, r#""x\"y""#]);
        assert_eq!(of_kind(source, Kind::Comment), ["/* a /* b */ c */"]);
        assert!(of_kind(source, Kind::Code).concat().contains("nobody"));
    }

    #[test]
    fn a_text_of_several_lines_has_a_piece_per_line() {
        let lines: Vec<_> = pieces("a\n\"b\nc\" d").iter().map(|piece| (piece.line, piece.kind)).collect();
        assert_eq!(lines, [(1, Kind::Code), (2, Kind::Text), (3, Kind::Text), (3, Kind::Code)]);
    }

    #[test]
    fn every_file_of_this_crate_is_cut_without_loss() {
        for source in [include_str!("prose.rs"), include_str!("../main.rs"), include_str!("wording.rs")] {
            let kept: usize = pieces(source).iter().map(|piece| piece.text.len()).sum();
            assert_eq!(kept + source.matches('\n').count(), source.len());
        }
    }
}
