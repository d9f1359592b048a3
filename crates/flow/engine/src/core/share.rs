//! Which level of a kind is owed its share: a level with work gets at least 5 % of the items, although better levels have
//! work, too. Each kind counts for itself, because a worker with room for one kind cannot serve another.

use honeyflow_event::PRIORITY_LEVELS;

const SHARE_PERCENT: u64 = 5;
const CREDIT_MAX: u64 = 100_000_000;

#[derive(Clone, Default)]
pub(crate) struct Shares {
    /// Grows by 5 with each item that another level gets while this level waits.
    credit: [u64; PRIORITY_LEVELS],
    /// The last batch was a share.
    after_share: bool,
}

impl Shares {
    /// Whether a batch of `items` would be no more than the level's share.
    pub fn is_owed(&self, level: usize, items: usize) -> bool {
        !crate::planted::on("PB-40") && self.credit[level] >= items as u64 * (100 - SHARE_PERCENT)
    }

    /// Whether a share may go before work of the level `best`. The first level waits one batch at most.
    pub fn may_go_before(&self, best: usize) -> bool {
        best > 0 || !self.after_share
    }

    /// Counts a batch of `items`; `waiting` says which levels still have work.
    pub fn note_served(&mut self, level: usize, items: usize, is_share: bool, waiting: [bool; PRIORITY_LEVELS]) {
        self.after_share = is_share;
        for (other, waits) in waiting.into_iter().enumerate() {
            let grown = (self.credit[other] + items as u64 * SHARE_PERCENT).min(CREDIT_MAX);
            self.credit[other] = if other == level || !waits { 0 } else { grown };
        }
    }
}
