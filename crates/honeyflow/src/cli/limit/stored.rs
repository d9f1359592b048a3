//! What the store has, beside what the file says.

use std::sync::Arc;

use honeyflow_hive::{
    HiveStore, Reply, Request,
    contract::limit::{self as ledger, BucketRow, Definition, Rule},
    limit::{
        Terms, rate,
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
    pub burst: Option<u64>,
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
    pub burst: u64,
    pub version: u64,
    pub in_ms: u64,
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

    /// The buckets that were given most.
    pub async fn buckets(&self, limit: &str, max: u32) -> Result<Vec<BucketRow>, Failure> {
        match self.ask(ledger::Request::Ledger { limit: limit.into(), max }).await? {
            ledger::Reply::Ledger(rows) => Ok(rows),
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
        names.into_iter().map(|name| self.known(name, config.limit(name))).collect()
    }

    /// One of them, or that there is none.
    pub fn one(&self, config: &Config, name: &str) -> Result<Known, Fault> {
        let mut all = self.all(config);
        match all.iter().position(|known| known.limit == name) {
            Some(at) => Ok(all.swap_remove(at)),
            None => Err(no_such("limit", name, all.iter().map(|known| &*known.limit))),
        }
    }

    fn known(&self, name: &str, configured: Option<&LimitConfig>) -> Known {
        let stored = self.limit(name);
        let told = self.told(name).map(|told| told.rule);
        Known {
            limit: name.to_owned(),
            rate: stored.map(|limit| rate::text(limit.now.rule)),
            burst: stored.map(|limit| burst(limit.now.rule)),
            version: stored.map(|limit| limit.now.version),
            configured: configured
                .and_then(|limit| Terms::of(&limit.definition).ok())
                .map(|terms| rate::text(terms.rule())),
            set: stored.is_some_and(|limit| told.is_some_and(|told| limit.next.unwrap_or(limit.now).rule != told)),
            next: stored.and_then(|limit| limit.next).map(|next| Next {
                rate: rate::text(next.rule),
                burst: burst(next.rule),
                version: next.version,
                in_ms: next.effective_ms.saturating_sub(self.hive_ms),
            }),
        }
    }
}

pub fn burst(rule: Rule) -> u64 {
    rule.burst_u / ledger::MICRO
}
