//! Which level of a kind is owed its share: a level with work gets at least 5 % of the items, although better levels have
//! work, too. Each kind counts for itself, because a worker with room for one kind cannot serve another.

use honeyflow_event::PRIORITY_LEVELS;

const SHARE_PERCENT: u64 = 5;
const CREDIT_MAX: u64 = 100_000_000;

#[derive(Clone, Default)]
pub(crate) struct Shares {
    /// Grows by 5 with each item that another level gets while this level waits.
    credit: [u64; PRIORITY_LEVELS],
    /// When each level was served last, as a number of batches.
    served_at: [u64; PRIORITY_LEVELS],
    served: u64,
    /// The last batch was a share.
    after_share: bool,
}

/// A queue with work of one level, and the items that a batch of it would have. The queue served longest ago is next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    pub served_at: u64,
    pub queue: usize,
    pub items: usize,
}

impl Shares {
    /// Returns the level that is owed a batch, and whose turn it is there, if that may go before work of the level
    /// `best`: the first level waits one batch at most.
    ///
    /// Of several levels the one served longest ago goes first, and in a level only the queue whose turn it is counts.
    /// Otherwise a trickle of single items, which are soon owed, could hold up larger batches for ever.
    pub fn owed(&self, turns: &[Option<Turn>; PRIORITY_LEVELS], best: usize) -> Option<(usize, Turn)> {
        if (best == 0 && self.after_share) || crate::planted::on("PB-40") {
            return None;
        }
        let is_owed = |(level, turn): &(usize, Turn)| self.credit[*level] >= turn.items as u64 * (100 - SHARE_PERCENT);
        let owed = turns.iter().enumerate().filter_map(|(level, turn)| turn.map(|turn| (level, turn))).filter(is_owed);
        owed.min_by_key(|(level, _)| self.served_at[*level])
    }

    /// Counts a batch of `items`; `waiting` says which levels still have work.
    pub fn note_served(&mut self, level: usize, items: usize, is_share: bool, waiting: [bool; PRIORITY_LEVELS]) {
        self.after_share = is_share;
        self.served += 1;
        self.served_at[level] = self.served;
        for (other, waits) in waiting.into_iter().enumerate() {
            let grown = (self.credit[other] + items as u64 * SHARE_PERCENT).min(CREDIT_MAX);
            self.credit[other] = if other == level || !waits { 0 } else { grown };
        }
    }
}
