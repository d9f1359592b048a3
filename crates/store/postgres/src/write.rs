//! Executes the fenced writes of a group in one transaction. It first compares and locks the fences; then it executes
//! operations of the same kind together, over all requests. Every operation is idempotent.
//!
//! Locks are taken in one order: leases by name, the outbox by id, parked entries, the journal.

mod checkpoint;
mod fan_out;
mod park;
pub(crate) mod plan;
mod settle;

use hashbrown::HashSet;
use honeyflow_event::{EventId, Key};
use honeyflow_hive::{Fence, fence};
use honeyflow_runtime::Class;
use honeyflow_store::Write;

use crate::{
    append,
    config::Options,
    driver::{Error, PgConnection, PgRow, Query},
    literal, row, session, signal,
    writer::millis,
};
use plan::Step;

/// How long a statement waits for a row that another transaction holds.
const LOCK_WAIT_MS: u32 = 100;

/// Returns the statements that begin the transaction and read which fences are valid and whether the journal has
/// anything to clear.
pub(crate) fn head<'f>(options: &Options, fences: impl Iterator<Item = &'f Fence> + Clone) -> String {
    let mut shards: Vec<u16> = fences.clone().map(shard).collect();
    shards.sort_unstable();
    shards.dedup();
    let shards = literal::integers(shards);
    let columns = format!(
        "name, epoch, holder::text, exists (select 1 from honeyflow_failure where shard = any ({shards}::smallint[])),
         exists (select 1 from honeyflow_checkpoint where shard = any ({shards}::smallint[])),
         exists (select 1 from honeyflow_parked)"
    );
    let idle = millis(options.idle_in_transaction());
    let fence = fence::postgres(&options.hive, fences, &columns);
    format!(
        "begin isolation level read committed;
         select set_config('lock_timeout', '{LOCK_WAIT_MS}', true), set_config('jit', 'off', true),
           set_config('enable_seqscan', 'off', true),
           set_config('idle_in_transaction_session_timeout', '{idle}', true);
         {fence}"
    )
}

/// The reply to the statements of [`head`].
#[derive(Default)]
pub(crate) struct HeadReply {
    holding: HashSet<(String, u64, String)>,
    failures: bool,
    checkpoints: bool,
    parked: bool,
}

impl HeadReply {
    pub fn read(answers: &[Vec<PgRow>]) -> Result<HeadReply, Error> {
        let mut reply = HeadReply::default();
        for row in answers.last().into_iter().flatten() {
            let text = |column| row::text(row, column).map(|text| text.unwrap_or_default().to_owned());
            reply.holding.insert((text(0)?, row::number(row, 1)?, text(2)?));
            reply.failures = row::text(row, 3)? == Some("t");
            reply.checkpoints = row::text(row, 4)? == Some("t");
            reply.parked = row::text(row, 5)? == Some("t");
        }
        Ok(reply)
    }

    pub fn holds(&self, fence: &Fence) -> bool {
        self.holding.contains(&(fence.lease().to_string(), fence.epoch().0, fence.holder().to_string()))
    }
}

/// Returns the shard of a fence; the lease of a shard is named `shard/<source>/<n>`.
pub(crate) fn shard(fence: &Fence) -> u16 {
    fence.lease().rsplit('/').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

pub(crate) fn smallint(shard: u16) -> i16 {
    i16::try_from(shard).unwrap_or(i16::MAX)
}

pub(crate) fn integer(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// Returns the rows that another transaction has locked.
pub(crate) async fn locked_by_others(connection: &mut PgConnection, events: &[EventId]) -> Result<Vec<EventId>, Error> {
    if events.is_empty() {
        return Ok(Vec::new());
    }
    let of = format!("select id from honeyflow_outbox where id = any ({}::bigint[])", literal::integers(events));
    let answers = session::run(connection, format!("{of} order by id for update skip locked; {of}")).await?;
    let ids = |rows: Option<&Vec<PgRow>>| -> Result<Vec<EventId>, Error> {
        rows.into_iter().flatten().map(|row| row::number(row, 0)).collect()
    };
    let free: HashSet<EventId> = ids(answers.first())?.into_iter().collect();
    Ok(ids(answers.get(1))?.into_iter().filter(|id| !free.contains(id)).collect())
}

/// The admitted requests of one transaction.
pub(crate) struct Group<'w> {
    steps: Vec<Step<'w>>,
}

/// The open transaction of a group.
pub(crate) struct OpenTransaction<'c> {
    pub connection: &'c mut PgConnection,
    /// Statements without users' data; they are sent together with the next statement.
    pub pending: String,
    /// Whether these tables may have rows.
    pub failures: bool,
    pub checkpoints: bool,
    pub parked: bool,
}

