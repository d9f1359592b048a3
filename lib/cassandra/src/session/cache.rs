//! Caches statements by keyspace and text. The least recently used one is forgotten first; the most used ones are
//! prepared again at a server that has come back.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::statement::Statement;

#[derive(Debug)]
pub struct Cache {
    statements: Mutex<HashMap<Name, Statement>>,
    max: usize,
}

type Name = (Option<String>, String);

impl Cache {
    pub fn new(max: usize) -> Self {
        Self { statements: Mutex::default(), max: max.max(1) }
    }

    /// Returns the statement of this text. All callers share it, so that one of them prepares it for all.
    pub fn get(&self, keyspace: Option<&str>, text: &str, now: Instant) -> Statement {
        let mut kept = self.lock();
        let name = (keyspace.map(str::to_owned), text.to_owned());
        if let Some(statement) = kept.get(&name) {
            statement.usage().count(now);
            return statement.clone();
        }
        if kept.len() >= self.max {
            let oldest = kept.iter().min_by_key(|(_, statement)| statement.usage().last());
            let oldest = oldest.map(|(name, _)| name.clone());
            oldest.and_then(|name| kept.remove(&name));
        }
        let statement =
            keyspace.map_or_else(|| Statement::new(text), |keyspace| Statement::in_keyspace(text, keyspace));
        statement.usage().count(now);
        kept.insert(name, statement.clone());
        statement
    }

    /// Returns the most used statements, the most used one first.
    pub fn most_used(&self, count: usize) -> Vec<Statement> {
        let mut all: Vec<Statement> = self.lock().values().cloned().collect();
        all.sort_by_cached_key(|statement| std::cmp::Reverse(statement.usage().times()));
        all.truncate(count);
        all
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Statement>> {
        // The map is consistent after every line, so poisoning does not matter.
        self.statements.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn same(one: &Statement, other: &Statement) -> bool {
        let at = |statement: &Statement| statement.at(&"server".into());
        std::sync::Arc::ptr_eq(&at(one), &at(other))
    }

    #[test]
    fn cq_9_the_least_recently_used_statement_is_forgotten() {
        let cache = Cache::new(2);
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let (one, two) = (cache.get(None, "one", after(1)), cache.get(None, "two", after(2)));
        // An execution counts as a use, also without a look-up by text.
        one.usage().count(after(3));
        cache.get(None, "three", after(4));
        assert!(same(&one, &cache.get(None, "one", after(5))));
        assert!(!same(&two, &cache.get(None, "two", after(6))));
    }

    #[test]
    fn cq_9_the_same_text_in_another_keyspace_is_another_statement() {
        let cache = Cache::new(9);
        let now = Instant::now();
        let one = cache.get(Some("shop"), "SELECT * FROM t", now);
        assert!(same(&one, &cache.get(Some("shop"), "SELECT * FROM t", now)));
        assert!(!same(&one, &cache.get(Some("farm"), "SELECT * FROM t", now)));
        assert!(!same(&one, &cache.get(None, "SELECT * FROM t", now)));
        assert_eq!(one.keyspace(), Some("shop"));
    }

    #[test]
    fn cq_9_the_most_used_statements_are_listed_first() {
        let cache = Cache::new(9);
        let now = Instant::now();
        for (text, times) in [("rare", 1), ("often", 30), ("now and then", 5)] {
            let statement = cache.get(None, text, now);
            (1..times).for_each(|_| statement.usage().count(now));
        }
        let texts: Vec<String> = cache.most_used(2).iter().map(|statement| statement.text().to_owned()).collect();
        assert_eq!(texts, ["often", "now and then"]);
    }
}
