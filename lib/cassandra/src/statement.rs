//! A statement that is executed many times, and its prepared form at each server.
//!
//! Servers may differ about a statement while they are being upgraded, so id and columns are kept per server.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::time::Instant;

use crate::conditional::is_conditional;
use crate::token::{Token, composite_key};
use crate::value::{BindAll, ValueMismatch, bind_all};
use crate::wire::{BoundValues, Column, PreparedStatement, Reader};

/// A statement. Clones share the prepared forms.
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
    /// The prepared forms by the name of the server. Every execution reads them; the first use of a server changes
    /// them.
    at: ArcSwap<HashMap<Box<str>, ServerEntry>>,
    usage: Usage,
}

/// How often a statement was executed, and when last.
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

/// The entry of one server. It is dropped after the last owner of the server's name.
#[derive(Clone, Debug)]
struct ServerEntry {
    server: Weak<str>,
    known: Arc<ServerStatement>,
}

/// The statement at one server.
#[derive(Debug, Default)]
pub(crate) struct ServerStatement {
    prepared: ArcSwapOption<PreparedStatement>,
    /// Held by the caller that prepares; the others wait for its result.
    pub turn: tokio::sync::Mutex<()>,
}

impl ServerStatement {
    pub fn prepared(&self) -> Option<Arc<PreparedStatement>> {
        self.prepared.load_full()
    }

    pub fn set(&self, prepared: Arc<PreparedStatement>) {
        self.prepared.store(Some(prepared));
    }
}

impl Statement {
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self::of(text.into(), None)
    }

    /// Creates a statement whose names without a keyspace refer to this one. Version 4 of the protocol cannot carry it:
    /// such a server is used only if the connection is in that keyspace already.
    pub fn in_keyspace(text: impl Into<Arc<str>>, keyspace: impl Into<Arc<str>>) -> Self {
        Self::of(text.into(), Some(keyspace.into()))
    }

    fn of(text: Arc<str>, keyspace: Option<Arc<str>>) -> Self {
        let conditional = is_conditional(&text);
        let usage = Usage { begun: Instant::now(), times: AtomicU64::new(0), last: AtomicU64::new(0) };
        let shared = Shared { text, keyspace, at: ArcSwap::default(), usage };
        Self { shared: Arc::new(shared), conditional, columns_fixed: false }
    }

    /// Overrides whether the statement is conditional, which is otherwise found from its text.
    #[must_use]
    pub fn conditional(self, conditional: bool) -> Self {
        Self { conditional, ..self }
    }

    /// Declares that the columns of the answer never change, so version 4 need not send them with every page. Not for
    /// `SELECT *`.
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

    pub(crate) fn at(&self, server: &Arc<str>) -> Arc<ServerStatement> {
        if let Some(at) = self.shared.at.load().get(&**server) {
            return Arc::clone(&at.known);
        }
        let mut found = Arc::default();
        self.shared.at.rcu(|at| {
            let stays = at.iter().filter(|(_, at)| at.server.strong_count() > 0);
            let mut at: HashMap<_, _> = stays.map(|(name, at)| (name.clone(), at.clone())).collect();
            let here = || ServerEntry { server: Arc::downgrade(server), known: Arc::default() };
            found = Arc::clone(&at.entry((&**server).into()).or_insert_with(here).known);
            at
        });
        found
    }

    pub(crate) fn usage(&self) -> &Usage {
        &self.shared.usage
    }

    /// Returns the prepared form at this server, without creating an entry for it.
    pub(crate) fn prepared_on(&self, server: &str) -> Option<Arc<PreparedStatement>> {
        self.shared.at.load().get(server)?.known.prepared()
    }

    /// Returns the prepared form at any server: enough to find the replicas of a key.
    pub fn anywhere(&self) -> Option<Arc<PreparedStatement>> {
        self.shared.at.load().values().find_map(|at| at.known.prepared())
    }

    /// Replaces the parameters by those of another server if they are equal, so that later comparisons only compare
    /// pointers.
    pub(crate) fn share_parameters(&self, prepared: PreparedStatement) -> PreparedStatement {
        match self.anywhere() {
            Some(other) if other.parameters == prepared.parameters => {
                PreparedStatement { parameters: Arc::clone(&other.parameters), ..prepared }
            }
            _ => prepared,
        }
    }
}

/// A statement and the values to bind.
pub(crate) struct Execution<'a, V: ?Sized> {
    pub statement: &'a Statement,
    pub values: &'a V,
    /// The values as they were bound to find the replicas.
    pub bound_before: Option<(Arc<[Column]>, BoundValues)>,
}

impl<V: BindAll + ?Sized> Execution<'_, V> {
    /// Returns the bound values for a server with these parameters; most servers have the same.
    pub fn bound(&self, parameters: &Arc<[Column]>) -> Result<Cow<'_, BoundValues>, ValueMismatch> {
        match &self.bound_before {
            Some((same, bound)) if Arc::ptr_eq(same, parameters) => Ok(Cow::Borrowed(bound)),
            _ => bind_all(self.values, parameters).map(Cow::Owned),
        }
    }
}

/// Returns the token of the row that these values name; `None` if they do not contain the whole partition key.
pub fn token(prepared: &PreparedStatement, bound: &BoundValues) -> Option<Token> {
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
