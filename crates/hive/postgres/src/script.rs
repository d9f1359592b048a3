//! One message to the server: a whole transaction, so that it is one round trip, holds no lock while anything travels,
//! and needs no session.

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
    /// Those whose rows are the answer.
    asked: Vec<usize>,
}

impl Script {
    /// Every change, whatever the role's defaults are: each statement sees what was committed before it began, and what
    /// is answered is on disk. Access is by key alone: these tables are too small and change too fast for statistics.
    /// A policy that would hide rows is an error: whoever is hidden would look dead.
    pub fn change(lock_wait: Duration) -> Script {
        let durable = "case current_setting('synchronous_commit') when 'off' then 'on'
            else current_setting('synchronous_commit') end";
        Script::begin("read committed", lock_wait, durable)
    }

    /// What may be lost with the server's memory.
    pub fn fleeting(lock_wait: Duration) -> Script {
        Script::begin("read committed", lock_wait, "'off'")
    }

    /// All statements in one snapshot, and never on a replica, which may be late by any time: it cannot say where its log
    /// ends.
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

    /// The message, and which of its statements are the answer.
    pub fn end(self) -> (String, Vec<usize>) {
        let Script { text, asked, .. } = self.run("commit");
        (text, asked)
    }
}

/// The rows of each statement that was asked.
pub(crate) struct Answers(Vec<Vec<PgRow>>);

impl Answers {
    pub fn of(all: Vec<Vec<PgRow>>, asked: &[usize]) -> Answers {
        let pick = |(n, rows)| asked.contains(&n).then_some(rows);
        Answers(all.into_iter().enumerate().filter_map(pick).collect())
    }

    pub fn lines(&self, asked: usize) -> impl Iterator<Item = Line<'_>> {
        self.0.get(asked).into_iter().flatten().map(Line)
    }

    pub fn first(&self, asked: usize) -> Option<Line<'_>> {
        self.lines(asked).next()
    }

    /// Of a statement that always has one.
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

    /// HV-51: only pool draws.
    #[test]
    fn what_must_last_is_never_committed_asynchronously() {
        let (text, _) = Script::change(Duration::from_secs(1)).end();
        assert!(text.contains("when 'off' then 'on'"), "{text}");
        let (text, _) = Script::fleeting(Duration::from_secs(1)).end();
        assert!(text.contains("'synchronous_commit', 'off', true"), "{text}");
    }
}
