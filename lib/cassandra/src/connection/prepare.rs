//! Prepared statements on one connection: they are prepared once per server, and again if the server has forgotten
//! them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::Connection;
use super::request::parameters;
use crate::batch::Batch;
use crate::error::{Cause, Error};
use crate::options::Options;
use crate::statement::{Execution, ServerStatement, Statement};
use crate::value::{BindAll, bind_all};
use crate::wire::request::BatchEntry;
use crate::wire::{
    self, Answer, BoundValues, Code, Layout, Malformed, Parameters, PreparedStatement, Request, Response, Version,
};

impl Connection {
    /// Returns the statement as the server has prepared it; prepares it there first if necessary.
    pub async fn prepare(&self, statement: &Statement, by: Instant) -> Result<Arc<PreparedStatement>, Error> {
        let known = statement.at(&self.shared.server);
        match known.prepared() {
            Some(prepared) => Ok(prepared),
            None => self.prepare_unless_done(statement, &known, None, by).await,
        }
    }

    /// Prepares the statement again, unless another caller has done so already: the server may have forgotten it.
    pub(crate) async fn prepare_again(
        &self,
        statement: &Statement,
        stale: &Arc<PreparedStatement>,
        by: Instant,
    ) -> Result<Arc<PreparedStatement>, Error> {
        self.prepare_unless_done(statement, &statement.at(&self.shared.server), Some(stale), by).await
    }

