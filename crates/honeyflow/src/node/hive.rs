//! This node's part in its hives: one for each database that holds leases, and the one where the queen counts, which is
//! one of these unless `[hive] url` names another.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures_util::future::join_all;
use honeyflow_event::Name;
use honeyflow_hive::{Hive, NodeId, Options, contract::HIVE, member::traits::shard_lease};
use honeyflow_runtime::{Class, Failure};

use super::company::{self, Joiner};
use crate::{
    config::{Config, HiveConfig, SourceConfig},
    registry::{HivePlace, Trust},
};

/// Five seconds for the next queen to get ready, or a time to live, and the words of good-bye. Without the store the row stays until it is
/// buried: leaving is best effort.
const LEAVE_WITHIN: Duration = Duration::from_secs(10);

/// A database, and what of this node's work lives there.
pub struct Joined {
    pub place: HivePlace,
    pub sources: Vec<Name>,
    pub hive: Hive,
    /// Sinks in the data folder that these sources feed.
    indexes: Vec<String>,
    process: String,
}

impl Joined {
    /// Whether those who have come before go together with this node.
    async fn judge(&self) -> Result<(), Failure> {
        if self.sources.is_empty() {
            return Ok(());
        }
        let us = Joiner { own: &self.indexes, process: &self.process, shown: self.place.shown() };
        company::refuse_if_later(&self.hive, &us).await
    }

    /// Returns once it can be no member any more, or is one beside another with which it does not go together: buried
    /// while it slept, it has joined anew after others.
    async fn ended(&self) -> Failure {
        let (mut watch, mut judged) = (self.hive.watch(), self.hive.node());
        loop {
            tokio::select! {
                biased;
                ended = self.hive.ended() => match ended {
                    Some(failure) => return failure,
                    None => std::future::pending().await,
                },
                update = watch.next() => {
                    if update.is_none() || self.hive.node() == judged {
                        continue;
                    }
                    let now = self.hive.node();
                    match self.judge().await {
                        Ok(()) => judged = now,
                        Err(failure) if failure.class == Class::Fatal => return failure,
                        // The store is not there: the next update finds it.
                        Err(_) => {}
                    }
                }
            }
        }
    }

    /// As this node last knew it.
    pub fn holds(&self, lease: &str) -> bool {
        let (Some(me), Some(view)) = (self.hive.node(), self.hive.view().view) else { return false };
        view.leases.iter().any(|row| *row.name == *lease && row.holder == Some(me) && !row.free)
    }
}

/// The one where the queen counts comes first.
pub struct Hives(Vec<Joined>);

/// Who the node is, as others see it.
pub struct Identity<'a> {
    pub name: &'a str,
    pub incarnation: NodeId,
    pub address: Option<String>,
}

/// A hive that the configuration leads to.
pub struct Planned {
    pub place: HivePlace,
    pub name: String,
    pub sources: Vec<Name>,
}

impl Hives {
    /// # Errors
    /// If one of the stores cannot be opened, or refuses this node for good.
    pub async fn join(config: &Config, identity: &Identity<'_>) -> Result<Hives, Failure> {
        let mut joined = Vec::new();
        for Planned { place, name, sources } in plan(config)? {
            let alone = sources.iter().any(|source| !embedded(config, source).is_empty());
            if joined.is_empty() && config.hive.url.is_some() {
                place.make_if_missing()?;
            }
            let store = place.open(&name, alone).await?;
            let hive = Hive::join(store, options(config, identity, &sources)).await?;
            let indexes = sources.iter().flat_map(|source| embedded(config, source)).collect();
            let process = identity.incarnation.to_string();
            joined.push(Joined { place, sources, hive, indexes, process });
        }
        let hives = Hives(joined);
        for joined in hives.all() {
            if let Err(failure) = joined.judge().await {
                hives.leave().await;
                return Err(failure);
            }
        }
        Ok(hives)
    }

    /// Where the queen counts.
    pub fn own(&self) -> &Hive {
        &self.0[0].hive
    }

    pub fn all(&self) -> &[Joined] {
        &self.0
    }

