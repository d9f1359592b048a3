//! A statement to be executed many times, and what each server knows of it.
//!
//! Servers may disagree about a statement while they are being upgraded: id and columns are kept for each by itself.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::time::Instant;

use crate::conditional::is_conditional;
use crate::token::{Token, composite_key};
use crate::value::{BindAll, Unfit, bind_all};
use crate::wire::{Bound, Column, Prepared, Reader};

#[derive(Debug, Clone)]
pub struct Statement {
    shared: Arc<Shared>,
    conditional: bool,
    columns_fixed: bool,
}

#[derive(Debug)]
struct Shared {
    text: Arc<str>,
    keyspace: Option<Arc<str>>,
    /// Read by every execution, changed when a server is met for the first time.
    at: ArcSwap<HashMap<Box<str>, At>>,
    usage: Usage,
}

/// How often it was executed, and when last.
#[derive(Debug)]
pub(crate) struct Usage {
    begun: Instant,
    times: AtomicU64,
    /// Microseconds after `begun`.
    last: AtomicU64,
}

impl Usage {
    pub fn count(&self, now: Instant) {
        let after = u64::try_from(now.saturating_duration_since(self.begun).as_micros()).unwrap_or(u64::MAX);
        self.times.fetch_add(1, Ordering::Relaxed);
        self.last.store(after, Ordering::Relaxed);
    }

    pub fn times(&self) -> u64 {
        self.times.load(Ordering::Relaxed)
    }

    pub fn last(&self) -> Instant {
        self.begun + std::time::Duration::from_micros(self.last.load(Ordering::Relaxed))
    }
}

/// By the server's name: what it knows, for as long as anybody bears that name.
#[derive(Clone, Debug)]
struct At {
    server: Weak<str>,
    known: Arc<Known>,
}

/// What one server knows.
#[derive(Debug, Default)]
pub(crate) struct Known {
    prepared: ArcSwapOption<Prepared>,
    /// Held by the one who prepares; the others wait for what comes of it.
    pub turn: tokio::sync::Mutex<()>,
}

impl Known {
    pub fn prepared(&self) -> Option<Arc<Prepared>> {
        self.prepared.load_full()
    }

    pub fn set(&self, prepared: Arc<Prepared>) {
        self.prepared.store(Some(prepared));
    }
}

impl Statement {
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self::of(text.into(), None)
    }

    /// Names without a keyspace mean this one. Version 4 cannot carry it: a server that speaks no other is not asked, unless
    /// the connection is in that keyspace already.
    pub fn in_keyspace(text: impl Into<Arc<str>>, keyspace: impl Into<Arc<str>>) -> Self {
        Self::of(text.into(), Some(keyspace.into()))
    }

    fn of(text: Arc<str>, keyspace: Option<Arc<str>>) -> Self {
        let conditional = is_conditional(&text);
        let usage = Usage { begun: Instant::now(), times: AtomicU64::new(0), last: AtomicU64::new(0) };
        let shared = Shared { text, keyspace, at: ArcSwap::default(), usage };
        Self { shared: Arc::new(shared), conditional, columns_fixed: false }
    }

    /// Overrides what was found in the text.
    #[must_use]
    pub fn conditional(self, conditional: bool) -> Self {
        Self { conditional, ..self }
    }

    /// The columns of the answer never change, so version 4 need not send them with every page. Not for `SELECT *`.
    #[must_use]
    pub fn columns_fixed(self) -> Self {
        Self { columns_fixed: true, ..self }
    }

    pub fn text(&self) -> &str {
        &self.shared.text
    }

    pub fn keyspace(&self) -> Option<&str> {
        self.shared.keyspace.as_deref()
    }

    pub fn is_conditional(&self) -> bool {
        self.conditional
    }

    pub(crate) fn has_fixed_columns(&self) -> bool {
        self.columns_fixed
    }

    pub(crate) fn at(&self, server: &Arc<str>) -> Arc<Known> {
        if let Some(at) = self.shared.at.load().get(&**server) {
            return Arc::clone(&at.known);
        }
        let mut found = Arc::default();
        self.shared.at.rcu(|at| {
            let stays = at.iter().filter(|(_, at)| at.server.strong_count() > 0);
            let mut at: HashMap<_, _> = stays.map(|(name, at)| (name.clone(), at.clone())).collect();
            let here = || At { server: Arc::downgrade(server), known: Arc::default() };
            found = Arc::clone(&at.entry((&**server).into()).or_insert_with(here).known);
            at
        });
        found
    }

    pub(crate) fn usage(&self) -> &Usage {
        &self.shared.usage
    }

    /// As this server knows it; nothing is remembered about one that was never asked.
    pub(crate) fn known_at(&self, server: &str) -> Option<Arc<Prepared>> {
        self.shared.at.load().get(server)?.known.prepared()
    }

    /// As any server knows it: enough to tell where a key lives.
    pub fn anywhere(&self) -> Option<Arc<Prepared>> {
        self.shared.at.load().values().find_map(|at| at.known.prepared())
    }

    /// The same, sharing what other servers say in the same words, so that sameness can be seen at a glance.
    pub(crate) fn alike(&self, prepared: Prepared) -> Prepared {
        match self.anywhere() {
            Some(other) if other.parameters == prepared.parameters => {
                Prepared { parameters: Arc::clone(&other.parameters), ..prepared }
            }
            _ => prepared,
        }
    }
}

/// A statement and what is to be bound to it.
pub(crate) struct Execution<'a, V: ?Sized> {
    pub statement: &'a Statement,
    pub values: &'a V,
    /// As they were bound to find out where they belong.
    pub laid: Option<(Arc<[Column]>, Bound)>,
}

impl<V: BindAll + ?Sized> Execution<'_, V> {
    /// For a server with these parameters; most have the same.
    pub fn bound(&self, parameters: &Arc<[Column]>) -> Result<Cow<'_, Bound>, Unfit> {
        match &self.laid {
            Some((same, bound)) if Arc::ptr_eq(same, parameters) => Ok(Cow::Borrowed(bound)),
            _ => bind_all(self.values, parameters).map(Cow::Owned),
        }
    }
}

/// Where the row lives that these values name; `None` if they do not name a whole key.
pub fn token(prepared: &Prepared, bound: &Bound) -> Option<Token> {
    let value = |at: &u16| {
        let mut from = Reader::new(&bound.bytes);
        (0..*at).try_for_each(|_| from.bytes("a bound value").map(drop)).ok()?;
        from.bytes("a bound value").ok()?
    };
    match prepared.key.as_slice() {
        [] => None,
        [only] => value(only).map(Token::of_key),
        several => {
            let parts: Option<Vec<&[u8]>> = several.iter().map(value).collect();
            composite_key(&parts?).map(|key| Token::of_key(&key))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cq_9_a_server_that_has_gone_is_not_remembered() {
        let (statement, other) = (Statement::new("SELECT n FROM t"), Statement::new("SELECT m FROM t"));
        let stays: Arc<str> = "stays".into();
        let known = statement.at(&stays);
        for number in 0..1000 {
            let name: Arc<str> = number.to_string().into();
            statement.at(&name);
            other.at(&name);
        }
        assert!(statement.shared.at.load().len() <= 2, "{}", statement.shared.at.load().len());
        assert!(Arc::ptr_eq(&known, &statement.at(&stays)));
    }
}
