//! The limits as the hive's store has them, compared with the configuration file.

use std::sync::Arc;

use honeyflow_hive::{
    HiveStore, Reply, Request,
    contract::limit::{self as ledger, BucketRow, Definition, Rule},
    limit::{
        Terms,
        definition::LimitKind,
        keys::is_slots_key,
        rate,
        service::change::{declared_name, is_declared_name},
    },
};
use honeyflow_runtime::Failure;
use serde::Serialize;

use crate::{
    cli::{Fault, no_such},
    codes,
    config::{Config, LimitConfig},
};

/// Access to the limits in the hive's store.
pub struct Store {
    hive: Arc<dyn HiveStore>,
}

/// All stored limits, read at one moment of hive time.
pub struct StoredLimits {
    pub hive_ms: u64,
    limits: Vec<ledger::Limit>,
}

/// A limit as it is shown to people.
#[derive(Clone, Serialize)]
pub struct LimitStatus {
    pub limit: String,
    /// The rate in force; none if no node has put the limit into the store yet.
    pub rate: Option<String>,
    /// The burst of a rate.
    pub burst: Option<u64>,
    /// The number of slots of a concurrency limit.
    pub concurrent: Option<u64>,
    pub version: Option<u64>,
    /// The rate in the configuration file.
    pub configured: Option<String>,
    /// Whether an operator has set a rule that differs from the configured one.
    pub set: bool,
    pub next: Option<PendingChange>,
}

/// A change of the limit that is not in force yet.
#[derive(Clone, Serialize)]
pub struct PendingChange {
    pub rate: String,
    pub burst: Option<u64>,
    pub concurrent: Option<u64>,
    pub version: u64,
    pub in_ms: u64,
}

/// What a limit counts. Only the configuration knows this; the store does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Rate,
    /// Slots held at the same time.
    Concurrent,
}

impl Kind {
    pub fn of(config: &Config, limit: &str) -> Kind {
        match config.limit(limit).map(|limit| limit.definition.kind) {
            Some(LimitKind::Slots { .. }) => Kind::Concurrent,
            _ => Kind::Rate,
        }
    }

    /// The rule as a person would write it.
    pub fn text(self, rule: Rule) -> String {
        match self {
            Kind::Rate => rate::text(rule),
            Kind::Concurrent => format!("{} at once", burst(rule)),
        }
    }

    /// Returns the burst of a rate, or the number of slots of a concurrency limit.
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

    pub async fn read(&self) -> Result<StoredLimits, Failure> {
        match self.ask(ledger::Request::Limits).await? {
            ledger::Reply::Limits { hive_ms, limits, .. } => Ok(StoredLimits { hive_ms, limits }),
            other => Err(misplaced(&other)),
        }
    }

    /// The buckets with the most permits issued, or, for a concurrency limit, with the most slots held. Buckets from
    /// the time when the limit was of the other kind are left out.
    pub async fn buckets(&self, limit: &str, kind: Kind, max: u32) -> Result<Vec<BucketRow>, Failure> {
        match self.ask(ledger::Request::Ledger { limit: limit.into(), max }).await? {
            ledger::Reply::Ledger(mut rows) => {
                rows.retain(|row| is_slots_key(row.key.0) == (kind == Kind::Concurrent));
                Ok(rows)
            }
            other => Err(misplaced(&other)),
        }
    }
}

pub fn misplaced(reply: &impl std::fmt::Debug) -> Failure {
    Failure::fatal(codes::MISPLACED_REPLY, format!("the hive sent a reply that does not fit the request: {reply:?}"))
}

impl StoredLimits {
    pub fn limit(&self, name: &str) -> Option<&ledger::Limit> {
        self.limits.iter().find(|limit| *limit.name == *name)
    }

    /// The rule that the nodes have taken from their configuration.
    pub fn declared(&self, name: &str) -> Option<Definition> {
        self.limit(&declared_name(name)).map(|limit| limit.next.unwrap_or(limit.now))
    }

    /// All limits that are configured or stored, sorted by name.
    pub fn all(&self, config: &Config) -> Vec<LimitStatus> {
        let stored = self.limits.iter().map(|limit| &*limit.name).filter(|name| !is_declared_name(name));
        let mut names: Vec<&str> = config.limits.iter().map(|limit| &*limit.definition.name).chain(stored).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter().map(|name| self.status(name, Kind::of(config, name), config.limit(name))).collect()
    }

    /// Returns the limit with this name, or the error that there is none.
    pub fn one(&self, config: &Config, name: &str) -> Result<LimitStatus, Fault> {
        let mut all = self.all(config);
        match all.iter().position(|known| known.limit == name) {
            Some(at) => Ok(all.swap_remove(at)),
            None => Err(no_such("limit", name, all.iter().map(|known| &*known.limit))),
        }
    }

    fn status(&self, name: &str, kind: Kind, configured: Option<&LimitConfig>) -> LimitStatus {
        let stored = self.limit(name);
        let (burst, concurrent) = stored.map_or((None, None), |limit| kind.split(limit.now.rule));
        let declared = self.declared(name).map(|declared| declared.rule);
        LimitStatus {
            limit: name.to_owned(),
            rate: stored.map(|limit| kind.text(limit.now.rule)),
            burst,
            concurrent,
            version: stored.map(|limit| limit.now.version),
            configured: configured
                .and_then(|limit| Terms::from_definition(&limit.definition).ok())
                .map(|terms| kind.text(terms.rule())),
            set: stored.is_some_and(|limit| declared.is_some_and(|rule| limit.next.unwrap_or(limit.now).rule != rule)),
            next: stored.and_then(|limit| limit.next).map(|next| {
                let (burst, concurrent) = kind.split(next.rule);
                let in_ms = next.effective_ms.saturating_sub(self.hive_ms);
                PendingChange { rate: kind.text(next.rule), burst, concurrent, version: next.version, in_ms }
            }),
        }
    }
}

/// The rate, followed by the burst if there is one.
pub fn in_words(rate: &str, burst: Option<u64>) -> String {
    burst.map_or_else(|| rate.to_owned(), |burst| format!("{rate}, burst {burst}"))
}

pub fn burst(rule: Rule) -> u64 {
    rule.burst_u / ledger::MICRO
}