    /// Where the source's leases are.
    pub fn of(&self, source: &str) -> &Hive {
        let found = self.0.iter().find(|joined| joined.sources.iter().any(|name| **name == *source));
        found.map_or(self.own(), |joined| &joined.hive)
    }

    /// Where a lease is that people name: each of them has a queen, and the one that is meant is she who counts.
    pub fn home(&self, lease: &str) -> &Joined {
        &self.0[home(self.0.iter().map(|joined| &joined.sources[..]), lease)]
    }

    /// Whether the shard is worked on here.
    pub fn holds(&self, source: &str, shard: u16) -> bool {
        let lease = shard_lease(source, u32::from(shard));
        self.0.iter().any(|joined| joined.sources.iter().any(|name| **name == *source) && joined.holds(&lease))
    }

    /// Nobody is served here any more.
    pub fn not_ready(&self) {
        self.0.iter().for_each(|joined| joined.hive.ready(false));
    }

    /// Leads nothing new; others get what it leads.
    pub async fn drain(&self) {
        join_all(self.0.iter().map(|joined| joined.hive.drain())).await;
    }

    pub async fn leave(&self) {
        let left = join_all(self.0.iter().map(|joined| joined.hive.leave()));
        let _ = tokio::time::timeout(LEAVE_WITHIN, left).await;
    }

    /// Returns once this node can be no member of one of them any more.
    pub async fn ended(&self) -> Failure {
        let ends = self.0.iter().map(|joined| Box::pin(joined.ended()));
        futures_util::future::select_all(ends).await.0
    }
}

/// Where a source's leases are: with its rows, under one name whatever `[hive]` says, so that two clusters that work on
/// one outbox by mistake still exclude each other.
fn place_of(config: &Config, source: &SourceConfig) -> Result<HivePlace, Failure> {
    HivePlace::of(&source.url, &format!("source.{}.url", source.name), folder(config))
}

/// Where the queen counts, and under which name.
pub fn own_place(config: &Config) -> Result<(HivePlace, String), Failure> {
    let place = match (&config.hive.url, config.sources.first()) {
        (Some(url), _) => {
            let HiveConfig { require_replica, one_writer, .. } = config.hive;
            HivePlace::of(url, "hive.url", folder(config))?.trusted(Trust { require_replica, one_writer })
        }
        (None, Some(source)) => place_of(config, source)?,
        (None, None) => {
            return Err(Failure::fatal("no-source", "the configuration has no source; [source.NAME] with a url"));
        }
    };
    Ok((place, config.hive.name.clone()))
}

/// By hive its sources: the place of the one where the lease is.
fn home<'s>(mut hives: impl Iterator<Item = &'s [Name]>, lease: &str) -> usize {
    let source = lease.strip_prefix("shard/").and_then(|rest| rest.rsplit_once('/')).map(|(source, _)| source);
    let found = source.and_then(|source| hives.position(|sources| sources.iter().any(|name| **name == *source)));
    found.unwrap_or(0)
}

fn folder(config: &Config) -> &Path {
    config.file.parent().unwrap_or(Path::new(""))
}

/// The one where the queen counts comes first.
pub fn plan(config: &Config) -> Result<Vec<Planned>, Failure> {
    let (place, name) = own_place(config)?;
    let mut planned = vec![Planned { place, name, sources: Vec::new() }];
    for source in &config.sources {
        let place = place_of(config, source)?;
        match planned.iter_mut().find(|known| known.name == HIVE && known.place.is_same(&place)) {
            Some(known) => known.sources.push(source.name.clone()),
            None => planned.push(Planned { place, name: HIVE.to_owned(), sources: vec![source.name.clone()] }),
        }
    }
    Ok(planned)
}

