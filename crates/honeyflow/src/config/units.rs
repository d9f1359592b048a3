//! Values with units, as people write them: `"5s"`, `"8MiB"`, `"500/s"`.

use std::time::Duration;

pub use honeyflow_workflow::duration::{parse as duration, text as duration_text};

pub const DURATION_HELP: &str = "a whole number and a unit: `200ms`, `5s`, `10m`, `2h`, `1d`";
pub const BYTES_HELP: &str = "a whole number and a unit: `512B`, `64KiB`, `8MiB`, `1GiB`";
pub const RATE_HELP: &str = "a whole number per unit of time: `500/s`, `1000/m`, `20/h`";

const BYTE_UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
const RATE_UNITS: [(&str, u64); 4] = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];

/// So many, at most, in each such time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    pub count: u64,
    pub per: Duration,
}

pub fn bytes(text: &str) -> Option<u64> {
    let split = text.find(|character: char| !character.is_ascii_digit())?;
    let (number, unit) = text.split_at(split);
    let (_, factor) = BYTE_UNITS.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

pub fn bytes_text(bytes: u64) -> String {
    let fits = BYTE_UNITS.iter().find(|(_, factor)| bytes > 0 && bytes.is_multiple_of(*factor));
    fits.map_or_else(|| format!("{bytes}B"), |(name, factor)| format!("{}{name}", bytes / factor))
}

pub fn rate(text: &str) -> Option<Rate> {
    let (count, unit) = text.split_once('/')?;
    let (_, seconds) = RATE_UNITS.iter().find(|(name, _)| *name == unit)?;
    let digits = count.bytes().all(|byte| byte.is_ascii_digit());
    let count = count.parse().ok().filter(|count| digits && *count > 0)?;
    Some(Rate { count, per: Duration::from_secs(*seconds) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_and_written() {
        for written in ["512B", "64KiB", "8MiB", "1GiB", "0B", "1025B"] {
            assert_eq!(bytes_text(bytes(written).unwrap()), written);
        }
        for wrong in ["", "8", "MiB", "8 MiB", "8MB", "-1B", "1.5MiB", "99999999999GiB", "18446744073709551616B"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn rates_are_read() {
        assert_eq!(rate("500/s"), Some(Rate { count: 500, per: Duration::from_secs(1) }));
        assert_eq!(rate("20/h"), Some(Rate { count: 20, per: Duration::from_secs(3600) }));
        for wrong in ["", "500", "/s", "0/s", "-5/s", "+5/s", "5/w", "5 /s", "1.5/s"] {
            assert_eq!(rate(wrong), None, "{wrong}");
        }
    }
}
