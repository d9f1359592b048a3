//! Several statements in one request.

use std::fmt;
use std::sync::Arc;

use crate::conditional::is_conditional;
use crate::statement::Statement;
use crate::value::BindAll;
use crate::wire::BatchKind;

/// A batch of statements.
///
/// ```
/// use honeyflow_cassandra::{Batch, Statement};
///
/// let put = Statement::new("INSERT INTO shop.book (id, title) VALUES (?, ?) USING TIMESTAMP ?");
/// let mut batch = Batch::unlogged();
/// batch.push(&put, (1_i32, "Bees", 17_i64));
/// batch.push(&put, (2_i32, "Wasps", 18_i64));
/// ```
#[derive(Debug, Clone)]
pub struct Batch {
    kind: BatchKind,
    parts: Vec<Part>,
}

#[derive(Clone)]
pub(crate) struct Part {
    /// `None` = send the text itself, without values.
    pub statement: Option<Statement>,
    pub text: Arc<str>,
    pub values: Arc<dyn BindAll + Send + Sync>,
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} values)", self.text, self.values.count())
    }
}

impl Batch {
    fn new(kind: BatchKind) -> Self {
        Self { kind, parts: Vec::new() }
    }

    /// A logged batch: eventually all of its statements are executed or none, at the cost of a log at the server.
    pub fn logged() -> Self {
        Self::new(BatchKind::Logged)
    }

    /// An unlogged batch: it only saves messages.
    pub fn unlogged() -> Self {
        Self::new(BatchKind::Unlogged)
    }

    pub fn counter() -> Self {
        Self::new(BatchKind::Counter)
    }

    pub fn push(&mut self, statement: &Statement, values: impl BindAll + Send + Sync + 'static) {
        let text = Arc::from(statement.text());
        self.parts.push(Part { statement: Some(statement.clone()), text, values: Arc::new(values) });
    }

    pub fn push_text(&mut self, text: impl Into<Arc<str>>) {
        self.parts.push(Part { statement: None, text: text.into(), values: Arc::new(()) });
    }

    pub fn len(&self) -> usize {
        self.parts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub fn is_conditional(&self) -> bool {
        let one =
            |part: &Part| part.statement.as_ref().map_or_else(|| is_conditional(&part.text), Statement::is_conditional);
        self.parts.iter().any(one)
    }

    pub(crate) fn kind(&self) -> BatchKind {
        self.kind
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter()
    }
}
