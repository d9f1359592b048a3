//! How connections are opened: over TCP sockets, or over streams that a given dialer opens.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use honeyflow_pool::{Dial, Tcp};

use crate::connection::{self, Connection, Limits, Settings};
use crate::error::Error;

pub type ConnectFuture<'a> = Pin<Box<dyn Future<Output = Result<Connection, Error>> + Send + 'a>>;

pub type LookUpFuture<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'a>>;

pub trait Connect: Send + Sync + fmt::Debug {
    fn connect<'a>(
        &'a self,
        to: SocketAddr,
        name: &'a Arc<str>,
        settings: &'a Settings,
        limits: Limits,
    ) -> ConnectFuture<'a>;

    fn look_up<'a>(&'a self, name: &'a str) -> LookUpFuture<'a>;
}

#[derive(Debug)]
pub struct Sockets;

impl Connect for Sockets {
    fn connect<'a>(
        &'a self,
        to: SocketAddr,
        name: &'a Arc<str>,
        settings: &'a Settings,
        limits: Limits,
    ) -> ConnectFuture<'a> {
        let dial = move || connection::tcp(to, settings, limits.tcp);
        Box::pin(Connection::connect_as(name, settings, limits, dial))
    }

    fn look_up<'a>(&'a self, name: &'a str) -> LookUpFuture<'a> {
        Box::pin(Tcp.look_up(name))
    }
}

pub struct Streams<D>(pub D);

impl<D: Dial> Connect for Streams<D> {
    fn connect<'a>(
        &'a self,
        to: SocketAddr,
        name: &'a Arc<str>,
        settings: &'a Settings,
        limits: Limits,
    ) -> ConnectFuture<'a> {
        let dial = move || self.0.dial(to, limits.tcp);
        Box::pin(Connection::connect_as(name, settings, limits, dial))
    }

    fn look_up<'a>(&'a self, name: &'a str) -> LookUpFuture<'a> {
        Box::pin(self.0.look_up(name))
    }
}

impl<D> fmt::Debug for Streams<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Streams")
    }
}
