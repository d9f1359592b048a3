//! Formats and parses instants of hive time for people. Hive time is in milliseconds, by the store's clock.

use std::time::SystemTime;

use honeyflow_hive::contract::HIVE_TIME_START_MS;

use crate::config::units;

/// Milliseconds since 1970 on this machine.
pub fn local_ms() -> i64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Formats an instant as `2026-11-15T21:07:22Z`.
pub fn format(hive_ms: u64) -> String {
    let ms = i64::try_from(hive_ms).unwrap_or(0).saturating_add(HIVE_TIME_START_MS);
    let (days, seconds) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000) / 1000);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Parses an instant (`2026-11-15T21:07:22Z`, a date, or date and time with a space between), or a duration before now
/// (`10m`). Returns none if the text is neither.
pub fn parse(text: &str, now_hive_ms: u64) -> Option<u64> {
    if let Some(ago) = units::duration(text) {
        return Some(now_hive_ms.saturating_sub(u64::try_from(ago.as_millis()).ok()?));
    }
    let text = text.strip_suffix(['Z', 'z']).unwrap_or(text);
    let (date, time) = text.split_once(['T', 't', ' ']).unwrap_or((text, "00:00:00"));
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut time = time.splitn(3, ':').map(|part| part.parse::<f64>().ok());
    let (hour, minute) = (time.next()??, time.next()??);
    let second = time.next().unwrap_or(Some(0.0))?;
    let possible = (1970..10_000).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0.0..24.0).contains(&hour)
        && (0.0..60.0).contains(&minute)
        && (0.0..61.0).contains(&second);
    if !possible {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "less than a day")]
    let of_day = ((hour * 3600.0 + minute * 60.0 + second) * 1000.0) as i64;
    let ms = days(year, month, day) * 86_400_000 + of_day;
    u64::try_from(ms - HIVE_TIME_START_MS).ok()
}

/// Days since 1970 in the Gregorian calendar. The calculation starts each year in March, so that a leap day comes last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let years = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * years + years / 4 - years / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (years + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_survives_format_and_parse() {
        for written in ["2026-11-15T21:07:22Z", "2020-01-01T00:00:00Z", "2024-02-29T23:59:59Z", "2100-03-01T12:00:00Z"]
        {
            let parsed = parse(written, 0).unwrap();
            assert_eq!(format(parsed), written);
        }
        assert_eq!(parse("2020-01-01T00:00:01.5Z", 0), Some(1500));
        assert_eq!(parse("2020-01-02", 0), Some(86_400_000));
        assert_eq!(parse("2020-01-01 00:01", 0), Some(60_000));
        assert_eq!(parse("10s", 60_000), Some(50_000), "10 s before now");
        for odd in ["", "yesterday", "2020-13-01", "2020-01-01T25:00:00Z", "2019-12-31", "-1", "2020-01-01T:"] {
            assert_eq!(parse(odd, 0), None, "{odd}");
        }
    }
}
