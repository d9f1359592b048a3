//! The pool's connector for search servers: opens connections, discovers the other servers, judges errors.

use std::{collections::BTreeSet, io, net::SocketAddr, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use futures_util::{StreamExt, stream::FuturesUnordered};
use honeyflow_pool::{self as pool, Dial, Limits, Server, SettingsError, Tcp, Verdict, settings::Table};
use tokio::time::{Instant, timeout, timeout_at};

use crate::{
    config::Config,
    connection::{Connection, Opening},
    error::{Cause, Error},
    request::Request,
    sniff::{self, Member},
    verdict::verdict,
};

const NODES: &str = "/_nodes/http";
const NODES_BYTES_MAX: usize = 2 << 20;
const ROUND_TIME: Duration = Duration::from_secs(5);
/// The largest number of published addresses that are tried; if none of them can be reached, the rest is not tried.
const TRIES_MAX: usize = 16;

/// A cluster of search servers, reached by `D`.
#[derive(Debug)]
pub struct Search<D = Tcp> {
    made_with: Config,
    /// `made_with`, changed by the pool's current settings.
    config: ArcSwap<Config>,
    dial: D,
    members: ArcSwap<Vec<Member>>,
}

impl Search {
    pub fn new(config: Config) -> Search {
        Search::dialling(config, Tcp)
    }
}

impl<D: Dial> Search<D> {
    /// Creates a connector that dials with `dial`.
    pub fn dialling(config: Config, dial: D) -> Search<D> {
        Search { config: ArcSwap::from_pointee(config.clone()), made_with: config, dial, members: ArcSwap::default() }
    }

    /// The servers that the cluster listed last; empty before the first discovery.
    pub fn members(&self) -> Arc<Vec<Member>> {
        self.members.load_full()
    }

    /// The host name of a server, for its certificate and for requests.
    async fn host(&self, config: &Config, address: SocketAddr, by: Instant) -> String {
        if let Some(name) = config.tls.as_ref().and_then(|tls| tls.name.clone()) {
            return name;
        }
        let dialled = |published| config.translate.apply(published) == address;
        if let Some(host) = self.members.load().iter().find(|one| dialled(one.address)).and_then(|one| one.host.clone())
        {
            return host;
        }
        self.configured_name(config, dialled, by).await.unwrap_or_else(|| plain(address))
    }

    /// Returns the first configured name that resolves to the address, among the names that are resolved by the
    /// deadline.
    async fn configured_name(
        &self,
        config: &Config,
        dialled: impl Fn(SocketAddr) -> bool,
        by: Instant,
    ) -> Option<String> {
        let names: Vec<&str> = config.servers.iter().map(String::as_str).collect();
        let names: Vec<&str> = names.into_iter().filter(|server| server.parse::<SocketAddr>().is_err()).collect();
        let mut asked = FuturesUnordered::new();
        for (at, server) in names.iter().copied().enumerate() {
            asked.push(async move { (at, self.dial.look_up(server).await) });
        }
        let mut silent: BTreeSet<usize> = (0..names.len()).collect();
        let mut leads = None;
        while let Ok(Some((at, looked_up))) = timeout_at(by, asked.next()).await {
            silent.remove(&at);
            if looked_up.is_ok_and(|addresses| addresses.into_iter().any(&dialled)) {
                leads = Some(leads.map_or(at, |before: usize| before.min(at)));
            }
            // Stop when no earlier name can still be resolved to the address.
            if leads.is_some_and(|at| silent.first().is_none_or(|first| at < *first)) {
                break;
            }
        }
        leads.and_then(|at| names[at].rsplit_once(':')).map(|(name, _)| name.to_owned())
    }

    /// Opens a connection. `published` is the name that the cluster publishes for a server that is not a known member
    /// yet.
    async fn open(&self, address: SocketAddr, published: Option<String>, limits: Limits) -> Result<Connection, Error> {
        let server: Arc<str> = address.to_string().into();
        let config = self.config.load_full();
        let named = config.tls.as_ref().is_some_and(|tls| tls.name.is_some());
        let naming = async {
            Ok(match published.filter(|_| !named) {
                Some(host) => host,
                None => self.host(&config, address, Instant::now() + limits.tcp).await,
            })
        };
        let dialling =
            async { self.dial.dial(address, limits.tcp).await.map_err(|error| Cause::Connect(error).at(&server)) };
        // Both run together within the time for TCP, so that the name look-up takes no time from the handshake.
        let (stream, host) = tokio::try_join!(dialling, naming)?;
        Opening { config: &config, address, server, host, limits }.over(stream).await
    }

    /// Fails if no published address can be reached from here (such as addresses of containers, or behind a gateway):
    /// they must not replace the addresses that work.
    async fn check_reachable(&self, on: &Connection, members: &[Member]) -> Result<(), Cause> {
        let config = self.config.load_full();
        let dialled = |member: &Member| config.translate.apply(member.address);
        // The server that answered is one of them, so one is reachable.
        if members.iter().any(|member| dialled(member) == on.address()) {
            return Ok(());
        }
        let try_one = |member: &Member| {
            // It is not a known member yet, so pass the name that it has just published.
            let (address, host) = (dialled(member), member.host.clone());
            async move { self.open(address, host, on.limits()).await.map(drop).map_err(|error| chain(&error)) }
        };
        let mut tries: FuturesUnordered<_> = members.iter().take(TRIES_MAX).map(try_one).collect();
        let mut first = None;
        while let Some(tried) = tries.next().await {
            match tried {
                Ok(()) => return Ok(()),
                Err(why) => first = first.or(Some(why)),
            }
        }
        Err(Cause::Unreachable { count: members.len(), first: first.unwrap_or_default() })
    }
}

impl<D: Dial> pool::Connector for Search<D> {
    type Connection = Connection;
    type Error = Error;

    async fn connect(&self, to: &Server, limits: Limits) -> Result<Connection, Error> {
        self.open(to.address, None, limits).await
    }

    async fn discover(&self, on: &Connection) -> Result<Vec<Server>, Error> {
        let at = |cause: Cause| cause.at(on.server());
        let asking = on.send(&Request::get(NODES).answered_within_bytes(NODES_BYTES_MAX)).await;
        let members = sniff::read(&asking?.body).map_err(|why| at(Cause::Cluster(why)))?;
        let reachable = timeout(ROUND_TIME, self.check_reachable(on, &members)).await;
        reachable
            .map_err(|_| at(Cause::Silent { asked: "the check of the published addresses", within: ROUND_TIME }))?
            .map_err(at)?;
        let servers = members.iter().map(|member| Server::at(member.address).named(member.id.as_str())).collect();
        self.members.store(Arc::new(members));
        Ok(servers)
    }

    async fn look_up(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        self.dial.look_up(name).await
    }

    fn verdict(&self, error: &Error) -> Verdict {
        verdict(&error.cause)
    }

    fn configure(&self, own: &Table) -> Result<(), SettingsError> {
        self.config.store(Arc::new(self.made_with.with_keys(own)?));
        Ok(())
    }
}

fn plain(address: SocketAddr) -> String {
    address.ip().to_string()
}

/// Formats an error with its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
