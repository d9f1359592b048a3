//! Connections to a scripted server, over real sockets.

mod cut;
mod handshake;
mod keyspace;
mod prepared;
mod requests;
mod sockets;
mod tls;
mod write_batching;

use std::net::SocketAddr;
use std::time::Duration;

use honeyflow_cassandra::connection::{Connection, Limits, Settings, Versions};
use honeyflow_cassandra::error::{Cause, Error};
use honeyflow_cassandra::wire::{Compression, Version};
use honeyflow_cassandra::{Options, wire::Response};

use crate::scripted::Script;

/// A generous limit that only stops a test that hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn limits() -> Limits {
    Limits { tcp: PATIENCE, ready: PATIENCE }
}

pub fn settings(version: Version, compression: Compression) -> Settings {
    Settings { versions: Versions { lowest: version, highest: version }, compression, ..Settings::default() }
}

pub async fn connect(script: &Script, settings: &Settings) -> Result<Connection, Error> {
    Connection::connect(script.listen().await, settings, limits()).await
}

pub async fn connected(script: &Script) -> Connection {
    connect(script, &Settings::default()).await.unwrap()
}

pub async fn refused(address: SocketAddr, settings: &Settings, limits: Limits) -> Cause {
    let error = Connection::connect(address, settings, limits).await.expect_err("it connected");
    assert!(error.to_string().starts_with(&address.to_string()), "does not name the server: {error}");
    error.cause
}

pub fn patient() -> Options {
    Options::within(PATIENCE)
}

pub fn text(response: Response) -> String {
    response.into_rows().first::<(String,)>().unwrap().unwrap().0
}
