//! A statement to be executed many times, and what each server knows of it.
//!
//! Servers may disagree about a statement while they are being upgraded: id and columns are kept for each by itself.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::conditional::is_conditional;
use crate::token::{Token, composite_key};
use crate::wire::{Bound, Prepared, Reader};

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
    at: Mutex<HashMap<Arc<str>, Arc<Known>>>,
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

/// What one server knows.
#[derive(Debug, Default)]
pub(crate) struct Known {
    prepared: Mutex<Option<Arc<Prepared>>>,
    /// Held by the one who prepares; the others wait for what comes of it.
    pub turn: tokio::sync::Mutex<()>,
}

impl Known {
    pub fn prepared(&self) -> Option<Arc<Prepared>> {
        lock(&self.prepared).clone()
    }

    pub fn set(&self, prepared: Arc<Prepared>) {
        *lock(&self.prepared) = Some(prepared);
    }
}

impl Statement {
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self::of(text.into(), None)
    }

    /// Names without a keyspace mean this one; version 4 cannot carry it.
    pub fn in_keyspace(text: impl Into<Arc<str>>, keyspace: impl Into<Arc<str>>) -> Self {
        Self::of(text.into(), Some(keyspace.into()))
    }

    fn of(text: Arc<str>, keyspace: Option<Arc<str>>) -> Self {
        let conditional = is_conditional(&text);
        let usage = Usage { begun: Instant::now(), times: AtomicU64::new(0), last: AtomicU64::new(0) };
        let shared = Shared { text, keyspace, at: Mutex::default(), usage };
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
        Arc::clone(lock(&self.shared.at).entry(Arc::clone(server)).or_default())
    }

    pub(crate) fn usage(&self) -> &Usage {
        &self.shared.usage
    }

    /// As this server knows it; nothing is remembered about one that was never asked.
    pub(crate) fn known_at(&self, server: &str) -> Option<Arc<Prepared>> {
        lock(&self.shared.at).get(server)?.prepared()
    }

    /// As any server knows it: enough to tell where a key lives.
    pub fn anywhere(&self) -> Option<Arc<Prepared>> {
        lock(&self.shared.at).values().find_map(|known| known.prepared())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is inside is whole after every line.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the row lives that these values name; `None` if they do not name a whole key.
pub fn token(prepared: &Prepared, bound: &Bound) -> Option<Token> {
    if prepared.key.is_empty() {
        return None;
    }
    let mut from = Reader::new(&bound.bytes);
    let mut values = Vec::with_capacity(bound.count.into());
    for _ in 0..bound.count {
        values.push(from.bytes("a bound value").ok()?);
    }
    let parts: Option<Vec<&[u8]>> = prepared.key.iter().map(|at| *values.get(usize::from(*at))?).collect();
    composite_key(&parts?).map(|key| Token::of_key(&key))
}
