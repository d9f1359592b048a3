//! The same few names come in every row: one allocation for each name instead of each row.

use std::sync::Arc;

use hashbrown::HashSet;
use honeyflow_event::Name;

/// More than that are not the same few.
const NAMES_MAX: usize = 4096;

#[derive(Default)]
pub struct Names(HashSet<Name>);

impl Names {
    pub fn get(&mut self, text: &str) -> Name {
        if let Some(name) = self.0.get(text) {
            return Arc::clone(name);
        }
        if self.0.len() >= NAMES_MAX {
            self.0.clear();
        }
        let name: Name = text.into();
        self.0.insert(Arc::clone(&name));
        name
    }
}
