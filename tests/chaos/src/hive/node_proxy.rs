//! A proxy in front of the server for each node, so that one node can be cut off while the others go on.

use std::{net::SocketAddr, sync::Arc};

use tokio::runtime::Runtime;

use super::StoreLocation;
use crate::proxy::{LinkMode, Proxy};

/// Starts the proxies, which share one runtime.
pub struct ProxyFactory {
    runtime: Runtime,
    location: StoreLocation,
    server: SocketAddr,
}

impl ProxyFactory {
    /// Returns None if the backend has no server to be cut off from.
    ///
    /// # Errors
    /// If the server's address cannot be read, or no thread can be started.
    pub fn for_server(location: &StoreLocation) -> Result<Option<Arc<ProxyFactory>>, String> {
        if !location.backend.has_server() {
            return Ok(None);
        }
        let server = location.address().ok_or("the server's URL names no address")?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        Ok(Some(Arc::new(ProxyFactory { runtime, location: location.clone(), server })))
    }

    /// # Errors
    /// If no port can be opened.
    pub fn start(&self) -> Result<NodeProxy, String> {
        let proxy = self.runtime.block_on(Proxy::start(SocketAddr::from(([127, 0, 0, 1], 0)), self.server));
        let proxy = proxy.map_err(|error| format!("cannot start a proxy for the server: {error}"))?;
        let location = self.location.at_address(proxy.address);
        Ok(NodeProxy { proxy, location })
    }
}

pub struct NodeProxy {
    proxy: Proxy,
    /// The server, with the proxy's address.
    pub location: StoreLocation,
}

impl NodeProxy {
    pub fn set(&self, mode: LinkMode) {
        self.proxy.set(mode);
    }
}
