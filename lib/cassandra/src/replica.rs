//! Computes which servers hold a partition, with the same arithmetic over the ring as the server.

use std::collections::{BTreeMap, BTreeSet};

use crate::token::Token;

/// How a keyspace is replicated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Strategy {
    /// This number of the next servers on the ring, in any datacentre and rack.
    Simple(usize),
    /// A number of servers per datacentre, on as many different racks as possible.
    Network(BTreeMap<String, usize>),
    /// A strategy that is not supported here: requests go to any server.
    Unknown,
}

impl Strategy {
    /// Reads the column `replication` of `system_schema.keyspaces`.
    pub fn read(replication: &BTreeMap<String, String>) -> Self {
        // `3/1` means three replicas, one of them transient; all of them serve requests.
        let factor = |text: &String| text.split('/').next().unwrap_or_default().parse::<usize>().ok();
        let class = replication.get("class").map_or("", String::as_str).rsplit('.').next();
        match class {
            Some("SimpleStrategy") => {
                replication.get("replication_factor").and_then(factor).map_or(Self::Unknown, Self::Simple)
            }
            Some("NetworkTopologyStrategy") => {
                let centres = replication.iter().filter(|(name, _)| *name != "class");
                let centres: Option<_> = centres.map(|(name, text)| Some((name.clone(), factor(text)?))).collect();
                centres.map_or(Self::Unknown, Self::Network)
            }
            _ => Self::Unknown,
        }
    }
}

#[deprecated(since = "0.1.0", note = "renamed to Location")]
pub type Place = Location;

/// The datacentre and rack of a server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    pub datacentre: String,
    pub rack: String,
}

#[derive(Debug, Clone, Default)]
pub struct Ring {
    /// Token and server, ordered by token.
    tokens: Vec<(Token, usize)>,
    places: Vec<Location>,
}

impl Ring {
    /// Creates a ring. Servers are numbered in the given order.
    pub fn new(servers: impl IntoIterator<Item = (Location, Vec<Token>)>) -> Self {
        let mut ring = Self::default();
        for (server, (place, tokens)) in servers.into_iter().enumerate() {
            ring.tokens.extend(tokens.into_iter().map(|token| (token, server)));
            ring.places.push(place);
        }
        ring.tokens.sort_unstable();
        ring
    }

    /// Returns the servers that hold the partition, the first replica first; empty if that is not known.
    pub fn replicas(&self, strategy: &Strategy, token: Token) -> Vec<usize> {
        self.replicas_of(strategy, self.range(token))
    }

    /// The number of token ranges; all keys of a range are on the same servers.
    pub fn ranges(&self) -> usize {
        self.tokens.len()
    }

    /// Returns the range of a token: it ends with the first ring token that is not below it.
    pub fn range(&self, token: Token) -> usize {
        let found = self.tokens.partition_point(|(at, _)| *at < token);
        if found == self.tokens.len() { 0 } else { found }
    }

    pub fn replicas_of(&self, strategy: &Strategy, range: usize) -> Vec<usize> {
        match strategy {
            Strategy::Simple(factor) => {
                let mut found = Vec::new();
                for server in self.walk(range) {
                    if found.len() >= *factor {
                        break;
                    }
                    if !found.contains(&server) {
                        found.push(server);
                    }
                }
                found
            }
            Strategy::Network(factors) => self.across_racks(factors, range),
            Strategy::Unknown => Vec::new(),
        }
    }

    /// Iterates once around the ring, from the server that owns the range.
    fn walk(&self, range: usize) -> impl Iterator<Item = usize> {
        let (before, from) = self.tokens.split_at(range.min(self.tokens.len()));
        from.iter().chain(before).map(|(_, server)| *server)
    }

    fn across_racks(&self, factors: &BTreeMap<String, usize>, range: usize) -> Vec<usize> {
        let mut centres: BTreeMap<&str, Centre<'_>> = BTreeMap::new();
        for (name, factor) in factors {
            let here = || self.places.iter().filter(|place| place.datacentre == *name);
            let racks: BTreeSet<&str> = here().map(|place| place.rack.as_str()).collect();
            let left = (*factor).min(here().count());
            // A rack may have a second replica before every rack has one only if there are more replicas than racks.
            centres.insert(name, Centre { left, repeats: factor.saturating_sub(racks.len()), racks: BTreeSet::new() });
        }
        let mut found = Vec::new();
        for server in self.walk(range) {
            if centres.values().all(|centre| centre.left == 0) {
                break;
            }
            let place = &self.places[server];
            if let Some(centre) = centres.get_mut(place.datacentre.as_str())
                && !found.contains(&server)
                && centre.takes(&place.rack)
            {
                found.push(server);
            }
        }
        found
    }
}

