//! May a write happen, given what is stored for its key?
//!
//! | stored                     | write offered | verdict                                            |
//! |----------------------------|---------------|----------------------------------------------------|
//! | nothing, or older          | any           | write                                              |
//! | newer                      | any           | stale                                              |
//! | a row of the same stamp    | a document    | done if the same, else stale                       |
//! | a row of the same stamp    | a delete      | stale                                              |
//! | a delete of the same stamp | a delete      | write: whether its row went is not known           |
//! | a delete of the same stamp | a document    | stale                                              |

use honeyflow_event::Stamp;

/// What the tables hold for a key. What a delete was counts only where there is no row: a row is newer than any delete
/// before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored {
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
    /// Done, if the row is what was offered.
    Compare,
}

pub fn judge(offered: Stamp, is_delete: bool, stored: Stored) -> Verdict {
    match stored {
        Stored::Row(stamp) if stamp == offered && !is_delete => Verdict::Compare,
        // A delete is remembered before its row goes: it may have been cut off between the two, and a row that is late in
        // coming would stand again.
        Stored::Deleted(stamp) if stamp == offered && is_delete => Verdict::Write,
        Stored::Row(stamp) | Stored::Deleted(stamp) if stamp >= offered => Verdict::Stale { stored: stamp },
        _ => Verdict::Write,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rl_10_the_table_decides() {
        let (row, deleted) = (|stamp| Stored::Row(Stamp(stamp)), |stamp| Stored::Deleted(Stamp(stamp)));
        let stale = |stamp| Verdict::Stale { stored: Stamp(stamp) };
        for (held, put, delete) in [
            (Stored::Nothing, Verdict::Write, Verdict::Write),
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
