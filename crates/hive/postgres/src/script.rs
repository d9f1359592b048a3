//! One message to the server: a whole transaction. So it takes one round trip, holds no lock during a network round
//! trip, and needs no session.

use std::{
    fmt::{Display, Write},
    time::Duration,
};

use crate::{
    driver::{Error, PgRow},
    row::Line,
};

pub(crate) struct Script {
    text: String,
    statements: usize,
    /// The indexes of the statements whose rows are the answer.
    asked: Vec<usize>,
}

impl Script {
    /// Begins a change. It overrides the role's defaults: each statement sees what was committed before it began, and
    /// an acknowledged change is on disk. Rows are found by key only, because these tables are too small and change too
    /// fast for the planner's statistics. A policy that would hide rows is an error, because a hidden node would look
    /// dead.
    pub fn change(lock_wait: Duration) -> Script {
        let durable = "case current_setting('synchronous_commit') when 'off' then 'on'
            else current_setting('synchronous_commit') end";
        Script::begin("read committed", lock_wait, durable)
    }

    /// Begins a change that may be lost in a crash of the server.
    pub fn unsynced_change(lock_wait: Duration) -> Script {
        Script::begin("read committed", lock_wait, "'off'")
    }

    /// Begins a read: all statements see one snapshot. It fails on a replica, which may be late by any amount of time,
    /// because a replica cannot report the end of its log.
    pub fn read() -> Script {
        let current = "current_setting('synchronous_commit')";
        let script = Script::begin("repeatable read read only", Duration::from_secs(1), current);
        script.run("select pg_current_wal_insert_lsn()")
    }

    fn begin(how: &str, lock_wait: Duration, commit: &str) -> Script {
        let lock_wait = lock_wait.as_millis().max(1);
        let script = Script { text: String::new(), statements: 0, asked: Vec::new() };
        script.run(format_args!("begin isolation level {how}")).run(format_args!(
            "select set_config('lock_timeout', '{lock_wait}', true), set_config('jit', 'off', true),
             set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
             set_config('enable_sort', 'off', true), set_config('row_security', 'off', true),
             set_config('synchronous_commit', {commit}, true)"
        ))
    }

    pub fn run(mut self, statement: impl Display) -> Script {
        let _ = writeln!(self.text, "{statement};");
        self.statements += 1;
        self
    }

    pub fn ask(mut self, statement: impl Display) -> Script {
        self.asked.push(self.statements);
        self.run(statement)
    }

    /// Returns the message, and the indexes of the statements whose rows are the answer.
    pub fn end(self) -> (String, Vec<usize>) {
        let Script { text, asked, .. } = self.run("commit");
        (text, asked)
    }
}

/// The rows of each statement that was added by [`Script::ask`].
pub(crate) struct Answers(Vec<Vec<PgRow>>);

impl Answers {
    pub fn select(all: Vec<Vec<PgRow>>, asked: &[usize]) -> Answers {
        let pick = |(n, rows)| asked.contains(&n).then_some(rows);
        Answers(all.into_iter().enumerate().filter_map(pick).collect())
    }

    pub fn lines(&self, asked: usize) -> impl Iterator<Item = Line<'_>> {
        self.0.get(asked).into_iter().flatten().map(Line)
    }

    pub fn first(&self, asked: usize) -> Option<Line<'_>> {
        self.lines(asked).next()
    }

    /// The first row of a statement that always returns one.
    pub fn line(&self, asked: usize) -> Result<Line<'_>, Error> {
        self.first(asked).ok_or(Error::RowNotFound)
    }

    pub fn is_empty(&self, asked: usize) -> bool {
        self.first(asked).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hv_37_a_change_is_one_message_and_read_committed() {
        let (text, asked) = Script::change(Duration::from_secs(3)).run("a").ask("b").end();
        assert!(text.starts_with("begin isolation level read committed;"), "{text}");
        assert!(text.contains("'lock_timeout', '3000', true"), "{text}");
        assert!(text.ends_with("a;\nb;\ncommit;\n"), "{text}");
        assert_eq!(asked, [3]);
    }

    /// HV-51: only draws from a pool are committed asynchronously.
    #[test]
    fn changes_are_never_committed_asynchronously() {
        let (text, _) = Script::change(Duration::from_secs(1)).end();
        assert!(text.contains("when 'off' then 'on'"), "{text}");
        let (text, _) = Script::unsynced_change(Duration::from_secs(1)).end();
        assert!(text.contains("'synchronous_commit', 'off', true"), "{text}");
    }
}
