//! Bounds the nesting of a source. The library's lexer, parser and compiler are recursive, so a source that nests too
//! deep is refused before it reaches them: by its characters before the lexer, by its tokens before the parser, and by
//! [`super::check`] on the tree.

use jaq_core::load::lex::{StrPart, Tok, Token};

use super::ExpressionError;

const SOURCE_BYTES_MAX: usize = 64 * 1024;
/// The most brackets inside each other.
const BRACKETS_MAX: usize = 64;
/// The most parts inside each other, or in a row: `a | b | c` is as deep as `a | (b | (c))`.
pub(super) const DEPTH_MAX: usize = 200;

pub(super) fn characters(source: &str) -> Result<(), ExpressionError> {
    let refuse = |at: usize, message: String| Err(ExpressionError::new(source, &source[at..], message));
    if source.len() > SOURCE_BYTES_MAX {
        return refuse(0, format!("longer than {SOURCE_BYTES_MAX} bytes"));
    }
    let mut brackets = 0_usize;
    for (at, character) in source.char_indices() {
        match character {
            '(' | '[' | '{' => brackets += 1,
            ')' | ']' | '}' => brackets = brackets.saturating_sub(1),
            _ => {}
        }
        if brackets > BRACKETS_MAX {
            return refuse(at, format!("more than {BRACKETS_MAX} brackets inside each other"));
        }
    }
    Ok(())
}

pub(super) fn tokens(source: &str, tokens: &[Token<&str>]) -> Result<(), ExpressionError> {
    descend(tokens, false, 0).map_err(|at| too_deep(source, at))
}

pub(super) fn too_deep(source: &str, at: &str) -> ExpressionError {
    ExpressionError::new(source, at, format!("more than {DEPTH_MAX} parts inside each other or in a row"))
}

/// Recurses by brackets, whose depth is bounded. The error is the token at which the source is too deep.
fn descend<'s>(tokens: &[Token<&'s str>], in_braces: bool, outside: usize) -> Result<(), &'s str> {
    let mut depth = outside;
    for Token(text, kind) in tokens {
        match kind {
            Tok::Block(inside) => descend(inside, text.starts_with('{'), depth)?,
            Tok::Str(parts) => {
                for part in parts {
                    if let StrPart::Term(Token(_, Tok::Block(inside))) = part {
                        descend(inside, false, depth)?;
                    }
                }
            }
            // the next argument, or the next field of an object, starts at the outer depth again
            Tok::Sym if *text == ";" || (in_braces && *text == ",") => depth = outside,
            Tok::Sym if text.starts_with('.') || matches!(*text, ":" | "?") => {}
            Tok::Sym => depth += 1,
            Tok::Word if goes_down(text) => depth += 1,
            Tok::Word | Tok::Var | Tok::Fmt | Tok::Num => {}
        }
        if depth > DEPTH_MAX {
            return Err(text);
        }
    }
    Ok(())
}

fn goes_down(word: &str) -> bool {
    matches!(
        word,
        "and"
            | "as"
            | "catch"
            | "def"
            | "elif"
            | "else"
            | "foreach"
            | "if"
            | "label"
            | "or"
            | "reduce"
            | "then"
            | "try"
    )
}
