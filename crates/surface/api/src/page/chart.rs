//! Draws two lines over the last minutes, as SVG path data: the newest second is at the right edge.

use std::fmt::Write as _;

use serde::Serialize;

use super::format;
use crate::sample::{BEATS_MAX, Rates};

pub(crate) const WIDTH: f64 = 600.0;
pub(crate) const HEIGHT: f64 = 120.0;

/// The lines, the areas beneath them, the top of the scale, and the values that the page shows under the pointer.
#[derive(Clone, Default, Debug, Serialize)]
pub(crate) struct Chart {
    pub events_line: String,
    pub events_area: String,
    pub runs_line: String,
    pub runs_area: String,
    pub top: String,
    pub middle: String,
    pub events: Vec<f64>,
    pub runs: Vec<f64>,
}

impl Chart {
    pub fn new(rates: &Rates) -> Chart {
        let highest = rates.events_history.iter().chain(&rates.runs_history).copied().fold(0.0, f64::max);
        let top = round_up(highest);
        let tenth = |values: &[f64]| values.iter().map(|value| (value * 10.0).round() / 10.0).collect();
        let (events_line, events_area) = paths(&rates.events_history, top);
        let (runs_line, runs_area) = paths(&rates.runs_history, top);
        Chart {
            events_line,
            events_area,
            runs_line,
            runs_area,
            top: format::rate(top),
            middle: format::rate(top / 2.0),
            events: tenth(&rates.events_history),
            runs: tenth(&rates.runs_history),
        }
    }
}

/// Rounds up to the next 1, 2 or 5 times a power of ten; at least 10, so that an idle node does not look busy.
fn round_up(highest: f64) -> f64 {
    let mut top = 10.0;
    for factor in [2.0, 2.5, 2.0].into_iter().cycle().take(40) {
        if top >= highest {
            break;
        }
        top *= factor;
    }
    top
}

#[expect(clippy::cast_precision_loss, reason = "at most 300 points")]
fn paths(values: &[f64], top: f64) -> (String, String) {
    let step = WIDTH / (BEATS_MAX - 1) as f64;
    let left = WIDTH - step * values.len().saturating_sub(1) as f64;
    let mut line = String::new();
    for (at, value) in values.iter().enumerate() {
        let (x, y) = (left + step * at as f64, HEIGHT - value.min(top) / top * (HEIGHT - 2.0) - 1.0);
        let _ = write!(line, "{}{x:.1} {y:.1}", if at == 0 { 'M' } else { 'L' });
    }
    if values.is_empty() {
        return (String::new(), String::new());
    }
    let area = format!("{line}L{WIDTH} {HEIGHT}L{left:.1} {HEIGHT}Z");
    (line, area)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_second_is_at_the_right_edge() {
        let (line, area) = paths(&[0.0, 10.0], 10.0);
        assert_eq!(line, "M598.0 119.0L600.0 1.0");
        assert!(area.ends_with("L600 120L598.0 120Z"), "{area}");
        assert_eq!(paths(&[], 10.0).0, "");
    }

    #[test]
    fn the_scale_ends_at_a_round_number() {
        assert_eq!([0.0, 11.0, 21.0, 51.0, 101.0, 43_000.0].map(round_up), [10.0, 20.0, 50.0, 100.0, 200.0, 50_000.0]);
    }
}
