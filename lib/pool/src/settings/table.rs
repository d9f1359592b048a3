//! Settings as plain data: keys and values, as files and compiled dictionaries hold them.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

/// Keys in kebab-case with their values.
pub type Table = BTreeMap<String, Value>;

/// One value. Times are texts with a unit, such as `"200ms"`; there are no fractions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    Boolean(bool),
    Integer(i64),
    Text(String),
    List(Vec<Value>),
    Table(Table),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Boolean(boolean) => boolean.fmt(f),
            Value::Integer(integer) => integer.fmt(f),
            Value::Text(text) => write!(f, "{text:?}"),
            Value::List(_) => f.write_str("a list"),
            Value::Table(_) => f.write_str("a table"),
        }
    }
}

impl From<bool> for Value {
    fn from(boolean: bool) -> Value {
        Value::Boolean(boolean)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Value {
        Value::Integer(number.into())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(items: Vec<T>) -> Value {
        Value::List(items.into_iter().map(Into::into).collect())
    }
}

/// The known word that is most similar to a misspelt `word`, if one is close enough.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = (word.chars().count() / 2).clamp(1, 3);
    let far = |known: &&str| distance(word, known);
    known.into_iter().min_by_key(far).filter(|found| distance(word, found) <= most)
}

/// The edit distance: how many letters to change, insert or delete.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, against) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *against);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_word_finds_the_one_it_was_meant_to_be() {
        let known = ["tries", "deadline", "max-age"];
        assert_eq!(nearest("dedline", known), Some("deadline"));
        assert_eq!(nearest("max_age", known), Some("max-age"));
        assert_eq!(nearest("trie", known), Some("tries"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("", known), None);
    }
}
