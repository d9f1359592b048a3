//! Where faults happen, and which.

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
    darkness::Darkness,
    nodes::Nodes,
    proxy::{Proxy, Way},
    scripted::{Cluster, Mood, Server, Slip},
};

const FELT_WITHIN: Duration = Duration::from_secs(10);

pub type Later<'a, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;

pub trait Ground: Send + Sync {
    fn seeds(&self) -> Vec<String>;

    fn servers(&self) -> u32 {
        3
    }

    fn translate(&self) -> Translate {
        Translate::default()
    }

    /// Makes the table, if that is not there already.
    fn furnish<'a>(&'a self, _session: &'a Session) -> Later<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Connections as the other side counts them.
    fn open(&self) -> u32;

    /// When nobody could have answered.
    fn darkness(&self) -> &Darkness;

    /// One fault from its beginning until it has been felt and is over; its name.
    fn strike<'a>(&'a mut self, dice: &'a mut Dice) -> Later<'a, &'static str>;
}

/// # Errors
/// If there are no servers to be had.
pub fn prepare(part: Part) -> Result<Box<dyn Ground>, String> {
    match part {
        Part::Scripted => {
            let cluster = Cluster::start(3).map_err(|error| error.to_string())?;
            Ok(Box::new(Scripted { cluster, darkness: Darkness::default() }))
        }
        Part::Proxy => Rig::start(Struck::TheWay),
        Part::Nodes => Rig::start(Struck::TheProcess),
    }
}

async fn between(dice: &mut Dice, least_ms: i64, most_ms: i64) {
    let time = least_ms + dice.below(most_ms - least_ms);
    tokio::time::sleep(Duration::from_millis(u64::try_from(time).unwrap_or(0))).await;
}

/// What was done takes a moment to arrive; looked at before, everything would seem well.
async fn felt(arrived: impl Fn() -> bool) -> Result<(), String> {
    let by = Instant::now() + FELT_WITHIN;
    while !arrived() {
        if Instant::now() > by {
            return Err(format!("a fault was not felt within {FELT_WITHIN:?}"));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

fn index(dice: &mut Dice, length: usize) -> usize {
    usize::try_from(dice.below(i64::try_from(length).unwrap_or(1))).unwrap_or(0)
}

struct Scripted {
    cluster: Cluster,
    darkness: Darkness,
}

const SLIPS: [(&str, Slip); 4] = [
    ("cut in an answer", Slip::Cut),
    ("garbage", Slip::Garbage),
    ("answered twice", Slip::Doubled),
    ("answered nobody", Slip::Stranger),
];

impl Ground for Scripted {
    fn seeds(&self) -> Vec<String> {
        self.cluster.servers().iter().map(|server| server.address.to_string()).collect()
    }

    fn open(&self) -> u32 {
        self.cluster.open()
    }

    fn darkness(&self) -> &Darkness {
        &self.darkness
    }

    fn strike<'a>(&'a mut self, dice: &'a mut Dice) -> Later<'a, &'static str> {
        Box::pin(async move {
            let servers = self.cluster.servers();
            let server = &servers[index(dice, servers.len())];
            Ok(match dice.below(11) {
                0 => {
                    server.set(Mood::Gone);
                    server.forget();
                    between(dice, 20, 400).await;
                    server.set(Mood::Well);
                    "killed"
                }
                1 => {
                    self.darkness.falls(Instant::now());
                    servers.iter().for_each(|server| server.set(Mood::Gone));
                    between(dice, 20, 400).await;
                    servers.iter().for_each(|server| server.set(Mood::Well));
                    self.darkness.lifts(Instant::now());
                    "all killed"
                }
                2 => during(server, Mood::Silent, dice, "silent").await,
                3 => during(server, Mood::Slow(Duration::from_millis(100)), dice, "slow").await,
                4 => during(server, Mood::Overloaded, dice, "overloaded").await,
                5 => {
                    let ended = server.ended() + u64::from(server.open.load(Ordering::SeqCst));
                    server.reset();
                    felt(|| server.ended() >= ended).await?;
                    "reset"
                }
                6 => {
                    server.forget();
                    felt(|| server.reminded()).await?;
                    "forgot its statements"
                }
                slip => {
                    let (name, slip) = SLIPS[usize::try_from(slip - 7).unwrap_or(0) % SLIPS.len()];
                    server.slip(slip);
                    between(dice, 20, 100).await;
                    name
                }
            })
        })
    }
}

async fn during(server: &Arc<Server>, mood: Mood, dice: &mut Dice, name: &'static str) -> &'static str {
    server.set(mood);
    between(dice, 50, 1500).await;
    server.set(Mood::Well);
    name
}

/// Real servers behind proxies.
struct Rig {
    nodes: Nodes,
    struck: Struck,
    darkness: Darkness,
}

/// Where faults happen.
#[derive(Clone, Copy)]
enum Struck {
    TheWay,
    TheProcess,
}

impl Rig {
    fn start(struck: Struck) -> Result<Box<dyn Ground>, String> {
        Ok(Box::new(Rig { nodes: Nodes::start()?, struck, darkness: Darkness::default() }))
    }

    async fn on_the_way(&self, dice: &mut Dice) -> Result<&'static str, String> {
        let proxies = self.nodes.proxies();
        let proxy = &proxies[index(dice, proxies.len())];
        Ok(match dice.below(5) {
            0 => {
                let ended = proxy.ended() + u64::from(proxy.open());
                proxy.reset();
                felt(|| proxy.ended() >= ended).await?;
                "reset"
            }
            1 => on_the_way(proxy, Way::Refused, dice, "refused").await,
            2 => on_the_way(proxy, Way::Silent, dice, "silent").await,
            3 => on_the_way(proxy, Way::Late(Duration::from_millis(200)), dice, "slow").await,
            _ => {
                self.darkness.falls(Instant::now());
                proxies.iter().for_each(|proxy| proxy.set(Way::Refused));
                between(dice, 50, 1000).await;
                proxies.iter().for_each(|proxy| proxy.set(Way::Open));
                self.darkness.lifts(Instant::now());
                "all refused"
            }
        })
    }

    async fn of_a_process(&mut self, dice: &mut Dice) -> Result<&'static str, String> {
        let number = index(dice, 3);
        if dice.below(3) == 0 {
            self.nodes.pause(number)?;
            between(dice, 1000, 20_000).await;
            self.nodes.resume(number)?;
            return Ok("paused");
        }
        let kill = dice.below(2) == 0;
        self.nodes.restart(number, kill).await?;
        Ok(if kill { "killed" } else { "stopped" })
    }
}

impl Ground for Rig {
    fn seeds(&self) -> Vec<String> {
        self.nodes.seeds()
    }

    fn translate(&self) -> Translate {
        self.nodes.translate()
    }

    fn furnish<'a>(&'a self, session: &'a Session) -> Later<'a, ()> {
        Box::pin(self.nodes.furnish(session))
    }

    fn open(&self) -> u32 {
        self.nodes.open()
    }

    fn darkness(&self) -> &Darkness {
        &self.darkness
    }

    fn strike<'a>(&'a mut self, dice: &'a mut Dice) -> Later<'a, &'static str> {
        Box::pin(async move {
            match self.struck {
                Struck::TheWay => self.on_the_way(dice).await,
                Struck::TheProcess => self.of_a_process(dice).await,
            }
        })
    }
}

