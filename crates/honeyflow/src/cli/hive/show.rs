//! `honeyflow hive show`: the queen, the number of nodes and the shards of each hive.

use honeyflow_hive::{
    Reply, Request,
    contract::{Counts, HIVE_TIME_START_MS, QUEEN, View},
    roster,
};
use honeyflow_runtime::Failure;
use serde::Serialize;

use super::{OpenHive, hive_time, misplaced, open_all, shown};
use crate::cli::{Context, Fault, Outcome, block_on, output};

#[derive(clap::Args)]
pub struct Arguments {}

#[derive(Serialize)]
struct Summary {
    hive: String,
    queen: Option<Queen>,
    /// The epoch of the queen's lease, also while no node holds it.
    epoch: String,
    alive: u64,
    ready: u64,
    engaged: u64,
    /// The age of the last count that a queen published, also if that queen is gone; none if no queen has counted.
    count_age_ms: Option<u64>,
    version: u64,
    hold: Option<String>,
    lineage: Option<String>,
    time: String,
    /// The store's clock minus this machine's.
    clock_offset_ms: i64,
    shards: Vec<Shards>,
}

#[derive(Serialize)]
struct Queen {
    id: String,
    name: Option<String>,
    since: String,
    since_ms_ago: u64,
    cause: String,
}

#[derive(Serialize)]
struct Shards {
    source: String,
    all: usize,
    held: usize,
    by: Vec<Holder>,
}

#[derive(Serialize)]
struct Holder {
    node: String,
    id: String,
    shards: usize,
}

pub fn run(_: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    let all = block_on(async {
        let mut all = Vec::new();
        for opened in open_all(&config).await? {
            all.push(read_hive(&opened).await?);
        }
        Ok::<_, Failure>(all)
    })??;
    for (n, hive) in all.iter().enumerate() {
        if context.output.is_json() {
            context.output.object(hive)?;
        } else {
            if n > 0 {
                context.output.print("\n")?;
            }
            print(hive, context)?;
        }
    }
    Ok(Outcome::Success)
}

async fn read_hive(opened: &OpenHive) -> Result<Summary, Failure> {
    let view = opened.view().await?;
    let counts = match opened.call(Request::Tally).await? {
        Reply::Counted { counts, .. } => counts,
        other => return Err(misplaced(&other)),
    };
    let local_ms = hive_time::local_ms();
    let store_ms = i64::try_from(view.head.hive_ms).unwrap_or(i64::MAX).saturating_add(HIVE_TIME_START_MS);
    Ok(summary(opened, &view, &counts, store_ms - local_ms))
}

fn summary(opened: &OpenHive, view: &View, counts: &Counts, clock_offset_ms: i64) -> Summary {
    let lease = view.leases.iter().find(|lease| &*lease.name == QUEEN);
    let held = lease.filter(|lease| !lease.free);
    let name = |id| view.nodes.iter().find(|node| node.id == id).map(|node| node.name.clone());
    let queen = held.and_then(|lease| {
        let id = lease.holder?;
        Some(Queen {
            id: id.to_string(),
            name: name(id),
            since: hive_time::format(lease.since_ms),
            since_ms_ago: view.head.hive_ms.saturating_sub(lease.since_ms),
            cause: lease.cause.clone(),
        })
    });
    let roster = roster::of(view);
    let shards = opened.sources.iter().map(|source| {
        let (held, all) = roster::shards_held(view, source);
        let prefix = format!("shard/{source}/");
        let by = roster.iter().filter_map(|entry| {
            let shards = entry.leases.iter().filter(|lease| lease.starts_with(&prefix)).count();
            (shards > 0).then(|| Holder { node: entry.name.clone(), id: entry.id.to_string(), shards })
        });
        Shards { source: source.to_string(), all, held, by: by.collect() }
    });
    Summary {
        hive: shown(opened),
        queen,
        epoch: lease.map_or(0, |lease| lease.epoch.0).to_string(),
        alive: counts.alive,
        ready: counts.ready,
        engaged: counts.engaged,
        count_age_ms: (counts.counted_ms > 0).then(|| view.head.hive_ms.saturating_sub(counts.counted_ms)),
        version: view.head.version,
        hold: view.head.hold.clone(),
        lineage: view.head.lineage.clone(),
        time: hive_time::format(view.head.hive_ms),
        clock_offset_ms,
        shards: shards.collect(),
    }
}

/// Says how old the count is. The numbers shown were counted for this answer; the nodes use the count that the queen
/// published, if there is a queen.
fn counted(has_queen: bool, age_ms: Option<u64>) -> String {
    match (has_queen, age_ms.map(output::age)) {
        (true, Some(age)) => format!("counted by the queen {age} ago"),
        (true, None) => "not counted by the queen yet".to_owned(),
        (false, Some(age)) => format!("counted now; there is no queen; the last one counted {age} ago"),
        (false, None) => "counted now; there is no queen".to_owned(),
    }
}

fn print(hive: &Summary, context: &Context) -> Result<(), Fault> {
    let queen = match &hive.queen {
        None => "none".to_owned(),
        Some(queen) => {
            let name = queen.name.as_deref().unwrap_or("?");
            let age = output::age(queen.since_ms_ago);
            format!("{name} ({}), since {} ({age} ago): {}", queen.id, queen.since, queen.cause)
        }
    };
    let counted = counted(hive.queen.is_some(), hive.count_age_ms);
    let mut lines = vec![
        ("hive", hive.hive.clone()),
        ("queen", queen),
        ("epoch", hive.epoch.clone()),
        ("nodes", format!("{} alive, {} ready, {} engaged; {counted}", hive.alive, hive.ready, hive.engaged)),
        ("version", hive.version.to_string()),
        ("clock", format!("{}, {:+} ms from this machine's clock", hive.time, hive.clock_offset_ms)),
    ];
    lines.extend(hive.lineage.iter().map(|lineage| ("store", lineage.clone())));
    if let Some(hold) = &hive.hold {
        lines.push(("hold", format!("{hold}: no node takes a lease until honeyflow hive accept-restore")));
    }
    for shards in &hive.shards {
        let by: Vec<String> = shards.by.iter().map(|holder| format!("{} {}", holder.node, holder.shards)).collect();
        let by = if by.is_empty() { String::new() } else { format!(": {}", by.join(", ")) };
        lines.push(("shards", format!("{}, {} of {} held{by}", shards.source, shards.held, shards.all)));
    }
    let text: String =
        lines.iter().map(|(label, value)| format!("{label:<8} {}\n", crate::escape::line(value))).collect();
    context.output.print(&text)
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn hv_32_a_missing_queen_is_not_reported_as_counting() {
        assert_eq!(counted(true, Some(5_500)), "counted by the queen 5.5 s ago");
        assert_eq!(counted(true, None), "not counted by the queen yet");
        assert_eq!(counted(false, Some(5_500)), "counted now; there is no queen; the last one counted 5.5 s ago");
        assert_eq!(counted(false, None), "counted now; there is no queen");
    }
}
