//! Statements that go to the server as one message, and what it answers to each of them.

use crate::driver::MySqlRow;

/// Which statement of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct At(usize);

#[derive(Default, Debug)]
pub(crate) struct Message {
    text: String,
    statements: usize,
    commit: Option<usize>,
}

impl Message {
    pub fn add(&mut self, statement: impl AsRef<str>) -> At {
        if self.statements > 0 {
            self.text.push_str(";\n");
        }
        self.text.push_str(statement.as_ref());
        self.statements += 1;
        At(self.statements - 1)
    }

    /// What stands before it is done once this is answered.
    pub fn commit(&mut self) {
        self.commit = Some(self.statements);
        self.add("commit");
    }

    /// The text, and which statement commits.
    pub fn into_parts(self) -> (String, Option<usize>) {
        (self.text, self.commit)
    }
}

#[derive(Default)]
pub(crate) struct Told {
    pub rows: Vec<MySqlRow>,
    /// Rows that a change has found.
    pub changed: u64,
}

/// One by one, as the statements stand in the message.
pub(crate) struct Answers(Vec<Told>);

impl Answers {
    pub fn new(told: Vec<Told>) -> Answers {
        Answers(told)
    }

    pub fn rows(&self, At(at): At) -> &[MySqlRow] {
        self.0.get(at).map_or(&[], |told| &told.rows)
    }

    pub fn first(&self, at: At) -> Option<&MySqlRow> {
        self.rows(at).first()
    }

    pub fn changed(&self, At(at): At) -> u64 {
        self.0.get(at).map_or(0, |told| told.changed)
    }
}
