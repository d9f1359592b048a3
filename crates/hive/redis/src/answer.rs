//! Turns each request into the arguments of a script, and the script's result into a reply.

use std::{sync::Arc, time::Duration};

use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    Fence, NodeId, Reply, Request,
    contract::{Claim, Counts, HeldLease, META_BYTES_MAX, Mint, Refusal, Removal, State},
};
use honeyflow_runtime::Failure;
use redis::{ConnectionInfo, Value};
use uuid::Uuid;

use crate::{
    Options, codes,
    decode::{Decoded, Fields, optional_text, unreadable},
    key::Keys,
    lane::Lane,
    row,
    script::{Script, scripts},
};

/// How long a transfer of a lease waits for a replica. This is below its deadline, even with a time to live of 1.5 s.
const REPLICA_WITHIN: Duration = Duration::from_millis(400);

pub(crate) struct Store {
    pub keys: Keys,
    require_replica: bool,
    /// For heartbeats and reads: no request here takes long.
    beats: Arc<Lane>,
    /// For transfers of leases, which may wait for a replica.
    hands: Arc<Lane>,
    pub limits: Arc<Lane>,
}

impl Store {
    pub fn new(place: &ConnectionInfo, options: &Options) -> Store {
        let lane = || Lane::new(place.clone(), options.timeout, options.check_every);
        Store {
            keys: Keys::for_hive(&options.hive),
            require_replica: options.require_replica,
            beats: lane(),
            hands: lane(),
            limits: lane(),
        }
    }

    pub async fn answer(&self, request: Request) -> Result<Reply, Failure> {
        let scripts = scripts();
        match request {
            Request::Join { node, name, heartbeat_ms, ttl_ms, meta } => {
                self.join(node, &name, (heartbeat_ms, ttl_ms), meta).await
            }
            Request::Beat { node, read_only, state } => self.beat(node, read_only, &state).await,
            Request::Leave { node } => self.run(&scripts.leave, [node.to_string()]).await.map(|_| Reply::Done),
            Request::Remove { nodes } => {
                read_removed(self.run(&scripts.bury, removal_arguments(&nodes)).await?).map(Reply::Removed)
            }
            Request::Mend => {
                let mended = self.run(&scripts.mend, []).await?;
                Ok(Reply::Mended(Fields::from_value(Value::Array(vec![mended]))?.number()?))
            }
            Request::Look { leases } => {
                let mut fields =
                    Fields::from_value(self.run(&scripts.look, leases.iter().map(ToString::to_string)).await?)?;
                let hive_ms = fields.number()?;
                let leases = fields.fields()?.each(|fields| row::lease(fields.fields()?))?;
                Ok(Reply::Leases { hive_ms, leases })
            }
            Request::Take { node, claims, cause, mint } => {
                let arguments =
                    mint_arguments(node, &cause, &mint).into_iter().chain(claim_arguments(&claims)).collect();
                self.transfer(&scripts.take, arguments, node).await
            }
            Request::HandOver { node, successor: heir, claims, cause, mint } => {
                let arguments = mint_arguments(node, &cause, &mint).into_iter();
                let arguments = arguments.chain([heir.to_string()]).chain(claim_arguments(&claims)).collect();
                self.transfer(&scripts.hand_over, arguments, heir).await
            }
            Request::Release { node, held, cause } => self.release(node, &held, &cause).await.map(Reply::Released),
            Request::SetSuccessor { fence, successor: heir } => {
                let heir = heir.map(|heir| heir.to_string()).unwrap_or_default();
                let done = self.run(&scripts.set_heir, fence_arguments(&fence).into_iter().chain([heir])).await?;
                done_or_stale(done, &fence)
            }
            Request::Count { fence, every_ms, remove: bury } => {
                let arguments =
                    fence_arguments(&fence).into_iter().chain([every_ms.to_string()]).chain(removal_arguments(&bury));
                read_counts(self.run(&scripts.count, arguments).await?, Some(&fence))
            }
            Request::Tally => read_counts(self.run(&scripts.tally, []).await?, None),
            Request::Missed { fence, cause } => {
                let done =
                    self.run(&scripts.missed, fence_arguments(&fence).into_iter().chain([cause.to_string()])).await?;
                done_or_stale(done, &fence)
            }
            Request::Sweep { fence, event_ms, events_max, idle_ms, rows_max } => {
                let most = [event_ms.to_string(), events_max.to_string(), idle_ms.to_string(), rows_max.to_string()];
                let mut swept = Fields::from_value(
                    self.run(&scripts.sweep, fence_arguments(&fence).into_iter().chain(most)).await?,
                )?;
                match &*swept.text()? {
                    "swept" => Ok(Reply::Swept { events: swept.number()?, buckets: swept.number()? }),
                    _ => Ok(stale(&fence)),
                }
            }
            Request::View => read_view_or_events(self.run(&scripts.view, []).await?),
            Request::Events { after, max } => {
                read_view_or_events(self.run(&scripts.events, [after.to_string(), max.to_string()]).await?)
            }
            Request::History { lease, until_ms, max } => {
                let lease = lease.map(|lease| lease.to_string()).unwrap_or_default();
                let until_ms = until_ms.map(|until_ms| until_ms.to_string()).unwrap_or_default();
                let found = self.run(&scripts.history, [lease, until_ms, max.to_string()]).await?;
                Ok(Reply::History(Fields::from_value(found)?.each(|fields| row::event(fields.fields()?))?))
            }
            Request::NewLineage { was, found } => {
                let was = was.map(|was| was.to_string()).unwrap_or_default();
                done_or_raced(self.run(&scripts.new_lineage, [was, found.to_string()]).await?)
            }
            Request::Behind { lineage, version, leases } => {
                let arguments = [lineage.to_string(), version.to_string()].into_iter().chain(held_arguments(&leases));
                done_or_raced(self.run(&scripts.behind, arguments).await?)
            }
            Request::AcceptRestore { cause } => {
                done_or_raced(self.run(&scripts.accept_restore, [cause.to_string()]).await?)
            }
            Request::Limit(request) => self.limit(request).await.map(Reply::Limit),
        }
    }

