//! Who holds a thousand keys, as the session computes it and as `nodetool` says.

use std::{collections::BTreeMap, net::IpAddr};

use honeyflow_cassandra::{Session, token::Token};

use super::{Nodes, Step, until};
use crate::pool::PATIENCE;

const KEYS: i32 = 1000;
/// The tool takes a second for each; the ranges say the same of all keys at once.
const ASKED_EACH: i32 = 3;

/// A range of the ring: behind the first token, up to the second.
struct Range {
    after: i64,
    up_to: i64,
    /// Where clients reach them, and what they call each other.
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
    // Known from the round of discovery that follows the new keyspace.
    until(PATIENCE, || session.holders(&get, (0_i32,)).is_some()).await.ok_or("the session knows no replicas")?;
    let told = tokio::task::block_in_place(|| nodes.cluster().nodetool(0, &["describering", "chaos"]));
    let ranges = ranges(&told.map_err(|error| error.to_string())?);
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
    for key in 0..ASKED_EACH {
        let told = tokio::task::block_in_place(|| {
            nodes.cluster().nodetool(0, &["getendpoints", "chaos", "t", &key.to_string()])
        });
        let told = told.map_err(|error| error.to_string())?;
        let theirs: Vec<IpAddr> = told.lines().filter_map(|line| reached(&ranges, line.trim().parse().ok()?)).collect();
        if theirs != ours(key) {
            wrong.push(format!("{key}: {:?}, getendpoints: {theirs:?}", ours(key)));
        }
    }
    Ok(Step {
        id: "CQ-11",
        what: "replicas of a thousand keys are those that nodetool names",
        holds: wrong.is_empty() && !ranges.is_empty(),
        seen: match wrong.first() {
            None => format!("{} ranges, {KEYS} keys, {ASKED_EACH} of them asked by getendpoints", ranges.len()),
            Some(first) => format!("{} of {KEYS} differ: {first}", wrong.len()),
        },
    })
}

/// Where clients reach whom the others call so.
fn reached(ranges: &[Range], called: IpAddr) -> Option<IpAddr> {
    let mut pairs = ranges.iter().flat_map(|range| range.among_themselves.iter().zip(&range.holders));
    pairs.find(|(among_themselves, _)| **among_themselves == called).map(|(_, holder)| *holder)
}

/// `TokenRange(start_token:…, end_token:…, endpoints:[…], rpc_endpoints:[…], …`, one line each.
fn ranges(told: &str) -> Vec<Range> {
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
    told.lines().filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_the_tool_writes_them() {
        let told = "Schema Version:1\nTokenRange: \n\tTokenRange(start_token:10, end_token:-5, endpoints:[127.7.0.2, \
                    127.7.0.1], rpc_endpoints:[127.0.0.2, 127.0.0.1], endpoint_details:[])\n";
        let ranges = ranges(told);
        assert_eq!((ranges[0].after, ranges[0].up_to, ranges.len()), (10, -5, 1));
        assert_eq!(ranges[0].holders, [IpAddr::from([127, 0, 0, 2]), IpAddr::from([127, 0, 0, 1])]);
        assert_eq!(reached(&ranges, IpAddr::from([127, 7, 0, 1])), Some(IpAddr::from([127, 0, 0, 1])));
        assert!(ranges[0].has(11) && ranges[0].has(-5) && !ranges[0].has(10) && !ranges[0].has(0));
    }
}
