//! One table of the configuration: reads its keys one by one, each with its type, and collects the problems.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::{codes, duration, problem::Problem};

/// A table of the configuration, its path, and the list of problems.
pub(super) struct Table<'v, 'p> {
    pub(super) fields: &'v Map<String, Value>,
    pub(super) path: String,
    pub(super) problems: &'p mut Vec<Problem>,
}

impl<'v, 'p> Table<'v, 'p> {
    pub(super) fn new(
        value: &'v Value,
        path: String,
        empty: &'v Map<String, Value>,
        problems: &'p mut Vec<Problem>,
    ) -> Self {
        let fields = value.as_object().unwrap_or_else(|| {
            problems.push(wrong_type(path.clone(), "a table"));
            empty
        });
        Table { fields, path, problems }
    }

    pub(super) fn at(&self, key: &str) -> String {
        format!("{}.{key}", self.path)
    }

    pub(super) fn get(&self, key: &str) -> Option<&'v Value> {
        self.fields.get(key)
    }

    /// Reports every key that is not in one of these lists.
    pub(super) fn names(&mut self, keys: &[&str], later: &[&str], more: &[&str]) {
        for key in self.fields.keys().map(String::as_str) {
            if keys.contains(&key) || more.contains(&key) {
                continue;
            }
            let problem = if later.contains(&key) {
                Problem::error(
                    self.at(key),
                    codes::problem::UNKNOWN_KEY,
                    format!("`{key}` is planned but not built yet"),
                )
            } else {
                Problem::error(self.at(key), codes::problem::UNKNOWN_KEY, format!("there is no key `{key}` here"))
                    .nearest(key, keys.iter().chain(more).copied())
            };
            self.problems.push(problem);
        }
    }

    pub(super) fn take<T>(
        &mut self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'v Value) -> Option<T>,
    ) -> Option<T> {
        let value = self.get(key)?;
        let read = read(value);
        if read.is_none() {
            self.problems.push(wrong_type(self.at(key), expected));
        }
        read
    }

    pub(super) fn text(&mut self, key: &str) -> Option<&'v str> {
        self.take(key, "a text", Value::as_str)
    }

    pub(super) fn required_text(&mut self, key: &str) -> Option<&'v str> {
        if self.get(key).is_none() {
            self.problems.push(Problem::error(
                &*self.path,
                codes::problem::MISSING_KEY,
                format!("the key `{key}` is missing"),
            ));
        }
        self.text(key)
    }

    pub(super) fn boolean(&mut self, key: &str) -> Option<bool> {
        self.take(key, "true or false", Value::as_bool)
    }

    pub(super) fn number(&mut self, key: &str, min: u32, max: u32) -> Option<u32> {
        self.take(key, &format!("a whole number from {min} to {max}"), |value| {
            value.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|number| (min..=max).contains(number))
        })
    }

    pub(super) fn duration(&mut self, key: &str) -> Option<Duration> {
        self.take(key, "a duration such as \"200ms\", \"5s\" or \"2h\"", |value| {
            value.as_str().and_then(duration::parse)
        })
    }

    pub(super) fn duration_above_zero(&mut self, key: &str) -> Option<Duration> {
        self.take(key, "a duration such as \"200ms\", \"5s\" or \"2h\", above zero", |value| {
            value.as_str().and_then(duration::parse).filter(|duration| !duration.is_zero())
        })
    }

    pub(super) fn word<T: Default>(
        &mut self,
        key: &str,
        words: &[&str],
        from_word: impl FnOnce(&str) -> Option<T>,
    ) -> T {
        self.word_if_any(key, words, from_word).unwrap_or_default()
    }

    pub(super) fn word_if_any<T>(
        &mut self,
        key: &str,
        words: &[&str],
        from_word: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let word = self.text(key)?;
        let read = from_word(word);
        if read.is_none() {
            let problem =
                Problem::error(self.at(key), codes::problem::BAD_VALUE, format!("`{key}` cannot be `{word}`"));
            self.problems.push(one_of(problem, word, words));
        }
        read
    }

    /// Returns the items of a list with their paths.
    pub(super) fn list(&mut self, key: &str) -> Vec<(&'v Value, String)> {
        let items = self.take(key, "a list", Value::as_array);
        let path = self.at(key);
        items.into_iter().flatten().enumerate().map(|(n, item)| (item, format!("{path}[{n}]"))).collect()
    }
}

pub(super) fn wrong_type(path: String, expected: &str) -> Problem {
    Problem::error(path, codes::problem::BAD_VALUE, format!("expected {expected}"))
}

pub(super) fn one_of(problem: Problem, written: &str, words: &[&str]) -> Problem {
    match problem.nearest(written, words.iter().copied()) {
        problem @ Problem { help: Some(_), .. } => problem,
        problem => problem.help(format!("one of: {}", words.join(", "))),
    }
}
