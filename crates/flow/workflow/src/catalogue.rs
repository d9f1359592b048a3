//! The kinds of step and their settings. The registry of the binary fills the catalogue; this crate only reads it.

use std::time::Duration;

use crate::{definition::Checkpoint, problem};

/// The role of a kind in a run, as far as the logic of runs needs it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    Work,
    /// The entity's load: a `null` output means that the row is gone, and the stamp is drawn when it begins.
    Load,
    /// Writes documents fenced by stamps; deletes if there is no document.
    Sink,
    Sleep,
    Wait,
    Emit,
}

/// The type of a setting's value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SettingValue {
    Text,
    /// Compiled with the graph; see [`crate::graph::Step::expressions`].
    Expression,
    /// A text that may contain `{expression}`; compiled with the graph too.
    Template,
    /// `"5s"`
    Duration,
    /// A whole number, zero or more.
    Number,
    Boolean,
    /// One of these words.
    Word(&'static [&'static str]),
    List,
    Table,
    /// `env:NAME` or `file:path`, never the secret itself.
    Secret,
    Any,
}

/// A setting of a kind, in addition to the keys that every step has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    pub name: &'static str,
    pub required: bool,
    pub value: SettingValue,
    pub doc: &'static str,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kind {
    /// The value of `use`: `sql.load`.
    pub name: &'static str,
    pub settings: &'static [Setting],
    pub role: Role,
    /// The default of its steps.
    pub checkpoint: Checkpoint,
    pub batch_max: u32,
    /// The default time-out of one attempt.
    pub timeout: Duration,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Catalogue(Vec<Kind>);

impl Catalogue {
    pub fn new(mut kinds: Vec<Kind>) -> Catalogue {
        kinds.sort_by_key(|kind| kind.name);
        Catalogue(kinds)
    }

    pub fn get(&self, name: &str) -> Option<&Kind> {
        self.0.binary_search_by_key(&name, |kind| kind.name).ok().map(|at| &self.0[at])
    }

    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.0.iter().map(|kind| kind.name)
    }

    /// Returns the kind with the most similar name.
    pub fn nearest(&self, name: &str) -> Option<&'static str> {
        problem::nearest(name, self.names())
    }
}
