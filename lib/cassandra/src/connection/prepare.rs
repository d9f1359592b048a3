//! Prepared statements on one connection: prepared once per server, and again when the server has forgotten them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::Connection;
use super::request::parameters;
use crate::batch::Batch;
use crate::error::{Cause, Error};
use crate::options::Options;
use crate::statement::{Execution, Known, Statement};
use crate::value::{BindAll, bind_all};
use crate::wire::request::Prose;
use crate::wire::{self, Answer, Bound, Code, Layout, Malformed, Parameters, Prepared, Request, Response, Version};

impl Connection {
    /// What the server knows of the statement; prepares it there if nobody has.
    pub async fn prepare(&self, statement: &Statement, by: Instant) -> Result<Arc<Prepared>, Error> {
        let known = statement.at(&self.shared.server);
        match known.prepared() {
            Some(prepared) => Ok(prepared),
            None => self.prepare_anew(statement, &known, None, by).await,
        }
    }

    /// Once more, unless somebody else has done so: the server may have forgotten it.
    pub(crate) async fn prepare_again(
        &self,
        statement: &Statement,
        stale: &Arc<Prepared>,
        by: Instant,
    ) -> Result<Arc<Prepared>, Error> {
        self.prepare_anew(statement, &statement.at(&self.shared.server), Some(stale), by).await
    }

    /// One prepares, the others wait for it. `stale` is what the server said it does not know.
    async fn prepare_anew(
        &self,
        statement: &Statement,
        known: &Known,
        stale: Option<&Arc<Prepared>>,
        by: Instant,
    ) -> Result<Arc<Prepared>, Error> {
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
        let response = self.answered(&request, &Options::default(), by).await?;
        match response.answer {
            Answer::Prepared(prepared) => {
                let prepared = Arc::new(statement.alike(prepared));
                known.set(Arc::clone(&prepared));
                Ok(prepared)
            }
            other => Err(self.wrong(Cause::Unexpected { asked: "PREPARE", got: other.name() })),
        }
    }

    pub async fn execute(&self, statement: &Statement, values: impl BindAll, how: &Options) -> Result<Response, Error> {
        let what = Execution { statement, values: &values, laid: None };
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
        prepared: &Arc<Prepared>,
        how: &Options,
        by: Instant,
    ) -> Result<Response, Error> {
        let bound = what.bound(&prepared.parameters).map_err(|why| self.error(why.into()))?;
        // Version 5 tells when the columns have changed; version 4 would keep silent, so it always sends them.
        let tells = self.shared.version >= Version::V5 && prepared.result_id.is_some();
        let skip_metadata = !prepared.result.columns.is_empty() && (tells || what.statement.has_fixed_columns());
        // The server has known its keyspace since it was prepared.
        let how_sent = Parameters { keyspace: None, ..parameters(how, Some(&bound), skip_metadata) };
        let request = Request::Execute { id: &prepared.id, result_id: prepared.result_id.as_deref(), how: how_sent };
        let mut response = self.answered_as(&request, how, by, Some(&prepared.result)).await?;
        if let Answer::Rows(rows) = response.answer {
            // Whoever said that the columns stay as they are, where the server cannot say otherwise, got what he asked for.
            let promised = skip_metadata && !tells;
            let unfit = |why: Malformed| if promised { self.error(why.into()) } else { self.wrong(why.into()) };
            let rows = rows.with_columns(&prepared.result.columns).map_err(unfit)?;
            if let Some(id) = rows.changed_id() {
                let changed = Prepared {
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
                // The server names one, and has most likely forgotten them all.
                for (part, (prepared, _)) in batch.parts().zip(&bound) {
                    if let Some(statement) = &part.statement {
                        let known = statement.at(&self.shared.server);
                        self.prepare_anew(statement, &known, prepared.as_ref(), by).await?;
                    }
                }
                let bound = self.bind(batch, by).await?;
                self.batch_as(batch, &bound, how, by).await
            }
            other => other,
        }
    }

    async fn bind(&self, batch: &Batch, by: Instant) -> Result<Vec<(Option<Arc<Prepared>>, Bound)>, Error> {
        let mut bound = Vec::with_capacity(batch.len());
        for part in batch.parts() {
            bound.push(match &part.statement {
                None => (None, Bound::default()),
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
        bound: &[(Option<Arc<Prepared>>, Bound)],
        how: &Options,
        by: Instant,
    ) -> Result<Response, Error> {
        let prose = batch.parts().zip(bound).map(|(part, (prepared, values))| {
            let prose = prepared.as_ref().map_or(Prose::Text(&part.text), |prepared| Prose::Prepared(&prepared.id));
            (prose, values)
        });
        let statements: Vec<(Prose<'_>, &Bound)> = prose.collect();
        let request = Request::Batch(wire::Batch {
            kind: batch.kind(),
            statements: &statements,
            consistency: how.consistency,
            serial: how.serial,
            timestamp: how.timestamp,
            keyspace: how.keyspace.as_deref(),
        });
        self.answered(&request, how, by).await
    }
}
