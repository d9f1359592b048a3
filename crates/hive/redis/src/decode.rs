//! Reads the values of a script's reply one after the other. A value that the script left out reads as nil.

use std::{collections::HashMap, str::FromStr, vec};

use honeyflow_event::{Epoch, Name};
use honeyflow_hive::NodeId;
use honeyflow_runtime::Failure;
use redis::Value;
use uuid::Uuid;

use crate::codes;

pub(crate) type Decoded<T> = Result<T, Failure>;

/// The failure for a value that our scripts never write: the keys were changed by hand.
pub(crate) fn unreadable(value: &Value) -> Failure {
    let said = format!("the hive's keys hold something unexpected: {value:?}; were they changed by hand?");
    Failure::fatal(codes::UNREADABLE_ROW, said)
}

pub(crate) struct Fields(vec::IntoIter<Value>);

impl Fields {
    pub fn from_value(value: Value) -> Decoded<Fields> {
        match value {
            Value::Array(values) => Ok(Fields(values.into_iter())),
            Value::Nil => Ok(Fields(Vec::new().into_iter())),
            other => Err(unreadable(&other)),
        }
    }

    pub fn value(&mut self) -> Value {
        self.0.next().unwrap_or(Value::Nil)
    }

    pub fn fields(&mut self) -> Decoded<Fields> {
        Fields::from_value(self.value())
    }

    pub fn optional_fields(&mut self) -> Decoded<Option<Fields>> {
        match self.value() {
            Value::Nil => Ok(None),
            value => Fields::from_value(value).map(Some),
        }
    }

    pub fn text(&mut self) -> Decoded<String> {
        self.optional_text().map(Option::unwrap_or_default)
    }

    pub fn optional_text(&mut self) -> Decoded<Option<String>> {
        optional_text(self.value())
    }

    /// A text of an event. A stream has no nil, so an empty text means none.
    pub fn text_if_any(&mut self) -> Decoded<Option<String>> {
        Ok(self.optional_text()?.filter(|text| !text.is_empty()))
    }

    pub fn name(&mut self) -> Decoded<Name> {
        self.text().map(Name::from)
    }

    pub fn number(&mut self) -> Decoded<u64> {
        self.optional_number().map(Option::unwrap_or_default)
    }

    pub fn optional_number(&mut self) -> Decoded<Option<u64>> {
        match self.value() {
            Value::Nil => Ok(None),
            Value::Int(number) if number >= 0 => Ok(Some(number.cast_unsigned())),
            other => parsed(&other).map(Some),
        }
    }

    pub fn epoch(&mut self) -> Decoded<Epoch> {
        self.number().map(Epoch)
    }

    pub fn flag(&mut self) -> Decoded<bool> {
        self.number().map(|number| number != 0)
    }

    pub fn node(&mut self) -> Decoded<NodeId> {
        self.optional_node()?.ok_or_else(|| unreadable(&Value::Nil))
    }

    pub fn optional_node(&mut self) -> Decoded<Option<NodeId>> {
        match self.value() {
            Value::Nil => Ok(None),
            value => parsed::<Uuid>(&value).map(|id| Some(NodeId(id))),
        }
    }

    /// Reads all remaining values.
    pub fn each<T>(mut self, mut read: impl FnMut(&mut Fields) -> Decoded<T>) -> Decoded<Vec<T>> {
        let mut found = Vec::new();
        while self.0.len() > 0 {
            found.push(read(&mut self)?);
        }
        Ok(found)
    }

    /// Reads the remaining values as pairs of key and value.
    pub fn map(self) -> Decoded<HashMap<String, String>> {
        let pairs = self.each(|fields| Ok((fields.text()?, fields.text()?)))?;
        Ok(pairs.into_iter().collect())
    }
}

pub(crate) fn optional_text(value: Value) -> Decoded<Option<String>> {
    match value {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(error) => Err(unreadable(&Value::BulkString(error.into_bytes()))),
        },
        Value::SimpleString(text) => Ok(Some(text)),
        Value::Int(number) => Ok(Some(number.to_string())),
        other => Err(unreadable(&other)),
    }
}

fn parsed<T: FromStr>(value: &Value) -> Decoded<T> {
    let text = match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text.as_str()),
        _ => None,
    };
    text.and_then(|text| text.parse().ok()).ok_or_else(|| unreadable(value))
}
