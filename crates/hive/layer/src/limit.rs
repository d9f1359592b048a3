//! A limit in front of a service. It forwards admitted requests, and their HTTP responses say how many permits remain;
//! refused requests get 429 or, with gRPC, RESOURCE_EXHAUSTED.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use honeyflow_hive::limit::{Limit, Permit};
use http::{HeaderValue, Request, Response, StatusCode, request::Parts};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::{field, grpc};

/// A request without its body; the key and cost functions get it as `Request<()>`.
type Head = Parts;
type KeyOf = dyn Fn(&Request<()>) -> Option<String> + Send + Sync;
type CostOf = dyn Fn(&Request<()>) -> u64 + Send + Sync;

/// Applies one limit to all requests of the service below.
#[derive(Clone)]
pub struct LimitLayer {
    rule: Arc<Rule>,
}

#[derive(Clone)]
struct Rule {
    limit: Limit,
    key: Option<Arc<KeyOf>>,
    cost: Option<Arc<CostOf>>,
    shadow: bool,
    old_fields: bool,
}

impl LimitLayer {
    /// A layer in which every request costs one permit, and all share one key.
    pub fn new(limit: Limit) -> LimitLayer {
        LimitLayer { rule: Arc::new(Rule { limit, key: None, cost: None, shadow: false, old_fields: false }) }
    }

    /// Sets what the limit counts by, such as a client or an address. Requests without a key share one
    /// bucket.
    #[must_use]
    pub fn key(mut self, key: impl Fn(&Request<()>) -> Option<String> + Send + Sync + 'static) -> LimitLayer {
        Arc::make_mut(&mut self.rule).key = Some(Arc::new(key));
        self
    }

    /// Sets what a request costs, in permits; a cost of 0 always passes.
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(&Request<()>) -> u64 + Send + Sync + 'static) -> LimitLayer {
        Arc::make_mut(&mut self.rule).cost = Some(Arc::new(cost));
        self
    }

    /// Dry run: takes permits and counts refusals, but lets every request through.
    #[must_use]
    pub fn shadow(mut self, shadow: bool) -> LimitLayer {
        Arc::make_mut(&mut self.rule).shadow = shadow;
        self
    }

    /// Also writes the headers `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`.
    #[must_use]
    pub fn old_fields(mut self, old_fields: bool) -> LimitLayer {
        Arc::make_mut(&mut self.rule).old_fields = old_fields;
        self
    }
}

impl<S> Layer<S> for LimitLayer {
    type Service = LimitService<S>;

    fn layer(&self, below: S) -> LimitService<S> {
        LimitService { below, rule: self.rule.clone() }
    }
}

#[derive(Clone)]
pub struct LimitService<S> {
    below: S,
    rule: Arc<Rule>,
}

/// A slot that is held while the request is served; any other permit is used up at once.
type Slot = Option<Permit<'static>>;

/// A slot that travels with the response and becomes free when that is dropped.
#[derive(Clone)]
pub(crate) struct HeldSlot(#[expect(dead_code, reason = "held only for its Drop")] Arc<Permit<'static>>);

impl HeldSlot {
    pub fn new(slot: Permit<'static>) -> HeldSlot {
        HeldSlot(Arc::new(slot))
    }
}

type PendingTake = Pin<Box<dyn Future<Output = Result<Slot, Duration>> + Send>>;

pin_project! {
    /// Waits for the limit's decision if necessary, then calls the service below.
    pub struct LimitFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        rule: Arc<Rule>,
        key: String,
        is_grpc: bool,
        #[pin]
        state: State<S, B>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, B>
    where
        S: Service<Request<B>>,
    {
        Asking { asked: PendingTake, below: S, request: Option<Request<B>> },
        Passed { #[pin] answer: S::Future, slot: Slot },
        Refused { retry: Duration },
    }
}

impl<S, B, Body> Service<Request<B>> for LimitService<S>
where
    S: Service<Request<B>, Response = Response<Body>> + Clone,
    Body: Default,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = LimitFuture<S, B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.below.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let rule = self.rule.clone();
        let is_grpc = grpc::is_grpc(request.headers());
        // Closures see only the head of the request, so that the body may have any type.
        let (head, body) = request.into_parts();
        let (head, key, cost) = rule.judge(head);
        let request = Request::from_parts(head, body);
        let state = if rule.limit.key(&key).take_local(cost).is_some() {
            State::Passed { answer: self.below.call(request), slot: None }
        } else {
            let (limit, asked_key) = (rule.limit.clone(), key.clone());
            let asked: PendingTake = Box::pin(async move {
                let verdict = limit.key(&asked_key).try_take(cost).await;
                let slot = |permit: Permit<'_>| permit.is_slot().then(|| permit.into_owned());
                verdict.map(slot).map_err(|denied| denied.retry_after)
            });
            // This request uses the service that was polled ready; the clone is for the next request.
            let clone = self.below.clone();
            let below = std::mem::replace(&mut self.below, clone);
            State::Asking { asked, below, request: Some(request) }
        };
        LimitFuture { rule, key, is_grpc, state }
    }
}

impl Rule {
    fn judge(&self, head: Head) -> (Head, String, u64) {
        if self.key.is_none() && self.cost.is_none() {
            return (head, String::new(), 1);
        }
        let bare = Request::from_parts(head, ());
        let key = self.key.as_ref().and_then(|key| key(&bare)).unwrap_or_default();
        let cost = self.cost.as_ref().map_or(1, |cost| cost(&bare));
        (bare.into_parts().0, key, cost)
    }
}

impl<S, B, Body> Future for LimitFuture<S, B>
where
    S: Service<Request<B>, Response = Response<Body>>,
    Body: Default,
{
    type Output = Result<Response<Body>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProjection::Asking { asked, below, request } => {
                    let verdict = ready!(asked.as_mut().poll(context));
                    match (verdict, request.take()) {
                        (Err(retry), _) if !this.rule.shadow => State::Refused { retry },
                        (verdict, Some(request)) => {
                            State::Passed { answer: below.call(request), slot: verdict.unwrap_or_default() }
                        }
                        (_, None) => unreachable!("a future is not polled again after it has passed its request on"),
                    }
                }
                StateProjection::Passed { answer, slot } => {
                    let mut response = ready!(answer.poll(context))?;
                    if let Some(slot) = slot.take() {
                        response.extensions_mut().insert(HeldSlot::new(slot));
                    }
                    if !this.rule.shadow && !*this.is_grpc {
                        let headers = response.headers_mut();
                        field::write(headers, &this.rule.limit, this.key, None, this.rule.old_fields);
                    }
                    return Poll::Ready(Ok(response));
                }
                StateProjection::Refused { retry } => {
                    let retry = *retry;
                    let mut response = Response::new(Body::default());
                    if *this.is_grpc {
                        grpc::refuse(response.headers_mut(), retry);
                    } else {
                        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
                        let headers = response.headers_mut();
                        headers.insert(http::header::CONTENT_LENGTH, HeaderValue::from_static("0"));
                        field::write(headers, &this.rule.limit, this.key, Some(retry), this.rule.old_fields);
                    }
                    return Poll::Ready(Ok(response));
                }
            };
            this.state.set(next);
        }
    }
}
