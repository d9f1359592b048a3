//! `http.call`: one request per item. Event data never decides which server is called: scheme, host and port are fixed
//! in the configuration, and the step connects only to addresses that were checked.
//!
//! Every call carries `Idempotency-Key`, the same for all attempts and owners, and `Honeyflow-Version`, the stamp. Only
//! a complete answer proves what the server did; without one the call is repeated under the same key.

mod address;
mod body;
mod client;
pub mod codes;
mod config;
mod encode;
mod kind;
mod outcome;
mod template;

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use address::Guard;
pub use address::{AddressRefusal, Network, NetworkError};
pub use client::{Lookup, SystemLookup};
pub use config::{Answer, Config, Error, secret_reference};
use futures_util::{StreamExt, future::BoxFuture, stream};
use honeyflow_evaluate::{Evaluator, Pool, Work, variables};
use honeyflow_event::Document;
use honeyflow_runtime::Failure;
use honeyflow_step::{Batch, Item, Outcome, Step};
use honeyflow_workflow::Expression;
pub use kind::kind;
use reqwest::{Method, Url, header};
use serde_json::Value;
pub use template::Error as UrlError;
use template::Template;

/// The most calls of one batch under way at once.
pub const CALLS_MAX: usize = 16;
/// The largest request body.
pub const REQUEST_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The time limit for rendering the URLs and bodies of a whole batch.
const RENDER_TIMEOUT_MAX: Duration = Duration::from_secs(5);
/// A larger answer is parsed on a blocking thread.
const PARSE_INLINE_BYTES_MAX: usize = 256 * 1024;

pub struct HttpStep {
    evaluator: Arc<Evaluator>,
    render: Work<Item, Request>,
    caller: Arc<Caller>,
}

/// The request made of an item.
struct Request {
    url: Url,
    body: Option<Vec<u8>>,
}

struct Caller {
    client: reqwest::Client,
    method: Method,
    answer: Answer,
    guard: Guard,
    /// The address, if the URL names one instead of a host: then there is no lookup.
    address: Option<IpAddr>,
}

impl HttpStep {
    pub fn new(config: &Config) -> Result<HttpStep, Error> {
        HttpStep::with_lookup(config, Arc::new(SystemLookup))
    }

    /// Creates a step with another resolver; the addresses that it finds are checked too.
    pub fn with_lookup(config: &Config, lookup: Arc<dyn Lookup>) -> Result<HttpStep, Error> {
        HttpStep::on(Arc::new(Pool::new(1)), config, lookup)
    }

    /// Creates a step that evaluates its expressions on threads shared with other steps.
    pub fn on(pool: Arc<Pool>, config: &Config, lookup: Arc<dyn Lookup>) -> Result<HttpStep, Error> {
        let template = Template::parse(&config.url, config.http)?;
        let (method, guard) = (config.method()?, config.guard()?);
        let host = template.origin().host_str().unwrap_or_default();
        let address: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
        if let Some(address) = address {
            guard.check(address)?;
        }
        let client = client::build(config, lookup)?;
        let render = render(template, config.body.clone(), &method);
        Ok(HttpStep {
            evaluator: Arc::new(Evaluator::new(pool)),
            render,
            caller: Arc::new(Caller { client, method, answer: config.answer, guard, address }),
        })
    }
}

