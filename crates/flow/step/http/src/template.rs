//! The URL of a call: scheme, host and port are literal; only path segments and query values contain `{expression}`.
//!
//! Invariant: with any data, a rendered URL has the configured origin, and the same number of segments and parameters.

use honeyflow_runtime::Failure;
use honeyflow_workflow::{Expression, Variables, expression::template};
use reqwest::Url;
use serde_json::Value;

use crate::{codes, encode};

/// The longest URL: most servers refuse longer ones. The same limit holds for requests to our own API.
pub const URL_BYTES_MAX: usize = 8 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`{0}` is no URL: write `https://host/path`")]
    NotAUrl(String),
    #[error("the URL begins with `{0}:`: write `https:`, or `http:` together with `http = true`")]
    Scheme(String),
    #[error("plain http sends all data unencrypted: write `https:`, or add `http = true`")]
    PlainHttp,
    #[error("a placeholder stands in the URL's scheme, host or port: these are literal, data goes into path and query")]
    PlaceholderInOrigin,
    #[error("the URL holds a user or password: use `headers` with `env:` or `file:`")]
    Credentials,
    #[error("a placeholder stands in the name of a query parameter: only values may hold data")]
    PlaceholderInName,
    #[error("the URL has a fragment (`#…`), which is never sent")]
    Fragment,
    #[error("the URL has a segment `.` or `..`: write the path it leads to")]
    Dots,
    #[error("the URL holds `{0}`: write it percent-encoded")]
    Character(char),
    #[error("a `{{` in the URL is not closed: write `%7B` for a brace that is meant")]
    Unclosed,
    #[error("the placeholder `{{{text}}}` is no expression: {message}")]
    Expression { text: String, message: String },
}

enum Part {
    Literal(String),
    Segment(Expression),
    QueryValue(Expression),
}

pub struct Template {
    /// Scheme, host and port as the parser normalises them: `http://0x7f.1` is `http://127.0.0.1`.
    origin: Url,
    parts: Vec<Part>,
}

impl Template {
    pub fn parse(text: &str, http: bool) -> Result<Template, Error> {
        let not_a_url = || Error::NotAUrl(shown(text));
        let (scheme, rest) = text.split_once("://").ok_or_else(not_a_url)?;
        match scheme.to_ascii_lowercase().as_str() {
            _ if scheme.contains(['{', '}']) => return Err(Error::PlaceholderInOrigin),
            "https" => {}
            "http" if http => {}
            "http" => return Err(Error::PlainHttp),
            _ => return Err(Error::Scheme(shown(scheme))),
        }
        // browsers read `\` as `/`, other parsers do not: such a URL is not accepted
        let (authority, tail) = rest.split_at(rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len()));
        if authority.contains(['{', '}']) {
            return Err(Error::PlaceholderInOrigin);
        }
        if authority.contains('@') {
            return Err(Error::Credentials);
        }
        let origin = Url::parse(&format!("{scheme}://{authority}/")).map_err(|_| not_a_url())?;
        if origin.host_str().is_none_or(str::is_empty) {
            return Err(not_a_url());
        }
        Ok(Template { origin, parts: parts(tail)? })
    }

    pub fn origin(&self) -> &Url {
        &self.origin
    }

    pub fn expressions(&self) -> impl Iterator<Item = &Expression> {
        self.parts.iter().filter_map(|part| match part {
            Part::Literal(_) => None,
            Part::Segment(expression) | Part::QueryValue(expression) => Some(expression),
        })
    }

    pub fn render(&self, input: &Value, variables: &Variables) -> Result<Url, Failure> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(literal) => text.push_str(literal),
                Part::Segment(expression) => {
                    encode::segment(&evaluate(expression, input, variables)?, &mut text)?;
                }
                Part::QueryValue(expression) => {
                    encode::query_value(&evaluate(expression, input, variables)?, &mut text);
                }
            }
            if text.len() > URL_BYTES_MAX {
                return Err(Failure::reject(
                    codes::URL_TOO_LONG,
                    format!("the URL has more than {URL_BYTES_MAX} bytes"),
                ));
            }
        }
        // the template has no such segment, so the data contains it
        let path = text.split('?').next().unwrap_or_default();
        if path.split('/').any(encode::is_dots) {
            return Err(Failure::reject(codes::BAD_URL_VALUE, "a placeholder in the path gave `.` or `..`"));
        }
        let origin = self.origin.as_str().trim_end_matches('/');
        let url = Url::parse(&format!("{origin}{text}")).ok().filter(|url| url.origin() == self.origin.origin());
        url.ok_or_else(|| Failure::reject(codes::BAD_URL_VALUE, "the data does not make a URL of this host"))
    }
}

pub fn evaluate(expression: &Expression, input: &Value, variables: &Variables) -> Result<Value, Failure> {
    expression.evaluate(input, variables).map_err(|message| Failure::reject(codes::EXPRESSION_FAILED, message))
}

/// Splits the text after the authority at its placeholders.
fn parts(tail: &str) -> Result<Vec<Part>, Error> {
    let mut parts = Vec::new();
    // an empty path is `/`, also before a query
    let mut literal = if tail.starts_with('/') { String::new() } else { "/".to_owned() };
    let (mut in_query, mut in_value) = (false, false);
    let mut rest = tail;
    while let Some(character) = rest.chars().next() {
        rest = &rest[character.len_utf8()..];
        match character {
            '{' => {
                let end = template::closing(rest).ok_or(Error::Unclosed)?;
                let written = &rest[..end];
                rest = &rest[end + 1..];
                if in_query && !in_value {
                    return Err(Error::PlaceholderInName);
                }
                let expression = Expression::parse(written)
                    .map_err(|error| Error::Expression { text: written.to_owned(), message: error.to_string() })?;
                parts.push(Part::Literal(std::mem::take(&mut literal)));
                parts.push(if in_query { Part::QueryValue(expression) } else { Part::Segment(expression) });
                continue;
            }
            '#' => return Err(Error::Fragment),
            // with a single `%`, the data behind it would form an encoded character
            '%' if !rest.get(..2).is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit())) => {
                return Err(Error::Character('%'));
            }
            '}' | '\\' | '"' | '<' | '>' | '^' | '`' | '|' => return Err(Error::Character(character)),
            other if !other.is_ascii_graphic() => return Err(Error::Character(other)),
            '?' => in_query = true,
            '&' if in_query => in_value = false,
            '=' if in_query => in_value = true,
            _ => {}
        }
        literal.push(character);
    }
    parts.push(Part::Literal(literal));
    let path: String = parts
        .iter()
        .map(|part| match part {
            Part::Literal(literal) => literal.as_str(),
            // any text without dots and slashes
            Part::Segment(_) | Part::QueryValue(_) => "_",
        })
        .collect();
    if path.split('?').next().unwrap_or_default().split('/').any(encode::is_dots) {
        return Err(Error::Dots);
    }
    Ok(parts)
}

/// Returns the beginning of a text for messages, without control characters.
fn shown(text: &str) -> String {
    text.chars().take(64).map(|character| if character.is_control() { '\u{fffd}' } else { character }).collect()
}

#[cfg(test)]
mod tests;
