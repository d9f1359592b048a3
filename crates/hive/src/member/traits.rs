//! What other nodes know of a node from its meta data, which it writes when it joins.
//!
//! `{"weight": 100, "sources": ["shop"], "pin": {"shop": "0-15,20"}}`, all fields optional. Fields of newer releases
//! are ignored; a field that makes no sense counts as absent.

use std::collections::BTreeMap;

use honeyflow_event::Name;
use serde::Deserialize;

/// The weight of a node that gives none. It is above 1, so that other nodes can be given less.
pub const WEIGHT: u32 = 100;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Traits {
    pub weight: u32,
    /// The sources whose shards it takes; `None` = all sources.
    sources: Option<Vec<String>>,
    pins: BTreeMap<String, String>,
}

#[derive(Deserialize, Default)]
struct Meta {
    #[serde(default)]
    weight: Option<serde_json::Value>,
    #[serde(default)]
    sources: Option<serde_json::Value>,
    #[serde(default)]
    pin: Option<serde_json::Value>,
}

impl Traits {
    pub fn read(meta: &str) -> Traits {
        let Meta { weight, sources, pin } = serde_json::from_str(meta).unwrap_or_default();
        let weight = weight.and_then(|weight| weight.as_u64()).and_then(|weight| u32::try_from(weight).ok());
        Traits {
            weight: weight.unwrap_or(WEIGHT),
            sources: sources.and_then(|sources| serde_json::from_value(sources).ok()),
            pins: pin.and_then(|pins| serde_json::from_value(pins).ok()).unwrap_or_default(),
        }
    }

    pub fn takes(&self, source: &str) -> bool {
        self.sources.as_ref().is_none_or(|sources| sources.iter().any(|one| one == source))
    }

    /// The leases of the shards it is pinned to.
    pub fn pinned(&self, source: &str) -> Vec<Name> {
        let ranges = self.pins.get(source).map_or("", String::as_str).split(',');
        let shards = ranges.filter_map(range).flatten();
        shards.map(|shard| shard_lease(source, shard)).collect()
    }
}

/// `7`, or `0-15`.
fn range(text: &str) -> Option<std::ops::RangeInclusive<u32>> {
    let (first, last) = text.trim().split_once('-').unwrap_or((text.trim(), text.trim()));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse::<u32>().ok()?);
    // No source has more shards; a typing error must not fill the memory.
    (last < 65_536).then_some(first..=last)
}

pub fn shard_lease(source: &str, shard: u32) -> Name {
    format!("shard/{source}/{shard}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hv_57_pins_and_weight_are_read_from_the_meta_data() {
        let traits = Traits::read(r#"{"weight": 7, "pin": {"shop": "0-2, 9"}, "sources": ["shop"], "new": [1]}"#);
        assert_eq!(traits.weight, 7);
        assert_eq!(traits.pinned("shop"), [0, 1, 2, 9].map(|n| shard_lease("shop", n)));
        assert!(traits.takes("shop") && !traits.takes("other") && traits.pinned("other").is_empty());
    }

    #[test]
    fn hv_18_a_field_that_makes_no_sense_counts_as_absent() {
        for meta in ["", "{}", "[]", r#"{"weight": "much", "pin": 3, "sources": {}}"#, r#"{"weight": -1}"#] {
            let traits = Traits::read(meta);
            assert!(traits.weight == WEIGHT && traits.takes("shop") && traits.pinned("shop").is_empty(), "{meta}");
        }
        assert!(Traits::read(r#"{"pin": {"shop": "5-4000000000,x,-,7-3"}}"#).pinned("shop").is_empty());
    }
}
