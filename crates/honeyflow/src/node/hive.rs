//! This node's membership in its hives. There is one hive for each database that holds leases; the hive where the queen
//! counts is one of them, unless `[hive] url` names another database.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures_util::future::join_all;
use honeyflow_event::Name;
use honeyflow_hive::{Hive, NodeId, Options, contract::HIVE, member::traits::shard_lease};
use honeyflow_runtime::{Class, Failure};

use super::exclusivity::{self, JoinedNode};
use crate::{
    codes,
    config::{Config, HiveConfig, SourceConfig},
    registry::{HivePlace, Trust},
};

/// The longest time to leave: 5 s for the next queen to get ready, or a time-to-live, and the requests to leave.
/// Without the store the row stays until it expires and is removed: leaving is best effort.
const LEAVE_WITHIN: Duration = Duration::from_secs(10);

/// A hive that this node has joined.
pub struct JoinedHive {
    pub place: HivePlace,
    pub sources: Vec<Name>,
    pub hive: Hive,
    /// The sinks in the data folder that these sources feed.
    indexes: Vec<String>,
    process: String,
}

impl JoinedHive {
    /// Checks that no node that joined earlier excludes this one.
    async fn check_exclusivity(&self) -> Result<(), Failure> {
        if self.sources.is_empty() {
            return Ok(());
        }
        let us = JoinedNode { own: &self.indexes, process: &self.process, shown: self.place.shown() };
        exclusivity::refuse_if_joined_later(&self.hive, &us).await
    }

    /// Returns once this node can no longer be a member, or another node excludes it. The latter happens if the node
    /// was removed while it slept and then joined again, after other nodes.
    async fn ended(&self) -> Failure {
        let (mut watch, mut checked) = (self.hive.watch(), self.hive.node());
        loop {
            tokio::select! {
                biased;
                ended = self.hive.ended() => match ended {
                    Some(failure) => return failure,
                    None => std::future::pending().await,
                },
                update = watch.next() => {
                    if update.is_none() || self.hive.node() == checked {
                        continue;
                    }
                    let now = self.hive.node();
                    match self.check_exclusivity().await {
                        Ok(()) => checked = now,
                        Err(failure) if failure.class == Class::Fatal => return failure,
                        // The store is unreachable: check again with the next update.
                        Err(_) => {}
                    }
                }
            }
        }
    }

    /// Whether this node holds the lease, according to its last view.
    pub fn holds(&self, lease: &str) -> bool {
        let (Some(me), Some(view)) = (self.hive.node(), self.hive.view().view) else { return false };
        view.leases.iter().any(|row| *row.name == *lease && row.holder == Some(me) && !row.free)
    }
}

/// The hives that this node has joined; the one where the queen counts is the first.
pub struct Hives(Vec<JoinedHive>);

/// How this node appears to other nodes.
pub struct Identity<'a> {
    pub name: &'a str,
    pub incarnation: NodeId,
    pub address: Option<String>,
}

/// A hive that the configuration requires.
pub struct PlannedHive {
    pub place: HivePlace,
    pub name: String,
    pub sources: Vec<Name>,
}

impl Hives {
    /// # Errors
    /// If one of the stores cannot be opened, or refuses this node for good.
    pub async fn join(config: &Config, identity: &Identity<'_>) -> Result<Hives, Failure> {
        let mut joined = Vec::new();
        for PlannedHive { place, name, sources } in plan(config)? {
            let alone = sources.iter().any(|source| !embedded(config, source).is_empty());
            if joined.is_empty() && config.hive.url.is_some() {
                place.make_if_missing()?;
            }
            let store = place.open(&name, alone).await?;
            let hive = Hive::join(store, options(config, identity, &sources)).await?;
            let indexes = sources.iter().flat_map(|source| embedded(config, source)).collect();
            let process = identity.incarnation.to_string();
            joined.push(JoinedHive { place, sources, hive, indexes, process });
        }
        let hives = Hives(joined);
        for joined in hives.all() {
            if let Err(failure) = joined.check_exclusivity().await {
                hives.leave().await;
                return Err(failure);
            }
        }
        Ok(hives)
    }

