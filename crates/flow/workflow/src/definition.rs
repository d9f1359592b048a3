//! A workflow as plain data: the canonical value that both TOML and the builder produce. It can be stored, compared and
//! drawn before it runs.
//!
//! Steps are sorted by name, so that equal content is equal in any spelling; the order of `needs` has a meaning and is
//! kept.

mod read;
#[cfg(test)]
mod tests;
mod write;

use std::{collections::BTreeMap, time::Duration};

use honeyflow_event::{Changes, Name, Priority};
use honeyflow_runtime::Backoff;
use serde_json::{Map, Value};

pub use read::{check, read};
pub use write::{text, write};

pub const STEPS_MAX: usize = 10_000;
pub const EDGES_MAX: usize = 100_000;
pub const TRIES_DEFAULT: u32 = 5;
pub const PARALLEL_DEFAULT: u32 = 64;

/// Defines an enum whose variants are words of the configuration.
macro_rules! words {
    ($(#[$attribute:meta])* $name:ident { $($(#[$note:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub enum $name { $($(#[$note])* $variant,)* }

        impl $name {
            pub const WORDS: &'static [&'static str] = &[$($word),*];

            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

words!(
    /// How the end state of a need counts for the step that needs it.
    Edge {
        #[default]
        Success = "success",
        /// Any end counts as success.
        Done = "done",
        /// Failed or blocked counts as success; any other end counts as skipped.
        Failure = "failure",
    }
);
words!(
    /// When a step runs; decided once all its needs have ended.
    Trigger {
        #[default]
        AllSuccess = "all-success",
        NoneFailed = "none-failed",
        OneSuccess = "one-success",
        AllDone = "all-done",
        OneFailed = "one-failed",
        AllFailed = "all-failed",
    }
);
words!(
    /// What a sink does when its `when` is false.
    Otherwise {
        #[default]
        Delete = "delete",
        Keep = "keep",
    }
);
words!(Checkpoint {
    #[default]
    Always = "always",
    Never = "never",
});
words!(
    /// Which runs of one key may be open together.
    Exclusion {
        #[default]
        Key = "key",
        Workflow = "workflow",
        None = "none",
    }
);
words!(Order {
    #[default]
    Latest = "latest",
    Strict = "strict",
    None = "none",
});
words!(OnFailure {
    #[default]
    Finish = "finish",
    Stop = "stop",
});
words!(Unmatched {
    #[default]
    Ack = "ack",
    Park = "park",
});
words!(History {
    None = "none",
    #[default]
    Failed = "failed",
    Sample = "sample",
    All = "all",
});

#[derive(Clone, PartialEq, Debug)]
pub struct Definition {
    pub name: Name,
    pub on: Vec<On>,
    pub steps: Vec<StepDefinition>,
    pub exclusion: Exclusion,
    pub order: Order,
    pub priority: Option<Priority>,
    pub deadline: Option<Duration>,
    pub on_failure: OnFailure,
    pub unmatched: Unmatched,
    pub history: History,
}

/// Which events begin a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct On {
    pub source: Name,
    pub entity: Name,
    /// Which changes of a row begin a run; unknown: all.
    pub change: Changes,
    /// An update begins a run only if it changed one of these columns; empty: every update does.
    pub columns: Vec<String>,
    pub when: Option<String>,
    /// Whether rows that were there before the workflow begin a run, too.
    pub existing: Option<bool>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct StepDefinition {
    pub name: Name,
    /// The key `use`.
    pub kind: Name,
    pub needs: Vec<Need>,
    pub trigger: Trigger,
    pub when: Option<String>,
    /// The key `else`.
    pub otherwise: Otherwise,
    pub optional: bool,
    pub forgives: bool,
    pub for_each: Option<String>,
    pub parallel: u32,
    /// How many instances of a `for-each` step may fail.
    pub tolerate: u32,
    pub input: Option<String>,
    pub tries: u32,
    pub backoff: Option<Backoff>,
    pub timeout: Option<Duration>,
    pub give_up_after: Option<Duration>,
    pub batch: Option<u32>,
    pub checkpoint: Option<Checkpoint>,
    /// The key `on-missing`: `"run"`, or `"pass"`.
    pub on_missing_run: bool,
    pub limit: Option<Name>,
    pub labels: BTreeMap<String, String>,
    /// The settings of its kind.
    pub settings: Map<String, Value>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Need {
    pub step: Name,
    pub on: Edge,
}

impl StepDefinition {
    /// Creates a step with the default of every key.
    pub fn new(name: impl Into<Name>, kind: impl Into<Name>) -> StepDefinition {
        StepDefinition {
            name: name.into(),
            kind: kind.into(),
            needs: Vec::new(),
            trigger: Trigger::default(),
            when: None,
            otherwise: Otherwise::default(),
            optional: false,
            forgives: false,
            for_each: None,
            parallel: PARALLEL_DEFAULT,
            tolerate: 0,
            input: None,
            tries: TRIES_DEFAULT,
            backoff: None,
            timeout: None,
            give_up_after: None,
            batch: None,
            checkpoint: None,
            on_missing_run: false,
            limit: None,
            labels: BTreeMap::new(),
            settings: Map::new(),
        }
    }
}

impl Definition {
    /// Creates a definition with the default of every key, without events and steps.
    pub fn new(name: impl Into<Name>) -> Definition {
        Definition {
            name: name.into(),
            on: Vec::new(),
            steps: Vec::new(),
            exclusion: Exclusion::default(),
            order: Order::default(),
            priority: None,
            deadline: None,
            on_failure: OnFailure::default(),
            unmatched: Unmatched::default(),
            history: History::default(),
        }
    }

    /// Returns a hash that is the same for equal content in any spelling, on every machine and in every version of this
    /// program.
    pub fn hash(&self) -> u64 {
        honeyflow_event::document::hash(&write(self))
    }
}
