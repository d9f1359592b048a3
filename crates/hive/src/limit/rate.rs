//! Parses a limit as people write it: `500/s`, `1000/min burst 50`, `3/h`, `100/10s`, `10000/month`.
//!
//! A rate is kept as the two whole numbers that were written, never as a quotient, so that nothing is rounded before
//! the bucket converts time into permits.

use std::{fmt, str::FromStr};

use honeyflow_runtime::Failure;

pub use crate::contract::limit::MICRO;
use crate::{bucket::greatest_common_divisor, codes, contract::limit::Rule};

/// With more permits a sum of micro-permits might not fit into the 64-bit integers of a database.
pub const PERMITS_MAX: u64 = 1_000_000_000;

const SECOND_MS: u64 = 1_000;
const MINUTE_MS: u64 = 60 * SECOND_MS;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;
const WEEK_MS: u64 = 7 * DAY_MS;

/// A number of permits per period.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rate {
    pub permits: u64,
    pub period_ms: u64,
}

impl Rate {
    pub const fn per_second(permits: u64) -> Rate {
        Rate { permits, period_ms: SECOND_MS }
    }

    /// The micro-permits that the rate gives in `wait_ms`, rounded down.
    pub fn micro_in(self, wait_ms: u64) -> u64 {
        let micro = u128::from(self.permits) * u128::from(MICRO) * u128::from(wait_ms) / u128::from(self.period_ms);
        u64::try_from(micro).unwrap_or(u64::MAX)
    }

    /// The nanoseconds in which the rate gives `permits`, rounded up.
    pub fn ns_for(self, permits: u64) -> u64 {
        let ns = (u128::from(permits) * u128::from(self.period_ms) * 1_000_000).div_ceil(u128::from(self.permits));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    pub fn as_per_second(self) -> f64 {
        self.permits as f64 * 1000.0 / self.period_ms as f64
    }
}

const UNITS: [(&str, u64); 6] =
    [("s", SECOND_MS), ("min", MINUTE_MS), ("h", HOUR_MS), ("day", DAY_MS), ("week", WEEK_MS), ("ms", 1)];

/// Formats a rule of the store as people would write it, in the shortest unit up to a day that gives a whole count.
pub fn text(rule: Rule) -> String {
    if rule.rate_u == 0 {
        return format!("{} in all", rule.burst_u / MICRO);
    }
    let (rate_u, micro) = (u128::from(rule.rate_u), u128::from(MICRO));
    let period_ms = u128::from(rule.period_ms.max(1));
    for (name, unit_ms) in &UNITS[..4] {
        let (in_unit_u, one_u) = (rate_u * u128::from(*unit_ms), period_ms * micro);
        if in_unit_u >= one_u && in_unit_u % one_u == 0 {
            return format!("{}/{name}", in_unit_u / one_u);
        }
    }
    // The smallest number of periods that gives whole permits.
    let periods = u128::from(MICRO / greatest_common_divisor(rule.rate_u, MICRO));
    let (permits, period_ms) = (rate_u * periods / micro, period_ms * periods);
    let fits = |(_, unit_ms): &&(&str, u64)| period_ms % u128::from(*unit_ms) == 0;
    let (name, unit_ms) = UNITS.iter().rev().skip(1).find(fits).unwrap_or(&UNITS[5]);
    match period_ms / u128::from(*unit_ms) {
        1 => format!("{permits}/{name}"),
        units => format!("{permits}/{units}{name}"),
    }
}

/// A window of the calendar, in UTC.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Calendar {
    Hour,
    Day,
    Month,
}

/// A parsed limit, without its name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Quota {
    /// The bucket fills evenly.
    Rate { rate: Rate, burst: Option<u64> },
    /// The quota is full again when the next hour, day or month begins.
    Calendar { permits: u64, every: Calendar },
}

fn bad(text: &str, why: impl fmt::Display) -> Failure {
    let hint = "write a count, a slash and a unit, as in \"500/s\", \"1000/min burst 50\", \"3/h\" or \"10000/month\"";
    Failure::reject(codes::BAD_LIMIT, format!("limit {text:?}: {why}; {hint}"))
}

fn count(text: &str, word: &str, what: &str) -> Result<u64, Failure> {
    let permits: u64 = match word.parse() {
        // `+5` would parse as a number, but it is more likely a mistake.
        Ok(permits) if word.bytes().all(|byte| byte.is_ascii_digit()) => permits,
        _ => return Err(bad(text, format_args!("{what} {word:?} is no whole number"))),
    };
    match permits {
        0 => Err(bad(text, format_args!("{what} is 0, which would admit nothing"))),
        permits if permits > PERMITS_MAX => Err(bad(text, format_args!("{what} is above {PERMITS_MAX}"))),
        permits => Ok(permits),
    }
}

fn unit_ms(unit: &str) -> Option<u64> {
    Some(match unit {
        "ms" => 1,
        "s" | "sec" | "second" => SECOND_MS,
        "min" | "minute" => MINUTE_MS,
        "h" | "hour" => HOUR_MS,
        "d" | "day" => DAY_MS,
        "week" => WEEK_MS,
        _ => return None,
    })
}

