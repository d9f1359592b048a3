//! Hours, days and months of hive time, in UTC. The node computes the calendar windows, the store knows the time.

use super::rate::Calendar;
use crate::contract::limit::Window;

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
/// Days from 0000-03-01 to 2020-01-01, where hive time begins.
const DAYS_BEFORE_2020: u64 = 737_730;

/// The longest length of such a window.
pub fn longest_ms(every: Calendar) -> u64 {
    match every {
        Calendar::Hour => HOUR_MS,
        Calendar::Day => DAY_MS,
        Calendar::Month => 31 * DAY_MS,
    }
}

/// The hour, day or month that contains this moment.
pub fn window(every: Calendar, hive_ms: u64) -> Window {
    let whole = |span_ms: u64| Window {
        start_ms: hive_ms / span_ms * span_ms,
        end_ms: (hive_ms / span_ms + 1).saturating_mul(span_ms),
    };
    match every {
        Calendar::Hour => whole(HOUR_MS),
        Calendar::Day => whole(DAY_MS),
        Calendar::Month => {
            let (year, month) = month_of(hive_ms / DAY_MS);
            let (next_year, next_month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
            Window {
                start_ms: first_day_of(year, month) * DAY_MS,
                end_ms: first_day_of(next_year, next_month) * DAY_MS,
            }
        }
    }
}

/// Year and month of a day, counted from 2020-01-01. Years begin in March here, so that the leap day comes last.
fn month_of(day: u64) -> (u64, u64) {
    let day = day + DAYS_BEFORE_2020;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let year = era * 400 + year_of_era;
    if month_from_march < 10 { (year, month_from_march + 3) } else { (year + 1, month_from_march - 9) }
}

fn first_day_of(year: u64, month: u64) -> u64 {
    let (year, month_from_march) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * month_from_march + 2) / 5;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - DAYS_BEFORE_2020
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HV-65: months follow each other without a gap and have the right lengths.
    #[test]
    fn hv_65_a_century_of_months() {
        let mut at_ms = 0;
        let mut lengths = Vec::new();
        for _ in 0..12 * 100 {
            let window = window(Calendar::Month, at_ms);
            assert_eq!(window.start_ms, at_ms);
            assert_eq!(super::window(Calendar::Month, window.end_ms - 1), window, "its last millisecond is in it");
            lengths.push((window.end_ms - window.start_ms) / DAY_MS);
            at_ms = window.end_ms;
        }
        assert_eq!(lengths[..12], [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], "2020");
        assert_eq!(lengths[12..16], [31, 28, 31, 30], "2021");
        assert_eq!(lengths[80 * 12 + 1], 28, "2100 is no leap year");
        assert_eq!(window(Calendar::Day, DAY_MS + 5).start_ms, DAY_MS);
    }
}
