//! Tests of the layers in front of real services, over loopback HTTP.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{Router, body::Body, extract::Request, http::StatusCode, routing::get};
use honeyflow_hive::{
    Capabilities, HiveStore, NodeId, Reply, Traffic, contract,
    limit::{Config, Definition, Limit, Limits, Service},
};
use honeyflow_hive_layer::{EngagedLayer, LimitLayer};
use honeyflow_hive_memory::MemoryHive;
use tower::ServiceExt;
use uuid::Uuid;

struct Store {
    memory: MemoryHive,
    broken: AtomicBool,
    calls: AtomicU64,
}

type Answer = std::pin::Pin<Box<dyn Future<Output = Result<Reply, honeyflow_runtime::Failure>> + Send>>;

impl HiveStore for Store {
    fn call(&self, request: contract::Request) -> Answer {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.broken.load(Ordering::Relaxed) {
            return Box::pin(async { Err(honeyflow_runtime::Failure::retry("store-down", "connection refused")) });
        }
        self.memory.call(request)
    }

    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }
}

fn store() -> Arc<Store> {
    let begun = Instant::now();
    let memory = MemoryHive::new(move || 200_000_000_000 + begun.elapsed().as_millis() as u64);
    Arc::new(Store { memory, broken: AtomicBool::new(false), calls: AtomicU64::new(0) })
}

fn limits(store: &Arc<Store>) -> Limits {
    let (service, limits) = Service::new(Config::new(store.clone(), NodeId(Uuid::new_v4())));
    tokio::spawn(service.run(std::future::pending()));
    limits.set_node_counts(1, 1);
    limits
}

async fn limit(limits: &Limits, quota: &str) -> Limit {
    let limit = limits.define(&Definition::parse("search", quota).unwrap()).unwrap();
    // The first request waits until the store has the definition.
    while limit.key("warm-up").take(1, Duration::from_secs(30)).await.is_err() {}
    limit
}

