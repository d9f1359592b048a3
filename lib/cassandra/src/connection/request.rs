//! Requests on one connection, each with its own deadline.

use std::sync::atomic::Ordering;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::Connection;
use super::transport::{Exchange, Outcome};
use crate::error::{Cause, Error};
use crate::options::Options;
use crate::wire::envelope::Outgoing;
use crate::wire::{Answer, BoundValues, Envelope, Layout, Opcode, Parameters, Request, Response, Version};

impl Connection {
    /// Sends a statement without values. A statement with values must be prepared: only then their types are known.
    pub async fn query(&self, text: &str, how: &Options) -> Result<Response, Error> {
        self.query_by(text, how, Instant::now() + how.within).await
    }

    pub(crate) async fn query_by(&self, text: &str, how: &Options, by: Instant) -> Result<Response, Error> {
        let conditional = how.timestamp.is_some() && crate::conditional::is_conditional(text);
        if conditional {
            return Err(self.error(Cause::TimestampOnConditional));
        }
        let request = Request::Query { text, how: parameters(how, None, false) };
        self.request(&request, how, by).await
    }

    /// Sends any message; a refusal is returned as an answer.
    pub(crate) async fn send(&self, request: &Request<'_>, by: Instant, tracing: bool) -> Result<Response, Error> {
        self.send_as(request, by, tracing, None).await
    }

    /// Sends any message; a refusal is returned as an error.
    pub(crate) async fn request(&self, request: &Request<'_>, how: &Options, by: Instant) -> Result<Response, Error> {
        self.request_as(request, how, by, None).await
    }

    /// Sends any message; `known` are the columns that the answer most likely has.
    pub(super) async fn request_as(
        &self,
        request: &Request<'_>,
        how: &Options,
        by: Instant,
        known: Option<&Layout>,
    ) -> Result<Response, Error> {
        let response = self.send_as(request, by, how.tracing, known).await?;
        match response.answer {
            Answer::Refused(refusal) => Err(self.error(Cause::Refused(refusal))),
            _ => Ok(response),
        }
    }

    async fn send_as(
        &self,
        request: &Request<'_>,
        by: Instant,
        tracing: bool,
        known: Option<&Layout>,
    ) -> Result<Response, Error> {
        self.check_keyspace(request)?;
        let message = request.encode(self.shared.version, self.shared.compression, tracing);
        let message = message.map_err(|why| self.error(why.into()))?;
        let exchanged = if self.timed {
            self.exchange(message).await
        } else {
            self.exchange_by(message, request.opcode(), by).await
        };
        let envelope = exchanged.map_err(|cause| self.error(cause))?;
        // The frame was valid but its content was not.
        Response::read_as(&envelope, self.shared.version, known)
            .map_err(|malformed| self.close_as_wrong(malformed.into()))
    }

    /// Closes the connection to a server that answered wrongly, and returns the error.
    pub(super) fn close_as_wrong(&self, cause: Cause) -> Error {
        self.shared.tally.wrong.store(true, Ordering::Relaxed);
        self.shared.closing.send_replace(Some(Instant::now()));
        self.error(cause)
    }

    /// Fails if the request has a keyspace that version 4 cannot carry and that is not the connection's own.
    fn check_keyspace(&self, request: &Request<'_>) -> Result<(), Error> {
        match request.keyspace() {
            Some(keyspace)
                if self.shared.version < Version::V5 && self.shared.keyspace.as_deref() != Some(keyspace) =>
            {
                Err(self.error(Cause::KeyspaceUnspoken(keyspace.to_owned())))
            }
            _ => Ok(()),
        }
    }

    async fn exchange_by(&self, message: Outgoing, asked: Opcode, by: Instant) -> Result<Envelope, Cause> {
        let begun = Instant::now();
        let silent = |_| Cause::Silent { asked: name(asked), within: by.saturating_duration_since(begun) };
        timeout_at(by, self.exchange(message)).await.map_err(silent)?
    }

    async fn exchange(&self, message: Outgoing) -> Result<Envelope, Cause> {
        let (answer, answered) = oneshot::channel();
        let guard = self.guard.clone();
        if self.shared.requests.send(Exchange { message, answer, guard }).await.is_err() {
            return Err(self.lost(false));
        }
        match answered.await {
            Ok(Outcome::Answered(envelope)) => Ok(envelope),
            Ok(Outcome::Unsent) => Err(self.lost(false)),
            Err(_) => Err(self.lost(true)),
        }
    }

    /// The cause of a request whose connection has ended. The reason is stored before any caller learns of the end.
    fn lost(&self, sent: bool) -> Cause {
        let why = self.shared.ended.borrow().as_ref().map_or(Cause::Closed, |cause| (**cause).clone());
        Cause::Lost { why: Box::new(why), sent }
    }

    pub(crate) fn error(&self, cause: Cause) -> Error {
        cause.at(&self.shared.server)
    }
}

pub(super) fn parameters<'a>(how: &'a Options, values: Option<&'a BoundValues>, skip_metadata: bool) -> Parameters<'a> {
    Parameters {
        consistency: how.consistency,
        serial: how.serial,
        values,
        skip_metadata,
        page_size: how.page_size,
        page: how.page.as_deref(),
        timestamp: how.timestamp,
        keyspace: how.keyspace.as_deref(),
    }
}

fn name(opcode: Opcode) -> &'static str {
    match opcode {
        Opcode::Query => "QUERY",
        Opcode::Prepare => "PREPARE",
        Opcode::Execute => "EXECUTE",
        Opcode::Batch => "BATCH",
        Opcode::Register => "REGISTER",
        _ => "OPTIONS",
    }
}