    /// Runs a script about nodes, leases and the view. Its first argument is the origin for a view that has to be made.
    pub async fn run(&self, script: &Script, rest: impl IntoIterator<Item = String>) -> Result<Value, Failure> {
        self.beats.run(script, &[&self.keys.hive], &with_origin(rest)).await
    }

    async fn join(
        &self,
        node: NodeId,
        name: &str,
        (heartbeat_ms, ttl_ms): (u64, u64),
        meta: String,
    ) -> Result<Reply, Failure> {
        if meta.len() > META_BYTES_MAX {
            let said = format!("a node's meta data is {} bytes; {META_BYTES_MAX} are the limit", meta.len());
            return Err(Failure::reject(codes::META_TOO_LARGE, said));
        }
        let arguments = [node.to_string(), name.to_owned(), heartbeat_ms.to_string(), ttl_ms.to_string(), meta];
        let mut joined = Fields::from_value(self.run(&scripts().join, arguments).await?)?;
        match &*joined.text()? {
            "joined" => Ok(Reply::Joined(Box::new(row::status(joined.fields()?)?))),
            _ => Ok(Reply::Refused(Refusal::Known)),
        }
    }

    async fn beat(&self, node: NodeId, read_only: bool, state: &State) -> Result<Reply, Failure> {
        let warm = serde_json::to_string(&state.warm)
            .map_err(|error| Failure::fatal(codes::HIVE_ERROR, format!("encode the warm leases: {error}")))?;
        let arguments = [
            node.to_string(),
            flag(read_only),
            state.engaged_age_ms.map(|age_ms| age_ms.to_string()).unwrap_or_default(),
            flag(state.ready),
            flag(state.eligible),
            warm,
        ];
        let told = self.run(&scripts().beat, arguments).await?;
        Ok(Reply::Beat(Box::new(row::status(Fields::from_value(told)?)?)))
    }

    /// Runs a take or a hand-over. If there are replicas, it counts only when one of them has received it: otherwise a
    /// failover could give the same lease twice, and no node would notice.
    async fn transfer(&self, script: &Script, arguments: Vec<String>, holder: NodeId) -> Result<Reply, Failure> {
        let (value, mut answering) = self.hands.ask(script, &[&self.keys.hive], &with_origin(arguments)).await?;
        let mut fields = Fields::from_value(value)?;
        match &*fields.text()? {
            "taken" => {
                let replicas = fields.number()?;
                let taken =
                    fields.fields()?.each(|fields| Ok(HeldLease { lease: fields.name()?, epoch: fields.epoch()? }))?;
                let must_wait = self.require_replica && replicas > 0;
                if must_wait && answering.wait_for_replicas(1, REPLICA_WITHIN).await? == 0 {
                    return Err(self.undo_without_replica(&taken, holder).await);
                }
                Ok(Reply::Taken(taken))
            }
            "too-large" => {
                let (lease, epoch) = (fields.text()?, fields.text()?);
                let said = format!("lease {lease}: epoch {epoch} is beyond 2^40");
                Err(Failure::fatal(codes::EPOCH_TOO_LARGE, said))
            }
            _ => read_refusal(fields).map(Reply::Refused),
        }
    }

