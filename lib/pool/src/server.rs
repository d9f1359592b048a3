//! One server of the target cluster, as discovery or the settings describe it.

use std::{fmt, net::SocketAddr, sync::Arc};

/// Identifies a server even if its address changes: a host id, a node id. For a configured server that discovery has
/// not confirmed yet, the id is its address.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServerId(Arc<str>);

impl ServerId {
    pub fn new(id: impl Into<Arc<str>>) -> ServerId {
        ServerId(id.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<SocketAddr> for ServerId {
    fn from(address: SocketAddr) -> ServerId {
        ServerId(address.to_string().into())
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// ```
/// use honeyflow_pool::Server;
///
/// let server = Server::at("127.0.0.1:9042".parse().unwrap()).named("a1b2").within("north", "rack-1");
/// assert_eq!(server.to_string(), "127.0.0.1:9042");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Server {
    pub id: ServerId,
    pub address: SocketAddr,
    pub datacentre: Option<Arc<str>>,
    pub rack: Option<Arc<str>>,
}

impl Server {
    /// A server of which only the address is known; the address is also its id.
    pub fn at(address: SocketAddr) -> Server {
        Server { id: address.into(), address, datacentre: None, rack: None }
    }

    #[must_use]
    pub fn named(self, id: impl Into<Arc<str>>) -> Server {
        Server { id: ServerId::new(id), ..self }
    }

    #[must_use]
    pub fn within(self, datacentre: impl Into<Arc<str>>, rack: impl Into<Arc<str>>) -> Server {
        Server { datacentre: Some(datacentre.into()), rack: Some(rack.into()), ..self }
    }
}

/// Prints the address, which operators search for in a log.
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}
