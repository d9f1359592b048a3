//! The output of a bench: one figure per line, as a table for people or as JSON.

use serde::Serialize;

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    Table,
    Json,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Higher,
    Lower,
}

/// The measurement of one figure: a value per run and side.
pub struct Measurement {
    pub figure: &'static str,
    pub unit: &'static str,
    pub better: Better,
    pub ours: Vec<f64>,
    /// The peer's name, and its value per run.
    pub peer: Option<(&'static str, Vec<f64>)>,
}

#[derive(Serialize)]
struct Line<'a> {
    bench: &'a str,
    figure: &'a str,
    ours: f64,
    peer: Option<f64>,
    peer_name: Option<&'a str>,
    ratio: Option<f64>,
    unit: &'a str,
    runs: usize,
    better: Better,
}

pub struct Reporter {
    bench: &'static str,
    output: Output,
    pub runs: u32,
    only: Option<String>,
    header_printed: bool,
}

impl Reporter {
    pub fn new(bench: &'static str, output: Output, runs: u32, only: Option<String>) -> Reporter {
        Reporter { bench, output, runs, only, header_printed: false }
    }

    pub fn wants(&self, figure: &str) -> bool {
        self.only.as_ref().is_none_or(|only| figure.starts_with(only.as_str()))
    }

    pub fn report(&mut self, measured: &Measurement) {
        let ours = median(&measured.ours);
        let peer = measured.peer.as_ref().map(|(_, values)| median(values));
        let line = Line {
            bench: self.bench,
            figure: measured.figure,
            ours: round(ours),
            peer: peer.map(round),
            peer_name: measured.peer.as_ref().map(|(name, _)| *name),
            ratio: peer.map(|peer| round(ours / peer)),
            unit: measured.unit,
            runs: measured.ours.len(),
            better: measured.better,
        };
        match self.output {
            Output::Json => println!("{}", serde_json::to_string(&line).unwrap_or_default()),
            Output::Table => self.row(&line),
        }
        let spread: Vec<String> = measured.ours.iter().map(|value| round(*value).to_string()).collect();
        eprintln!("  {} runs: {}", measured.figure, spread.join(" "));
        if let Some((name, values)) = &measured.peer {
            let spread: Vec<String> = values.iter().map(|value| round(*value).to_string()).collect();
            eprintln!("  {name} runs: {}", spread.join(" "));
        }
    }

    fn row(&mut self, line: &Line<'_>) {
        if !std::mem::replace(&mut self.header_printed, true) {
            println!(
                "{:<10} {:<20} {:>12} {:>12} {:>7}  {:<8} peer",
                "bench", "figure", "ours", "peer", "ratio", "unit"
            );
        }
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
        println!(
            "{:<10} {:<20} {:>12} {:>12} {:>7}  {:<8} {}",
            line.bench,
            line.figure,
            line.ours.to_string(),
            number(line.peer),
            number(line.ratio),
            line.unit,
            line.peer_name.unwrap_or("-")
        );
    }
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// Rounds to four significant digits; whole numbers stay whole.
fn round(value: f64) -> f64 {
    if !value.is_finite() || value == 0.0 {
        return value;
    }
    let digits = (3 - value.abs().log10().floor() as i32).max(0);
    let scale = 10_f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert_eq!(median(&[3.0, 1.0, 2.0]).to_bits(), 2.0_f64.to_bits());
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]).to_bits(), 2.5_f64.to_bits());
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn rounding_keeps_four_digits_and_no_fraction_of_large_numbers() {
        assert_eq!(round(0.123_456).to_string(), "0.1235");
        assert_eq!(round(12.345_6).to_string(), "12.35");
        assert_eq!(round(123_456.7).to_string(), "123457");
    }

    #[test]
    fn without_a_peer_the_ratio_is_null() {
        let line = Line {
            bench: "engine",
            figure: "steps-3",
            ours: 1.0,
            peer: None,
            peer_name: None,
            ratio: None,
            unit: "1/s",
            runs: 5,
            better: Better::Higher,
        };
        assert_eq!(
            serde_json::to_string(&line).unwrap(),
            r#"{"bench":"engine","figure":"steps-3","ours":1.0,"peer":null,"peer_name":null,"ratio":null,"unit":"1/s","runs":5,"better":"higher"}"#
        );
    }
}
