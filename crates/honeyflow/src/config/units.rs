//! Parses and formats values with units: `"5s"`, `"8MiB"`.

pub use honeyflow_workflow::duration::{parse as duration, text as duration_text};

pub const DURATION_HELP: &str = "a whole number and a unit: `200ms`, `5s`, `10m`, `2h`, `1d`";
pub const BYTES_HELP: &str = "a whole number and a unit: `512B`, `64KiB`, `8MiB`, `1GiB`";

const BYTE_UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

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
}
