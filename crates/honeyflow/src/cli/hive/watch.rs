//! `honeyflow hive watch`: repeatedly prints the queen and the node counts, the table of `hive list` and the latest
//! events. As JSON: first the state, then one object per event as it happens. Runs until it is interrupted.

use std::time::Duration;

use honeyflow_hive::{
    Reply, Request,
    contract::{Event, QUEEN, View},
    roster,
};
use serde_json::json;

use super::{OpenHive, hive_time, list, misplaced, open_all, shown};
use crate::cli::{Context, Fault, Outcome, block_on};

const EVENTS_SHOWN: u32 = 10;
const EVENTS_MAX: u32 = 1000;

#[derive(clap::Args)]
pub struct Arguments {
    /// How often to read the store
    #[arg(long, default_value = "1s", value_parser = every)]
    every: Duration,
    /// Exit after reading the store COUNT times
    #[arg(long, value_name = "COUNT")]
    looks: Option<u64>,
}

fn every(text: &str) -> Result<Duration, String> {
    let least = Duration::from_millis(100);
    crate::config::units::duration(text)
        .filter(|every| *every >= least)
        .ok_or("expected a duration of at least 100ms".to_owned())
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    block_on(async {
        let hives = open_all(&config).await?;
        let mut seen: Vec<Option<u64>> = vec![None; hives.len()];
        let mut looks = 0;
        loop {
            if context.output.is_json() {
                for (hive, seen) in hives.iter().zip(&mut seen) {
                    print_events(hive, seen, context).await?;
                }
            } else {
                print_screen(&hives, context).await?;
            }
            looks += 1;
            if arguments.looks.is_some_and(|most| looks >= most) {
                return Ok(Outcome::Success);
            }
            tokio::time::sleep(arguments.every).await;
        }
    })?
}

async fn print_screen(hives: &[OpenHive], context: &Context) -> Result<(), Fault> {
    let (mut heads, mut rows, mut lines) = (String::new(), Vec::new(), String::new());
    for hive in hives {
        let view = hive.view().await?;
        heads.push_str(&crate::escape::line(&head(hive, &view)));
        heads.push('\n');
        rows.extend(list::rows_of(&view, &shown(hive)));
        let history = Request::History { lease: None, until_ms: None, max: EVENTS_SHOWN };
        let Reply::History(events) = hive.call(history).await? else { continue };
        for event in events.iter().rev() {
            lines.push_str(&crate::escape::line(&line(event)));
            lines.push('\n');
        }
    }
    if context.output.colours_out() {
        // Move the cursor to the top left corner and clear the screen.
        context.output.print("\x1b[H\x1b[2J")?;
    }
    context.output.print(&format!("{heads}\n"))?;
    list::print(&rows, context)?;
    context.output.print(&format!("\n{lines}"))
}

/// One line: the queen, her epoch, the node counts and the shards held.
fn head(hive: &OpenHive, view: &View) -> String {
    let queen = queen(view).map_or_else(|| "none".to_owned(), |queen| queen.name);
    let counts = &view.head.counts;
    let shards = hive.sources.iter().map(|source| {
        let (held, all) = roster::shards_held(view, source);
        format!(", {source}: {held} of {all} shards held")
    });
    let shards: String = shards.collect();
    let (hive, epoch) = (shown(hive), epoch(view));
    let (alive, ready, engaged) = (counts.alive, counts.ready, counts.engaged);
    format!("{hive}: queen {queen}, epoch {epoch}, {alive} alive, {ready} ready, {engaged} engaged{shards}")
}

fn queen(view: &View) -> Option<roster::Entry> {
    roster::of(view).into_iter().find(|entry| entry.queen)
}

/// The epoch of the queen's lease; 0 if there never was a queen.
fn epoch(view: &View) -> u64 {
    view.leases.iter().find(|lease| &*lease.name == QUEEN).map_or(0, |lease| lease.epoch.0)
}

fn line(event: &Event) -> String {
    let node = event.node.map_or_else(String::new, |node| format!(" node {}", &node.to_string()[..8]));
    let lease = event.lease.as_deref().map_or_else(String::new, |lease| format!(" {lease}"));
    let epoch = event.epoch.map_or_else(String::new, |epoch| format!(" epoch {}", epoch.0));
    format!("{}  {}{lease}{epoch}{node}: {}", hive_time::format(event.at_ms), event.kind, event.cause)
}

/// Prints the whole state the first time, and after that only the events since the last call.
async fn print_events(hive: &OpenHive, seen: &mut Option<u64>, context: &Context) -> Result<(), Fault> {
    let request = match *seen {
        None => Request::View,
        Some(after) => Request::Events { after, max: EVENTS_MAX },
    };
    let version = match hive.call(request).await? {
        Reply::View(view) => {
            let counts = &view.head.counts;
            context.output.object(&json!({
                "hive": shown(hive), "version": view.head.version, "queen": queen(&view).map(|queen| queen.id),
                "epoch": epoch(&view).to_string(), "alive": counts.alive, "ready": counts.ready,
                "engaged": counts.engaged,
                "nodes": list::rows_of(&view, &shown(hive)),
            }))?;
            view.head.version
        }
        Reply::Events(events) => {
            for event in &events.events {
                let time = hive_time::format(event.at_ms);
                let epoch = event.epoch.map(|epoch| epoch.0.to_string());
                context.output.object(&json!({
                    "hive": shown(hive), "version": event.version, "time": time, "what": event.kind, "node": event.node,
                    "lease": event.lease, "epoch": epoch, "cause": event.cause,
                }))?;
            }
            events.head.version
        }
        other => return Err(misplaced(&other).into()),
    };
    *seen = Some(version);
    Ok(())
}