impl Step for HttpStep {
    fn execute(&self, batch: Batch) -> BoxFuture<'static, Vec<Outcome>> {
        let (evaluator, caller, render) =
            (Arc::clone(&self.evaluator), Arc::clone(&self.caller), Arc::clone(&self.render));
        Box::pin(async move {
            // the outcomes must be ready before the batch's own time is over
            let timeout = if batch.timeout.is_zero() { kind().timeout } else { batch.timeout };
            let deadline = Instant::now() + timeout * 19 / 20;
            if let Some(failure) = caller.refusal() {
                return vec![Outcome::Failed(failure); batch.items.len()];
            }
            let batch = Arc::new(batch);
            let render_timeout = RENDER_TIMEOUT_MAX.min(timeout / 2);
            let requests = evaluator.run(Arc::clone(&batch), render_timeout, render).await;
            let mut outcomes = vec![Outcome::Failed(outcome::timed_out()); batch.items.len()];
            let (caller, batch) = (&caller, &batch);
            // in the order in which they end: a slow call delays no other
            let mut calls = stream::iter(requests.into_iter().enumerate())
                .map(|(index, request)| async move {
                    let called = match request {
                        Ok(request) => caller.call(request, batch, &batch.items[index], deadline).await,
                        Err(failure) => Err(failure),
                    };
                    (index, called.map_or_else(Outcome::Failed, Outcome::Done))
                })
                .buffer_unordered(CALLS_MAX);
            while let Some((index, outcome)) = calls.next().await {
                outcomes[index] = outcome;
            }
            outcomes
        })
    }
}

impl Caller {
    /// The addresses of this machine change, so an address in the URL is checked for each batch.
    fn refusal(&self) -> Option<Failure> {
        let refused = self.guard.check(self.address?).err()?;
        Some(Failure::retry(codes::ADDRESS_REFUSED, refused.to_string()))
    }

    async fn call(&self, request: Request, batch: &Batch, item: &Item, deadline: Instant) -> Result<Document, Failure> {
        if Instant::now() >= deadline {
            return Err(Failure::retry(codes::NOT_REACHED, "the batch's time was over before this call began"));
        }
        let sent = self.send(request, batch, item);
        tokio::time::timeout_at(deadline.into(), sent).await.unwrap_or_else(|_| Err(outcome::timed_out()))
    }

    async fn send(&self, request: Request, batch: &Batch, item: &Item) -> Result<Document, Failure> {
        let mut builder = self
            .client
            .request(self.method.clone(), request.url)
            .header("idempotency-key", item.idempotency_key(batch))
            .header("honeyflow-version", item.stamp.to_string());
        if let Some(body) = request.body {
            builder = builder.body(body);
        }
        let mut response = builder.send().await.map_err(|error| outcome::error_failure(&error))?;
        if let Some(failure) = outcome::status_failure(response.status(), response.headers()) {
            return Err(failure);
        }
        let content_type = response.headers().get(header::CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok()).map(str::to_owned);
        let body = body::read(&mut response).await?;
        let answer = self.answer;
        if body.len() <= PARSE_INLINE_BYTES_MAX {
            return outcome::body_output(content_type.as_deref(), body, answer);
        }
        tokio::task::spawn_blocking(move || outcome::body_output(content_type.as_deref(), body, answer))
            .await
            .unwrap_or_else(|_| Err(body::broken("it cannot be read")))
    }
}

fn render(template: Template, body: Option<Expression>, method: &Method) -> Work<Item, Request> {
    let has_body = matches!(*method, Method::POST | Method::PUT | Method::PATCH) || body.is_some();
    let mut expressions: Vec<Expression> = template.expressions().cloned().collect();
    expressions.extend(body.clone());
    Arc::new(move |item| {
        let variables = variables::for_item(item, &expressions);
        let input = item.input.as_deref().unwrap_or(&Value::Null);
        let url = template.render(input, &variables)?;
        let body = match &body {
            _ if !has_body => None,
            Some(body) => Some(json(&template::evaluate(body, input, &variables)?)?),
            None => Some(json(input)?),
        };
        Ok(Request { url, body })
    })
}

fn json(value: &Value) -> Result<Vec<u8>, Failure> {
    let bytes = serde_json::to_vec(value)
        .map_err(|_| Failure::reject(codes::BAD_REQUEST, "the body cannot be written as JSON"))?;
    if bytes.len() > REQUEST_BYTES_MAX {
        return Err(Failure::reject(
            codes::REQUEST_TOO_LARGE,
            format!("the body has more than {REQUEST_BYTES_MAX} bytes"),
        ));
    }
    Ok(bytes)
}
