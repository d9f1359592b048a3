//! Two tower layers for any HTTP or gRPC service: [`EngagedLayer`] tells the hive that there is traffic, [`LimitLayer`]
//! keeps requests to a limit.
//!
//! Neither buffers anything, and the response type stays what it was. Nothing else of Honeyflow is needed:
//!
//! ```no_run
//! # use honeyflow_hive::{Traffic, limit::Limit};
//! # use honeyflow_hive_layer::{EngagedLayer, LimitLayer};
//! # fn app(api: Limit, traffic: Traffic) -> axum::Router {
//! axum::Router::new()
//!     .route("/orders", axum::routing::post(async || "ordered"))
//!     .layer(LimitLayer::new(api).key(|request| request.headers().get("x-client")?.to_str().ok().map(str::to_owned)))
//!     .layer(EngagedLayer::new(traffic))
//! # }
//! ```

mod engaged;
mod field;
mod grpc;
mod limit;

pub use engaged::{Engaged, EngagedLayer};
pub use limit::{LimitLayer, Limited, LimitedFuture};
