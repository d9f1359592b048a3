//! Formats numbers, rates, ages and texts for people.

use std::time::Duration;

/// Formats a count: `12,345`; from a hundred million on `123.4 M`.
pub(crate) fn count(number: u64) -> String {
    if number >= 100_000_000 {
        let tenths = number / 100_000;
        return format!("{}.{} M", count(tenths / 10), tenths % 10);
    }
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a rate, with one decimal below ten and none above.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is not negative and far below 2^64"
)]
pub(crate) fn rate(per_second: f64) -> String {
    if per_second < 0.05 {
        "0".to_owned()
    } else if per_second < 9.95 {
        format!("{per_second:.1}")
    } else {
        count(per_second.round() as u64)
    }
}

/// Formats an age: `340 ms`, `2.4 s`, `3 m 12 s`, `2 h 5 m`, `4 d 3 h`.
pub(crate) fn age(age: Duration) -> String {
    let (millis, seconds) = (age.as_millis(), age.as_secs());
    match seconds {
        0 => format!("{millis} ms"),
        1..10 => format!("{}.{} s", seconds, age.subsec_millis() / 100),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{} m {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// Cuts a text to at most `characters_max` characters; `…` shows that it was cut.
pub(crate) fn short(text: &str, characters_max: usize) -> String {
    match text.char_indices().nth(characters_max) {
        None => text.to_owned(),
        Some(_) => text.chars().take(characters_max.saturating_sub(1)).chain(['…']).collect(),
    }
}

pub(crate) fn plural(number: usize, one: &str, many: &str) -> String {
    format!("{} {}", count(number as u64), if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_for_people() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([123_456_789, 2_345_678_901].map(count), ["123.4 M", "2,345.6 M"]);
        assert_eq!([0.0, 0.3, 9.94, 9.96, 1234.4].map(rate), ["0", "0.3", "9.9", "10", "1,234"]);
        let ages = [340, 2450, 59_900, 192_000, 7_500_000, 356_400_000];
        let shown = ages.map(|millis| age(Duration::from_millis(millis)));
        assert_eq!(shown, ["340 ms", "2.4 s", "59 s", "3 m 12 s", "2 h 5 m", "4 d 3 h"]);
        assert_eq!([short("abc", 3), short("abcd", 3)], ["abc", "ab…"]);
    }
}
