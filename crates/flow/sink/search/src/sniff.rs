//! Reads the list of a cluster's servers that one of them sends. Pure: bytes in, members out. Hostile bytes are refused
//! and have no other effect.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use serde::Deserialize;

/// The largest list that is believed.
pub const MEMBERS_MAX: usize = 4096;
const ID_BYTES_MAX: usize = 128;
const HOST_BYTES_MAX: usize = 253;
const VERSION_BYTES_MAX: usize = 32;

/// Roles that do not handle documents.
const MANAGING: [&str; 4] = ["master", "cluster_manager", "voting_only", "remote_cluster_client"];

/// One server in the cluster's list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    pub id: String,
    pub address: SocketAddr,
    /// The name that it publishes beside its address, if any.
    pub host: Option<String>,
    pub version: String,
    pub roles: Vec<String>,
}

#[derive(Deserialize)]
struct Cluster {
    nodes: BTreeMap<String, Node>,
}

#[derive(Deserialize)]
struct Node {
    #[serde(default)]
    version: Option<String>,
    /// `None` = an old version that does everything; empty = a server that only forwards requests.
    #[serde(default)]
    roles: Option<Vec<String>>,
    #[serde(default)]
    http: Option<HttpPart>,
}

#[derive(Deserialize)]
struct HttpPart {
    #[serde(default)]
    publish_address: Option<String>,
}

/// Returns the members that take requests, ordered by id. Servers that only manage the cluster, that have no HTTP, or
/// whose address is not usable are left out; if two have the same address, the first one is used.
pub fn read(bytes: &[u8]) -> Result<Vec<Member>, String> {
    let cluster: Cluster = serde_json::from_slice(bytes).map_err(|error| {
        // The error's own text may quote the input.
        format!("not a list of nodes at line {}, column {}", error.line(), error.column())
    })?;
    let count = cluster.nodes.len();
    if count > MEMBERS_MAX {
        return Err(format!("{count} nodes, but at most {MEMBERS_MAX} are allowed"));
    }
    let mut taken = BTreeSet::new();
    let members = cluster.nodes.into_iter().filter_map(|(id, node)| member(id, node));
    let members: Vec<Member> = members.filter(|member| taken.insert(member.address)).collect();
    if members.is_empty() {
        return Err(format!("{count} nodes, none of which takes requests for documents"));
    }
    Ok(members)
}

fn member(id: String, node: Node) -> Option<Member> {
    let readable = !id.is_empty() && id.len() <= ID_BYTES_MAX && id.bytes().all(|byte| byte.is_ascii_graphic());
    if !readable || node.roles.as_deref().is_some_and(only_manages) {
        return None;
    }
    let (host, address) = address(&node.http?.publish_address?)?;
    let is_plain = |text: &String| {
        text.len() <= VERSION_BYTES_MAX
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".+-_".contains(&byte))
    };
    let version = node.version.filter(is_plain).unwrap_or_default();
    let roles = node.roles.unwrap_or_default();
    Some(Member { id, address, host, version, roles: roles.into_iter().filter(is_plain).collect() })
}

fn only_manages(roles: &[String]) -> bool {
    !roles.is_empty() && roles.iter().all(|role| MANAGING.contains(&role.as_str()))
}

/// Parses `ip:port` or `host/ip:port`.
fn address(published: &str) -> Option<(Option<String>, SocketAddr)> {
    let (host, address) = match published.rsplit_once('/') {
        Some((host, address)) => (Some(host), address),
        None => (None, published),
    };
    let address: SocketAddr = address.parse().ok()?;
    let is_somewhere = address.port() != 0 && !address.ip().is_unspecified() && !address.ip().is_multicast();
    let is_name = |host: &&str| {
        !host.is_empty()
            && host.len() <= HOST_BYTES_MAX
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
    };
    is_somewhere.then(|| (host.filter(is_name).map(str::to_owned), address))
}

#[cfg(test)]
mod tests;