/// The replicas that a datacentre still needs.
struct Centre<'r> {
    left: usize,
    repeats: usize,
    racks: BTreeSet<&'r str>,
}

impl<'r> Centre<'r> {
    fn takes(&mut self, rack: &'r str) -> bool {
        if self.left == 0 {
            return false;
        }
        if !self.racks.insert(rack) {
            if self.repeats == 0 {
                return false;
            }
            self.repeats -= 1;
        }
        self.left -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(servers: &[(&str, &str, &[i64])]) -> Ring {
        Ring::new(servers.iter().map(|(datacentre, rack, tokens)| {
            let place = Location { datacentre: (*datacentre).to_owned(), rack: (*rack).to_owned() };
            (place, tokens.iter().copied().map(Token).collect())
        }))
    }

    fn network(factors: &[(&str, usize)]) -> Strategy {
        Strategy::Network(factors.iter().map(|(name, factor)| ((*name).to_owned(), *factor)).collect())
    }

    #[test]
    fn cq_11_simple_replicas_follow_one_another_on_the_ring() {
        let ring = ring(&[("n", "r", &[0, 30]), ("n", "r", &[10, 40]), ("n", "r", &[20])]);
        let at = |factor, token| ring.replicas(&Strategy::Simple(factor), Token(token));
        assert_eq!(at(1, 10), [1]);
        assert_eq!(at(1, 11), [2]);
        assert_eq!(at(2, 11), [2, 0]);
        // A server with a second token does not count as a second replica.
        assert_eq!(at(3, 25), [0, 1, 2]);
        assert_eq!(at(1, 41), [0]);
        assert_eq!(at(9, i64::MAX), [0, 1, 2]);
        assert!(ring.replicas(&Strategy::Unknown, Token(0)).is_empty());
        assert!(Ring::default().replicas(&Strategy::Simple(3), Token(0)).is_empty());
    }

    #[test]
    fn cq_11_network_replicas_are_on_as_many_racks_as_there_are() {
        let ring = ring(&[("n", "a", &[0]), ("n", "a", &[10]), ("n", "b", &[20]), ("s", "a", &[5]), ("s", "a", &[25])]);
        let at = |factors, token| ring.replicas(&network(factors), Token(token));
        // The second server of rack a is skipped in favour of the first of rack b.
        assert_eq!(at(&[("n", 2)], 0), [0, 2]);
        assert_eq!(at(&[("n", 3)], 0), [0, 1, 2]);
        assert_eq!(at(&[("n", 1), ("s", 1)], 1), [3, 1]);
        assert_eq!(at(&[("s", 2)], 6), [4, 3]);
        // More replicas than servers, and a datacentre that does not exist.
        assert_eq!(at(&[("n", 7), ("w", 3)], 11), [2, 0, 1]);
        assert_eq!(at(&[("n", 0)], 11), Vec::<usize>::new());
    }

    #[test]
    fn strategies_are_read_as_the_server_writes_them() {
        let read = |pairs: &[(&str, &str)]| {
            Strategy::read(&pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect())
        };
        let locator = "org.apache.cassandra.locator.";
        let simple = format!("{locator}SimpleStrategy");
        assert_eq!(read(&[("class", &simple), ("replication_factor", "3")]), Strategy::Simple(3));
        let across = format!("{locator}NetworkTopologyStrategy");
        assert_eq!(read(&[("class", &across), ("n", "3/1"), ("s", "2")]), network(&[("n", 3), ("s", 2)]));
        for class in ["LocalStrategy", "EverywhereStrategy", ""] {
            assert_eq!(read(&[("class", class)]), Strategy::Unknown);
        }
        assert_eq!(read(&[("class", "SimpleStrategy"), ("replication_factor", "many")]), Strategy::Unknown);
    }
}
