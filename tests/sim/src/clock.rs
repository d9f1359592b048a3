//! The clock of a simulated node: it starts with the node, and runs a little too fast or too slow.

use honeyflow_runtime::Moment;

/// What the clock shows at its start.
const BEGIN: i128 = 1_000_000;

#[derive(Clone, Copy, Debug)]
pub struct NodeClock {
    began_at: u64,
    /// The drift, in thousandths.
    drift: i64,
}

impl NodeClock {
    pub fn new(began_at: u64, drift: i64) -> NodeClock {
        NodeClock { began_at, drift }
    }

    /// Converts the world's time to this clock.
    pub fn local(self, now: u64) -> Moment {
        let passed = i128::from(now.saturating_sub(self.began_at));
        let local = passed + passed * i128::from(self.drift) / 1000 + BEGIN;
        Moment(u64::try_from(local).unwrap_or(0))
    }

    /// The first moment of the world at which this clock shows at least `local`.
    pub fn world(self, local: Moment) -> u64 {
        if local == Moment::FAR {
            return u64::MAX;
        }
        let passed = i128::from(local.0) - BEGIN;
        let world = passed * 1000 / i128::from(1000 + self.drift) + i128::from(self.began_at) + 1;
        u64::try_from(world.max(0)).unwrap_or(u64::MAX)
    }
}
