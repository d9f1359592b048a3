//! Decides whether a write may happen, given what is stored for its key.
//!
//! | stored                     | write offered | verdict                                            |
//! |----------------------------|---------------|----------------------------------------------------|
//! | nothing, or older          | any           | write                                              |
//! | newer                      | any           | stale                                              |
//! | a row of the same stamp    | a document    | done if the same, else stale                       |
//! | a row of the same stamp    | a delete      | stale                                              |
//! | a delete of the same stamp | a delete      | write: it is unknown whether its row was deleted   |
//! | a delete of the same stamp | a document    | stale                                              |

use honeyflow_event::Stamp;

/// What the two tables hold for a key. The stamp of a delete counts only if there is no row: a row is newer than any
/// delete before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoredState {
    Nothing,
    Row(Stamp),
    Deleted(Stamp),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Write,
    Stale {
        stored: Stamp,
    },
    /// Done if the row equals the offered document, else stale.
    Compare,
}

pub fn judge(offered: Stamp, is_delete: bool, stored: StoredState) -> Verdict {
    match stored {
        StoredState::Row(stamp) if stamp == offered && !is_delete => Verdict::Compare,
        // The stamp of a delete is stored before its row is deleted. The node may have stopped between the two; then a
        // row that arrives late would be visible again.
        StoredState::Deleted(stamp) if stamp == offered && is_delete => Verdict::Write,
        StoredState::Row(stamp) | StoredState::Deleted(stamp) if stamp >= offered => Verdict::Stale { stored: stamp },
        _ => Verdict::Write,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rl_10_the_table_decides() {
        let (row, deleted) = (|stamp| StoredState::Row(Stamp(stamp)), |stamp| StoredState::Deleted(Stamp(stamp)));
        let stale = |stamp| Verdict::Stale { stored: Stamp(stamp) };
        for (held, put, delete) in [
            (StoredState::Nothing, Verdict::Write, Verdict::Write),
            (row(4), Verdict::Write, Verdict::Write),
            (deleted(4), Verdict::Write, Verdict::Write),
            (row(6), stale(6), stale(6)),
            (deleted(6), stale(6), stale(6)),
            (row(5), Verdict::Compare, stale(5)),
            (deleted(5), stale(5), Verdict::Write),
        ] {
            assert_eq!(judge(Stamp(5), false, held), put, "document over {held:?}");
            assert_eq!(judge(Stamp(5), true, held), delete, "delete over {held:?}");
        }
    }
}
