//! Reads rows from the replies of scripts.

use std::collections::{BTreeMap, HashMap, HashSet};

use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    NodeId,
    contract::{Counts, Event, Events, Head, LeaseRow, NodeRow, Queen, Status, View, WatchedNode},
};
use redis::Value;

use crate::decode::{Decoded, Fields, unreadable};

pub(crate) fn head(mut fields: Fields) -> Decoded<Head> {
    let (hive_ms, server, mut view) = (fields.number()?, fields.text()?, fields.fields()?);
    let origin = view.optional_node()?.map(|origin| origin.0);
    Ok(Head {
        hive_ms,
        server,
        origin,
        lineage: view.optional_text()?,
        lineage_ms: view.number()?,
        max_ttl_ms: view.number()?,
        hold: view.optional_text()?,
        version: view.number()?,
        limits: view.number()?,
        counts: Counts {
            alive: view.number()?,
            ready: view.number()?,
            engaged: view.number()?,
            epoch: view.epoch()?,
            counted_ms: view.number()?,
        },
    })
}

pub(crate) fn status(mut fields: Fields) -> Decoded<Status> {
    let head = head(fields.fields()?)?;
    let (member, renewed) = (fields.flag()?, fields.flag()?);
    let queen = fields.optional_fields()?.map(queen).transpose()?;
    // Entries are `<node>/<lease>`, in sorted order.
    let heir_of = fields.fields()?.each(|fields| {
        let text = fields.text()?;
        text.split_once('/')
            .map(|(_, lease)| lease.into())
            .ok_or_else(|| unreadable(&Value::SimpleString(text.clone())))
    })?;
    let soonest = fields.fields()?.each(|fields| watched(fields.fields()?))?;
    Ok(Status { head, member, renewed, queen, successor_of: heir_of, soonest, ahead: fields.flag()? })
}

fn queen(mut fields: Fields) -> Decoded<Queen> {
    Ok(Queen {
        epoch: fields.epoch()?,
        holder: fields.optional_node()?,
        successor: fields.optional_node()?,
        since_ms: fields.number()?,
        node: fields.optional_fields()?.map(watched).transpose()?,
    })
}

fn watched(mut fields: Fields) -> Decoded<WatchedNode> {
    Ok(WatchedNode {
        id: fields.node()?,
        beat: fields.number()?,
        heartbeat_ms: fields.number()?,
        ttl_ms: fields.number()?,
        expires_ms: fields.number()?,
        dead: false,
    })
}

fn node(mut fields: Fields) -> Decoded<NodeRow> {
    Ok(NodeRow {
        id: fields.node()?,
        expires_ms: fields.number()?,
        ready: fields.flag()?,
        eligible: fields.flag()?,
        engaged_ms: fields.number()?,
        beat: fields.number()?,
        heartbeat_ms: fields.number()?,
        ttl_ms: fields.number()?,
        name: fields.text()?,
        warm: warm(&fields.text()?),
        meta: fields.text()?,
    })
}

fn warm(text: &str) -> Vec<Name> {
    serde_json::from_str(text).unwrap_or_default()
}

pub(crate) fn lease(mut fields: Fields) -> Decoded<LeaseRow> {
    let name = fields.name()?;
    Ok(LeaseRow {
        epoch: fields.epoch()?,
        holder: fields.optional_node()?,
        successor: fields.optional_node()?,
        since_ms: fields.number()?,
        cause: fields.text()?,
        free: fields.flag()?,
        successor_is_warm: fields.optional_text()?.is_some_and(|text| warm(&text).contains(&name)),
        name,
    })
}

