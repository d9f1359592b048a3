//! Reads one table of the file according to its description in [`super::keys`]. Unknown keys, wrong types, bad units,
//! missing keys and defaults are handled here once, for all sections.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    time::Duration,
};

use honeyflow_hive::limit::rate::Quota;
use honeyflow_runtime::Failure;
use honeyflow_workflow::{Problem, problem::nearest};

use super::{
    keys::{Key, Presence, Shape},
    secret,
    tree::{self, Node, Tree},
    units,
};
use crate::codes;

/// The values of one table. A key that could not be read is absent, and its problem has been reported.
pub struct Values<'a> {
    path: String,
    read: HashMap<&'static str, Value>,
    nodes: Option<&'a BTreeMap<String, Node>>,
}

#[derive(Clone)]
enum Value {
    Text(String),
    Texts(Vec<String>),
    Count(u64),
    Duration(Duration),
    Rate(Quota),
    Address(SocketAddr),
    Boolean(bool),
    /// A nested table or list; the caller reads it with [`Values::node`].
    Nested,
}

impl<'a> Values<'a> {
    /// Reads the table. `node` is none if the file has no such section; then every key has its default.
    pub fn read(node: Option<&'a Node>, keys: &'static [Key], path: &str, problems: &mut Vec<Problem>) -> Values<'a> {
        let mut values = Values { path: path.to_owned(), read: HashMap::new(), nodes: None };
        if let Some(node) = node {
            match node.table() {
                Some(entries) => values.nodes = Some(entries),
                None => {
                    problems.push(wrong_type(path, "a table", node));
                    return values;
                }
            }
        }
        for name in values.nodes.iter().flat_map(|entries| entries.keys()) {
            if !keys.iter().any(|key| key.name == name) {
                problems.push(unknown_key(path, name, keys));
            }
        }
        for key in keys {
            values.read_key(key, problems);
        }
        values
    }

    fn read_key(&mut self, key: &'static Key, problems: &mut Vec<Problem>) {
        let path = self.at(key.name);
        match (self.node(key.name), key.presence) {
            (Some(node), _) => match read_value(node, key, &path) {
                Ok(value) => drop(self.read.insert(key.name, value)),
                Err(problem) => problems.push(problem),
            },
            (None, Presence::Default(written)) => drop(self.read.insert(key.name, default_value(key, written))),
            (None, Presence::Required) => {
                // A misspelt key has been reported as unknown.
                let misspelt = |name: &String| nearest(name, [key.name]).is_some();
                if self.nodes.iter().flat_map(|entries| entries.keys()).any(misspelt) {
                    return;
                }
                let message = format!("{} needs the key `{}`", heading(&self.path), key.name);
                problems.push(
                    Problem::error(&*self.path, codes::problem::MISSING_KEY, message).help(first_sentence(key.doc)),
                );
            }
            (None, Presence::Optional(_)) => {}
        }
    }

    pub fn at(&self, key: &str) -> String {
        format!("{}.{key}", self.path)
    }

    pub fn node(&self, key: &str) -> Option<&'a Node> {
        self.nodes?.get(key)
    }

    pub fn text(&self, key: &str) -> Option<String> {
        match self.read.get(key) {
            Some(Value::Text(text)) => Some(text.clone()),
            _ => None,
        }
    }

    pub fn texts(&self, key: &str) -> Option<Vec<String>> {
        match self.read.get(key) {
            Some(Value::Texts(texts)) => Some(texts.clone()),
            _ => None,
        }
    }

    pub fn count(&self, key: &str) -> Option<u64> {
        match self.read.get(key) {
            Some(Value::Count(count)) => Some(*count),
            _ => None,
        }
    }

    pub fn duration(&self, key: &str) -> Option<Duration> {
        match self.read.get(key) {
            Some(Value::Duration(duration)) => Some(*duration),
            _ => None,
        }
    }

    pub fn rate(&self, key: &str) -> Option<Quota> {
        match self.read.get(key) {
            Some(Value::Rate(rate)) => Some(*rate),
            _ => None,
        }
    }

    pub fn boolean(&self, key: &str) -> Option<bool> {
        match self.read.get(key) {
            Some(Value::Boolean(boolean)) => Some(*boolean),
            _ => None,
        }
    }

    pub fn address(&self, key: &str) -> Option<SocketAddr> {
        match self.read.get(key) {
            Some(Value::Address(address)) => Some(*address),
            _ => None,
        }
    }
}

