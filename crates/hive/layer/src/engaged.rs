//! Every request engages the node, except those that only ask how it is.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use honeyflow_hive::Traffic;
use http::{Method, Request};
use tower_layer::Layer;
use tower_service::Service;

/// Probes and scrapes, by whole segments from the left: `/health` and `/health/db`, not `/healthy`.
const QUIET: &[&str] =
    &["/health", "/healthz", "/live", "/livez", "/ready", "/readyz", "/metrics", "/grpc.health.v1.Health"];

type Predicate = dyn Fn(&Method, &str) -> bool + Send + Sync;

/// Marks traffic on the way in. One relaxed atomic access per request; no lock, no allocation, no I/O.
#[derive(Clone)]
pub struct EngagedLayer {
    traffic: Traffic,
    quiet: Arc<Quiet>,
}

#[derive(Clone)]
struct Quiet {
    paths: Vec<String>,
    /// Which bytes come after their slashes: most requests are told by that.
    begins: [bool; 256],
    also: Option<Arc<Predicate>>,
}

impl EngagedLayer {
    /// With the usual exceptions. Of a hive, or of whatever else counts traffic.
    pub fn new(traffic: impl Into<Traffic>) -> EngagedLayer {
        let mut quiet = Quiet { paths: Vec::new(), begins: [false; 256], also: None };
        QUIET.iter().for_each(|path| quiet.add(path));
        EngagedLayer { traffic: traffic.into(), quiet: Arc::new(quiet) }
    }

    /// One more path whose requests, and those below it, do not engage: an admin surface, say.
    #[must_use]
    pub fn except(mut self, path: &str) -> EngagedLayer {
        Arc::make_mut(&mut self.quiet).add(path.trim_end_matches('/'));
        self
    }

    /// Requests of which this is true do not engage, either.
    #[must_use]
    pub fn except_if(mut self, quiet: impl Fn(&Method, &str) -> bool + Send + Sync + 'static) -> EngagedLayer {
        Arc::make_mut(&mut self.quiet).also = Some(Arc::new(quiet));
        self
    }
}

impl EngagedLayer {
    /// What the layer does with each request; for services that are not tower's.
    #[inline]
    pub fn see(&self, method: &Method, path: &str) {
        if !self.quiet.is_quiet(method, path) {
            self.traffic.mark();
        }
    }
}

impl Quiet {
    fn add(&mut self, path: &str) {
        match path.as_bytes().get(1) {
            Some(begin) => self.begins[usize::from(*begin)] = true,
            // The root, and so everything.
            None => self.begins = [true; 256],
        }
        self.paths.push(path.to_owned());
    }

    #[inline]
    fn is_quiet(&self, method: &Method, path: &str) -> bool {
        let begins = path.as_bytes().get(1).is_some_and(|begin| self.begins[usize::from(*begin)]);
        (begins && self.is_beneath(path)) || self.also.as_ref().is_some_and(|also| also(method, path))
    }

    fn is_beneath(&self, path: &str) -> bool {
        self.paths
            .iter()
            .any(|quiet| path.strip_prefix(quiet.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
    }
}

impl<S> Layer<S> for EngagedLayer {
    type Service = Engaged<S>;

    fn layer(&self, below: S) -> Engaged<S> {
        Engaged { below, layer: self.clone() }
    }
}

#[derive(Clone)]
pub struct Engaged<S> {
    below: S,
    layer: EngagedLayer,
}

impl<S, B> Service<Request<B>> for Engaged<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.below.poll_ready(context)
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> S::Future {
        self.layer.see(request.method(), request.uri().path());
        self.below.call(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_quiet(layer: &EngagedLayer, path: &str) -> bool {
        layer.quiet.is_quiet(&Method::GET, path)
    }

    /// HV-25
    #[test]
    fn hv_25_health_routes_are_told_by_whole_segments() {
        let layer = EngagedLayer::new(Traffic::default());
        for path in ["/health", "/healthz", "/live", "/ready/db", "/metrics", "/grpc.health.v1.Health/Check"] {
            assert!(is_quiet(&layer, path), "{path}");
        }
        for path in ["/", "/healthy", "/orders/health", "/readyset", "/metrics2", "/shop.v1.Health/Check"] {
            assert!(!is_quiet(&layer, path), "{path}");
        }
        let layer = layer.except("/admin/").except_if(|method, path| method == Method::OPTIONS || path == "/poll");
        assert!(is_quiet(&layer, "/admin/nodes") && is_quiet(&layer, "/poll") && !is_quiet(&layer, "/administer"));
        assert!(layer.quiet.is_quiet(&Method::OPTIONS, "/orders"));
    }
}
