//! One node in a process of its own: it joins, leads if it can, writes, and reports what happens on standard output.
//!
//! | line                                     | when                                                       |
//! |------------------------------------------|------------------------------------------------------------|
//! | `joined`                                 | the node is a member                                       |
//! | `wrote LEASE EPOCH MICROS`               | the first write under a term was accepted, at that time    |
//! | `holding LEASE EPOCH`                    | after `hold`: it stops itself in the middle of a transaction |
//! | `tried LEASE EPOCH YES NO MICROS MICROS` | a term was lost: the numbers of writes under it that were accepted and refused afterwards; when the term was last good, and when a write was last accepted |
//! | `counted LEASE EPOCH WRITES`             | after `count`: one line for each term it writes under      |
//! | `rests ROLE ENGAGED SHARDS`              | after `rest`: its role, the number of engaged nodes it knows of, and its number of shards |
//! | `left`                                   | it has left in good order                                  |
//!
//! It reads the commands `hold`, `move` (cancels `hold`), `count`, `rest` and `leave` from standard input, and ends
//! when standard input ends.

mod shards;
mod writer;

use std::{cell::Cell, io::BufRead, process::ExitCode, sync::Arc, time::Duration};

use honeyflow_hive::{Hive, Options, service::Role};
use honeyflow_runtime::Failure;
use rustix::process::{Signal, set_parent_process_death_signal};
use tokio::sync::mpsc;

use self::{
    shards::HeldShards,
    writer::{WriteOptions, Writer},
};
use super::{LEASE, Profile, SOURCE, StoreLocation, clocks::DriftingClock};

/// Often enough for a node to count as engaged.
const ENGAGE_EVERY: Duration = Duration::from_secs(1);

struct NodeOptions {
    location: StoreLocation,
    hive: String,
    name: String,
    profile: Profile,
    write: WriteOptions,
    /// How fast its clock runs, in thousandths; negative: slow.
    drift: i64,
    shards: u32,
    /// Whether the node competes for [`LEASE`], too.
    duty: bool,
}

/// Runs a node; `arguments` are the words after `bee`.
pub fn run(arguments: &[String]) -> ExitCode {
    // Without this, a stopped node would outlive the process that started it.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let result = parse(arguments).and_then(|options| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        runtime.block_on(run_node(options)).map_err(|failure| failure.to_string())
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bee: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> Result<NodeOptions, String> {
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1)).cloned().ok_or_else(|| format!("{name} is missing"))
    };
    Ok(NodeOptions {
        location: StoreLocation::at_url(value("--backend")?.parse()?, &value("--url")?),
        hive: value("--hive")?,
        name: value("--name")?,
        profile: value("--profile")?.parse()?,
        write: WriteOptions {
            fenced: value("--fenced")? == "yes",
            pace_ms: value("--pace")?.parse().map_err(|_| "--pace is not a number".to_owned())?,
            polite: value("--polite")? == "yes",
        },
        drift: value("--drift")?.parse().map_err(|_| "--drift is not a number".to_owned())?,
        shards: value("--shards")?.parse().map_err(|_| "--shards is not a number".to_owned())?,
        duty: value("--duty")? == "yes",
    })
}

async fn run_node(options: NodeOptions) -> Result<(), Failure> {
    let store = options.location.open(&options.hive).await?;
    let hive_options =
        Options { clock: Arc::new(DriftingClock(options.drift)), ..Options::named(options.name.as_str()) };
    let hive_options = if options.shards > 0 { hive_options.source(SOURCE) } else { hive_options };
    let hive_options = if options.profile == Profile::Fast { hive_options.fast() } else { hive_options };
    let hive = Hive::join(store, hive_options).await?;
    println!("joined");
    let ledger = |location: &StoreLocation, hive: &str| location.ledger(hive);
    let (location, name) = (options.location.clone(), options.hive.clone());
    let open = move || ledger(&location, &name);
    let writer = Arc::new(Writer::start(hive.clone(), options.name, options.write, Box::new(open)));
    let held_shards = HeldShards::default();
    let working = async {
        match options.shards {
            0 => std::future::pending().await,
            count => held_shards.work(&hive, count, &writer).await,
        }
    };
    if options.shards > 0 {
        tokio::spawn(engage_regularly(hive.clone()));
    }
    let mut commands = read_commands();
    let left = Cell::new(false);
    let leading = async {
        if !options.duty {
            return std::future::pending().await;
        }
        match hive.lead(LEASE, |term| writer.while_led(&term)).await {
            Err(failure) if !left.get() => failure,
            // The node was asked to leave, and waits for its end.
            _ => std::future::pending().await,
        }
    };
    let commanding = async {
        while let Some(word) = commands.recv().await {
            match word.as_str() {
                "hold" => writer.stop_before_commit(true),
                "move" => writer.stop_before_commit(false),
                "count" => writer.print_counts(),
                "rest" => {
                    let role = if matches!(hive.role(), Role::Queen(_)) { "queen" } else { "bee" };
                    let engaged = hive.engaged().count.map_or_else(|| "unknown".to_owned(), |count| count.to_string());
                    println!("rests {role} {engaged} {}", held_shards.size());
                }
                "leave" => {
                    left.set(true);
                    hive.leave().await;
                    println!("left");
                }
                _ => {}
            }
        }
    };
    tokio::select! {
        failure = leading => Err(failure),
        failure = working => Err(failure),
        () = commanding => Ok(()),
    }
}

async fn engage_regularly(hive: Hive) {
    let mut every = tokio::time::interval(ENGAGE_EVERY);
    loop {
        every.tick().await;
        hive.engage();
    }
}

fn read_commands() -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