/// Reads a default.
///
/// # Panics
/// If the default cannot be read; a test reads all of them.
fn default_value(key: &'static Key, written: &str) -> Value {
    let text = match key.shape {
        Shape::Count(..) | Shape::Texts | Shape::Fields | Shape::Names | Shape::Boolean => {
            format!("default = {written}")
        }
        _ => format!("default = {written:?}"),
    };
    let tree = tree::parse(&text).unwrap_or_else(|broken| panic!("default of {}: {broken:?}", key.name));
    let node = &tree.get("default").unwrap_or_else(|| panic!("default of {}", key.name));
    read_value(node, key, key.name).unwrap_or_else(|problem| panic!("default of {}: {problem}", key.name))
}

fn read_value(node: &Node, key: &Key, path: &str) -> Result<Value, Problem> {
    let text = |expected: &str| node.text().ok_or_else(|| wrong_type(path, expected, node));
    match key.shape {
        Shape::Text | Shape::Path | Shape::Statement => match text("a text")? {
            "" => Err(Problem::error(path, codes::problem::EMPTY, format!("`{}` is empty", key.name))
                .help(first_sentence(key.doc))),
            text if text.contains('\0') => {
                Err(Problem::error(path, codes::problem::BAD_VALUE, "a NUL character is not allowed here"))
            }
            text => Ok(Value::Text(text.to_owned())),
        },
        Shape::Url => read_url(text("an address")?, path).map(Value::Text),
        Shape::Address => read_address(text("an address")?, path).map(Value::Address),
        Shape::Duration => {
            let text = text("a duration such as \"5s\"")?;
            units::duration(text)
                .map(Value::Duration)
                .ok_or_else(|| bad_unit(path, text, "duration", units::DURATION_HELP))
        }
        Shape::Bytes => {
            let text = text("a size such as \"8MiB\"")?;
            units::bytes(text).map(Value::Count).ok_or_else(|| bad_unit(path, text, "size", units::BYTES_HELP))
        }
        Shape::Rate => {
            let text = text("a rate such as \"500/s\"")?;
            text.parse().map(Value::Rate).map_err(|failure| bad_rate(path, &failure))
        }
        Shape::Count(from, to) => match node.value {
            Tree::Integer(number) => {
                u64::try_from(number).ok().filter(|number| (from..=to).contains(number)).map(Value::Count).ok_or_else(
                    || {
                        Problem::error(
                            path,
                            codes::problem::OUT_OF_RANGE,
                            format!("`{}` must be from {from} to {to}, not {number}", key.name),
                        )
                    },
                )
            }
            _ => Err(wrong_type(path, "a whole number", node)),
        },
        Shape::Word(words) => {
            let word = text("a word")?;
            if words.contains(&word) {
                return Ok(Value::Text(word.to_owned()));
            }
            let all = words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
            let help = nearest(word, words.iter().copied())
                .map_or_else(|| format!("one of {all}"), |word| format!("did you mean `{word}`? One of {all}"));
            Err(Problem::error(path, codes::problem::BAD_VALUE, format!("`{}` cannot be `{word}`", key.name))
                .help(help))
        }
        Shape::Texts => read_texts(node, path).map(Value::Texts),
        Shape::Boolean => match node.value {
            Tree::Boolean(boolean) => Ok(Value::Boolean(boolean)),
            _ => Err(wrong_type(path, "true or false", node)),
        },
        Shape::Pins if node.table().is_none() => {
            Err(wrong_type(path, "a table", node).help("for example pin = { shop = \"0-15\" }"))
        }
        Shape::Fields if node.table().is_none() => Err(wrong_type(path, "a table of field types", node)),
        Shape::Tables(_) if node.list().is_none() => {
            Err(wrong_type(path, "a list of tables", node).help(format!("write [[{path}]] with double brackets")))
        }
        Shape::Names if node.table().is_none() => {
            Err(wrong_type(path, "a table", node).help("for example column = { title = \"name\" }"))
        }
        Shape::Reference => read_reference(text("a reference")?, key, path).map(Value::Text),
        Shape::Fields | Shape::Pins | Shape::Names | Shape::Tables(_) => Ok(Value::Nested),
    }
}

/// Reads a reference. A value that is not a reference may be the secret itself, so it is not shown.
fn read_reference(text: &str, key: &Key, path: &str) -> Result<String, Problem> {
    let (kind, place) = text.split_once(':').unwrap_or_default();
    if matches!(kind, "env" | "file") && !place.is_empty() && !text.contains('\0') {
        return Ok(text.to_owned());
    }
    let message = format!("`{}` is a secret written into the file", key.name);
    Err(Problem::error(path, codes::problem::SECRET_INLINE, message)
        .help(format!("use a reference: {0} = \"env:NAME\" or {0} = \"file:path\"", key.name)))
}