    async fn undo_without_replica(&self, taken: &[HeldLease], holder: NodeId) -> Failure {
        let released = self.release(holder, taken, "no replica").await;
        let then = if released.is_ok() { "released again" } else { "left as it is" };
        let said = format!(
            "no replica received the change of {} within {REPLICA_WITHIN:?}, so it is {then}; check replication, or set \
             require-replica = false",
            taken.first().map_or("a lease", |held| &*held.lease)
        );
        Failure::retry(codes::NO_REPLICA, said)
    }

    async fn release(&self, node: NodeId, held: &[HeldLease], cause: &str) -> Result<Vec<Name>, Failure> {
        let arguments = [node.to_string(), cause.to_owned()].into_iter().chain(held_arguments(held));
        let released = self.hands.run(&scripts().release, &[&self.keys.hive], &with_origin(arguments)).await?;
        Fields::from_value(released)?.each(Fields::name)
    }
}

fn with_origin(rest: impl IntoIterator<Item = String>) -> Vec<String> {
    [Uuid::new_v4().to_string()].into_iter().chain(rest).collect()
}

pub(crate) fn flag(is: bool) -> String {
    u8::from(is).to_string()
}

fn fence_arguments(fence: &Fence) -> [String; 3] {
    [fence.lease().to_string(), fence.epoch().0.to_string(), fence.holder().to_string()]
}

fn mint_arguments(node: NodeId, cause: &Name, mint: &Mint) -> [String; 4] {
    [node.to_string(), cause.to_string(), mint.lineage.to_string(), flag(mint.watched)]
}

fn claim_arguments(claims: &[Claim]) -> impl Iterator<Item = String> + '_ {
    let texts = |claim: &Claim| [claim.lease.to_string(), claim.epoch.0.to_string(), claim.floor.0.to_string()];
    claims.iter().flat_map(texts)
}

fn held_arguments(held: &[HeldLease]) -> impl Iterator<Item = String> + '_ {
    held.iter().flat_map(|held| [held.lease.to_string(), held.epoch.0.to_string()])
}

fn removal_arguments(nodes: &[Removal]) -> impl Iterator<Item = String> + '_ {
    nodes.iter().flat_map(|Removal { node, beat, silent, cause }| {
        [node.to_string(), beat.to_string(), flag(*silent), cause.to_string()]
    })
}

fn read_removed(value: Value) -> Decoded<Vec<NodeId>> {
    Fields::from_value(value)?.each(Fields::node)
}

fn read_refusal(mut fields: Fields) -> Decoded<Refusal> {
    let why = fields.text()?;
    Ok(match &*why {
        "lineage" => Refusal::Lineage,
        "hold" => Refusal::Hold,
        "early" => Refusal::Early { wait_ms: fields.number()? },
        "unfit" => Refusal::Unfit,
        "raced" => Refusal::Raced,
        _ => return Err(unreadable(&Value::SimpleString(why))),
    })
}

fn read_counts(value: Value, fence: Option<&Fence>) -> Result<Reply, Failure> {
    let mut fields = Fields::from_value(value)?;
    if let ("stale", Some(fence)) = (&*fields.text()?, fence) {
        return Ok(stale(fence));
    }
    let (hive_ms, mut counts) = (fields.number()?, fields.fields()?);
    let counts = Counts {
        alive: counts.number()?,
        ready: counts.number()?,
        engaged: counts.number()?,
        epoch: Epoch(fields.number()?),
        counted_ms: fields.number()?,
    };
    let (published, buried) = (fields.flag()?, read_removed(fields.value())?);
    Ok(Reply::Counted { hive_ms, counts, published, removed: buried })
}

fn read_view_or_events(value: Value) -> Result<Reply, Failure> {
    let mut fields = Fields::from_value(value)?;
    match &*fields.text()? {
        "events" => row::events(fields).map(|events| Reply::Events(Box::new(events))),
        _ => row::view(fields).map(|view| Reply::View(Box::new(view))),
    }
}

fn done_or_stale(value: Value, fence: &Fence) -> Result<Reply, Failure> {
    Ok(match optional_text(value)?.as_deref() {
        Some("done") => Reply::Done,
        Some("unfit") => Reply::Refused(Refusal::Unfit),
        _ => stale(fence),
    })
}

fn done_or_raced(value: Value) -> Result<Reply, Failure> {
    let is_done = optional_text(value)?.as_deref() == Some("done");
    Ok(if is_done { Reply::Done } else { Reply::Refused(Refusal::Raced) })
}

fn stale(fence: &Fence) -> Reply {
    Reply::Stale(vec![fence.lease().clone()])
}
