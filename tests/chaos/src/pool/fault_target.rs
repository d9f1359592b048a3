//! What the faults hit, and which faults there are.

use std::{
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use honeyflow::demo::dice::Dice;
use honeyflow_cassandra::Session;
use honeyflow_pool::settings::Translate;
use tokio::time::Instant;

use super::{
    Part,
    nodes::Nodes,
    outages::Outages,
    proxy::{LinkMode, Proxy},
    scripted::{AnswerFault, Behaviour, Cluster, Server},
};

const FELT_WITHIN: Duration = Duration::from_secs(10);

pub type BoxedResult<'a, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;

pub trait FaultTarget: Send + Sync {
    fn seeds(&self) -> Vec<String>;

    fn servers(&self) -> u32 {
        3
    }

    fn translate(&self) -> Translate {
        Translate::default()
    }

    /// Creates the table, if it does not exist yet.
    fn create_table<'a>(&'a self, _session: &'a Session) -> BoxedResult<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    /// The number of open connections, counted on the servers' side.
    fn open(&self) -> u32;

    /// The times in which no server could have answered.
    fn outages(&self) -> &Outages;

    /// Causes one fault, waits until it has had its effect, and ends it. Returns the fault's name.
    fn strike<'a>(&'a mut self, dice: &'a mut Dice) -> BoxedResult<'a, &'static str>;
}

/// # Errors
/// If the servers are not available.
pub fn prepare(part: Part) -> Result<Box<dyn FaultTarget>, String> {
    match part {
        Part::Scripted => {
            let cluster = Cluster::start(3).map_err(|error| error.to_string())?;
            Ok(Box::new(ScriptedServers { cluster, outages: Outages::default() }))
        }
        Part::Proxy => ProxiedNodes::start(FaultSite::Network),
        Part::Nodes => ProxiedNodes::start(FaultSite::Process),
    }
}

async fn sleep_between(dice: &mut Dice, least_ms: i64, most_ms: i64) {
    let time = least_ms + dice.below(most_ms - least_ms);
    tokio::time::sleep(Duration::from_millis(u64::try_from(time).unwrap_or(0))).await;
}

/// Waits until a fault has had its effect; before that, everything would seem well.
async fn wait_until_felt(arrived: impl Fn() -> bool) -> Result<(), String> {
    let by = Instant::now() + FELT_WITHIN;
    while !arrived() {
        if Instant::now() > by {
            return Err(format!("a fault had no effect within {FELT_WITHIN:?}"));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

fn index(dice: &mut Dice, length: usize) -> usize {
    usize::try_from(dice.below(i64::try_from(length).unwrap_or(1))).unwrap_or(0)
}

struct ScriptedServers {
    cluster: Cluster,
    outages: Outages,
}

const ANSWER_FAULTS: [(&str, AnswerFault); 4] = [
    ("cut in an answer", AnswerFault::Cut),
    ("garbage", AnswerFault::Garbage),
    ("answered twice", AnswerFault::Doubled),
    ("answered nobody", AnswerFault::Stranger),
];

impl FaultTarget for ScriptedServers {
    fn seeds(&self) -> Vec<String> {
        self.cluster.servers().iter().map(|server| server.address.to_string()).collect()
    }

    fn open(&self) -> u32 {
        self.cluster.open()
    }

    fn outages(&self) -> &Outages {
        &self.outages
    }

    fn strike<'a>(&'a mut self, dice: &'a mut Dice) -> BoxedResult<'a, &'static str> {
        Box::pin(async move {
            let servers = self.cluster.servers();
            let server = &servers[index(dice, servers.len())];
            Ok(match dice.below(11) {
                0 => {
                    server.set(Behaviour::Gone);
                    server.forget_statements();
                    sleep_between(dice, 20, 400).await;
                    server.set(Behaviour::Well);
                    "killed"
                }
                1 => {
                    self.outages.begin(Instant::now());
                    servers.iter().for_each(|server| server.set(Behaviour::Gone));
                    sleep_between(dice, 20, 400).await;
                    servers.iter().for_each(|server| server.set(Behaviour::Well));
                    self.outages.end(Instant::now());
                    "all killed"
                }
                2 => behave_for_a_while(server, Behaviour::Silent, dice, "silent").await,
                3 => behave_for_a_while(server, Behaviour::Slow(Duration::from_millis(100)), dice, "slow").await,
                4 => behave_for_a_while(server, Behaviour::Overloaded, dice, "overloaded").await,
                5 => {
                    let ended = server.ended() + u64::from(server.open.load(Ordering::SeqCst));
                    server.reset();
                    wait_until_felt(|| server.ended() >= ended).await?;
                    "reset"
                }
                6 => {
                    server.forget_statements();
                    wait_until_felt(|| server.is_prepared_again()).await?;
                    "forgot its statements"
                }
                number => {
                    let (name, answer_fault) =
                        ANSWER_FAULTS[usize::try_from(number - 7).unwrap_or(0) % ANSWER_FAULTS.len()];
                    server.spoil_next_answer(answer_fault);
                    sleep_between(dice, 20, 100).await;
                    name
                }
            })
        })
    }
}

async fn behave_for_a_while(
    server: &Arc<Server>,
    behaviour: Behaviour,
    dice: &mut Dice,
    name: &'static str,
) -> &'static str {
    server.set(behaviour);
    sleep_between(dice, 50, 1500).await;
    server.set(Behaviour::Well);
    name
}

/// Real servers behind proxies.
struct ProxiedNodes {
    nodes: Nodes,
    site: FaultSite,
    outages: Outages,
}

/// What the faults hit.
#[derive(Clone, Copy)]
enum FaultSite {
    Network,
    Process,
}

impl ProxiedNodes {
    fn start(site: FaultSite) -> Result<Box<dyn FaultTarget>, String> {
        Ok(Box::new(ProxiedNodes { nodes: Nodes::start()?, site, outages: Outages::default() }))
    }

    async fn strike_network(&self, dice: &mut Dice) -> Result<&'static str, String> {
        let proxies = self.nodes.proxies();
        let proxy = &proxies[index(dice, proxies.len())];
        Ok(match dice.below(5) {
            0 => {
                let ended = proxy.ended() + u64::from(proxy.open());
                proxy.reset();
                wait_until_felt(|| proxy.ended() >= ended).await?;
                "reset"
            }
            1 => strike_proxy(proxy, LinkMode::Refused, dice, "refused").await,
            2 => strike_proxy(proxy, LinkMode::Silent, dice, "silent").await,
            3 => strike_proxy(proxy, LinkMode::Late(Duration::from_millis(200)), dice, "slow").await,
            _ => {
                self.outages.begin(Instant::now());
                proxies.iter().for_each(|proxy| proxy.set(LinkMode::Refused));
                sleep_between(dice, 50, 1000).await;
                proxies.iter().for_each(|proxy| proxy.set(LinkMode::Open));
                self.outages.end(Instant::now());
                "all refused"
            }
        })
    }

    async fn strike_process(&mut self, dice: &mut Dice) -> Result<&'static str, String> {
        let number = index(dice, 3);
        if dice.below(3) == 0 {
            self.nodes.pause(number)?;
            sleep_between(dice, 1000, 20_000).await;
            self.nodes.resume(number)?;
            return Ok("paused");
        }
        let kill = dice.below(2) == 0;
        self.nodes.restart(number, kill).await?;
        Ok(if kill { "killed" } else { "stopped" })
    }
}

