//! What the store has, beside what the file says.

use std::sync::Arc;

use honeyflow_hive::{
    HiveStore, Reply, Request,
    contract::limit::{self as ledger, BucketRow, Definition, Rule},
    limit::{
        Terms,
        definition::What,
        keys::is_of_slots,
        rate,
        service::change::{is_told_name, told_name},
    },
};
use honeyflow_runtime::Failure;
use serde::Serialize;

use crate::{
    cli::{Fault, no_such},
    config::{Config, LimitConfig},
};

pub struct Store {
    hive: Arc<dyn HiveStore>,
}

/// All definitions, as of one moment of hive time.
pub struct Stored {
    pub hive_ms: u64,
    limits: Vec<ledger::Limit>,
}

/// A limit as people know it.
#[derive(Clone, Serialize)]
pub struct Known {
    pub limit: String,
    /// In force; none: no node has told it to the store yet.
    pub rate: Option<String>,
    /// Of a rate.
    pub burst: Option<u64>,
    /// So many at once, of a limit that says that.
    pub concurrent: Option<u64>,
    pub version: Option<u64>,
    /// As the file says it.
    pub configured: Option<String>,
    /// Somebody has set it to something else than it was told to be.
    pub set: bool,
    pub next: Option<Next>,
}

#[derive(Clone, Serialize)]
pub struct Next {
    pub rate: String,
    pub burst: Option<u64>,
    pub concurrent: Option<u64>,
    pub version: u64,
    pub in_ms: u64,
}

/// What a limit counts. The store does not say it; the configuration does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Rate,
    /// So many at once.
    Concurrent,
}

impl Kind {
    pub fn of(config: &Config, limit: &str) -> Kind {
        match config.limit(limit).map(|limit| limit.definition.what) {
            Some(What::Slots { .. }) => Kind::Concurrent,
            _ => Kind::Rate,
        }
    }

    /// As people would write it.
    pub fn text(self, rule: Rule) -> String {
        match self {
            Kind::Rate => rate::text(rule),
            Kind::Concurrent => format!("{} at once", burst(rule)),
        }
    }

    /// The burst of a rate, or how many at once.
    pub fn split(self, rule: Rule) -> (Option<u64>, Option<u64>) {
        match self {
            Kind::Rate => (Some(burst(rule)), None),
            Kind::Concurrent => (None, Some(burst(rule))),
        }
    }
}

impl Store {
    pub async fn open(config: &Config) -> Result<Store, Failure> {
        let (place, name) = crate::node::hive::own_place(config)?;
        Ok(Store { hive: place.open(&name, false).await? })
    }

    pub async fn ask(&self, request: ledger::Request) -> Result<ledger::Reply, Failure> {
        match self.hive.call(Request::Limit(request)).await? {
            Reply::Limit(reply) => Ok(reply),
            other => Err(misplaced(&other)),
        }
    }

    pub async fn read(&self) -> Result<Stored, Failure> {
        match self.ask(ledger::Request::Limits).await? {
            ledger::Reply::Limits { hive_ms, limits, .. } => Ok(Stored { hive_ms, limits }),
            other => Err(misplaced(&other)),
        }
    }

    /// The buckets that were given most; of a limit on how many at once, those of which most are held. What it
    /// counted while it was of the other kind is left out.
    pub async fn buckets(&self, limit: &str, kind: Kind, max: u32) -> Result<Vec<BucketRow>, Failure> {
        match self.ask(ledger::Request::Ledger { limit: limit.into(), max }).await? {
            ledger::Reply::Ledger(mut rows) => {
                rows.retain(|row| is_of_slots(row.key.0) == (kind == Kind::Concurrent));
                Ok(rows)
            }
            other => Err(misplaced(&other)),
        }
    }
}

pub fn misplaced(reply: &impl std::fmt::Debug) -> Failure {
    Failure::fatal("misplaced-reply", format!("the hive answered another question: {reply:?}"))
}

impl Stored {
    pub fn limit(&self, name: &str) -> Option<&ledger::Limit> {
        self.limits.iter().find(|limit| *limit.name == *name)
    }

    pub fn told(&self, name: &str) -> Option<Definition> {
        self.limit(&told_name(name)).map(|limit| limit.next.unwrap_or(limit.now))
    }

    /// What is configured or stored, by name.
    pub fn all(&self, config: &Config) -> Vec<Known> {
        let stored = self.limits.iter().map(|limit| &*limit.name).filter(|name| !is_told_name(name));
        let mut names: Vec<&str> = config.limits.iter().map(|limit| &*limit.definition.name).chain(stored).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter().map(|name| self.known(name, Kind::of(config, name), config.limit(name))).collect()
    }

    /// One of them, or that there is none.
    pub fn one(&self, config: &Config, name: &str) -> Result<Known, Fault> {
        let mut all = self.all(config);
        match all.iter().position(|known| known.limit == name) {
            Some(at) => Ok(all.swap_remove(at)),
            None => Err(no_such("limit", name, all.iter().map(|known| &*known.limit))),
        }
    }

    fn known(&self, name: &str, kind: Kind, configured: Option<&LimitConfig>) -> Known {
        let stored = self.limit(name);
        let (burst, concurrent) = stored.map_or((None, None), |limit| kind.split(limit.now.rule));
        let told = self.told(name).map(|told| told.rule);
        Known {
            limit: name.to_owned(),
            rate: stored.map(|limit| kind.text(limit.now.rule)),
            burst,
            concurrent,
            version: stored.map(|limit| limit.now.version),
            configured: configured
                .and_then(|limit| Terms::of(&limit.definition).ok())
                .map(|terms| kind.text(terms.rule())),
            set: stored.is_some_and(|limit| told.is_some_and(|told| limit.next.unwrap_or(limit.now).rule != told)),
            next: stored.and_then(|limit| limit.next).map(|next| {
                let (burst, concurrent) = kind.split(next.rule);
                let in_ms = next.effective_ms.saturating_sub(self.hive_ms);
                Next { rate: kind.text(next.rule), burst, concurrent, version: next.version, in_ms }
            }),
        }
    }
}

/// With the burst, where there is one.
pub fn in_words(rate: &str, burst: Option<u64>) -> String {
    burst.map_or_else(|| rate.to_owned(), |burst| format!("{rate}, burst {burst}"))
}

pub fn burst(rule: Rule) -> u64 {
    rule.burst_u / ledger::MICRO
}
