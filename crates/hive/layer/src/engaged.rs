//! Every request makes the node count as engaged, except health checks and metrics scrapes.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use honeyflow_hive::Traffic;
use http::{Method, Request};
use tower_layer::Layer;
use tower_service::Service;

/// The paths of probes and scrapes. They match by whole segments: `/health` and `/health/db`, not `/healthy`.
const QUIET: &[&str] =
    &["/health", "/healthz", "/live", "/livez", "/ready", "/readyz", "/metrics", "/grpc.health.v1.Health"];

type Predicate = dyn Fn(&Method, &str) -> bool + Send + Sync;

/// Marks each incoming request as traffic, with one relaxed atomic access; no lock, no allocation, no I/O.
#[derive(Clone)]
pub struct EngagedLayer {
    traffic: Traffic,
    quiet: Arc<QuietPaths>,
}

#[derive(Clone)]
struct QuietPaths {
    paths: Vec<String>,
    /// The first bytes after the slash of these paths; most requests are decided by this alone.
    begins: [bool; 256],
    also: Option<Arc<Predicate>>,
}

impl EngagedLayer {
    /// A layer with the usual exceptions. `traffic` is a hive, or another counter of traffic.
    pub fn new(traffic: impl Into<Traffic>) -> EngagedLayer {
        let mut quiet = QuietPaths { paths: Vec::new(), begins: [false; 256], also: None };
        QUIET.iter().for_each(|path| quiet.add(path));
        EngagedLayer { traffic: traffic.into(), quiet: Arc::new(quiet) }
    }

    /// Adds a path whose requests, and those below it, do not count as traffic, such as an admin page.
    #[must_use]
    pub fn except(mut self, path: &str) -> EngagedLayer {
        Arc::make_mut(&mut self.quiet).add(path.trim_end_matches('/'));
        self
    }

    /// Requests for which `quiet` returns true do not count as traffic, either.
    #[must_use]
    pub fn except_if(mut self, quiet: impl Fn(&Method, &str) -> bool + Send + Sync + 'static) -> EngagedLayer {
        Arc::make_mut(&mut self.quiet).also = Some(Arc::new(quiet));
        self
    }
}

impl EngagedLayer {
    /// Marks a request as the layer does; for services that do not use tower.
    #[inline]
    pub fn mark_request(&self, method: &Method, path: &str) {
        if !self.quiet.is_quiet(method, path) {
            self.traffic.mark();
        }
    }
}

impl QuietPaths {
    fn add(&mut self, path: &str) {
        match path.as_bytes().get(1) {
            Some(begin) => self.begins[usize::from(*begin)] = true,
            // The root path, which matches every request.
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
    type Service = EngagedService<S>;

    fn layer(&self, below: S) -> EngagedService<S> {
        EngagedService { below, layer: self.clone() }
    }
}

#[derive(Clone)]
pub struct EngagedService<S> {
    below: S,
    layer: EngagedLayer,
}

impl<S, B> Service<Request<B>> for EngagedService<S>
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
        self.layer.mark_request(request.method(), request.uri().path());
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
    fn hv_25_health_routes_match_by_whole_segments() {
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
