//! Who is there: asks any server for the others, over a connection of its own, and listens to what it says meanwhile.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, timeout},
};

use crate::{
    connect::{Connection, Connector, Notice},
    core::RingChange,
    error::Kind,
    outage::about,
    server::Server,
    shared::Shared,
};

const NEXT_AFTER: Duration = Duration::from_secs(2);
const DEBOUNCE: Duration = Duration::from_secs(1);
const NOTICES_MAX: usize = 20;
/// How often names are looked up when nobody is asked who is there.
const LOOK_UP_EVERY: Duration = Duration::from_secs(10);
/// A round that takes longer makes way for one that somebody asks for.
const HANGS_AFTER: Duration = Duration::from_secs(1);
/// How long an answer may take.
const ROUND_WITHIN: Duration = Duration::from_secs(5);

pub async fn run<C: Connector>(shared: Arc<Shared<C>>, seed: u64) {
    let mut turn = seed as usize;
    let mut names = Names::default();
    loop {
        super::fail_point("pool-discovery-panics");
        if !shared.enter(|core, _| core.state().looks()).unwrap_or(false) {
            shared.signals.discovery.notified().await;
            continue;
        }
        let whole = !shared.settings.load().discovery;
        let seeds = resolve(&shared, &mut names).await;
        shared.name_error.store(Arc::new(names.trouble()));
        let now = shared.now();
        shared.enter(|core, effects| core.seeds(&seeds, whole, now, effects));
        if whole {
            let every = shared.settings.load().discover_every.min(LOOK_UP_EVERY);
            let every = if names.trouble().is_some() { every.min(NEXT_AFTER) } else { every };
            tokio::select! {
                () = tokio::time::sleep(every) => {}
                () = shared.signals.refresh.notified() => {}
                () = shared.signals.discovery.notified() => {}
            }
            continue;
        }
        turn = turn.wrapping_add(1);
        let mut ask = shared.enter(|core, _| core.askable(turn)).unwrap_or_default();
        // When none of those it knew answers, the beginning is tried again.
        ask.extend(
            seeds
                .into_iter()
                .filter(|seed| !ask.iter().any(|server| server.address == seed.address))
                .collect::<Vec<_>>(),
        );
        let mut wait = Some(NEXT_AFTER);
        for server in ask {
            let begun = Instant::now();
            match listen(&shared, &server).await {
                Ended::NotHeard(error) => {
                    shared.enter(|core, _| core.counters_mut().rounds_failed += 1);
                    shared.discovery_error.store(Arc::new(Some(error.into())));
                    continue;
                }
                // One that answers and hangs up would be dialled without a pause.
                Ended::Lost => wait = (begun.elapsed() < NEXT_AFTER).then(|| spread(&shared, NEXT_AFTER)),
                Ended::Obsolete => wait = None,
            }
            break;
        }
        if let Some(wait) = wait {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = shared.signals.refresh.notified() => {}
                () = shared.signals.discovery.notified() => {}
            }
        }
    }
}

enum Ended {
    /// No round on this server.
    NotHeard(String),
    /// The connection went after at least one good round.
    Lost,
    /// Another server is to be asked, or the pool looks no more.
    Obsolete,
}

/// What configured names led to. One that cannot be looked up now leads where it led before: a name server that is away
/// takes nobody's servers from him.
#[derive(Default)]
struct Names(BTreeMap<String, Name>);

#[derive(Default)]
struct Name {
    addresses: Vec<SocketAddr>,
    error: Option<String>,
}

impl Names {
    /// True: what is wrong with it is new.
    fn learn(&mut self, name: &str, looked_up: Result<Vec<SocketAddr>, String>) -> bool {
        let known = self.0.entry(name.to_owned()).or_default();
        let (addresses, error) = match looked_up {
            Ok(found) if found.is_empty() => (None, Some("there is no address under it".to_owned())),
            Ok(found) => (Some(found), None),
            Err(error) => (None, Some(error)),
        };
        let new = error.is_some() && known.error != error;
        known.error = error;
        if let Some(addresses) = addresses {
            known.addresses = addresses;
        }
        new
    }

    fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.0.values().flat_map(|name| name.addresses.iter().copied())
    }

    fn trouble(&self) -> Option<Arc<str>> {
        let wrong = self.0.iter().filter_map(|(name, known)| Some((name, known.error.as_ref()?)));
        let said: Vec<String> = wrong.map(|(name, error)| format!("{name} cannot be looked up: {error}")).collect();
        (!said.is_empty()).then(|| said.join("; ").into())
    }
}