fn read_texts(node: &Node, path: &str) -> Result<Vec<String>, Problem> {
    let Some(items) = node.list() else {
        let problem = wrong_type(path, "a list of texts", node);
        return Err(match node.text() {
            Some(text) => problem.help(format!("write [{text:?}]")),
            None => problem,
        });
    };
    let mut texts: Vec<String> = Vec::with_capacity(items.len());
    for (n, item) in items.iter().enumerate() {
        let path = format!("{path}[{n}]");
        match item.text() {
            None => return Err(wrong_type(&path, "a text", item)),
            Some("") => return Err(Problem::error(path, codes::problem::EMPTY, "the text is empty")),
            Some(text) if texts.iter().any(|other| other == text) => {
                return Err(Problem::error(path, codes::problem::DUPLICATE, format!("`{text}` is listed twice")));
            }
            Some(text) => texts.push(text.to_owned()),
        }
    }
    Ok(texts)
}

fn read_url(text: &str, path: &str) -> Result<String, Problem> {
    if secret::has_password(text) {
        return Err(Problem::error(path, codes::problem::SECRET_INLINE, "the file contains a password").help(
            "put the address into an environment variable or a separate file, and refer to it: url = \"env:DATABASE_URL\" or url = \"file:database-url\"",
        ));
    }
    let bad = |message: &str| {
        Err(Problem::error(path, codes::problem::BAD_URL, message)
            .help("for example sqlite:shop.db, tantivy:books, env:DATABASE_URL"))
    };
    match text.split_once(':') {
        None => bad("an address begins with a scheme and a colon"),
        Some((_, "")) => bad("the address is empty after the colon"),
        Some(_) if text.contains('\0') => bad("an address cannot contain a NUL character"),
        Some(_) => Ok(text.to_owned()),
    }
}

/// Reads the address to listen on. Until tokens and TLS exist, every client that reaches the port has full access, so
/// only loopback addresses are allowed.
fn read_address(text: &str, path: &str) -> Result<SocketAddr, Problem> {
    let numeric = text.strip_prefix("localhost:").map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
    let Ok(address) = numeric.parse::<SocketAddr>() else {
        return Err(Problem::error(
            path,
            codes::problem::BAD_ADDRESS,
            format!("`{text}` is not an address with a port"),
        )
        .help("for example 127.0.0.1:7171"));
    };
    if !address.ip().is_loopback() {
        let port = address.port();
        return Err(Problem::error(
            path,
            codes::problem::OPEN_LISTEN,
            format!("{text} can be reached from other machines, and there are neither access tokens nor TLS yet"),
        )
        .help(format!("use listen = \"127.0.0.1:{port}\" behind a proxy that authenticates its users")));
    }
    Ok(address)
}

pub fn unknown_key(path: &str, name: &str, keys: &[Key]) -> Problem {
    let problem = Problem::error(
        format!("{path}.{name}"),
        codes::problem::UNKNOWN_KEY,
        format!("{} has no key `{name}`", heading(path)),
    );
    let names = || keys.iter().map(|key| key.name);
    match nearest(name, names()) {
        Some(word) => problem.help(format!("did you mean `{word}`?")),
        None => problem
            .help(format!("its keys are {}", names().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))),
    }
}

pub fn wrong_type(path: &str, expected: &str, found: &Node) -> Problem {
    let name = path.rsplit('.').next().unwrap_or(path);
    Problem::error(path, codes::problem::WRONG_TYPE, format!("`{name}` must be {expected}, this is {}", found.kind()))
}

fn bad_unit(path: &str, text: &str, what: &str, help: &str) -> Problem {
    Problem::error(path, codes::problem::BAD_UNIT, format!("`{text}` is not a {what}")).help(help)
}

/// Turns the failure into a problem; the part after `; ` becomes the hint.
fn bad_rate(path: &str, failure: &Failure) -> Problem {
    match failure.message.split_once("; ") {
        Some((wrong, help)) => Problem::error(path, codes::problem::BAD_LIMIT, wrong).help(help),
        None => Problem::error(path, codes::problem::BAD_LIMIT, &*failure.message),
    }
}

fn first_sentence(doc: &str) -> String {
    let end = doc.find(". ").map_or(doc.len(), |end| end);
    doc[..end].trim_end_matches('.').to_owned()
}

/// The header of the table: `[node]`, `[[entity.book.edge]]`.
fn heading(path: &str) -> String {
    match path.strip_suffix(']').and_then(|path| path.rsplit_once('[')) {
        Some((list, _)) => format!("[[{list}]]"),
        None => format!("[{path}]"),
    }
}