async fn serve(app: Router) -> String {
    let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

fn by_client(request: &axum::http::Request<()>) -> Option<String> {
    request.headers().get("x-client")?.to_str().ok().map(str::to_owned)
}

async fn ask(url: &str, client: &str) -> reqwest::Response {
    let client_of = reqwest::Client::builder().no_proxy().build().unwrap();
    client_of.get(url).header("x-client", client).send().await.unwrap()
}

fn field<'a>(response: &'a reqwest::Response, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

/// HV-73
#[tokio::test]
async fn hv_73_a_refusal_is_429_with_the_standard_fields() {
    let store = store();
    let limits = limits(&store);
    let limit = limit(&limits, "3/h").await;
    let app = Router::new().route("/", get(async || "found"));
    let url = serve(app.layer(LimitLayer::new(limit).key(by_client).old_fields(true))).await;
    for left in [2, 1, 0] {
        let response = ask(&url, "a").await;
        assert_eq!(response.status(), StatusCode::OK);
        let policy = field(&response, "ratelimit-policy");
        assert!(policy.starts_with("\"search\";q=3;w=3600;pk=:"), "it names this client's bucket: {policy}");
        let expected = format!("\"search\";r={left}");
        assert!(field(&response, "ratelimit").starts_with(&expected), "{expected}: {:?}", response.headers());
    }
    let response = ask(&url, "a").await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    let retry: u64 = field(&response, "retry-after").parse().unwrap();
    assert!((1190..=1200).contains(&retry), "a third of an hour, rounded up: {retry}");
    let expected = format!("\"search\";r=0;t={retry};pk=:");
    assert!(field(&response, "ratelimit").starts_with(&expected), "all fields say the same: {:?}", response.headers());
    assert_eq!(field(&response, "x-ratelimit-remaining"), "0");
    assert_eq!(field(&response, "x-ratelimit-reset"), retry.to_string());
    assert_eq!(response.bytes().await.unwrap().len(), 0);
    assert_eq!(ask(&url, "b").await.status(), StatusCode::OK, "another client has its own bucket");
}

/// HV-73
#[tokio::test]
async fn hv_73_a_shadow_limit_counts_and_refuses_no_request() {
    let store = store();
    let limits = limits(&store);
    let limit = limit(&limits, "3/h").await;
    let app = Router::new().route("/", get(async || "found"));
    let url = serve(app.layer(LimitLayer::new(limit.clone()).key(by_client).shadow(true))).await;
    for _ in 0..5 {
        let response = ask(&url, "a").await;
        assert_eq!((response.status(), field(&response, "ratelimit")), (StatusCode::OK, ""));
    }
    let denied: u64 = limit.snapshot().denied.iter().map(|(_, count)| count).sum();
    assert_eq!(denied, 2);
}

/// HV-73: a closure sets the cost; a request with a cost of 0 always passes.
#[tokio::test]
async fn hv_73_costs_are_what_the_closure_says() {
    let store = store();
    let limits = limits(&store);
    let limit = limit(&limits, "3/h").await;
    let cost = |request: &axum::http::Request<()>| request.uri().path().trim_start_matches('/').parse().unwrap_or(1);
    let app = Router::new().fallback(async || "found").layer(LimitLayer::new(limit).cost(cost).key(by_client));
    let url = serve(app).await;
    assert_eq!(ask(&format!("{url}/2"), "a").await.status(), StatusCode::OK);
    assert_eq!(ask(&format!("{url}/2"), "a").await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(ask(&format!("{url}/0"), "a").await.status(), StatusCode::OK);
    assert_eq!(ask(&format!("{url}/1"), "a").await.status(), StatusCode::OK, "one was left");
}

/// HV-64: when the store fails and comes back, a request is admitted or refused; it never fails.
#[tokio::test]
async fn failover_gives_500() {
    let store = store();
    let limits = limits(&store);
    let limit = limit(&limits, "1000/s").await;
    let app = Router::new().route("/", get(async || "found")).layer(LimitLayer::new(limit.clone()).key(by_client));
    let url = serve(app).await;
    assert_eq!(ask(&url, "a").await.status(), StatusCode::OK);
    store.broken.store(true, Ordering::Relaxed);
    let mut seen = Vec::new();
    while limit.snapshot().mode != "safe" || !seen.ends_with(&[StatusCode::OK]) {
        seen.push(ask(&url, "a").await.status());
    }
    store.broken.store(false, Ordering::Relaxed);
    while limit.snapshot().mode != "pool" || !seen.ends_with(&[StatusCode::OK]) {
        seen.push(ask(&url, "a").await.status());
    }
    assert!(seen.iter().all(|status| [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS].contains(status)), "{seen:?}");
    assert!(seen.contains(&StatusCode::TOO_MANY_REQUESTS));
}

/// HV-73: a gRPC request is refused with a gRPC status, not with an HTTP code.
#[tokio::test]
async fn hv_73_a_refused_grpc_request_gets_resource_exhausted() {
    let store = store();
    let limits = limits(&store);
    let limit = limit(&limits, "3/h").await;
    let service = LimitLayer::new(limit).cost(|_| 3);
    let service = tower_layer_of(
        service,
        tower::service_fn(async |_: Request| {
            Ok::<_, std::convert::Infallible>(axum::response::Response::new(Body::from("message")))
        }),
    );
    let call = || Request::builder().header("content-type", "application/grpc+proto").body(Body::empty()).unwrap();
    let response = service.clone().oneshot(call()).await.unwrap();
    assert_eq!(response.headers().get("grpc-status"), None, "the service's own answer");
    let response = service.oneshot(call()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["grpc-status"], "8");
    assert!(response.headers().contains_key("grpc-status-details-bin"));
}

/// HV-31: a response of any type passes unchanged, even one whose body is not complete yet and could not be buffered.
#[tokio::test]
async fn hv_31_answers_pass_through_unchanged_and_unbuffered() {
    #[derive(Default)]
    struct ChannelBody(Option<tokio::sync::mpsc::Receiver<&'static str>>);

    let store = store();
    let limits = limits(&store);
    let limit = limit(&limits, "1000/s").await;
    let (say, said) = tokio::sync::mpsc::channel(1);
    let said = Arc::new(std::sync::Mutex::new(Some(said)));
    let below = tower::service_fn(move |request: Request<&'static str>| {
        let said = said.lock().unwrap().take();
        async move { Ok::<_, std::num::ParseIntError>(axum::http::Response::new((request.into_body(), ChannelBody(said)))) }
    });
    let service = tower_layer_of(EngagedLayer::new(Traffic::default()), tower_layer_of(LimitLayer::new(limit), below));
    let answered = service.oneshot(Request::new("asked")).await;
    let (asked, ChannelBody(said)) = answered.expect("the error type is the service's own, too").into_body();
    assert_eq!(asked, "asked");
    let mut said = said.expect("the body that the service made");
    for word in ["first", "second"] {
        say.send(word).await.unwrap();
        assert_eq!(said.recv().await, Some(word), "sent after the response had passed");
    }
}

/// HV-68, HV-73: a slot is held until the response is sent completely, and the fields describe a concurrency limit.
#[tokio::test]
async fn hv_68_a_slot_is_held_until_the_answer_ends() {
    let store = store();
    let node = NodeId(Uuid::new_v4());
    let joins =
        contract::Request::Join { node, name: "n".into(), heartbeat_ms: 2000, ttl_ms: 6000, meta: "{}".to_owned() };
    store.call(joins).await.unwrap();
    let (service, limits) = Service::new(Config::new(store.clone(), node));
    tokio::spawn(service.run(std::future::pending()));
    limits.set_node_counts(1, 1);
    let slots = limits.define(&Definition::slots("calls", 2)).unwrap();
    while slots.try_take(2).await.is_err() {}
    let (say, said) = tokio::sync::mpsc::channel::<Result<&'static str, std::io::Error>>(1);
    let said = Arc::new(std::sync::Mutex::new(Some(said)));
    let app = Router::new().route(
        "/",
        get(async move || match said.lock().unwrap().take() {
            Some(mut said) => Body::from_stream(futures_util::stream::poll_fn(move |context| said.poll_recv(context))),
            None => Body::from("at once"),
        }),
    );
    let url = serve(app.layer(LimitLayer::new(slots.clone()).until_sent())).await;
    let long = ask(&url, "a").await;
    assert_eq!(field(&long, "ratelimit-policy"), "\"calls\";q=2;qu=\"concurrent-requests\"");
    assert_eq!(field(&long, "ratelimit"), "\"calls\";r=1");
    let other = slots.try_take(1).await.expect("the other slot");
    let refused = ask(&url, "a").await;
    assert_eq!(
        refused.status(),
        StatusCode::TOO_MANY_REQUESTS,
        "the head of the first response is sent, but not its body"
    );
    assert!(field(&refused, "ratelimit").starts_with("\"calls\";r=0;t="), "{:?}", refused.headers());
    drop(other);
    say.send(Ok("the end")).await.unwrap();
    drop(say);
    assert_eq!(long.text().await.unwrap(), "the end");
    assert!(slots.take(2, Duration::from_secs(30)).await.is_ok(), "both slots are free");
}

fn tower_layer_of<L: tower::Layer<S>, S>(layer: L, service: S) -> L::Service {
    layer.layer(service)
}

/// HV-25, HV-26: requests make a node engaged, probes do not, and the store is not asked.
#[tokio::test]
async fn hv_26_a_request_engages_without_a_store_operation() {
    let store = store();
    let rings = Arc::new(AtomicU64::new(0));
    let counted = rings.clone();
    let traffic = Traffic::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let app = Router::new().fallback(async || "here").layer(EngagedLayer::new(traffic.clone()));
    let url = serve(app).await;
    for path in ["/healthz", "/metrics", "/ready/db"] {
        assert_eq!(ask(&format!("{url}{path}"), "a").await.status(), StatusCode::OK);
    }
    assert!(!traffic.take());
    for _ in 0..20 {
        assert_eq!(ask(&format!("{url}/orders"), "a").await.status(), StatusCode::OK);
    }
    assert_eq!((traffic.take(), rings.load(Ordering::Relaxed)), (true, 1));
    assert_eq!(store.calls.load(Ordering::Relaxed), 0);
}
