//! Discovery: asks one server for all servers of the cluster, over a separate connection, and listens for notices on
//! it.

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
/// How often names are looked up when discovery is off.
const LOOK_UP_EVERY: Duration = Duration::from_secs(10);
/// A round that takes longer is given up if an operator asks for a new one.
const HANGS_AFTER: Duration = Duration::from_secs(1);
/// How long a server may take to answer in a round.
const ROUND_WITHIN: Duration = Duration::from_secs(5);

pub async fn run<C: Connector>(shared: Arc<Shared<C>>, seed: u64) {
    let mut turn = seed as usize;
    let mut names = Names::default();
    loop {
        super::fail_point("pool-discovery-panics");
        if !shared.enter(|core, _| core.state().allows_discovery()).unwrap_or(false) {
            shared.signals.discovery.notified().await;
            continue;
        }
        let whole = !shared.settings.load().discovery;
        let seeds = resolve(&shared, &mut names).await;
        shared.name_error.store(Arc::new(names.errors()));
        let now = shared.now();
        shared.enter(|core, effects| core.seeds(&seeds, whole, now, effects));
        if whole {
            let every = shared.settings.load().discover_every.min(LOOK_UP_EVERY);
            let every = if names.errors().is_some() { every.min(NEXT_AFTER) } else { every };
            tokio::select! {
                () = tokio::time::sleep(every) => {}
                () = shared.signals.refresh.notified() => {}
                () = shared.signals.discovery.notified() => {}
            }
            continue;
        }
        turn = turn.wrapping_add(1);
        let mut ask = shared.enter(|core, _| core.discovery_candidates(turn)).unwrap_or_default();
        // The configured servers come last, for the case that no known server answers.
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
                ListenEnd::NoRound(error) => {
                    shared.enter(|core, _| core.counters_mut().rounds_failed += 1);
                    shared.discovery_error.store(Arc::new(Some(error.into())));
                    continue;
                }
                // Without this wait, a server that answers and hangs up would be redialled without a pause.
                ListenEnd::Lost => wait = (begun.elapsed() < NEXT_AFTER).then(|| spread(&shared, NEXT_AFTER)),
                ListenEnd::Obsolete => wait = None,
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

enum ListenEnd {
    /// No round succeeded on this server.
    NoRound(String),
    /// The connection ended after at least one successful round.
    Lost,
    /// Another server must be asked, or discovery must stop.
    Obsolete,
}

/// The addresses of the configured names. A name that cannot be looked up now keeps its last addresses, so that a DNS
/// outage removes no server.
#[derive(Default)]
struct Names(BTreeMap<String, Name>);

#[derive(Default)]
struct Name {
    addresses: Vec<SocketAddr>,
    error: Option<String>,
}

impl Names {
    /// Stores the result of a look-up. Returns true if it failed with a new error.
    fn learn(&mut self, name: &str, looked_up: Result<Vec<SocketAddr>, String>) -> bool {
        let known = self.0.entry(name.to_owned()).or_default();
        let (addresses, error) = match looked_up {
            Ok(found) if found.is_empty() => (None, Some("the name has no address".to_owned())),
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

    fn errors(&self) -> Option<Arc<str>> {
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
    // All names are looked up at once and each result is used when it comes, so a slow name does not delay the others.
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
            tracing::warn!(pool = settings.name, seed, error, "cannot look up a configured server");
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

/// Makes rounds over one connection, until it ends or discovery must stop.
async fn listen<C: Connector>(shared: &Arc<Shared<C>>, server: &Server) -> ListenEnd {
    // Set before the state is checked: a drain that sees the flag unset then knows that discovery will see its state.
    let _listening = ListeningGuard::begin(shared);
    let connection = tokio::select! {
        biased;
        () = discovery_stopped(shared) => return ListenEnd::Obsolete,
        connected = connect(shared, server) => match connected {
            Ok(connection) => connection,
            Err(why) => return ListenEnd::NoRound(why),
        },
    };
    let ended = tokio::select! {
        biased;
        () = discovery_stopped(shared) => ListenEnd::Obsolete,
        ended = rounds(shared, server, &connection) => ended,
    };
    let by = Instant::now() + Duration::from_millis(500);
    let _ = tokio::time::timeout_at(by, connection.close(by)).await;
    shared.count_wrong_answers(&connection);
    ended
}

/// Marks that discovery has a socket. When dropped, it wakes the drain that waits until all sockets are closed.
struct ListeningGuard<'a, C: Connector>(&'a Shared<C>);

impl<'a, C: Connector> ListeningGuard<'a, C> {
    fn begin(shared: &'a Shared<C>) -> ListeningGuard<'a, C> {
        shared.listening.store(true, Ordering::SeqCst);
        ListeningGuard(shared)
    }
}

impl<C: Connector> Drop for ListeningGuard<'_, C> {
    fn drop(&mut self) {
        self.0.listening.store(false, Ordering::SeqCst);
        self.0.signals.waiting.notify_waiters();
    }
}

async fn discovery_stopped<C: Connector>(shared: &Arc<Shared<C>>) {
    loop {
        let changed = shared.signals.state.notified();
        if !shared.enter(|core, _| core.state().allows_discovery()).unwrap_or(false) {
            return;
        }
        changed.await;
    }
}

/// Completes when an operator asks for a round and the current one has run for at least [`HANGS_AFTER`].
async fn refresh_requested<C: Connector>(shared: &Arc<Shared<C>>) {
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
        () = refresh_requested(shared) => return Err(format!("{server} did not finish a discovery round in time")),
    };
    match connected {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(error)) => {
            let failed = super::reconcile::failure(&shared.connector, &error);
            if failed.kind == Kind::Login {
                let now = shared.now();
                shared.enter(|core, effects| core.login_refused(server.address, &failed, now, effects));
            }
            Err(about(server, &failed.message))
        }
        Err(_) => Err(format!("{server} was not ready in time")),
    }
}

async fn rounds<C: Connector>(shared: &Arc<Shared<C>>, server: &Server, connection: &C::Connection) -> ListenEnd {
    let mut notices = match timeout(ROUND_WITHIN, shared.connector.watch(connection)).await {
        Ok(Ok(notices)) => notices,
        Ok(Err(error)) => return ListenEnd::NoRound(about(server, &super::reconcile::chain(&error))),
        Err(_) => return ListenEnd::NoRound(format!("{server} did not register for notices in time")),
    };
    let mut heard = false;
    loop {
        let change = match round(shared, server, connection).await {
            Ok(change) => change,
            Err(_) if heard => return ListenEnd::Lost,
            Err(error) => return ListenEnd::NoRound(error),
        };
        heard = true;
        let again = if change.absent.is_empty() { poll_after(shared) } else { NEXT_AFTER };
        tokio::select! {
            () = tokio::time::sleep(again) => {
                // A server is absent: ask another server before it is removed.
                if !change.absent.is_empty() {
                    return ListenEnd::Obsolete;
                }
            }
            () = connection.closed() => return ListenEnd::Lost,
            () = connection.takes_no_more() => return ListenEnd::Lost,
            () = shared.signals.refresh.notified() => {}
            () = shared.signals.discovery.notified() => {
                if !shared.settings.load().discovery {
                    return ListenEnd::Obsolete;
                }
            }
            told = collect_notices(shared, &mut notices) => {
                if !told {
                    return ListenEnd::Lost;
                }
            }
        }
    }
}

fn poll_after<C: Connector>(shared: &Arc<Shared<C>>) -> Duration {
    spread(shared, shared.settings.load().discover_every)
}

/// Varies a time by up to a tenth, up or down.
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
        () = refresh_requested(shared) => return Err(format!("{server} did not finish a discovery round in time")),
    };
    let found = match answer {
        Ok(Ok(found)) if !found.is_empty() => found,
        Ok(Ok(_)) => return Err(format!("{server} named no servers, not even itself")),
        Ok(Err(error)) => return Err(about(server, &super::reconcile::chain(&error))),
        Err(_) => return Err(format!("{server} did not answer a discovery request in time")),
    };
    let settings = shared.settings.load_full();
    // A server may report itself under the address that we dialled, which is translated already.
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

/// Collects notices for up to one second. Returns true if a round is due, false if the channel is closed.
async fn collect_notices<C: Connector>(shared: &Arc<Shared<C>>, notices: &mut mpsc::Receiver<Notice>) -> bool {
    let Some(first) = notices.recv().await else { return false };
    let until = Instant::now() + DEBOUNCE;
    let mut next = Some(first);
    let mut gathered = 0;
    while let Some(notice) = next {
        handle_notice(shared, &notice);
        gathered += 1;
        if gathered >= NOTICES_MAX {
            break;
        }
        next = tokio::time::timeout_at(until, notices.recv()).await.unwrap_or(None);
    }
    true
}

fn handle_notice<C: Connector>(shared: &Arc<Shared<C>>, notice: &Notice) {
    let now = shared.now();
    let translated = |address: &SocketAddr| shared.settings.load().translate.apply(*address);
    shared.enter(|core, effects| {
        core.counters_mut().notices += 1;
        match notice {
            Notice::Up(address) | Notice::Added(address) => core.hurry(translated(address), now, effects),
            Notice::Down(address) => core.on_down_notice(translated(address), now, effects),
            Notice::Removed(address) => core.on_removed_notice(translated(address)),
            Notice::Moved(_) | Notice::Schema => {}
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PL-10: a name that cannot be looked up keeps its addresses, and the error is reported once; a name with new
    /// addresses replaces them.
    #[test]
    fn pl_10_a_name_that_fails_keeps_its_servers() {
        let address = |last: u8| SocketAddr::from(([10, 0, 0, last], 9042));
        let mut names = Names::default();
        assert!(names.learn("db:9042", Err("no such host".to_owned())), "the first error is new");
        assert!(!names.learn("db:9042", Err("no such host".to_owned())), "the same error is not");
        assert_eq!(names.addresses().count(), 0);
        assert!(!names.learn("db:9042", Ok(vec![address(1), address(2)])));
        assert_eq!((names.addresses().count(), names.errors()), (2, None));
        for failed in [Err("try again".to_owned()), Ok(Vec::new())] {
            assert!(names.learn("db:9042", failed));
            assert_eq!(names.addresses().collect::<Vec<_>>(), [address(1), address(2)]);
            assert!(names.errors().is_some_and(|said| said.starts_with("db:9042 cannot be looked up")));
        }
        names.learn("db:9042", Ok(vec![address(3)]));
        assert_eq!((names.addresses().collect::<Vec<_>>(), names.errors()), (vec![address(3)], None));
    }
}
