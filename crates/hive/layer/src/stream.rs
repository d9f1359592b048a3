//! A limit on how many at once, in front of answers that take their time: a slot is held until the last of the body is sent,
//! or nobody wants the rest of it.
//!
//! For that the body has to be another one than the service made. [`LimitLayer`] leaves it as it is, and lets go of the slot
//! with the head of the answer.

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

use crate::limit::{Kept, LimitLayer, Limited};

/// As [`LimitLayer`], for slots that are in use for as long as the answer is. See [`LimitLayer::until_sent`].
#[derive(Clone)]
pub struct StreamLayer(LimitLayer);

impl LimitLayer {
    /// A slot is held until the whole answer is sent, not only its head. The body of the answer is a [`HeldBody`] then.
    #[must_use]
    pub fn until_sent(self) -> StreamLayer {
        StreamLayer(self)
    }
}

impl<S> Layer<S> for StreamLayer {
    type Service = Streamed<S>;

    fn layer(&self, below: S) -> Streamed<S> {
        Streamed(self.0.layer(below))
    }
}

#[derive(Clone)]
pub struct Streamed<S>(Limited<S>);

impl<S, B, T> Service<Request<B>> for Streamed<S>
where
    Limited<S>: Service<Request<B>, Response = Response<T>>,
{
    type Response = Response<HeldBody<T>>;
    type Error = <Limited<S> as Service<Request<B>>>::Error;
    type Future = StreamedFuture<<Limited<S> as Service<Request<B>>>::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        StreamedFuture { answer: self.0.call(request) }
    }
}

pin_project! {
    pub struct StreamedFuture<F> {
        #[pin]
        answer: F,
    }
}

impl<F, T, E> Future for StreamedFuture<F>
where
    F: Future<Output = Result<Response<T>, E>>,
{
    type Output = Result<Response<HeldBody<T>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut response = ready!(self.project().answer.poll(context))?;
        let slot = response.extensions_mut().remove::<Kept>();
        Poll::Ready(Ok(response.map(|body| HeldBody { body, slot })))
    }
}

pin_project! {
    /// What the service sends, with the slot that it is sent in.
    pub struct HeldBody<T> {
        #[pin]
        body: T,
        slot: Option<Kept>,
    }
}

impl<T> HeldBody<T> {
    /// For a service that takes its slots itself.
    pub fn new(body: T, slot: Permit<'static>) -> HeldBody<T> {
        HeldBody { body, slot: Some(Kept::of(slot)) }
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
