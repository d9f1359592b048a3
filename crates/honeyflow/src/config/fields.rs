//! The field types of a search index: `title = "text"`, `title = { type = "text", language = "en" }`.

use honeyflow_workflow::{Problem, problem::nearest};

use super::{tree::Node, values::wrong_type};
use crate::codes;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    pub name: String,
    pub kind: FieldType,
    /// Only for texts: the language whose rules reduce words to their stems. None: words are not reduced.
    pub language: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FieldType {
    /// Split into words.
    Text,
    /// Searched as a whole.
    Keyword,
    Integer,
    /// Ranges and sorting use an f64; the document keeps the exact value.
    Decimal,
    Boolean,
    Date,
}

impl FieldType {
    pub const WORDS: [(&'static str, FieldType, &'static str); 6] = [
        ("text", FieldType::Text, "split into words; `language` reduces them to their stems"),
        ("keyword", FieldType::Keyword, "searched as a whole, unchanged"),
        ("integer", FieldType::Integer, "64-bit whole numbers"),
        ("decimal", FieldType::Decimal, "numbers; ranges use double precision, the document keeps the exact value"),
        ("boolean", FieldType::Boolean, "true or false, also 1 or 0"),
        ("date", FieldType::Date, "dates and times in ISO 8601"),
    ];

    pub fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, kind, _)| *kind == self).map_or("", |(word, ..)| word)
    }

    fn from_word(word: &str) -> Option<FieldType> {
        Self::WORDS.iter().find(|(name, ..)| *name == word).map(|(_, kind, _)| *kind)
    }
}

/// Languages whose words can be reduced to their stems.
pub const LANGUAGES: [&str; 18] =
    ["ar", "da", "de", "el", "en", "es", "fi", "fr", "hu", "it", "nl", "no", "pt", "ro", "ru", "sv", "ta", "tr"];

pub fn read(node: Option<&Node>, path: &str, problems: &mut Vec<Problem>) -> Vec<Field> {
    let Some(entries) = node.and_then(Node::table) else { return Vec::new() };
    let mut fields = Vec::new();
    for (name, node) in entries {
        let path = format!("{path}.{name}");
        if name.is_empty() || name.starts_with(['_', '-']) {
            let message =
                format!("`{name}` cannot be the name of a field: names that begin with `_` belong to the index itself");
            problems.push(Problem::error(path, codes::problem::BAD_NAME, message));
            continue;
        }
        match read_field(name, node, &path) {
            Ok(field) => fields.push(field),
            Err(problem) => problems.push(problem),
        }
    }
    fields
}

fn read_field(name: &str, node: &Node, path: &str) -> Result<Field, Problem> {
    if let Some(word) = node.text() {
        return Ok(Field { name: name.to_owned(), kind: read_type(word, path)?, language: None });
    }
    let Some(entries) = node.table() else {
        return Err(wrong_type(path, "a type such as \"text\", or { type, language }", node));
    };
    if let Some(unknown) = entries.keys().find(|key| !["type", "language"].contains(&key.as_str())) {
        let problem = Problem::error(
            format!("{path}.{unknown}"),
            codes::problem::UNKNOWN_KEY,
            format!("a field has no key `{unknown}`"),
        );
        return Err(problem.nearest(unknown, ["type", "language"]));
    }
    let at = format!("{path}.type");
    let kind = match entries.get("type") {
        None => {
            return Err(Problem::error(path, codes::problem::MISSING_KEY, format!("the field `{name}` needs a type"))
                .help("type = \"text\""));
        }
        Some(node) => read_type(node.text().ok_or_else(|| wrong_type(&at, "a text", node))?, &at)?,
    };
    let language = match entries.get("language") {
        None => None,
        Some(node) => {
            let at = format!("{path}.language");
            let language = node.text().ok_or_else(|| wrong_type(&at, "a text", node))?;
            if kind != FieldType::Text {
                return Err(Problem::error(at, codes::problem::BAD_VALUE, "only a text field has a language"));
            }
            if !LANGUAGES.contains(&language) {
                return Err(Problem::error(at, codes::problem::BAD_VALUE, format!("unknown language `{language}`"))
                    .help(format!("one of {}", LANGUAGES.join(", "))));
            }
            Some(language.to_owned())
        }
    };
    Ok(Field { name: name.to_owned(), kind, language })
}

fn read_type(word: &str, path: &str) -> Result<FieldType, Problem> {
    FieldType::from_word(word).ok_or_else(|| {
        let words = || FieldType::WORDS.iter().map(|(word, ..)| *word);
        let all = words().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
        let help = nearest(word, words())
            .map_or(format!("one of {all}"), |word| format!("did you mean `{word}`? One of {all}"));
        Problem::error(path, codes::problem::UNKNOWN_TYPE, format!("there is no field type `{word}`")).help(help)
    })
}
