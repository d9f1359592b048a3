//! Where faults happen, and which.

use std::{future::Future, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use honeyflow::demo::dice::Dice;
use honeyflow_cassandra::Session;
use honeyflow_pool::settings::Translate;

use super::{
    Part,
    nodes::Nodes,
    proxy::{Proxy, Way},
    scripted::{Cluster, Mood, Server, Slip},
};

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

    /// One fault from its beginning to its end; its name.
    fn strike<'a>(&'a mut self, dice: &'a mut Dice) -> Later<'a, &'static str>;
}

/// # Errors
/// If there are no servers to be had.
pub fn prepare(part: Part) -> Result<Box<dyn Ground>, String> {
    match part {
        Part::Scripted => Ok(Box::new(Scripted(Cluster::start(3).map_err(|error| error.to_string())?))),
        Part::Proxy => Ok(Box::new(Proxied(Nodes::start()?))),
        Part::Nodes => Ok(Box::new(Real(Nodes::start()?))),
    }
}

async fn between(dice: &mut Dice, least_ms: i64, most_ms: i64) {
    let time = least_ms + dice.below(most_ms - least_ms);
    tokio::time::sleep(Duration::from_millis(u64::try_from(time).unwrap_or(0))).await;
}

fn index(dice: &mut Dice, length: usize) -> usize {
    usize::try_from(dice.below(i64::try_from(length).unwrap_or(1))).unwrap_or(0)
}

struct Scripted(Cluster);

const SLIPS: [(&str, Slip); 4] = [
    ("cut in an answer", Slip::Cut),
    ("garbage", Slip::Garbage),
    ("answered twice", Slip::Doubled),
    ("answered nobody", Slip::Stranger),
];

impl Ground for Scripted {
    fn seeds(&self) -> Vec<String> {
        self.0.servers().iter().map(|server| server.address.to_string()).collect()
    }

    fn open(&self) -> u32 {
        self.0.open()
    }

    fn strike<'a>(&'a mut self, dice: &'a mut Dice) -> Later<'a, &'static str> {
        Box::pin(async move {
            let servers = self.0.servers();
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
                    servers.iter().for_each(|server| server.set(Mood::Gone));
                    between(dice, 20, 400).await;
                    servers.iter().for_each(|server| server.set(Mood::Well));
                    "all killed"
                }
                2 => during(server, Mood::Silent, dice, "silent").await,
                3 => during(server, Mood::Slow(Duration::from_millis(100)), dice, "slow").await,
                4 => during(server, Mood::Overloaded, dice, "overloaded").await,
                5 => {
                    server.reset();
                    "reset"
                }
                6 => {
                    server.forget();
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

struct Proxied(Nodes);

impl Ground for Proxied {
    fn seeds(&self) -> Vec<String> {
        self.0.seeds()
    }

    fn translate(&self) -> Translate {
        self.0.translate()
    }

    fn furnish<'a>(&'a self, session: &'a Session) -> Later<'a, ()> {
        Box::pin(self.0.furnish(session))
    }

    fn open(&self) -> u32 {
        self.0.open()
    }

    fn strike<'a>(&'a mut self, dice: &'a mut Dice) -> Later<'a, &'static str> {
        Box::pin(async move {
            let proxies = self.0.proxies();
            let proxy = &proxies[index(dice, proxies.len())];
            Ok(match dice.below(5) {
                0 => {
                    proxy.reset();
                    "reset"
                }
                1 => on_the_way(proxy, Way::Refused, dice, "refused").await,
                2 => on_the_way(proxy, Way::Silent, dice, "silent").await,
                3 => on_the_way(proxy, Way::Late(Duration::from_millis(200)), dice, "slow").await,
                _ => {
                    proxies.iter().for_each(|proxy| proxy.set(Way::Refused));
                    between(dice, 50, 1000).await;
                    proxies.iter().for_each(|proxy| proxy.set(Way::Open));
                    "all refused"
                }
            })
        })
    }
}

async fn on_the_way(proxy: &Proxy, way: Way, dice: &mut Dice, name: &'static str) -> &'static str {
    proxy.set(way);
    between(dice, 50, 4000).await;
    proxy.set(Way::Open);
    name
}

struct Real(Nodes);

impl Ground for Real {
    fn seeds(&self) -> Vec<String> {
        self.0.seeds()
    }

    fn translate(&self) -> Translate {
        self.0.translate()
    }

    fn furnish<'a>(&'a self, session: &'a Session) -> Later<'a, ()> {
        Box::pin(self.0.furnish(session))
    }

    fn open(&self) -> u32 {
        self.0.open()
    }

    fn strike<'a>(&'a mut self, dice: &'a mut Dice) -> Later<'a, &'static str> {
        Box::pin(async move {
            let number = index(dice, 3);
            if dice.below(3) == 0 {
                self.0.pause(number)?;
                between(dice, 1000, 20_000).await;
                self.0.resume(number)?;
                return Ok("paused");
            }
            let kill = dice.below(2) == 0;
            self.0.restart(number, kill).await?;
            Ok(if kill { "killed" } else { "stopped" })
        })
    }
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