impl FromStr for Quota {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Quota, Failure> {
        let mut words = text.split_ascii_whitespace();
        let Some(first) = words.next() else { return Err(bad(text, "it is empty")) };
        let Some((permits, period)) = first.split_once('/') else { return Err(bad(text, "there is no slash")) };
        let permits = count(text, permits, "the count")?;
        let (mut burst, mut calendar) = (None, period == "month");
        while let Some(word) = words.next() {
            match word {
                "burst" if burst.is_none() => {
                    let Some(word) = words.next() else { return Err(bad(text, "burst has no number")) };
                    burst = Some(count(text, word, "the burst")?);
                }
                "calendar" => calendar = true,
                other => return Err(bad(text, format_args!("{other:?} means nothing here"))),
            }
        }
        if calendar {
            let every = match period {
                "h" | "hour" => Calendar::Hour,
                "d" | "day" => Calendar::Day,
                "month" => Calendar::Month,
                other => return Err(bad(text, format_args!("the calendar has hour, day and month, not {other:?}"))),
            };
            if burst.is_some() {
                return Err(bad(text, "a calendar quota has no burst: all of it may go at once"));
            }
            return Ok(Quota::Calendar { permits, every });
        }
        let digits = period.bytes().take_while(u8::is_ascii_digit).count();
        let (times, unit) = period.split_at(digits);
        let times = if times.is_empty() { 1 } else { count(text, times, "the number of units")? };
        let Some(unit_ms) = unit_ms(unit) else {
            let why = match unit {
                "" => "the unit is missing".to_owned(),
                "m" => "\"m\" may be a minute or a month: write min or month".to_owned(),
                unit => format!("the unit {unit:?} is unknown; there are ms, s, min, h, day, week, month"),
            };
            return Err(bad(text, why));
        };
        let period_ms = times.saturating_mul(unit_ms);
        if period_ms > 53 * WEEK_MS {
            return Err(bad(text, "the period is longer than a year"));
        }
        if u128::from(permits) * 1000 > u128::from(PERMITS_MAX) * u128::from(period_ms) {
            return Err(bad(text, format_args!("that is more than {PERMITS_MAX} a second")));
        }
        Ok(Quota::Rate { rate: Rate { permits, period_ms }, burst })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> (u64, u64, Option<u64>) {
        match text.parse() {
            Ok(Quota::Rate { rate, burst }) => (rate.permits, rate.period_ms, burst),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn rates_are_read_as_they_are_written() {
        assert_eq!(rate("500/s"), (500, 1_000, None));
        assert_eq!(rate("3/h"), (3, 3_600_000, None));
        assert_eq!(rate("1000/min burst 50"), (1000, 60_000, Some(50)));
        assert_eq!(rate(" 100/10s  "), (100, 10_000, None));
        assert_eq!(rate("7/week"), (7, 604_800_000, None));
        assert_eq!("10000/month".parse(), Ok(Quota::Calendar { permits: 10_000, every: Calendar::Month }));
        assert_eq!("5/day calendar".parse(), Ok(Quota::Calendar { permits: 5, every: Calendar::Day }));
    }

    #[test]
    fn malformed_limits_are_bad_input_and_say_why() {
        for (text, why) in [
            ("", "it is empty"),
            ("500", "there is no slash"),
            ("/s", "the count \"\" is no whole number"),
            ("+5/s", "is no whole number"),
            ("-5/s", "is no whole number"),
            ("5.5/s", "is no whole number"),
            ("0/s", "the count is 0"),
            ("5/", "the unit is missing"),
            ("5/m", "may be a minute or a month"),
            ("5/fortnight", "\"fortnight\" is unknown"),
            ("5/0s", "the number of units is 0"),
            ("5/s burst", "burst has no number"),
            ("5/s burst x", "the burst \"x\" is no whole number"),
            ("5/s burst 1 burst 2", "\"burst\" means nothing here"),
            ("5/s soon", "\"soon\" means nothing here"),
            ("5/month burst 3", "has no burst"),
            ("5/s calendar", "not \"s\""),
            ("2000000000/s", "above 1000000000"),
            ("99999999999999999999/s", "is no whole number"),
            ("1000000000/ms", "a second"),
            ("1/99999999week", "longer than a year"),
        ] {
            let failure = text.parse::<Quota>().expect_err(text);
            assert_eq!(
                (failure.class, failure.code.as_ref()),
                (honeyflow_runtime::Class::Reject, "bad-limit"),
                "{text}"
            );
            assert!(failure.message.contains(why), "{text:?}: {failure}");
        }
    }

    #[test]
    fn rules_are_formatted_as_people_write_them() {
        let formatted = |permits, period_ms| text(Rule::rate(permits, period_ms, 1));
        assert_eq!(formatted(500, 1_000), "500/s");
        assert_eq!(formatted(1000, 60_000), "1000/min");
        assert_eq!(formatted(3, 3_600_000), "3/h");
        assert_eq!(formatted(100, 10_000), "10/s");
        assert_eq!(formatted(1, 7 * 86_400_000), "1/week");
        assert_eq!(formatted(1, 7_000), "1/7s");
        assert_eq!(formatted(3, 7), "3/7ms");
        assert_eq!(formatted(1, 14 * 86_400_000), "1/2week");
        assert_eq!(text(Rule::count(50)), "50 in all");
    }

    #[test]
    fn a_third_of_a_second_is_rounded_up() {
        assert_eq!(Rate::per_second(3).ns_for(1), 333_333_334);
        assert_eq!(Rate { permits: 3, period_ms: 3_600_000 }.micro_in(6), 5);
    }
}