    /// The hive where the queen counts.
    pub fn own(&self) -> &Hive {
        &self.0[0].hive
    }

    pub fn all(&self) -> &[JoinedHive] {
        &self.0
    }

    /// The hive that holds the source's leases.
    pub fn hive_of(&self, source: &str) -> &Hive {
        let found = self.0.iter().find(|joined| joined.sources.iter().any(|name| **name == *source));
        found.map_or(self.own(), |joined| &joined.hive)
    }

    /// The hive of a lease that an operator names. Each hive has a queen; `queen` means the one who counts.
    pub fn home(&self, lease: &str) -> &JoinedHive {
        &self.0[home(self.0.iter().map(|joined| &joined.sources[..]), lease)]
    }

    /// Whether this node holds the shard.
    pub fn holds(&self, source: &str, shard: u16) -> bool {
        let lease = shard_lease(source, u32::from(shard));
        self.0.iter().any(|joined| joined.sources.iter().any(|name| **name == *source) && joined.holds(&lease))
    }

    /// Publishes that this node serves no requests any more.
    pub fn not_ready(&self) {
        self.0.iter().for_each(|joined| joined.hive.ready(false));
    }

    /// Takes no new leases and transfers those it holds to other nodes.
    pub async fn drain(&self) {
        join_all(self.0.iter().map(|joined| joined.hive.drain())).await;
    }

    pub async fn leave(&self) {
        let left = join_all(self.0.iter().map(|joined| joined.hive.leave()));
        let _ = tokio::time::timeout(LEAVE_WITHIN, left).await;
    }

    /// Returns once this node can no longer be a member of one of its hives.
    pub async fn ended(&self) -> Failure {
        let ends = self.0.iter().map(|joined| Box::pin(joined.ended()));
        futures_util::future::select_all(ends).await.0
    }
}

/// The address of a source's leases. They are in the source's own database, always under the same name, whatever
/// `[hive]` says: so two clusters that work on one outbox by mistake still exclude each other.
fn place_of(config: &Config, source: &SourceConfig) -> Result<HivePlace, Failure> {
    HivePlace::of(&source.url, &format!("source.{}.url", source.name), folder(config))
}

/// The address and name of the hive where the queen counts.
pub fn own_place(config: &Config) -> Result<(HivePlace, String), Failure> {
    let place = match (&config.hive.url, config.sources.first()) {
        (Some(url), _) => {
            let HiveConfig { require_replica, one_writer, .. } = config.hive;
            HivePlace::of(url, "hive.url", folder(config))?.trusted(Trust { require_replica, one_writer })
        }
        (None, Some(source)) => place_of(config, source)?,
        (None, None) => {
            return Err(Failure::fatal(
                codes::NO_SOURCE,
                "the configuration has no source; add [source.NAME] with a url",
            ));
        }
    };
    Ok((place, config.hive.name.clone()))
}

/// The index of the hive that holds the lease, given the sources of each hive.
fn home<'s>(mut hives: impl Iterator<Item = &'s [Name]>, lease: &str) -> usize {
    let source = lease.strip_prefix("shard/").and_then(|rest| rest.rsplit_once('/')).map(|(source, _)| source);
    let found = source.and_then(|source| hives.position(|sources| sources.iter().any(|name| **name == *source)));
    found.unwrap_or(0)
}

fn folder(config: &Config) -> &Path {
    config.file.parent().unwrap_or(Path::new(""))
}

