//! How connections come about: over sockets, or over streams that somebody else dials.

use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use honeyflow_pool::Dial;

use crate::connection::{self, Connection, Limits, Settings};
use crate::error::Error;

pub type Opening<'a> = Pin<Box<dyn Future<Output = Result<Connection, Error>> + Send + 'a>>;

pub trait Open: Send + Sync + fmt::Debug {
    fn open<'a>(&'a self, to: SocketAddr, name: &'a Arc<str>, settings: &'a Settings, limits: Limits) -> Opening<'a>;
}

#[derive(Debug)]
pub struct Sockets;

impl Open for Sockets {
    fn open<'a>(&'a self, to: SocketAddr, name: &'a Arc<str>, settings: &'a Settings, limits: Limits) -> Opening<'a> {
        let dial = move || connection::tcp(to, settings, limits.tcp);
        Box::pin(Connection::connect_as(name, settings, limits, dial))
    }
}

pub struct Streams<D>(pub D);

impl<D: Dial> Open for Streams<D> {
    fn open<'a>(&'a self, to: SocketAddr, name: &'a Arc<str>, settings: &'a Settings, limits: Limits) -> Opening<'a> {
        let dial = move || self.0.dial(to, limits.tcp);
        Box::pin(Connection::connect_as(name, settings, limits, dial))
    }
}

impl<D> fmt::Debug for Streams<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Streams")
    }
}
