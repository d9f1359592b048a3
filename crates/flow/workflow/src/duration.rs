//! Durations as text: `200ms`, `5s`, `10m`, `2h`, `1d`. One number, one unit.

use std::time::Duration;

const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Parses a duration; `None` if it is not a whole number and a unit, or more than a hundred years.
pub fn parse(text: &str) -> Option<Duration> {
    let split = text.find(|character: char| !character.is_ascii_digit())?;
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().ok()?;
    let (_, milliseconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let total = number.checked_mul(*milliseconds)?;
    (total <= 100 * 366 * 86_400_000).then(|| Duration::from_millis(total))
}

/// Returns the text in the largest unit that divides the duration; [`parse`] gives the same duration, to the
/// millisecond.
pub fn text(duration: Duration) -> String {
    let milliseconds = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if milliseconds == 0 {
        return "0s".to_owned();
    }
    UNITS
        .iter()
        .find(|(_, unit)| milliseconds % unit == 0)
        .map_or_else(|| format!("{milliseconds}ms"), |(name, unit)| format!("{}{name}", milliseconds / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        for written in ["200ms", "5s", "10m", "2h", "1d", "90s", "0s"] {
            assert_eq!(text(parse(written).unwrap()), written);
        }
        assert_eq!(text(parse("60s").unwrap()), "1m");
        for wrong in ["", "5", "s", "5 s", "-5s", "1.5s", "5w", "99999999999999999999s", "18446744073709551615d", "５s"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
