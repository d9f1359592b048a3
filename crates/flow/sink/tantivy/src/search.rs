//! Parses and runs queries that people type. A syntax error is read as what was probably meant; an unknown field, or a
//! word in place of a number, is reported.

use honeyflow_runtime::Failure;
use tantivy::{
    Index, Searcher,
    collector::TopDocs,
    query::{AllQuery, EmptyQuery, Query, QueryParser, QueryParserError},
};

use crate::{codes, schema::Layout};

/// The longest query. The parser recurses and backtracks: long or deeply nested text would keep it busy.
const QUERY_BYTES_MAX: usize = 4 * 1024;
const NESTING_MAX: usize = 16;
pub(crate) const HITS_MAX: usize = 10_000;

pub(crate) fn parse(index: &Index, layout: &Layout, text: &str) -> Result<Box<dyn Query>, Failure> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Box::new(AllQuery));
    }
    if text.len() > QUERY_BYTES_MAX {
        return Err(bad(format!("the query is longer than {QUERY_BYTES_MAX} bytes")));
    }
    if nesting(text) > NESTING_MAX {
        return Err(bad(format!("the query is nested deeper than {NESTING_MAX} levels")));
    }
    let (query, errors) = QueryParser::for_index(index, layout.default_fields()).parse_query_lenient(text);
    if let Some(error) = errors.iter().find(|error| !matches!(error, QueryParserError::SyntaxError(_))) {
        return Err(bad(explain(error, layout)));
    }
    match errors.first() {
        Some(error) if query.is::<EmptyQuery>() => Err(bad(error.to_string())),
        _ => Ok(query),
    }
}

pub(crate) fn run(
    searcher: &Searcher,
    query: &dyn Query,
    limit: usize,
) -> tantivy::Result<Vec<(f32, tantivy::DocAddress)>> {
    match limit.min(HITS_MAX) {
        0 => Ok(Vec::new()),
        limit => searcher.search(query, &TopDocs::with_limit(limit).order_by_score()),
    }
}

fn bad(message: String) -> Failure {
    Failure::reject(codes::BAD_QUERY, message)
}

fn explain(error: &QueryParserError, layout: &Layout) -> String {
    match error {
        QueryParserError::FieldDoesNotExist(name) => {
            let known: Vec<_> = layout.fields.iter().map(|(field, _)| field.name.as_str()).collect();
            format!("there is no field `{name}`; there are: {}", known.join(", "))
        }
        QueryParserError::NoDefaultFieldDeclared => {
            "no field is text or keyword: name one, as in price:[1 TO 5]".into()
        }
        QueryParserError::ExpectedFloat(_) => "a number is expected there".into(),
        QueryParserError::AllButQueryForbidden => "the query only excludes: add what it should find, or `*`".into(),
        other => other.to_string(),
    }
}

fn nesting(text: &str) -> usize {
    let (mut open, mut deepest) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(open);
    }
    deepest
}
