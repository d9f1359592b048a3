//! A concurrency limit in front of long responses: a slot is held until the whole body is sent, or until the client
//! drops the response.
//!
//! For that, the body of the service is wrapped in a [`HeldBody`]. [`LimitLayer`] alone does not change the body, and
//! frees the slot with the head of the response.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use honeyflow_hive::limit::Permit;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::limit::{HeldSlot, LimitLayer, LimitService};

/// A [`LimitLayer`] that holds slots until the response is sent. See [`LimitLayer::until_sent`].
#[derive(Clone)]
pub struct StreamLayer(LimitLayer);

impl LimitLayer {
    /// Holds a slot until the whole response is sent, not only its head. The body of the response is a [`HeldBody`]
    /// then.
    #[must_use]
    pub fn until_sent(self) -> StreamLayer {
        StreamLayer(self)
    }
}

impl<S> Layer<S> for StreamLayer {
    type Service = StreamService<S>;

    fn layer(&self, below: S) -> StreamService<S> {
        StreamService(self.0.layer(below))
    }
}

#[derive(Clone)]
pub struct StreamService<S>(LimitService<S>);

impl<S, B, T> Service<Request<B>> for StreamService<S>
where
    LimitService<S>: Service<Request<B>, Response = Response<T>>,
{
    type Response = Response<HeldBody<T>>;
    type Error = <LimitService<S> as Service<Request<B>>>::Error;
    type Future = StreamFuture<<LimitService<S> as Service<Request<B>>>::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        StreamFuture { answer: self.0.call(request) }
    }
}

pin_project! {
    pub struct StreamFuture<F> {
        #[pin]
        answer: F,
    }
}

impl<F, T, E> Future for StreamFuture<F>
where
    F: Future<Output = Result<Response<T>, E>>,
{
    type Output = Result<Response<HeldBody<T>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut response = ready!(self.project().answer.poll(context))?;
        let slot = response.extensions_mut().remove::<HeldSlot>();
        Poll::Ready(Ok(response.map(|body| HeldBody { body, slot })))
    }
}

pin_project! {
    /// The body of a response, with the slot that it holds until its end.
    pub struct HeldBody<T> {
        #[pin]
        body: T,
        slot: Option<HeldSlot>,
    }
}

impl<T> HeldBody<T> {
    /// Wraps a body, for a service that takes its slots itself.
    pub fn new(body: T, slot: Permit<'static>) -> HeldBody<T> {
        HeldBody { body, slot: Some(HeldSlot::new(slot)) }
    }
}

impl<T: Body> Body for HeldBody<T> {
    type Data = T::Data;
    type Error = T::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<T::Data>, T::Error>>> {
        let this = self.project();
        let frame = ready!(this.body.poll_frame(context));
        if !matches!(frame, Some(Ok(_))) {
            drop(this.slot.take());
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
