//! Which kinds of step exist, and what each may be told. The registry of the binary fills it; here it is only read.

use std::time::Duration;

use crate::{definition::Checkpoint, problem};

/// What a kind does in a run, as far as the run's logic must know.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    Work,
    /// The entity's load: a `null` output means that the row is gone, and the stamp is drawn when it begins.
    Load,
    /// Writes fenced by versions; deletes where there is no document.
    Sink,
    Sleep,
    Wait,
    Emit,
}

/// What the value of a setting must look like.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SettingValue {
    Text,
    /// Compiled with the graph; see [`crate::graph::Step::expressions`].
    Expression,
    /// A text in which `{expression}` may stand; compiled with the graph too.
    Template,
    /// `"5s"`
    Duration,
    /// A whole number, not negative.
    Number,
    Boolean,
    /// One of these.
    Word(&'static [&'static str]),
    List,
    Table,
    /// `env:NAME` or `file:path`, never the secret itself.
    Secret,
    Any,
}

/// A key of a kind, beside those that every step has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    pub name: &'static str,
    pub required: bool,
    pub value: SettingValue,
    pub doc: &'static str,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kind {
    /// As written after `use`: `sql.load`.
    pub name: &'static str,
    pub settings: &'static [Setting],
    pub role: Role,
    /// Unless the step says otherwise.
    pub checkpoint: Checkpoint,
    pub batch_max: u32,
    /// Of one attempt, unless the step says otherwise.
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

    /// The kind that was probably meant.
    pub fn nearest(&self, name: &str) -> Option<&'static str> {
        problem::nearest(name, self.names())
    }
}
