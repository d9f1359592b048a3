//! Two tower layers for any HTTP or gRPC service: [`EngagedLayer`] reports traffic to the hive, [`LimitLayer`] applies
//! a limit to the requests.
//!
//! Neither of them buffers anything, and the response type stays the same. To hold a slot until a long response is
//! sent, [`LimitLayer::until_sent`] wraps its body. Nothing else of Honeyflow is needed:
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use axum::{Router, routing::post};
//! use honeyflow_hive::{Hive, HiveStore, Options, limit::Definition};
//! use honeyflow_hive_layer::{EngagedLayer, LimitLayer};
//!
//! # async fn order() {}
//! fn client_of(request: &http::Request<()>) -> Option<String> {
//!     request.headers().get("x-client")?.to_str().ok().map(str::to_owned)
//! }
//!
//! // The store is one that all copies can reach: Redis, PostgreSQL, MySQL, or a file on one machine.
//! # async fn serve(store: Arc<dyn HiveStore>) -> Result<(), Box<dyn std::error::Error>> {
//! let options = Options::named("orders-1").limit(Definition::parse("api", "1000/s")?);
//! let hive = Hive::join(store, options).await?;
//! let api = hive.limit("api")?;
//! let app = Router::new()
//!     .route("/orders", post(order))
//!     .layer(LimitLayer::new(api).key(client_of).cost(|_| 1))
//!     .layer(EngagedLayer::new(&hive));
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! axum::serve(listener, app).await?;
//! hive.leave().await;
//! # Ok(()) }
//! ```

mod engaged;
pub mod field;
mod grpc;
mod limit;
mod stream;

pub use engaged::{EngagedLayer, EngagedService};
pub use limit::{LimitFuture, LimitLayer, LimitService};
pub use stream::{HeldBody, StreamFuture, StreamLayer, StreamService};
