//! Statements by their text, the least used ones forgotten first.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::statement::Statement;

#[derive(Debug)]
pub struct Cache {
    kept: Mutex<Kept>,
    max: usize,
}

#[derive(Debug, Default)]
struct Kept {
    statements: HashMap<String, (Statement, u64)>,
    uses: u64,
}

impl Cache {
    pub fn new(max: usize) -> Self {
        Self { kept: Mutex::default(), max: max.max(1) }
    }

    /// The same statement for the same text, so that whoever prepares it does so for all.
    pub fn get(&self, text: &str) -> Statement {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.uses += 1;
        let now = kept.uses;
        if let Some((statement, used)) = kept.statements.get_mut(text) {
            *used = now;
            return statement.clone();
        }
        if kept.statements.len() >= self.max {
            let oldest = kept.statements.iter().min_by_key(|(_, (_, used))| *used).map(|(text, _)| text.clone());
            oldest.and_then(|text| kept.statements.remove(&text));
        }
        let statement = Statement::new(text);
        kept.statements.insert(text.to_owned(), (statement.clone(), now));
        statement
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cq_9_the_least_recently_used_statement_is_forgotten() {
        let cache = Cache::new(2);
        let at = |statement: &Statement| statement.at(&"server".into());
        let (one, two) = (cache.get("one"), cache.get("two"));
        assert!(std::sync::Arc::ptr_eq(&at(&one), &at(&cache.get("one"))));
        cache.get("three");
        assert!(std::sync::Arc::ptr_eq(&at(&one), &at(&cache.get("one"))));
        assert!(!std::sync::Arc::ptr_eq(&at(&two), &at(&cache.get("two"))));
    }
}
