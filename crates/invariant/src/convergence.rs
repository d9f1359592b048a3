//! I2: for every key, the sink's document equals the row, and its stamp is the highest that the sink has accepted.

use honeyflow_event::{Key, Name, Stamp};

use crate::Breach;

/// One key of one sink, at rest. Bodies are content hashes; none means no document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SinkCopy {
    pub sink: Name,
    pub key: Key,
    pub row: Option<u64>,
    pub held: Option<u64>,
    pub stamp: Stamp,
    pub highest_accepted: Stamp,
}

pub fn convergence<'a>(copies: impl IntoIterator<Item = &'a SinkCopy>) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for copy in copies {
        let SinkCopy { sink, key, row, held, stamp, highest_accepted } = copy;
        match (row, held) {
            (None, Some(_)) => breaches.push(Breach::new("I2", format!("{sink} has a document {key} without a row"))),
            (Some(_), None) => breaches.push(Breach::new("I2", format!("{sink} has no document for row {key}"))),
            (Some(row), Some(held)) if row != held => {
                breaches.push(Breach::new("I2", format!("{sink} holds another body for {key} than its row")));
            }
            _ => {}
        }
        if stamp != highest_accepted {
            let what = format!("{sink} holds {key} under {stamp}, but has accepted {highest_accepted}");
            breaches.push(Breach::new("I2", what));
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids;

    fn copy(row: Option<u64>, held: Option<u64>, stamps: (u64, u64)) -> SinkCopy {
        let (stamp, highest_accepted) = (Stamp(stamps.0), Stamp(stamps.1));
        SinkCopy { sink: "books".into(), key: "1".into(), row, held, stamp, highest_accepted }
    }

    #[test]
    fn i2_the_sink_ends_as_the_row() {
        assert_eq!(convergence(&[copy(Some(7), Some(7), (3, 3)), copy(None, None, (4, 4))]), []);
        for bad in [
            copy(Some(7), Some(8), (3, 3)),
            copy(Some(7), None, (3, 3)),
            copy(None, Some(7), (3, 3)),
            copy(Some(7), Some(7), (3, 5)),
        ] {
            assert_eq!(ids(&convergence(&[bad])), ["I2"]);
        }
    }
}