async fn resolve<C: Connector>(shared: &Arc<Shared<C>>, names: &mut Names) -> Vec<Server> {
    let settings = shared.settings.load_full();
    let seeds: Vec<String> = settings.seeds().collect();
    names.0.retain(|name, _| seeds.contains(name));
    let led = |names: &Names| -> Vec<Server> {
        let found: BTreeSet<SocketAddr> = names.addresses().map(|address| settings.translate.apply(address)).collect();
        found.into_iter().map(Server::at).collect()
    };
    // All at once, and each is used when it is known: one that is not answered takes nothing of the others' time.
    let so_far = |names: &Names| {
        let (seeds, now) = (led(names), shared.now());
        shared.enter(|core, effects| core.seeds(&seeds, false, now, effects));
    };
    let mut asked = JoinSet::new();
    for seed in seeds {
        match seed.parse::<SocketAddr>() {
            Ok(address) => drop(names.learn(&seed, Ok(vec![address]))),
            Err(_) => drop(asked.spawn(look_up(shared.clone(), seed))),
        }
    }
    if !asked.is_empty() {
        so_far(names);
    }
    while let Some(answered) = asked.join_next().await {
        let (seed, looked_up) = match answered {
            Ok(answered) => answered,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => continue,
        };
        if names.learn(&seed, looked_up) {
            let error = names.0.get(&seed).and_then(|name| name.error.as_deref()).unwrap_or_default();
            tracing::warn!(pool = settings.name, seed, error, "a configured server has no address now");
        }
        if !asked.is_empty() {
            so_far(names);
        }
    }
    led(names)
}

async fn look_up<C: Connector>(shared: Arc<Shared<C>>, name: String) -> (String, Result<Vec<SocketAddr>, String>) {
    let looked_up = match timeout(ROUND_WITHIN, shared.connector.look_up(&name)).await {
        Ok(Ok(addresses)) => Ok(addresses),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer for {} s", ROUND_WITHIN.as_secs())),
    };
    (name, looked_up)
}

/// Rounds over one connection, for as long as it lasts and the pool looks.
async fn listen<C: Connector>(shared: &Arc<Shared<C>>, server: &Server) -> Ended {
    // Said before the state is looked at: a drain that finds nobody listening then has told everybody.
    let _listening = Listening::begin(shared);
    let connection = tokio::select! {
        biased;
        () = looks_no_more(shared) => return Ended::Obsolete,
        connected = connect(shared, server) => match connected {
            Ok(connection) => connection,
            Err(why) => return Ended::NotHeard(why),
        },
    };
    let ended = tokio::select! {
        biased;
        () = looks_no_more(shared) => Ended::Obsolete,
        ended = rounds(shared, server, &connection) => ended,
    };
    let by = Instant::now() + Duration::from_millis(500);
    let _ = tokio::time::timeout_at(by, connection.close(by)).await;
    shared.let_go(&connection);
    ended
}

/// Whoever waits for the last socket hears of this one's end.
struct Listening<'a, C: Connector>(&'a Shared<C>);

impl<'a, C: Connector> Listening<'a, C> {
    fn begin(shared: &'a Shared<C>) -> Listening<'a, C> {
        shared.listening.store(true, Ordering::SeqCst);
        Listening(shared)
    }
}

impl<C: Connector> Drop for Listening<'_, C> {
    fn drop(&mut self) {
        self.0.listening.store(false, Ordering::SeqCst);
        self.0.signals.waiting.notify_waiters();
    }
}

async fn looks_no_more<C: Connector>(shared: &Arc<Shared<C>>) {
    loop {
        let changed = shared.signals.state.notified();
        if !shared.enter(|core, _| core.state().looks()).unwrap_or(false) {
            return;
        }
        changed.await;
    }
}

/// Somebody wants a round now, and this one has had time enough.
async fn replaced<C: Connector>(shared: &Arc<Shared<C>>) {
    tokio::time::sleep(HANGS_AFTER).await;
    shared.signals.refresh.notified().await;
}

async fn connect<C: Connector>(shared: &Arc<Shared<C>>, server: &Server) -> Result<C::Connection, String> {
    let limits = shared.limits();
    let now = shared.now();
    if let Some(why) = shared.enter(|core, _| core.login_wait(server.address, now)).flatten() {
        return Err(about(server, &why));
    }
    let connected = tokio::select! {
        connected = timeout(limits.tcp + limits.ready, shared.connector.connect(server, limits)) => connected,
        () = replaced(shared) => return Err(format!("{server} hung in a round")),
    };
    match connected {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(error)) => {
            let failed = super::open::failure(&shared.connector, &error);
            if failed.kind == Kind::Login {
                let now = shared.now();
                shared.enter(|core, effects| core.login_refused(server.address, &failed, now, effects));
            }
            Err(about(server, &failed.message))
        }
        Err(_) => Err(format!("{server} was not ready in time")),
    }
}

