//! Tests of the layers around tonic's server, with tonic's client. The service is written by hand: one method with
//! plain text messages needs no code generator.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use honeyflow_hive::{
    NodeId, Traffic,
    limit::{self, Config, Definition, Limit},
};
use honeyflow_hive_layer::{EngagedLayer, LimitLayer};
use honeyflow_hive_memory::MemoryHive;
use http::uri::PathAndQuery;
use tonic::{
    Code, Request, Response, Status,
    body::Body,
    codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    server::{NamedService, UnaryService},
    transport::{Channel, Server, server::TcpIncoming},
};
use tower_service::Service;
use uuid::Uuid;

#[derive(Clone, Copy, Default)]
struct Text;

impl Codec for Text {
    type Encode = String;
    type Decode = String;
    type Encoder = Text;
    type Decoder = Text;

    fn encoder(&mut self) -> Text {
        Text
    }

    fn decoder(&mut self) -> Text {
        Text
    }
}

impl Encoder for Text {
    type Item = String;
    type Error = Status;

    fn encode(&mut self, text: String, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put_slice(into, text.as_bytes());
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}

impl Decoder for Text {
    type Item = String;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<String>, Status> {
        use bytes::Buf;
        let bytes = from.copy_to_bytes(from.remaining());
        String::from_utf8(bytes.to_vec()).map(Some).map_err(|_| Status::invalid_argument("no text"))
    }
}

/// `shop.v1.Orders`, with one method.
#[derive(Clone, Copy)]
struct Orders;

impl UnaryService<String> for Orders {
    type Response = String;
    type Future = Ready<Result<Response<String>, Status>>;

    fn call(&mut self, request: Request<String>) -> Self::Future {
        ready(match request.into_inner().as_str() {
            "" => Err(Status::invalid_argument("an order of nothing")),
            what => Ok(Response::new(format!("{what} is ordered"))),
        })
    }
}

impl NamedService for Orders {
    const NAME: &'static str = "shop.v1.Orders";
}

impl Service<http::Request<Body>> for Orders {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move { Ok(tonic::server::Grpc::new(Text).unary(Orders, request).await) })
    }
}

async fn limit(quota: &str) -> Limit {
    let begun = Instant::now();
    let memory = MemoryHive::new(move || 200_000_000_000 + begun.elapsed().as_millis() as u64);
    let (drawing, limits) = limit::Service::new(Config::new(Arc::new(memory), NodeId(Uuid::new_v4())));
    tokio::spawn(drawing.run(std::future::pending()));
    limits.set_node_counts(1, 1);
    let limit = limits.define(&Definition::parse("orders", quota).unwrap()).unwrap();
    while limit.key("warm-up").take(1, Duration::from_secs(30)).await.is_err() {}
    limit
}

async fn ask(channel: &Channel, what: &str, client: &str) -> Result<String, Status> {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.expect("a connection");
    let mut request = Request::new(what.to_owned());
    request.metadata_mut().insert("x-client", client.parse().unwrap());
    let method = PathAndQuery::from_static("/shop.v1.Orders/Place");
    grpc.unary(request, method, Text).await.map(Response::into_inner)
}

/// HV-31, HV-73: a tonic service is limited and makes the node engaged, and its own responses pass unchanged. A refused
/// client gets a gRPC status with the time to wait.
#[tokio::test]
async fn hv_31_a_tonic_service_is_limited_and_marks_traffic() {
    let traffic = Traffic::default();
    let by_client = |request: &http::Request<()>| request.headers().get("x-client")?.to_str().ok().map(str::to_owned);
    let incoming = TcpIncoming::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = incoming.local_addr().unwrap();
    let server = Server::builder()
        .layer(EngagedLayer::new(traffic.clone()))
        .layer(LimitLayer::new(limit("2/h").await).key(by_client))
        .add_service(Orders);
    let server = tokio::spawn(server.serve_with_incoming(incoming));
    let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    assert!(!traffic.take(), "no request has been sent yet");
    assert_eq!(ask(&channel, "honey", "a").await.expect("admitted"), "honey is ordered");
    assert!(traffic.take());
    let own = ask(&channel, "", "a").await.expect_err("the service's own refusal");
    assert_eq!((own.code(), own.message()), (Code::InvalidArgument, "an order of nothing"));
    let refused = ask(&channel, "wax", "a").await.expect_err("the limit is two");
    assert_eq!((refused.code(), refused.message()), (Code::ResourceExhausted, "rate limit exceeded"));
    let wait = refused.metadata().get("grpc-retry-pushback-ms").expect("a wait");
    let wait_ms: u64 = wait.to_str().unwrap().parse().unwrap();
    assert!((1_700_000..=1_800_000).contains(&wait_ms), "half an hour: {wait_ms}");
    let info = b"type.googleapis.com/google.rpc.RetryInfo";
    assert!(refused.details().windows(info.len()).any(|part| part == info), "{:?}", refused.details());
    assert_eq!(ask(&channel, "wax", "b").await.expect("another client"), "wax is ordered");
    server.abort();
}
