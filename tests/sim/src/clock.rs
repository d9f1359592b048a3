//! The clock of a simulated node: it begins with the node, and runs a little too fast or too slow.

use honeyflow_runtime::Moment;

/// What it shows at its beginning.
const BEGIN: i128 = 1_000_000;

#[derive(Clone, Copy, Debug)]
pub struct NodeClock {
    began_at: u64,
    /// In thousandths.
    drift: i64,
}

impl NodeClock {
    pub fn new(began_at: u64, drift: i64) -> NodeClock {
        NodeClock { began_at, drift }
    }

    /// The world's time on this clock.
    pub fn local(self, now: u64) -> Moment {
        let passed = i128::from(now.saturating_sub(self.began_at));
        let local = passed + passed * i128::from(self.drift) / 1000 + BEGIN;
        Moment(u64::try_from(local).unwrap_or(0))
    }

    /// The first moment of the world at which this clock shows at least that.
    pub fn world(self, local: Moment) -> u64 {
        if local == Moment::FAR {
            return u64::MAX;
        }
        let passed = i128::from(local.0) - BEGIN;
        let world = passed * 1000 / i128::from(1000 + self.drift) + i128::from(self.began_at) + 1;
        u64::try_from(world.max(0)).unwrap_or(u64::MAX)
    }
}
