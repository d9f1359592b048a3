//! Settings as a section of an application's configuration file.

use serde::{Deserialize, Serialize};
use toml::de::{DeTable, DeValue};

use super::{
    Provider, Settings, SettingsError,
    table::{Table, Value, nearest},
};

/// A section that has been read and checked. An application's own configuration may have a field of this type.
///
/// The connector's keys stand in tables below the section.
///
/// ```
/// use honeyflow_pool::{Provider, Section};
///
/// let text = r#"
/// [cassandra]
/// servers = ["10.0.0.1", "10.0.0.2:9142"]
/// deadline = "2s"
/// "#;
/// let section = Section::from_toml(text, "cassandra").unwrap();
/// assert_eq!(section.settings().unwrap().deadline.as_secs(), 2);
///
/// let error = Section::from_toml("[cassandra]\ndedline = \"2s\"\n", "cassandra").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "the pool's settings cannot be used: dedline is no setting; did you mean `deadline`? (line 2)"
/// );
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Table", into = "Table")]
pub struct Section {
    settings: Settings,
    table: Table,
}

impl TryFrom<Table> for Section {
    type Error = SettingsError;

    fn try_from(table: Table) -> Result<Section, SettingsError> {
        Ok(Section { settings: Settings::from_table(&table)?, table })
    }
}

impl From<Section> for Table {
    fn from(section: Section) -> Table {
        section.table
    }
}

impl Section {
    /// The section `[name]` of a TOML text; `a.b` finds `[a.b]`.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with its line.
    pub fn from_toml(text: &str, name: &str) -> Result<Section, SettingsError> {
        let file = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(text.len(), |span| span.start);
            SettingsError::of(name, format!("cannot be read: {}{}", error.message(), line(text, at)))
        })?;
        let mut place = file.get_ref();
        for (at, word) in name.split('.').enumerate() {
            let found = place.iter().find(|(key, _)| key.get_ref() == word);
            place = match found.map(|(_, value)| value.get_ref()) {
                Some(DeValue::Table(table)) => table,
                _ => return Err(SettingsError::of(name, missing(place, word, at))),
            };
        }
        let (mut wrong, mut table) = (Vec::new(), Table::new());
        for (key, value) in place {
            let path = key.get_ref().to_string();
            match plain(value.get_ref()) {
                Ok(plain) => drop(table.insert(path, plain)),
                Err(what) => wrong.push((path, what)),
            }
        }
        let read = Section::try_from(table);
        if wrong.is_empty() && read.is_ok() {
            return read;
        }
        wrong.extend(read.err().into_iter().flat_map(|error| error.wrong));
        for (key, what) in &mut wrong {
            let found = place.iter().find(|(name, _)| name.get_ref() == key);
            what.push_str(&found.map_or_else(String::new, |(name, _)| line(text, name.span().start)));
        }
        Err(SettingsError { wrong })
    }

    /// Writes the section as TOML under `name`.
    ///
    /// # Errors
    /// If a connector's table holds a value that TOML cannot express.
    pub fn to_toml(&self, name: &str) -> Result<String, SettingsError> {
        let nested = name.rsplit('.').fold(Value::Table(self.table.clone()), |inner, word| {
            Value::Table(Table::from([(word.to_owned(), inner)]))
        });
        toml::to_string(&nested).map_err(|error| SettingsError::of(name, format!("cannot be written: {error}")))
    }
}

impl TryFrom<&Settings> for Section {
    type Error = SettingsError;

    /// # Errors
    /// What is wrong with them, or that they hold a function.
    fn try_from(settings: &Settings) -> Result<Section, SettingsError> {
        Section::try_from(settings.table()?)
    }
}

impl Provider for Section {
    fn settings(&self) -> Result<Settings, SettingsError> {
        Ok(self.settings.clone())
    }
}

fn missing(place: &DeTable<'_>, word: &str, depth: usize) -> String {
    let tables = place.iter().filter(|(_, value)| matches!(value.get_ref(), DeValue::Table(_)));
    let names: Vec<&str> = tables.map(|(key, _)| key.get_ref().as_ref()).collect();
    let below = if depth == 0 { "there is no section of this name" } else { "no such section below" };
    let meant = nearest(word, names).map_or_else(String::new, |found| format!("; did you mean `{found}`?"));
    format!("{below}{meant}")
}

fn plain(value: &DeValue<'_>) -> Result<Value, String> {
    Ok(match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Boolean(boolean) => Value::Boolean(*boolean),
        DeValue::Integer(integer) => Value::Integer(
            i64::from_str_radix(integer.as_str(), integer.radix()).map_err(|_| "is too large a number".to_owned())?,
        ),
        DeValue::Array(items) => Value::List(items.iter().map(|item| plain(item.get_ref())).collect::<Result<_, _>>()?),
        DeValue::Table(entries) => {
            let entries = entries.iter().map(|(key, value)| Ok((key.get_ref().to_string(), plain(value.get_ref())?)));
            Value::Table(entries.collect::<Result<_, String>>()?)
        }
        DeValue::Float(_) => return Err("is a number with a fraction; whole numbers are allowed".to_owned()),
        DeValue::Datetime(_) => return Err("is a date; no setting is one".to_owned()),
    })
}

fn line(text: &str, at: usize) -> String {
    let before = text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count();
    format!(" (line {})", before + 1)
}