impl FaultTarget for ProxiedNodes {
    fn seeds(&self) -> Vec<String> {
        self.nodes.seeds()
    }

    fn translate(&self) -> Translate {
        self.nodes.translate()
    }

    fn create_table<'a>(&'a self, session: &'a Session) -> BoxedResult<'a, ()> {
        Box::pin(self.nodes.create_table(session))
    }

    fn open(&self) -> u32 {
        self.nodes.open()
    }

    fn outages(&self) -> &Outages {
        &self.outages
    }

    fn strike<'a>(&'a mut self, dice: &'a mut Dice) -> BoxedResult<'a, &'static str> {
        Box::pin(async move {
            match self.site {
                FaultSite::Network => self.strike_network(dice).await,
                FaultSite::Process => self.strike_process(dice).await,
            }
        })
    }
}

async fn strike_proxy(proxy: &Proxy, mode: LinkMode, dice: &mut Dice, name: &'static str) -> &'static str {
    proxy.set(mode);
    sleep_between(dice, 50, 4000).await;
    proxy.set(LinkMode::Open);
    name
}

/// The address of the proxy for this server.
pub fn proxy_address(server: SocketAddr) -> SocketAddr {
    match server.ip() {
        std::net::IpAddr::V4(ip) => {
            let [a, b, _, d] = ip.octets();
            SocketAddr::from(([a, b, 1, d], server.port()))
        }
        std::net::IpAddr::V6(_) => server,
    }
}

/// Checks that every server listens: a run on fewer servers proves nothing.
///
/// # Errors
/// Returns the server that does not listen.
pub fn check_all_listen(seeds: &[String]) -> Result<(), String> {
    for seed in seeds {
        let address: SocketAddr = seed.parse().map_err(|error| format!("{seed}: {error}"))?;
        std::net::TcpStream::connect_timeout(&address, Duration::from_secs(2))
            .map_err(|error| format!("invalid run: the server at {seed} is missing: {error}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn pl_178_a_proxy_stands_beside_each_server_at_the_same_port() {
        for (server, proxy) in [("127.0.0.1:9042", "127.0.1.1:9042"), ("127.0.0.4:9142", "127.0.1.4:9142")] {
            assert_eq!(proxy_address(server.parse().unwrap()), proxy.parse().unwrap());
        }
    }

    #[test]
    fn pl_178_a_missing_server_makes_the_run_invalid() {
        let listening = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let seeds = [0, 1, 2].map(|at: usize| listening[at].local_addr().unwrap().to_string());
        assert_eq!(check_all_listen(&seeds), Ok(()));
        let [first, _, third] = listening;
        drop((first, third));
        let error = check_all_listen(&seeds[1..]).unwrap_err();
        assert!(error.starts_with(&format!("invalid run: the server at {} is missing", seeds[2])), "{error}");
        assert!(check_all_listen(&["nowhere".to_owned()]).is_err());
    }
}
