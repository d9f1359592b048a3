//! Converts dates and times, which are ISO 8601 text in JSON, to the numbers that cells hold, and back.

const DAY_SECONDS: i64 = 24 * 3600;
const SECOND_NANOS: i64 = 1_000_000_000;

/// Parses a date such as `2024-02-29`; returns days since 1970.
pub fn date(text: &str) -> Option<i32> {
    let mut parts = text.splitn(3, '-');
    let mut number = |digits: usize| parts.next().filter(|part| part.len() == digits).and_then(digits_of);
    let (year, month, day) = (number(4)?, number(2)?, number(2)?);
    let exists = (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
    exists.then(|| days_from_civil(year, month, day)).and_then(|days| i32::try_from(days).ok())
}

pub fn date_text(days: i32) -> String {
    let (year, month, day) = civil_from_days(days.into());
    format!("{year:04}-{month:02}-{day:02}")
}

/// Parses a time such as `12:30`, `12:30:05` or `12:30:05.123`; returns nanoseconds since midnight.
pub fn time(text: &str) -> Option<i64> {
    let (clock, fraction) = text.split_once('.').unwrap_or((text, ""));
    let parts: Vec<&str> = clock.split(':').collect();
    let number = |part: &&str| Some(*part).filter(|part| part.len() == 2).and_then(digits_of);
    let (hour, minute, second) = match &parts[..] {
        [hour, minute] if fraction.is_empty() => (number(hour)?, number(minute)?, 0),
        [hour, minute, second] => (number(hour)?, number(minute)?, number(second)?),
        _ => return None,
    };
    let nanos = match fraction {
        "" if text.contains('.') => return None,
        "" => 0,
        digits if digits.len() <= 9 => digits_of(digits)? * 10_i64.pow(9 - u32::try_from(digits.len()).ok()?),
        _ => return None,
    };
    let exists = hour < 24 && minute < 60 && second < 60;
    exists.then_some(((hour * 60 + minute) * 60 + second) * SECOND_NANOS + nanos)
}

pub fn time_text(nanos: i64) -> String {
    let (seconds, fraction) = (nanos.div_euclid(SECOND_NANOS), nanos.rem_euclid(SECOND_NANOS));
    format!("{:02}:{:02}:{:02}.{fraction:09}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Parses a timestamp such as `2024-02-29T12:30:05.5+02:00`; returns milliseconds since 1970. Without a zone it is UTC,
/// without a time midnight.
pub fn timestamp(text: &str) -> Option<i64> {
    let (day, rest) = text.trim().split_at_checked(10)?;
    let days = i64::from(date(day)?);
    if rest.is_empty() {
        return Some(days * DAY_SECONDS * 1000);
    }
    let (clock, offset) = zone(rest.strip_prefix(['T', 't', ' '])?)?;
    let nanos = time(clock)?;
    Some((days * DAY_SECONDS - offset) * 1000 + nanos / 1_000_000)
}

pub fn timestamp_text(millis: i64) -> String {
    let seconds = millis.div_euclid(1000);
    let (days, within) = (seconds.div_euclid(DAY_SECONDS), seconds.rem_euclid(DAY_SECONDS));
    let (year, month, day) = civil_from_days(days);
    let (hour, minute, second) = (within / 3600, within / 60 % 60, within % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", millis.rem_euclid(1000))
}

/// Splits off the zone; returns the time before it, and the zone in seconds east of UTC.
fn zone(text: &str) -> Option<(&str, i64)> {
    if let Some(clock) = text.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    let Some(at) = text.rfind(['+', '-']) else { return Some((text, 0)) };
    let (clock, zone) = text.split_at(at);
    let digits: String = zone[1..].chars().filter(|c| *c != ':').collect();
    digits_of(&digits)?;
    let seconds = match digits.len() {
        2 => digits_of(&digits)? * 3600,
        4 => digits_of(&digits[..2])? * 3600 + digits_of(&digits[2..])? * 60,
        _ => return None,
    };
    Some((clock.trim_end(), if zone.starts_with('-') { -seconds } else { seconds }))
}

fn digits_of(text: &str) -> Option<i64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Converts a date to days since 1970. Here a year begins in March, so that the leap day is its last day; 400 years
/// always have the same length.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn moments_are_read_as_they_are_written() {
        assert_eq!(date("1970-01-01"), Some(0));
        assert_eq!(date("2024-02-29"), Some(19_782));
        assert_eq!(timestamp("1970-01-01T01:00:00+01:00"), Some(0));
        assert_eq!(timestamp("2024-02-29 12:30:05.5"), Some(1_709_209_805_500));
        assert_eq!(timestamp("2024-02-29T12:30Z"), Some(1_709_209_800_000));
        assert_eq!(timestamp("1969-12-31T23:59:59.999Z"), Some(-1));
        assert_eq!(timestamp_text(-1), "1969-12-31T23:59:59.999Z");
        assert_eq!(time("23:59:59.000000001"), Some(86_399_000_000_001));
        assert_eq!(time_text(86_399_000_000_001), "23:59:59.000000001");
        for wrong in [
            "2023-02-29",
            "2024-13-01",
            "24-01-01",
            "2024-01-00",
            "",
            "äöüäöüäöü",
            "2024-01-01T",
            "+024-01-01",
            "2024-01-01T12:00+a€",
        ] {
            assert_eq!((date(wrong), timestamp(wrong)), (None, None), "{wrong}");
        }
        for wrong in ["24:00", "12:60", "1:00", "12:00:00.", "12:00.5", "12", "12:00:00.1234567890"] {
            assert_eq!(time(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn every_moment_survives(millis in -62_135_596_800_000_i64..253_402_300_800_000, days in -719_162_i32..2_932_896) {
            prop_assert_eq!(timestamp(&timestamp_text(millis)), Some(millis));
            prop_assert_eq!(date(&date_text(days)), Some(days));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,30}") {
            let _ = (date(&text), time(&text), timestamp(&text));
            for before in ["2024-02-29", "2024-02-29T12:30", "2024-02-29T12:30+", "2024-02-29T12:30:05."] {
                let _ = (date(&format!("{before}{text}")), timestamp(&format!("{before}{text}")));
            }
        }
    }
}
