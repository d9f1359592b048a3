//! The HTTP client: a name is resolved once per connection, every address is checked, and the client connects only to a
//! checked one. It follows no redirect, uses no proxy, and every wait has a time-out.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use reqwest::{
    dns::{Addrs, Name, Resolve, Resolving},
    redirect::Policy,
};

use crate::{
    address::{AddressRefusal, Guard},
    config::{Config, Error},
};

/// A dead peer is detected within twice this time.
const KEEPALIVE: Duration = Duration::from_secs(15);
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Resolves a name to addresses, which the caller checks each time.
pub trait Lookup: Send + Sync {
    fn lookup(&self, host: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// The resolver of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemLookup;

impl Lookup for SystemLookup {
    fn lookup(&self, host: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let host = host.to_owned();
        Box::pin(async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// None of a name's addresses is allowed.
#[derive(Clone, Debug)]
pub struct NoneAllowed(pub AddressRefusal);

impl fmt::Display for NoneAllowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for NoneAllowed {}

struct CheckedResolver {
    lookup: Arc<dyn Lookup>,
    guard: Guard,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let found = self.lookup.lookup(name.as_str());
        let guard = self.guard.clone();
        Box::pin(async move {
            let (mut allowed, mut refused) = (Vec::new(), None);
            for address in found.await? {
                match guard.check(address) {
                    // port 0 stands for the URL's
                    Ok(()) => allowed.push(SocketAddr::new(address, 0)),
                    Err(why) => refused = Some(why),
                }
            }
            match refused {
                Some(why) if allowed.is_empty() => Err(NoneAllowed(why).into()),
                _ => Ok(Box::new(allowed.into_iter()) as Addrs),
            }
        })
    }
}

pub fn build(config: &Config, lookup: Arc<dyn Lookup>) -> Result<reqwest::Client, Error> {
    reqwest::Client::builder()
        .dns_resolver(Arc::new(CheckedResolver { lookup, guard: config.guard()? }))
        .default_headers(config.header_map()?)
        .user_agent(concat!("honeyflow/", env!("CARGO_PKG_VERSION")))
        .https_only(!config.http)
        .redirect(Policy::none())
        .referer(false)
        .no_proxy()
        // `body` unpacks answers, since it checks both sizes
        .no_gzip()
        .connect_timeout(config.connect_timeout)
        .tcp_keepalive(KEEPALIVE)
        .tcp_keepalive_interval(KEEPALIVE / 3)
        .tcp_keepalive_retries(3)
        .tcp_user_timeout(KEEPALIVE * 2)
        .pool_idle_timeout(IDLE_MAX)
        .pool_max_idle_per_host(crate::CALLS_MAX)
        .build()
        .map_err(|error| Error::Client(error.without_url().to_string()))
}