    /// Prepares the statement; concurrent callers wait for the one that does. `stale` is the version of the statement
    /// that the server does not know any more.
    async fn prepare_unless_done(
        &self,
        statement: &Statement,
        known: &ServerStatement,
        stale: Option<&Arc<PreparedStatement>>,
        by: Instant,
    ) -> Result<Arc<PreparedStatement>, Error> {
        let begun = Instant::now();
        let silent = |_| Cause::Silent { asked: "PREPARE", within: by.saturating_duration_since(begun) };
        let turn = tokio::time::timeout_at(by, known.turn.lock()).await;
        let _turn = turn.map_err(|late| self.error(silent(late)))?;
        if let Some(prepared) = known.prepared()
            && stale.is_none_or(|stale| !Arc::ptr_eq(stale, &prepared))
        {
            return Ok(prepared);
        }
        if let Some(count) = self.shared.forgotten.get().filter(|_| stale.is_some()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let request = Request::Prepare { text: statement.text(), keyspace: statement.keyspace() };
        let response = self.request(&request, &Options::default(), by).await?;
        match response.answer {
            Answer::Prepared(prepared) => {
                let prepared = Arc::new(statement.share_parameters(prepared));
                known.set(Arc::clone(&prepared));
                Ok(prepared)
            }
            other => Err(self.close_as_wrong(Cause::Unexpected { asked: "PREPARE", got: other.name() })),
        }
    }

    pub async fn execute(&self, statement: &Statement, values: impl BindAll, how: &Options) -> Result<Response, Error> {
        let what = Execution { statement, values: &values, bound_before: None };
        self.execute_by(&what, how, Instant::now() + how.within).await
    }

    pub(crate) async fn execute_by<V: BindAll + ?Sized>(
        &self,
        what: &Execution<'_, V>,
        how: &Options,
        by: Instant,
    ) -> Result<Response, Error> {
        let statement = what.statement;
        if statement.is_conditional() && how.timestamp.is_some() {
            return Err(self.error(Cause::TimestampOnConditional));
        }
        if let Some(asked) = how.keyspace.as_deref().filter(|asked| statement.keyspace() != Some(*asked)) {
            return Err(self.error(Cause::KeyspaceOfPrepared(asked.to_owned())));
        }
        if let Some(asked) = how.version.filter(|version| *version != self.shared.version) {
            return Err(self.error(Cause::OtherVersion { asked, spoken: self.shared.version }));
        }
        let prepared = self.prepare(statement, by).await?;
        let first = self.execute_as(what, &prepared, how, by).await;
        match first {
            Err(Error { cause: Cause::Refused(refusal), .. }) if matches!(refusal.code, Code::Unprepared { .. }) => {
                let prepared = self.prepare_again(statement, &prepared, by).await?;
                self.execute_as(what, &prepared, how, by).await
            }
            other => other,
        }
    }

    async fn execute_as<V: BindAll + ?Sized>(
        &self,
        what: &Execution<'_, V>,
        prepared: &Arc<PreparedStatement>,
        how: &Options,
        by: Instant,
    ) -> Result<Response, Error> {
        let bound = what.bound(&prepared.parameters).map_err(|why| self.error(why.into()))?;
        // Version 5 reports changed columns; version 4 does not, so there the columns are sent with every answer.
        let tells = self.shared.version >= Version::V5 && prepared.result_id.is_some();
        let skip_metadata = !prepared.result.columns.is_empty() && (tells || what.statement.has_fixed_columns());
        // The statement was prepared in its keyspace, so the request need not carry it.
        let how_sent = Parameters { keyspace: None, ..parameters(how, Some(&bound), skip_metadata) };
        let request = Request::Execute { id: &prepared.id, result_id: prepared.result_id.as_deref(), how: how_sent };
        let mut response = self.request_as(&request, how, by, Some(&prepared.result)).await?;
        if let Answer::Rows(rows) = response.answer {
            // If the caller declared the columns as fixed and the server cannot report a change, the answer is not the
            // server's fault.
            let declared_fixed = skip_metadata && !tells;
            let unfit =
                |why: Malformed| if declared_fixed { self.error(why.into()) } else { self.close_as_wrong(why.into()) };
            let rows = rows.with_columns(&prepared.result.columns).map_err(unfit)?;
            if let Some(id) = rows.changed_id() {
                let changed = PreparedStatement {
                    result_id: Some(id.clone()),
                    result: Layout::of(Arc::clone(rows.columns())),
                    ..(**prepared).clone()
                };
                what.statement.at(&self.shared.server).set(Arc::new(changed));
            }
            response.answer = Answer::Rows(rows);
        }
        Ok(response)
    }

    pub async fn batch(&self, batch: &Batch, how: &Options) -> Result<Response, Error> {
        self.batch_by(batch, how, Instant::now() + how.within).await
    }

    pub(crate) async fn batch_by(&self, batch: &Batch, how: &Options, by: Instant) -> Result<Response, Error> {
        if how.timestamp.is_some() && batch.is_conditional() {
            return Err(self.error(Cause::TimestampOnConditional));
        }
        let bound = self.bind(batch, by).await?;
        match self.batch_as(batch, &bound, how, by).await {
            Err(Error { cause: Cause::Refused(refusal), .. }) if matches!(refusal.code, Code::Unprepared { .. }) => {
                // The server names one statement, but has most likely forgotten all of them.
                for (part, (prepared, _)) in batch.parts().zip(&bound) {
                    if let Some(statement) = &part.statement {
                        let known = statement.at(&self.shared.server);
                        self.prepare_unless_done(statement, &known, prepared.as_ref(), by).await?;
                    }
                }
                let bound = self.bind(batch, by).await?;
                self.batch_as(batch, &bound, how, by).await
            }
            other => other,
        }
    }

    async fn bind(
        &self,
        batch: &Batch,
        by: Instant,
    ) -> Result<Vec<(Option<Arc<PreparedStatement>>, BoundValues)>, Error> {
        let mut bound = Vec::with_capacity(batch.len());
        for part in batch.parts() {
            bound.push(match &part.statement {
                None => (None, BoundValues::default()),
                Some(statement) => {
                    let prepared = self.prepare(statement, by).await?;
                    let values = bind_all(&*part.values, &prepared.parameters).map_err(|why| self.error(why.into()))?;
                    (Some(prepared), values)
                }
            });
        }
        Ok(bound)
    }

    async fn batch_as(
        &self,
        batch: &Batch,
        bound: &[(Option<Arc<PreparedStatement>>, BoundValues)],
        how: &Options,
        by: Instant,
    ) -> Result<Response, Error> {
        let prose = batch.parts().zip(bound).map(|(part, (prepared, values))| {
            let prose =
                prepared.as_ref().map_or(BatchEntry::Text(&part.text), |prepared| BatchEntry::Prepared(&prepared.id));
            (prose, values)
        });
        let statements: Vec<(BatchEntry<'_>, &BoundValues)> = prose.collect();
        let request = Request::Batch(wire::Batch {
            kind: batch.kind(),
            statements: &statements,
            consistency: how.consistency,
            serial: how.serial,
            timestamp: how.timestamp,
            keyspace: how.keyspace.as_deref(),
        });
        self.request(&request, how, by).await
    }
}