async fn on_the_way(proxy: &Proxy, way: Way, dice: &mut Dice, name: &'static str) -> &'static str {
    proxy.set(way);
    between(dice, 50, 4000).await;
    proxy.set(Way::Open);
    name
}

/// The addresses at which the proxies stand in for the servers.
pub fn stand_in(server: SocketAddr) -> SocketAddr {
    match server.ip() {
        std::net::IpAddr::V4(ip) => {
            let [a, b, _, d] = ip.octets();
            SocketAddr::from(([a, b, 1, d], server.port()))
        }
        std::net::IpAddr::V6(_) => server,
    }
}

/// A run on fewer servers than it is about says nothing.
///
/// # Errors
/// Which of them does not listen.
pub fn all_there(seeds: &[String]) -> Result<(), String> {
    for seed in seeds {
        let address: SocketAddr = seed.parse().map_err(|error| format!("{seed}: {error}"))?;
        std::net::TcpStream::connect_timeout(&address, Duration::from_secs(2))
            .map_err(|error| format!("the run is void: the server at {seed} is missing: {error}"))?;
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
            assert_eq!(stand_in(server.parse().unwrap()), proxy.parse().unwrap());
        }
    }

    #[test]
    fn pl_178_a_missing_server_makes_the_run_void() {
        let listening = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let seeds = [0, 1, 2].map(|at: usize| listening[at].local_addr().unwrap().to_string());
        assert_eq!(all_there(&seeds), Ok(()));
        let [first, _, third] = listening;
        drop((first, third));
        let void = all_there(&seeds[1..]).unwrap_err();
        assert!(void.starts_with(&format!("the run is void: the server at {} is missing", seeds[2])), "{void}");
        assert!(all_there(&["nowhere".to_owned()]).is_err());
    }
}
