//! A web service that uses only the limits of Honeyflow. All copies on one store admit together what `--limit` says,
//! for any number of copies and any distribution of the requests.

mod log;
mod store;

use std::{error::Error, net::SocketAddr, sync::Arc};

use axum::{Json, Router, extract::State, http::Request, routing::get};
use honeyflow_hive::{
    Hive, Options,
    limit::{Definition, OnOutage},
};
use honeyflow_hive_layer::{EngagedLayer, LimitLayer};
use serde_json::{Value, json};

use crate::log::Log;

#[derive(clap::Parser)]
#[command(name = "limited-api", version, about = "Serve GET /orders within a limit that all copies share")]
struct Arguments {
    /// Address to listen on; port 0 takes any free port
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Store that all copies share: sqlite:PATH on one machine, otherwise the URL of a server
    #[arg(long, default_value = "sqlite:limited-api.db")]
    store: String,
    /// Limit of all copies together
    #[arg(long, default_value = "1000/s")]
    limit: String,
    /// Count by the value of this request header; each value has the whole limit
    #[arg(long, value_name = "HEADER")]
    key: Option<String>,
    /// What to do while the store does not answer
    #[arg(long, default_value = "safe", value_parser = ["safe", "closed", "open"])]
    on_outage: String,
    /// Name of this copy in lists
    #[arg(long, default_value = "limited-api")]
    name: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Arguments = clap::Parser::parse();
    let on_outage = match arguments.on_outage.as_str() {
        "closed" => OnOutage::Closed,
        "open" => OnOutage::Open,
        _ => OnOutage::Safe,
    };
    let definition = Definition::parse("api", &arguments.limit)?.on_outage(on_outage);
    let store = store::open(&arguments.store).await?;
    let hive = Hive::join(store, Options::named(arguments.name).limit(definition)).await?;
    let header = arguments.key;
    let client_of = move |request: &Request<()>| {
        let value = request.headers().get(header.as_deref()?)?;
        value.to_str().ok().map(str::to_owned)
    };
    let service = Service { hive: hive.clone(), log: Arc::new(Log::default()) };
    let limited = Router::new()
        .route("/orders", get(order))
        .layer(LimitLayer::new(hive.limit("api")?).key(client_of))
        .layer(EngagedLayer::new(&hive));
    let app = Router::new()
        .route("/health", get(async || "ok"))
        .route("/admitted", get(admitted))
        .route("/limit", get(limit))
        .merge(limited)
        .with_state(service);
    let listener = tokio::net::TcpListener::bind(arguments.listen).await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, app).with_graceful_shutdown(shutdown_signal()).await?;
    hive.leave().await;
    Ok(())
}

#[derive(Clone)]
struct Service {
    hive: Hive,
    log: Arc<Log>,
}

async fn order(State(service): State<Service>) -> &'static str {
    service.log.note();
    "ordered\n"
}

/// When requests were admitted, for the load generator that adds up the copies.
async fn admitted(State(service): State<Service>) -> Json<Value> {
    Json(json!({ "by_ms": service.log.by_ms() }))
}

/// The state of the limit on this copy.
async fn limit(State(service): State<Service>) -> Json<Value> {
    let Ok(limit) = service.hive.limit("api") else { return Json(Value::Null) };
    let (counted, engaged) = (limit.snapshot(), service.hive.engaged());
    Json(json!({
        "mode": counted.mode,
        "version": counted.version,
        "per_second": limit.terms().rate.as_per_second(),
        "burst": limit.terms().burst,
        "store_operations": counted.store_operations,
        "engaged": engaged.count,
    }))
}

async fn shutdown_signal() {
    let terminated = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => drop(signal.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminated => {}
    }
}