fn options(config: &Config, identity: &Identity<'_>, sources: &[Name]) -> Options {
    let (hive, role) = (&config.hive, &config.node.role);
    let mut options = Options {
        heartbeat: hive.heartbeat,
        time_to_live: hive.time_to_live,
        engaged_ttl: hive.engaged_ttl,
        count_every: hive.count_every,
        expected_nodes: hive.expected_nodes,
        store_budget: hive.store_budget,
        // In every one of them: somebody has to sweep what is old, wherever it is counted.
        stands: role.queen,
        // Not before the surface has looked whether it is.
        ready: false,
        weight: Some(role.weight),
        sources: if role.source { sources.iter().map(ToString::to_string).collect() } else { Vec::new() },
        pin: role.pins.clone(),
        on_stuck: Some(Arc::new(end_stuck)),
        ..Options::named(identity.name)
    };
    let mut say = |key: &str, value: serde_json::Value| drop(options.meta.insert(key.to_owned(), value));
    say("version", env!("CARGO_PKG_VERSION").into());
    say("pid", std::process::id().into());
    say("host", super::host_name().into());
    // One process is a node of its own in each database: this tells that they are one.
    say("process", identity.incarnation.to_string().into());
    say("roles", roles(config).into());
    let started = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    say("started-ms", u64::try_from(started.as_millis()).unwrap_or(0).into());
    if let Some(address) = &identity.address {
        say("address", address.as_str().into());
    }
    if let Some(zone) = &role.zone {
        say("zone", zone.as_str().into());
    }
    let indexes: Vec<String> = sources.iter().flat_map(|source| embedded(config, source)).collect();
    if !indexes.is_empty() {
        say("indexes", indexes.into());
    }
    options
}

fn roles(config: &Config) -> Vec<&'static str> {
    let role = &config.node.role;
    [(role.source, "source"), (role.queen, "queen")].into_iter().filter_map(|(has, name)| has.then_some(name)).collect()
}

fn end_stuck() {
    eprintln!("honeyflow: nothing has moved in this process for half a minute; it ends, so that another can work");
    std::process::exit(1);
}

/// Sinks in this node's own data folder that the source feeds. An index has one writer: such a node works alone.
pub fn embedded(config: &Config, source: &str) -> Vec<String> {
    if !config.node.role.source {
        return Vec::new();
    }
    let feeds = |sink: &str| {
        let entities = config.entities_into(sink);
        entities.iter().any(|name| config.entity(name).is_some_and(|entity| *entity.source == *source))
    };
    config.indexes().filter(|sink| feeds(&sink.name)).map(|sink| sink.name.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::{config, registry};

    #[test]
    fn hv_32_the_queen_that_people_name_is_she_who_counts() {
        let hives: [&[Name]; 3] = [&[], &["shop".into()], &["club".into(), "bar".into()]];
        let of = |lease| home(hives.into_iter(), lease);
        assert_eq!([of("queen"), of("duty/report"), of("shard/shop/7"), of("shard/bar/0")], [0, 0, 1, 2]);
        assert_eq!(of("shard/gone/0"), 0);
    }

    /// HV-19, HV-72: events and idle buckets are swept by a queen; a hive without one would keep them for ever.
    #[test]
    fn hv_19_every_hive_has_somebody_who_sweeps_it() {
        let text = r#"
[node]
ROLES
[hive]
url = "sqlite:hive.db"
[source.shop]
url = "sqlite:shop.db"
[source.club]
url = "sqlite:club.db"
"#;
        let identity = Identity { name: "a", incarnation: NodeId(Uuid::from_u128(1)), address: None };
        for (roles, stands) in [("", true), (r#"roles = ["source"]"#, false)] {
            let loaded = config::parse(Path::new("honeyflow.toml"), text.replace("ROLES", roles), &registry::kinds());
            let Ok(loaded) = loaded else { panic!("no TOML") };
            let problems = format!("{:?}", loaded.problems);
            let config = loaded.config.expect(&problems);
            let planned = plan(&config).unwrap();
            assert_eq!(planned.len(), 3);
            for Planned { sources, .. } in planned {
                let options = options(&config, &identity, &sources);
                assert_eq!(options.stands, stands, "{sources:?}");
                assert_eq!(options.sources, sources.iter().map(ToString::to_string).collect::<Vec<_>>());
            }
        }
    }
}
