//! Interns names. The rows of an outbox repeat the same few names: this allocates each name once instead of per row.

use std::sync::Arc;

use hashbrown::HashSet;
use honeyflow_event::Name;

/// A source with more distinct names gains nothing from interning, so the set is cleared at this size.
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
