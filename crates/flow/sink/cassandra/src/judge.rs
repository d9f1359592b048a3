//! May a write happen, given what is stored for its key?
//!
//! | stored                         | write offered                | verdict               |
//! |--------------------------------|------------------------------|-----------------------|
//! | nothing, or all of it older    | any                          | write                 |
//! | something newer                | any                          | stale                 |
//! | a row of the same stamp        | a document                   | done if the same, else stale |
//! | a row of the same stamp        | a delete                     | stale                 |
//! | a delete of the same stamp     | a delete, the row is gone    | done                  |
//! | a delete of the same stamp     | a delete, the row is there   | write: it was cut off |
//! | a delete of the same stamp     | a document                   | stale                 |

use honeyflow_event::Stamp;

/// What the tables hold for a key.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stored {
    pub row: Option<Stamp>,
    pub deleted: Option<Stamp>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Write,
    Done,
    Stale {
        stored: Stamp,
    },
    /// Done, if the row is what was offered.
    Compare,
}

pub fn judge(offered: Stamp, is_delete: bool, stored: Stored) -> Verdict {
    let Some(newest) = stored.row.max(stored.deleted).filter(|newest| *newest >= offered) else {
        return Verdict::Write;
    };
    let stale = Verdict::Stale { stored: newest };
    if newest > offered {
        return stale;
    }
    match (is_delete, stored.row == Some(newest)) {
        (false, true) => Verdict::Compare,
        (true, false) if stored.row.is_none() => Verdict::Done,
        (true, false) => Verdict::Write,
        _ => stale,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rl_10_the_table_decides() {
        let stored = |row: u64, deleted: u64| Stored {
            row: Some(Stamp(row)).filter(|stamp| stamp.0 > 0),
            deleted: Some(Stamp(deleted)).filter(|stamp| stamp.0 > 0),
        };
        let stale = |stamp| Verdict::Stale { stored: Stamp(stamp) };
        for (held, put, delete) in [
            (stored(0, 0), Verdict::Write, Verdict::Write),
            (stored(4, 0), Verdict::Write, Verdict::Write),
            (stored(0, 4), Verdict::Write, Verdict::Write),
            (stored(6, 0), stale(6), stale(6)),
            (stored(0, 6), stale(6), stale(6)),
            (stored(4, 6), stale(6), stale(6)),
            (stored(5, 0), Verdict::Compare, stale(5)),
            (stored(5, 4), Verdict::Compare, stale(5)),
            (stored(0, 5), stale(5), Verdict::Done),
            (stored(4, 5), stale(5), Verdict::Write),
        ] {
            assert_eq!(judge(Stamp(5), false, held), put, "document over {held:?}");
            assert_eq!(judge(Stamp(5), true, held), delete, "delete over {held:?}");
        }
    }
}