async fn rounds<C: Connector>(shared: &Arc<Shared<C>>, server: &Server, connection: &C::Connection) -> Ended {
    let mut notices = match timeout(ROUND_WITHIN, shared.connector.watch(connection)).await {
        Ok(Ok(notices)) => notices,
        Ok(Err(error)) => return Ended::NotHeard(about(server, &super::open::chain(&error))),
        Err(_) => return Ended::NotHeard(format!("{server} did not register for notices in time")),
    };
    let mut heard = false;
    loop {
        let change = match round(shared, server, connection).await {
            Ok(change) => change,
            Err(_) if heard => return Ended::Lost,
            Err(error) => return Ended::NotHeard(error),
        };
        heard = true;
        let again = if change.absent.is_empty() { poll_after(shared) } else { NEXT_AFTER };
        tokio::select! {
            () = tokio::time::sleep(again) => {
                // The second opinion comes from another, if there is one.
                if !change.absent.is_empty() {
                    return Ended::Obsolete;
                }
            }
            () = connection.closed() => return Ended::Lost,
            () = connection.takes_no_more() => return Ended::Lost,
            () = shared.signals.refresh.notified() => {}
            () = shared.signals.discovery.notified() => {
                if !shared.settings.load().discovery {
                    return Ended::Obsolete;
                }
            }
            told = hear(shared, &mut notices) => {
                if !told {
                    return Ended::Lost;
                }
            }
        }
    }
}

fn poll_after<C: Connector>(shared: &Arc<Shared<C>>) -> Duration {
    spread(shared, shared.settings.load().discover_every)
}

/// A tenth more or less.
fn spread<C: Connector>(shared: &Shared<C>, time: Duration) -> Duration {
    time.mul_f64(0.9 + (shared.now().0 % 2000) as f64 / 10_000.0)
}

async fn round<C: Connector>(
    shared: &Arc<Shared<C>>,
    server: &Server,
    connection: &C::Connection,
) -> Result<RingChange, String> {
    let answer = tokio::select! {
        answer = timeout(ROUND_WITHIN, shared.connector.discover(connection)) => answer,
        () = replaced(shared) => return Err(format!("{server} hung in a round")),
    };
    let found = match answer {
        Ok(Ok(found)) if !found.is_empty() => found,
        Ok(Ok(_)) => return Err(format!("{server} named no servers, not even itself")),
        Ok(Err(error)) => return Err(about(server, &super::open::chain(&error))),
        Err(_) => return Err(format!("{server} did not say in time who is there")),
    };
    let settings = shared.settings.load_full();
    // What answers names itself as it was dialled, if it does not know better: that is translated already.
    let itself = found.iter().position(|found| found.address == server.address);
    let found: Vec<Server> = found
        .into_iter()
        .enumerate()
        .filter(|(_, found)| settings.filter.lets_pass(found))
        .map(|(at, found)| {
            let address = if Some(at) == itself { found.address } else { settings.translate.apply(found.address) };
            Server { address, ..found }
        })
        .collect();
    let now = shared.now();
    let change = shared.enter(|core, effects| {
        core.counters_mut().rounds_ok += 1;
        core.discovered(&found, now, effects)
    });
    shared.discovery_error.store(Arc::new(None));
    Ok(change.unwrap_or_default())
}

/// Gathers notices for a moment. True if a round is due, false if nothing more will come.
async fn hear<C: Connector>(shared: &Arc<Shared<C>>, notices: &mut mpsc::Receiver<Notice>) -> bool {
    let Some(first) = notices.recv().await else { return false };
    let until = Instant::now() + DEBOUNCE;
    let mut next = Some(first);
    let mut gathered = 0;
    while let Some(notice) = next {
        take_note(shared, &notice);
        gathered += 1;
        if gathered >= NOTICES_MAX {
            break;
        }
        next = tokio::time::timeout_at(until, notices.recv()).await.unwrap_or(None);
    }
    true
}

fn take_note<C: Connector>(shared: &Arc<Shared<C>>, notice: &Notice) {
    let now = shared.now();
    let translated = |address: &SocketAddr| shared.settings.load().translate.apply(*address);
    shared.enter(|core, effects| {
        core.counters_mut().notices += 1;
        match notice {
            Notice::Up(address) | Notice::Added(address) => core.hurry(translated(address), now, effects),
            Notice::Down(address) => core.doubt(translated(address), now, effects),
            Notice::Removed(address) => core.removed_said(translated(address)),
            Notice::Moved(_) | Notice::Schema => {}
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PL-10: a name that cannot be looked up for a while leads where it led, and that is told; one that leads elsewhere
    /// is followed.
    #[test]
    fn pl_10_a_name_that_fails_keeps_its_servers() {
        let address = |last: u8| SocketAddr::from(([10, 0, 0, last], 9042));
        let mut names = Names::default();
        assert!(names.learn("db:9042", Err("no such host".to_owned())), "said once");
        assert!(!names.learn("db:9042", Err("no such host".to_owned())), "not with every look");
        assert_eq!(names.addresses().count(), 0);
        assert!(!names.learn("db:9042", Ok(vec![address(1), address(2)])));
        assert_eq!((names.addresses().count(), names.trouble()), (2, None));
        for failed in [Err("try again".to_owned()), Ok(Vec::new())] {
            assert!(names.learn("db:9042", failed));
            assert_eq!(names.addresses().collect::<Vec<_>>(), [address(1), address(2)]);
            assert!(names.trouble().is_some_and(|said| said.starts_with("db:9042 cannot be looked up")));
        }
        names.learn("db:9042", Ok(vec![address(3)]));
        assert_eq!((names.addresses().collect::<Vec<_>>(), names.trouble()), (vec![address(3)], None));
    }
}