impl<'w> Group<'w> {
    pub fn new(writes: impl Iterator<Item = (&'w Write, &'w [Vec<Key>])>) -> Group<'w> {
        Group { steps: plan::steps(writes) }
    }

    /// Executes all steps and commits.
    pub async fn write(&self, connection: &mut PgConnection, reply: &HeadReply) -> Result<(), Error> {
        let HeadReply { failures, checkpoints, parked, .. } = *reply;
        let mut transaction = OpenTransaction { connection, pending: String::new(), failures, checkpoints, parked };
        for step in &self.steps {
            transaction.step(step).await?;
        }
        transaction.pending.push_str("commit");
        transaction.flush().await
    }
}

impl OpenTransaction<'_> {
    async fn step(&mut self, step: &Step<'_>) -> Result<(), Error> {
        match step {
            Step::Settle { events, runs } => settle::settle(self, events, runs).await,
            Step::Charge(charges) => {
                self.failures = true;
                settle::charge(self, charges).await
            }
            Step::Park(shard, parked) => {
                self.parked = true;
                park::park(self, *shard, parked).await
            }
            Step::ParkRow(event, failure) => {
                self.parked = true;
                park::park_row(self, *event, failure).await
            }
            Step::Checkpoint(checkpoints) => {
                self.checkpoints = true;
                checkpoint::put(self, checkpoints).await
            }
            Step::Signal(kept) => signal::put(self, kept).await,
            Step::Replace(replaced) => {
                let ids: Vec<EventId> = replaced.iter().map(|(event, _)| *event).collect();
                let gone = self.delete(&ids).await?;
                let by = replaced.iter().filter(|(event, _)| gone.contains(event)).flat_map(|(_, by)| by.iter());
                append::insert_all(self.connection, &by.collect::<Vec<_>>()).await.map(drop)
            }
            Step::FanOut(fan_out, containers) => fan_out::page(self, fan_out, containers).await,
            Step::History(histories) => settle::put_history(self, histories).await,
        }
    }

    /// Adds a statement without users' data to the pending ones.
    pub fn later(&mut self, statement: &str) {
        self.pending.push_str(statement);
        self.pending.push_str(";\n");
    }

    pub async fn flush(&mut self) -> Result<(), Error> {
        if !self.pending.is_empty() {
            session::run(self.connection, std::mem::take(&mut self.pending)).await?;
        }
        Ok(())
    }

    /// Executes a statement with bound values, after all pending statements.
    pub async fn bound(&mut self, statement: Query<'_>) -> Result<Vec<PgRow>, Error> {
        self.flush().await?;
        session::run_bound(self.connection, statement).await
    }

    /// Deletes rows of the outbox; returns the ids that existed.
    pub async fn delete(&mut self, events: &[EventId]) -> Result<HashSet<EventId>, Error> {
        let ids = literal::integers(events);
        self.later(&format!("delete from honeyflow_outbox where id = any ({ids}::bigint[]) returning id"));
        let answers = session::run(self.connection, std::mem::take(&mut self.pending)).await?;
        answers.last().into_iter().flatten().map(|row| row::number(row, 0)).collect()
    }
}

pub(crate) fn class_name(class: Class) -> &'static str {
    match class {
        Class::Retry => "retry",
        Class::RetryAfter => "retry-after",
        Class::Reject => "reject",
        Class::Fatal => "fatal",
    }
}
