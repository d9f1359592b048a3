//! The report of the load generator, per target and in total. The admitted requests are those that the servers report,
//! not those whose responses arrived here.

use std::{collections::BTreeMap, error::Error, fmt, time::Duration};

use serde::Serialize;
use serde_json::Value;

use crate::send::SendCounts;

const WINDOW_MS: u64 = 1_000;

/// For each target: how many requests were admitted in each millisecond of the machine's clock.
pub type AdmittedByMs = Vec<BTreeMap<u64, u64>>;

#[derive(Serialize)]
pub struct Report {
    pub seconds: f64,
    pub targets: Vec<Target>,
    pub total: Counts,
    /// The most requests that all targets together admitted within a second.
    pub worst_window: u64,
}

#[derive(Serialize)]
pub struct Target {
    pub url: String,
    #[serde(flatten)]
    pub counts: Counts,
}

#[derive(Clone, Copy, Default, Serialize)]
pub struct Counts {
    pub sent: u64,
    pub admitted: u64,
    pub admitted_per_second: f64,
    pub refused: u64,
    pub errors: u64,
}

pub async fn admitted(client: &reqwest::Client, urls: &[String]) -> Result<AdmittedByMs, Box<dyn Error>> {
    let mut all = Vec::new();
    for url in urls {
        let text = client.get(format!("{url}/admitted")).send().await?.text().await?;
        let answer: Value = serde_json::from_str(&text)?;
        all.push(serde_json::from_value::<Vec<(u64, u64)>>(answer["by_ms"].clone())?.into_iter().collect());
    }
    Ok(all)
}

impl Report {
    pub fn new(
        urls: &[String],
        sent: Vec<SendCounts>,
        before: &AdmittedByMs,
        after: &AdmittedByMs,
        length: Duration,
    ) -> Report {
        let mut together: BTreeMap<u64, u64> = BTreeMap::new();
        let mut targets = Vec::new();
        let mut total = Counts::default();
        for (at, (url, sent)) in urls.iter().zip(sent).enumerate() {
            let mut admitted = 0;
            for (at_ms, count) in &after[at] {
                let new = count - before[at].get(at_ms).copied().unwrap_or(0).min(*count);
                *together.entry(*at_ms).or_default() += new;
                admitted += new;
            }
            let counts = Counts::new(sent, admitted, length);
            total = Counts {
                sent: total.sent + counts.sent,
                admitted: total.admitted + admitted,
                admitted_per_second: total.admitted_per_second + counts.admitted_per_second,
                refused: total.refused + counts.refused,
                errors: total.errors + counts.errors,
            };
            targets.push(Target { url: url.clone(), counts });
        }
        Report { seconds: length.as_secs_f64(), targets, total, worst_window: worst_window(&together) }
    }
}

impl Counts {
    fn new(sent: SendCounts, admitted: u64, length: Duration) -> Counts {
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let admitted_per_second = admitted as f64 / length.as_secs_f64();
        Counts { sent: sent.sent, admitted, admitted_per_second, refused: sent.refused, errors: sent.errors }
    }
}

fn worst_window(by_ms: &BTreeMap<u64, u64>) -> u64 {
    let window = |from: &u64| by_ms.range(from..&(from + WINDOW_MS)).map(|(_, count)| count).sum();
    by_ms.keys().map(window).max().unwrap_or(0)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<28} {:>8} {:>9} {:>11} {:>8} {:>7}",
            "target", "sent", "admitted", "admitted/s", "429", "errors"
        )?;
        let mut line = |name: &str, counts: &Counts| {
            let Counts { sent, admitted, admitted_per_second, refused, errors } = counts;
            writeln!(f, "{name:<28} {sent:>8} {admitted:>9} {admitted_per_second:>11.1} {refused:>8} {errors:>7}")
        };
        for target in &self.targets {
            line(&target.url, &target.counts)?;
        }
        line("all together", &self.total)?;
        writeln!(f, "worst second of all together: {} admitted", self.worst_window)
    }
}