/// All hives that the configuration requires; the one where the queen counts is the first.
pub fn plan(config: &Config) -> Result<Vec<PlannedHive>, Failure> {
    let (place, name) = own_place(config)?;
    let mut planned = vec![PlannedHive { place, name, sources: Vec::new() }];
    for source in &config.sources {
        let place = place_of(config, source)?;
        match planned.iter_mut().find(|known| known.name == HIVE && known.place.is_same(&place)) {
            Some(known) => known.sources.push(source.name.clone()),
            None => planned.push(PlannedHive { place, name: HIVE.to_owned(), sources: vec![source.name.clone()] }),
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
        // Stands in every hive: each hive needs a queen to delete its old events and idle buckets.
        stands: role.queen,
        // The HTTP surface sets it once the node is ready.
        ready: false,
        weight: Some(role.weight),
        sources: if role.source { sources.iter().map(ToString::to_string).collect() } else { Vec::new() },
        pin: role.pins.clone(),
        on_stuck: Some(Arc::new(end_stuck)),
        ..Options::named(identity.name)
    };
    let mut publish = |key: &str, value: serde_json::Value| drop(options.meta.insert(key.to_owned(), value));
    publish("version", env!("CARGO_PKG_VERSION").into());
    publish("pid", std::process::id().into());
    publish("host", super::host_name().into());
    // A process is a separate node in each database: this shows that they are the same process.
    publish("process", identity.incarnation.to_string().into());
    publish("roles", roles(config).into());
    let started = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    publish("started-ms", u64::try_from(started.as_millis()).unwrap_or(0).into());
    if let Some(address) = &identity.address {
        publish("address", address.as_str().into());
    }
    if let Some(zone) = &role.zone {
        publish("zone", zone.as_str().into());
    }
    let indexes: Vec<String> = sources.iter().flat_map(|source| embedded(config, source)).collect();
    if !indexes.is_empty() {
        publish("indexes", indexes.into());
    }
    options
}

fn roles(config: &Config) -> Vec<&'static str> {
    let role = &config.node.role;
    [(role.source, "source"), (role.queen, "queen")].into_iter().filter_map(|(has, name)| has.then_some(name)).collect()
}

fn end_stuck() {
    eprintln!("honeyflow: this process has made no progress for 30 s; exiting, so that another node can take over");
    std::process::exit(1);
}

/// The sinks in this node's data folder that the source feeds. An index has one writer: such a node works alone.
pub fn embedded(config: &Config, source: &str) -> Vec<String> {
    if !config.node.role.source {
        return Vec::new();
    }
    let feeds = |sink: &str| {
        config.entities_into(sink).iter().any(|entity| config.source_of(entity).is_some_and(|name| **name == *source))
    };
    config.indexes().filter(|sink| feeds(&sink.name)).map(|sink| sink.name.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::{config, registry};

    #[test]
    fn hv_32_queen_means_the_queen_who_counts() {
        let hives: [&[Name]; 3] = [&[], &["shop".into()], &["club".into(), "bar".into()]];
        let of = |lease| home(hives.into_iter(), lease);
        assert_eq!([of("queen"), of("duty/report"), of("shard/shop/7"), of("shard/bar/0")], [0, 0, 1, 2]);
        assert_eq!(of("shard/gone/0"), 0);
    }

    #[test]
    fn hv_39_an_index_built_from_messages_has_one_writer() {
        let text = r#"
[source.shop]
url = "sqlite:shop.db"
[entity.note]
source = "shop"
kind = "message"
[sink.note]
url = "tantivy:note"
field = { text = "text" }
[workflow.note]
on = [{ source = "shop", entity = "note" }]
step.index = { use = "search.index", input = "$event.payload", into = "note" }
"#;
        let Ok(loaded) = config::parse(Path::new("honeyflow.toml"), text.to_owned(), &registry::kinds()) else {
            panic!("no TOML")
        };
        let problems = format!("{:?}", loaded.problems);
        let config = loaded.config.expect(&problems);
        assert_eq!(embedded(&config, "shop"), ["note"]);
        assert_eq!(embedded(&config, "club"), Vec::<String>::new());
    }

    /// HV-19, HV-72: a queen deletes old events and idle buckets; a hive without a queen would keep them for ever.
    #[test]
    fn hv_19_a_node_stands_for_queen_in_every_hive() {
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
            for PlannedHive { sources, .. } in planned {
                let options = options(&config, &identity, &sources);
                assert_eq!(options.stands, stands, "{sources:?}");
                assert_eq!(options.sources, sources.iter().map(ToString::to_string).collect::<Vec<_>>());
            }
        }
    }
}
