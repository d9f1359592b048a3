//! Reads and writes times in the form that people write: a whole number and a unit.

use std::time::Duration;

pub const HELP: &str = "a whole number and a unit, like \"200ms\", \"5s\", \"10m\", \"2h\", \"1d\"";

const UNITS: [(&str, u128); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

pub fn time(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (number, unit) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit())?);
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let nanos = u128::from(number.parse::<u64>().ok()?).checked_mul(*factor)?;
    let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
    Some(Duration::new(seconds, (nanos % 1_000_000_000) as u32))
}

/// Writes a time with the largest unit that is exact.
pub fn time_text(time: Duration) -> String {
    let nanos = time.as_nanos();
    let fits = UNITS.iter().find(|(_, factor)| nanos > 0 && nanos.is_multiple_of(*factor));
    fits.map_or_else(|| "0s".to_owned(), |(name, factor)| format!("{}{name}", nanos / factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written() {
        for written in ["1ns", "1500us", "200ms", "5s", "90s", "10m", "2h", "1d", "0s"] {
            assert_eq!(time_text(time(written).unwrap()), written);
        }
        assert_eq!(time("0"), Some(Duration::ZERO));
        for wrong in ["", "5", "s", "5 s", "-5s", "1.5s", "5S", "99999999999999999999s", "5s5"] {
            assert_eq!(time(wrong), None, "{wrong}");
        }
        assert!(time("18446744073709551615d").is_none(), "more than a Duration holds");
    }
}
