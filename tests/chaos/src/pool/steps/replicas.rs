//! The holders of a thousand keys, as the session computes them and as `nodetool` names them.

use std::{collections::BTreeMap, net::IpAddr};

use honeyflow_cassandra::{Session, token::Token};

use super::{Nodes, Step, until};
use crate::pool::PATIENCE;

const KEYS: i32 = 1000;
/// `getendpoints` takes a second for each key; `describering` tells the ranges of all keys at once.
const KEYS_ASKED_ONE_BY_ONE: i32 = 3;

/// A range of the ring: behind the first token, up to the second.
struct Range {
    after: i64,
    up_to: i64,
    /// The addresses for clients, and the addresses that the servers use among themselves.
    holders: Vec<IpAddr>,
    among_themselves: Vec<IpAddr>,
}

impl Range {
    fn has(&self, token: i64) -> bool {
        if self.after < self.up_to {
            (self.after + 1..=self.up_to).contains(&token)
        } else {
            token > self.after || token <= self.up_to
        }
    }
}

pub async fn cq_11_compare(nodes: &Nodes, session: &Session) -> Result<Step, String> {
    let get = session.prepare("SELECT n FROM chaos.t WHERE id = ?").await.map_err(|error| error.to_string())?;
    // The session learns the replicas in the discovery round that follows the new keyspace.
    until(PATIENCE, || session.holders(&get, (0_i32,)).is_some()).await.ok_or("the session knows no replicas")?;
    let output = tokio::task::block_in_place(|| nodes.cluster().nodetool(0, &["describering", "chaos"]));
    let ranges = ranges(&output.map_err(|error| error.to_string())?);
    let addresses: BTreeMap<String, IpAddr> = nodes.ids().await?;
    let ours = |key: i32| -> Vec<IpAddr> {
        let holders = session.holders(&get, (key,)).unwrap_or_default();
        holders.iter().filter_map(|id| addresses.get(id.as_str()).copied()).collect()
    };
    let mut wrong = Vec::new();
    for key in 0..KEYS {
        let token = Token::of_key(&key.to_be_bytes()).0;
        let theirs = ranges.iter().find(|range| range.has(token)).map(|range| range.holders.clone());
        if theirs.as_deref() != Some(&ours(key)[..]) {
            wrong.push(format!("{key}: {:?}, not {theirs:?}", ours(key)));
        }
    }
    for key in 0..KEYS_ASKED_ONE_BY_ONE {
        let output = tokio::task::block_in_place(|| {
            nodes.cluster().nodetool(0, &["getendpoints", "chaos", "t", &key.to_string()])
        });
        let output = output.map_err(|error| error.to_string())?;
        let theirs: Vec<IpAddr> =
            output.lines().filter_map(|line| client_address(&ranges, line.trim().parse().ok()?)).collect();
        if theirs != ours(key) {
            wrong.push(format!("{key}: {:?}, getendpoints: {theirs:?}", ours(key)));
        }
    }
    Ok(Step {
        id: "CQ-11",
        what: "replicas of a thousand keys are those that nodetool names",
        holds: wrong.is_empty() && !ranges.is_empty(),
        seen: match wrong.first() {
            None => format!(
                "{} ranges, {KEYS} keys, {KEYS_ASKED_ONE_BY_ONE} of them compared with getendpoints",
                ranges.len()
            ),
            Some(first) => format!("{} of {KEYS} differ: {first}", wrong.len()),
        },
    })
}

/// The client address of the server that the others know as `called`.
fn client_address(ranges: &[Range], called: IpAddr) -> Option<IpAddr> {
    let mut pairs = ranges.iter().flat_map(|range| range.among_themselves.iter().zip(&range.holders));
    pairs.find(|(among_themselves, _)| **among_themselves == called).map(|(_, holder)| *holder)
}

/// `TokenRange(start_token:…, end_token:…, endpoints:[…], rpc_endpoints:[…], …`, one line each.
fn ranges(output: &str) -> Vec<Range> {
    let part = |line: &str, from: &str, to: char| {
        let (_, rest) = line.split_once(from)?;
        rest.split(to).next().map(str::to_owned)
    };
    let range = |line: &str| {
        let address = |text: &str| text.trim().trim_start_matches('/').split(':').next()?.parse().ok();
        let addresses = |name: &str| -> Option<Vec<IpAddr>> {
            Some(part(line, name, ']')?.split(',').filter_map(address).collect())
        };
        Some(Range {
            after: part(line, "start_token:", ',')?.parse().ok()?,
            up_to: part(line, "end_token:", ',')?.parse().ok()?,
            holders: addresses(" rpc_endpoints:[")?,
            among_themselves: addresses(" endpoints:[")?,
        })
    };
    output.lines().filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_the_tool_writes_them() {
        let output = "Schema Version:1\nTokenRange: \n\tTokenRange(start_token:10, end_token:-5, endpoints:[127.7.0.2, \
                    127.7.0.1], rpc_endpoints:[127.0.0.2, 127.0.0.1], endpoint_details:[])\n";
        let ranges = ranges(output);
        assert_eq!((ranges[0].after, ranges[0].up_to, ranges.len()), (10, -5, 1));
        assert_eq!(ranges[0].holders, [IpAddr::from([127, 0, 0, 2]), IpAddr::from([127, 0, 0, 1])]);
        assert_eq!(client_address(&ranges, IpAddr::from([127, 7, 0, 1])), Some(IpAddr::from([127, 0, 0, 1])));
        assert!(ranges[0].has(11) && ranges[0].has(-5) && !ranges[0].has(10) && !ranges[0].has(0));
    }
}
