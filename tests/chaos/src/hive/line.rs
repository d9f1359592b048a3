//! Every bee's line to its server: a proxy of its own, so that one can be cut off while the others go on.

use std::{net::SocketAddr, sync::Arc};

use tokio::runtime::Runtime;

use super::Place;
use crate::proxy::{Proxy, Way};

/// Where all lines begin and end.
pub struct Exchange {
    runtime: Runtime,
    place: Place,
    server: SocketAddr,
}

impl Exchange {
    /// None if there is no server to be cut off from.
    ///
    /// # Errors
    /// If the server's address cannot be read, or no thread can be had.
    pub fn before(place: &Place) -> Result<Option<Arc<Exchange>>, String> {
        if !place.backend.has_server() {
            return Ok(None);
        }
        let server = place.address().ok_or("the server's URL names no address")?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        Ok(Some(Arc::new(Exchange { runtime, place: place.clone(), server })))
    }

    /// # Errors
    /// If nobody can listen there.
    pub fn line(&self) -> Result<Line, String> {
        let proxy = self.runtime.block_on(Proxy::start(SocketAddr::from(([127, 0, 0, 1], 0)), self.server));
        let proxy = proxy.map_err(|error| format!("cannot stand before the server: {error}"))?;
        let place = self.place.at(proxy.address);
        Ok(Line { proxy, place })
    }
}

pub struct Line {
    proxy: Proxy,
    /// The server, as it is seen through this line.
    pub place: Place,
}

impl Line {
    pub fn set(&self, way: Way) {
        self.proxy.set(way);
    }
}
