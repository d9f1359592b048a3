//! The configuration file as a tree in which every value knows its place in the text.
//!
//! Readers use paths (`entity.book.edge[1].to`); only the display needs the place of a path. A path that does not exist
//! is shown at its nearest existing parent, so that every problem has a line.

use std::{collections::BTreeMap, ops::Range};

use serde_json::{Map, Value};
use toml::de::{DeTable, DeValue};

/// A range of bytes in the text.
pub type Span = Range<usize>;

#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// The place of its key; none for elements of lists and for the whole file.
    pub key: Option<Span>,
    pub span: Span,
    pub value: Tree,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Tree {
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Datetime(String),
    List(Vec<Node>),
    Table(BTreeMap<String, Node>),
}

/// A place where the text is not TOML.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyntaxError {
    pub span: Span,
    pub message: String,
}

/// Parses the text. The error lists every place that is not TOML.
pub fn parse(text: &str) -> Result<Node, Vec<SyntaxError>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut broken: Vec<SyntaxError> = errors
        .into_iter()
        .map(|error| SyntaxError {
            span: error.span().unwrap_or(text.len()..text.len()),
            message: error.message().to_owned(),
        })
        .collect();
    let span = table.span();
    let root = Node { key: None, span, value: from_table(table.into_inner(), &mut broken) };
    if broken.is_empty() { Ok(root) } else { Err(broken) }
}

fn from_table(table: DeTable<'_>, broken: &mut Vec<SyntaxError>) -> Tree {
    let entries = table.into_iter().map(|(key, value)| {
        let place = key.span();
        (key.into_inner().into_owned(), from_value(Some(place), value.span(), value.into_inner(), broken))
    });
    Tree::Table(entries.collect())
}

fn from_value(key: Option<Span>, span: Span, value: DeValue<'_>, broken: &mut Vec<SyntaxError>) -> Node {
    let value = match value {
        DeValue::String(text) => Tree::Text(text.into_owned()),
        DeValue::Boolean(boolean) => Tree::Boolean(boolean),
        DeValue::Datetime(datetime) => Tree::Datetime(datetime.to_string()),
        DeValue::Table(table) => from_table(table, broken),
        DeValue::Array(items) => {
            let items = items.into_iter().map(|item| from_value(None, item.span(), item.into_inner(), broken));
            Tree::List(items.collect())
        }
        DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix()).map_or_else(
            |_| {
                broken.push(SyntaxError { span: span.clone(), message: "this number is too large".to_owned() });
                Tree::Integer(0)
            },
            Tree::Integer,
        ),
        DeValue::Float(float) => Tree::Float(float.as_str().parse().unwrap_or(f64::NAN)),
    };
    Node { key, span, value }
}

impl Node {
    pub fn table(&self) -> Option<&BTreeMap<String, Node>> {
        match &self.value {
            Tree::Table(entries) => Some(entries),
            _ => None,
        }
    }

    pub fn list(&self) -> Option<&[Node]> {
        match &self.value {
            Tree::List(items) => Some(items),
            _ => None,
        }
    }

    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Tree::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn get(&self, key: &str) -> Option<&Node> {
        self.table()?.get(key)
    }

    /// The type of the value in words: "a text", "a list".
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Tree::Text(_) => "a text",
            Tree::Integer(_) => "a whole number",
            Tree::Float(_) => "a number",
            Tree::Boolean(_) => "true or false",
            Tree::Datetime(_) => "a date",
            Tree::List(_) => "a list",
            Tree::Table(_) => "a table",
        }
    }

    /// Returns the node at `path` and true, or its nearest existing parent and false.
    pub fn find(&self, path: &str) -> (&Node, bool) {
        let mut node = self;
        let mut rest = path;
        loop {
            if rest.is_empty() {
                return (node, true);
            }
            let Some((next, left)) = node.child(rest) else { return (node, false) };
            node = next;
            rest = left;
        }
    }

    fn child<'a, 'p>(&'a self, path: &'p str) -> Option<(&'a Node, &'p str)> {
        match &self.value {
            // Quoted keys may contain dots: take the longest key that matches.
            Tree::Table(entries) => entries
                .iter()
                .filter_map(|(name, node)| {
                    let rest = path.strip_prefix(name.as_str())?;
                    let ends = rest.is_empty() || rest.starts_with(['.', '[']);
                    ends.then(|| (name.len(), node, rest.strip_prefix('.').unwrap_or(rest)))
                })
                .max_by_key(|(length, ..)| *length)
                .map(|(_, node, rest)| (node, rest)),
            Tree::List(items) => {
                let (number, rest) = path.strip_prefix('[')?.split_once(']')?;
                Some((items.get(number.parse::<usize>().ok()?)?, rest.strip_prefix('.').unwrap_or(rest)))
            }
            _ => None,
        }
    }

    pub fn json(&self) -> Value {
        match &self.value {
            Tree::Text(text) | Tree::Datetime(text) => text.as_str().into(),
            Tree::Integer(integer) => (*integer).into(),
            Tree::Float(float) => Value::from(*float),
            Tree::Boolean(boolean) => (*boolean).into(),
            Tree::List(items) => items.iter().map(Node::json).collect::<Vec<_>>().into(),
            Tree::Table(entries) => {
                entries.iter().map(|(name, node)| (name.clone(), node.json())).collect::<Map<_, _>>().into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[entity.book]\nkey = [\"id\", \"no\"]\n[[entity.book.edge]]\ntable = \"author\"\n";

    fn shown<'a>(text: &'a str, path: &str) -> (&'a str, bool) {
        let tree = parse(text).unwrap();
        let (node, exact) = tree.find(path);
        (&text[node.span.clone()], exact)
    }

    #[test]
    fn a_path_leads_to_its_place_or_to_the_nearest_above() {
        assert_eq!(shown(TEXT, "entity.book.key[1]"), ("\"no\"", true));
        assert_eq!(shown(TEXT, "entity.book.edge[0].table"), ("\"author\"", true));
        assert_eq!(shown(TEXT, "entity.book.edge[0].to"), ("[[entity.book.edge]]", false));
        assert_eq!(shown(TEXT, "entity.book.document"), ("[entity.book]", false));
        assert!(!shown(TEXT, "entity.bookshelf").1);
        assert_eq!(shown("\"a.b\" = 1\na = { c = 2 }\n", "a.b"), ("1", true));
    }

    #[test]
    fn every_broken_place_is_named() {
        let broken = parse("a = \nb = 1\nc = [1,\n").unwrap_err();
        assert!(broken.len() >= 2, "{broken:?}");
        assert!(parse("a = 99999999999999999999").unwrap_err()[0].message.contains("large"));
    }
}
