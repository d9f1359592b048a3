//! A client for search servers with the HTTP interface of OpenSearch and Elasticsearch.
//!
//! A [`Client`] keeps connections to every server of a cluster with `honeyflow-pool`: callers wait fairly and within
//! their deadline; a server that is slow, silent or overloaded gets no requests while others are healthy; and an
//! idempotent request is retried at another server. There is no second pool below it: a connection of the pool is one
//! HTTP connection.
//!
//! ```no_run
//! use std::time::Duration;
//! use honeyflow_sink_search::{Bulk, Client, Config, Login, Request, Secret};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let mut config = Config::of_urls(&["https://search-1:9200", "https://search-2:9200"])?;
//! let password = Secret::new(|| std::env::var("SEARCH_PASSWORD").map_err(|_| "SEARCH_PASSWORD is not set".to_owned()));
//! config.login = Some(Login::Basic { user: "indexer".to_owned(), password });
//! let client = Client::open(config, Default::default())?;
//!
//! // Every write has a version, so the same bulk may arrive twice.
//! let mut bulk = Bulk::default();
//! bulk.index("books", "7", 41, &serde_json::json!({"title": "Momo"}))?;
//! bulk.delete("books", "8", 42)?;
//! match client.send(&Request::bulk(bulk), Duration::from_secs(10)).await {
//!     Ok(answer) => println!("{} bytes about each write", answer.body.len()),
//!     Err(error) if error.transient() => println!("later, in {:?}: {error}", error.retry_after),
//!     Err(error) => return Err(error.into()),
//! }
//! println!("{} servers", client.pool().status().servers.len());
//! # Ok(())
//! # }
//! ```
//!
//! This crate does not know documents, runs or stamps yet: it only sends requests to servers.

mod bulk;
mod client;
mod config;
mod connection;
mod connector;
mod error;
mod keys;
mod login;
mod request;
pub mod sniff;
mod stream;
mod tls;
mod verdict;

pub use bulk::{Bulk, BulkError};
pub use client::Client;
pub use config::{Config, ConfigError, Http};
pub use connection::Connection;
pub use connector::Search;
pub use error::{Cause, Error, Refusal};
pub use honeyflow_tls::Tls;
pub use login::{Login, Secret};
pub use request::{Answer, Request};
