//! The stamp that every sink write carries: `epoch · 2^22 + sequence`.
//!
//! Stamps of one key only grow: a new owner has a higher epoch, and within an epoch the sequence never wraps.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of a lease's term. The store mints it as `max(previous + 1, milliseconds since 2020)`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Epoch(pub u64);

/// The number that sinks compare: a write with an older stamp is refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Stamp(pub u64);

impl Epoch {
    pub const MAX: Epoch = Epoch(1 << 40);
}

impl Stamp {
    pub const SEQUENCE_BITS: u32 = 22;
    pub const SEQUENCE_MAX: u32 = (1 << Self::SEQUENCE_BITS) - 1;

    /// # Panics
    /// If the sequence has wrapped: the owner should have taken a new epoch.
    pub fn new(epoch: Epoch, sequence: u32) -> Stamp {
        assert!(sequence <= Self::SEQUENCE_MAX, "sequence {sequence} is out of room: a new epoch is due");
        assert!(epoch <= Epoch::MAX, "epoch {} is beyond 2^40", epoch.0);
        Stamp((epoch.0 << Self::SEQUENCE_BITS) | u64::from(sequence))
    }

    pub fn epoch(self) -> Epoch {
        Epoch(self.0 >> Self::SEQUENCE_BITS)
    }

    pub fn sequence(self) -> u32 {
        (self.0 & u64::from(Self::SEQUENCE_MAX)) as u32
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A stamp is a string in JSON, because it does not fit into a double.
impl Serialize for Stamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Stamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Stamp, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Stamp).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ob_42_a_stamp_is_a_string_in_json_and_keeps_both_parts() {
        let stamp = Stamp::new(Epoch(216_000_000_000), 77);
        assert_eq!((stamp.epoch(), stamp.sequence()), (Epoch(216_000_000_000), 77));
        let json = serde_json::to_string(&stamp).unwrap();
        assert_eq!(json, "\"905969664000000077\"".replace("905969664000000077", &stamp.0.to_string()));
        assert_eq!(serde_json::from_str::<Stamp>(&json).unwrap(), stamp);
        assert!(stamp.0 > 1 << 53);
    }

    #[test]
    #[should_panic(expected = "a new epoch is due")]
    fn ob_42_a_sequence_never_wraps() {
        Stamp::new(Epoch(1), Stamp::SEQUENCE_MAX + 1);
    }
}
