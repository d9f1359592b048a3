//! Statements that go to the server as one message, and the result of each of them.

use crate::driver::MySqlRow;

/// The index of a statement in its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StatementIndex(usize);

#[derive(Default, Debug)]
pub(crate) struct Message {
    text: String,
    statements: usize,
    commit: Option<usize>,
}

impl Message {
    pub fn add(&mut self, statement: impl AsRef<str>) -> StatementIndex {
        if self.statements > 0 {
            self.text.push_str(";\n");
        }
        self.text.push_str(statement.as_ref());
        self.statements += 1;
        StatementIndex(self.statements - 1)
    }

    /// Adds the commit. The statements before it are durable when the server has answered this one.
    pub fn commit(&mut self) {
        self.commit = Some(self.statements);
        self.add("commit");
    }

    /// Returns the text, and the index of the statement that commits.
    pub fn into_parts(self) -> (String, Option<usize>) {
        (self.text, self.commit)
    }
}

#[derive(Default)]
pub(crate) struct StatementResult {
    pub rows: Vec<MySqlRow>,
    /// The number of rows that a change matched.
    pub changed: u64,
}

/// The results of all statements, in the order of the message.
pub(crate) struct Answers(Vec<StatementResult>);

impl Answers {
    pub fn new(told: Vec<StatementResult>) -> Answers {
        Answers(told)
    }

    pub fn rows(&self, StatementIndex(at): StatementIndex) -> &[MySqlRow] {
        self.0.get(at).map_or(&[], |told| &told.rows)
    }

    pub fn first(&self, at: StatementIndex) -> Option<&MySqlRow> {
        self.rows(at).first()
    }

    pub fn changed(&self, StatementIndex(at): StatementIndex) -> u64 {
        self.0.get(at).map_or(0, |told| told.changed)
    }
}