/// Builds the rows of the view. The script returns whole keys, one after the other.
pub(crate) fn view(mut fields: Fields) -> Decoded<View> {
    let head = head(fields.fields()?)?;
    let alive = fields.fields()?.each(|fields| {
        let id = fields.text()?;
        Ok((id, fields.number()?))
    })?;
    let ready: HashSet<String> = fields.fields()?.each(Fields::text)?.into_iter().collect();
    let eligible: HashSet<String> = fields.fields()?.each(Fields::text)?.into_iter().collect();
    let mut hashes = fields.fields()?;
    let mut hash = || hashes.fields()?.map();
    let (mut traffic, mut beat, mut heartbeat, mut ttl) = (hash()?, hash()?, hash()?, hash()?);
    let (mut name, mut warm_of, mut meta) = (hash()?, hash()?, hash()?);
    let mut nodes = Vec::with_capacity(alive.len());
    for (id, expires_ms) in alive {
        let number = |of: &mut HashMap<String, String>| digits(of.remove(&id).as_deref());
        nodes.push(NodeRow {
            id: node_id(&id)?,
            expires_ms,
            ready: ready.contains(&id),
            eligible: eligible.contains(&id),
            engaged_ms: number(&mut traffic)?,
            beat: number(&mut beat)?,
            heartbeat_ms: number(&mut heartbeat)?,
            ttl_ms: number(&mut ttl)?,
            name: name.remove(&id).unwrap_or_default(),
            warm: warm(warm_of.remove(&id).as_deref().unwrap_or_default()),
            meta: meta.remove(&id).unwrap_or_default(),
        });
    }
    nodes.sort_unstable_by_key(|row| row.id);
    let leases = leases(fields.fields()?, &nodes, head.hive_ms)?;
    Ok(View { head, nodes, leases })
}

fn leases(mut hashes: Fields, nodes: &[NodeRow], hive_ms: u64) -> Decoded<Vec<LeaseRow>> {
    let mut hash = || hashes.fields()?.map();
    let epochs: BTreeMap<String, String> = hash()?.into_iter().collect();
    let (mut holders, mut heirs, mut since, mut causes) = (hash()?, hash()?, hash()?, hash()?);
    let row_of = |id: NodeId| nodes.binary_search_by_key(&id, |row| row.id).ok().map(|place| &nodes[place]);
    let row = |(name, epoch): (String, String)| {
        let node = |of: &mut HashMap<String, String>| of.remove(&name).as_deref().map(node_id).transpose();
        let (holder, heir) = (node(&mut holders)?, node(&mut heirs)?);
        let may_lead = |row: &&NodeRow| row.eligible && row.is_alive(hive_ms);
        let heir_row = heir.and_then(row_of).filter(may_lead);
        Ok(LeaseRow {
            epoch: Epoch(digits(Some(&epoch))?),
            holder,
            successor: heir,
            since_ms: digits(since.remove(&name).as_deref())?,
            cause: causes.remove(&name).unwrap_or_default(),
            free: holder.and_then(row_of).is_none(),
            successor_is_warm: heir_row.is_some_and(|row| row.warm.iter().any(|warm| **warm == *name)),
            name: name.into(),
        })
    };
    epochs.into_iter().map(row).collect()
}

fn node_id(text: &str) -> Decoded<NodeId> {
    text.parse().map(NodeId).map_err(|_| unreadable(&Value::SimpleString(text.to_owned())))
}

fn digits(text: Option<&str>) -> Decoded<u64> {
    let Some(text) = text else { return Ok(0) };
    text.parse().map_err(|_| unreadable(&Value::SimpleString(text.to_owned())))
}

pub(crate) fn events(mut fields: Fields) -> Decoded<Events> {
    let head = head(fields.fields()?)?;
    let events = fields.fields()?.each(|fields| event(fields.fields()?))?;
    let mut nodes = fields.fields()?.each(|fields| node(fields.fields()?))?;
    nodes.sort_unstable_by_key(|row| row.id);
    let mut leases = fields.fields()?.each(|fields| lease(fields.fields()?))?;
    leases.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(Events { head, events, nodes, leases })
}

/// Reads an entry of the stream: its id `<version>-0`, then names and values in the order in which they were written.
pub(crate) fn event(mut entry: Fields) -> Decoded<Event> {
    let id = entry.text()?;
    let version = digits(id.split_once('-').map(|(version, _)| version))?;
    let mut pairs = entry.fields()?;
    let mut value = || {
        pairs.value();
        pairs.text_if_any()
    };
    Ok(Event {
        version,
        at_ms: digits(value()?.as_deref())?,
        kind: value()?.unwrap_or_default().as_str().into(),
        node: value()?.as_deref().map(node_id).transpose()?,
        lease: value()?.map(Name::from),
        epoch: value()?.map(|text| digits(Some(&text))).transpose()?.map(Epoch),
        cause: value()?.unwrap_or_default().into(),
    })
}
