//! One node as a process of its own: it joins, leads if it can, writes, and says on standard output what happens.
//!
//! | line                              | when                                                              |
//! |-----------------------------------|-------------------------------------------------------------------|
//! | `joined`                          | it is a member                                                    |
//! | `wrote LEASE EPOCH MICROS`        | the first write under a term was accepted, at that time           |
//! | `holding LEASE EPOCH`             | it stops itself in the middle of a transaction, as it was told to |
//! | `tried LEASE EPOCH YES NO MICROS MICROS` | a term was lost: so many writes under it were accepted and refused afterwards; when it was last good, and when a write was last accepted |
//! | `counted LEASE EPOCH WRITES`      | it was told to `count`: for each term it writes under             |
//! | `rests ROLE ENGAGED SHARDS`       | it was told to `rest`: what it is, how many it believes to serve, and how many shards it has |
//! | `left`                            | it has left in good order                                         |
//!
//! It is told `hold`, `move` (what `hold` has asked for is not wanted any more), `count`, `rest` or `leave` on standard
//! input, and ends with it.

mod shards;
mod writer;

use std::{cell::Cell, io::BufRead, process::ExitCode, sync::Arc, time::Duration};

use honeyflow_hive::{Hive, Options, service::Role};
use honeyflow_runtime::Failure;
use rustix::process::{Signal, set_parent_process_death_signal};
use tokio::sync::mpsc;

use self::{
    shards::Part,
    writer::{Manner, Writer},
};
use super::{LEASE, Place, Profile, SOURCE, clocks::Drifting};

/// Often enough to count as serving.
const SERVES_EVERY: Duration = Duration::from_secs(1);

struct Asked {
    place: Place,
    hive: String,
    name: String,
    profile: Profile,
    manner: Manner,
    /// By so many thousandths its clock runs fast.
    drift: i64,
    shards: u32,
    /// Whether it wants [`LEASE`], too.
    duty: bool,
}

/// The words after `bee`.
pub fn run(arguments: &[String]) -> ExitCode {
    // A stopped node would outlive whoever started it.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let came_to = read(arguments).and_then(|asked| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        runtime.block_on(live(asked)).map_err(|failure| failure.to_string())
    });
    match came_to {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bee: {error}");
            ExitCode::FAILURE
        }
    }
}

fn read(arguments: &[String]) -> Result<Asked, String> {
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1)).cloned().ok_or_else(|| format!("{name} is missing"))
    };
    Ok(Asked {
        place: Place::known(value("--backend")?.parse()?, &value("--url")?),
        hive: value("--hive")?,
        name: value("--name")?,
        profile: value("--profile")?.parse()?,
        manner: Manner {
            fenced: value("--fenced")? == "yes",
            pace_ms: value("--pace")?.parse().map_err(|_| "--pace is no number".to_owned())?,
            polite: value("--polite")? == "yes",
        },
        drift: value("--drift")?.parse().map_err(|_| "--drift is no number".to_owned())?,
        shards: value("--shards")?.parse().map_err(|_| "--shards is no number".to_owned())?,
        duty: value("--duty")? == "yes",
    })
}

async fn live(asked: Asked) -> Result<(), Failure> {
    let store = asked.place.open(&asked.hive).await?;
    let options = Options { clock: Arc::new(Drifting(asked.drift)), ..Options::named(asked.name.as_str()) };
    let options = if asked.shards > 0 { options.source(SOURCE) } else { options };
    let options = if asked.profile == Profile::Fast { options.fast() } else { options };
    let hive = Hive::join(store, options).await?;
    println!("joined");
    let ledger = |place: &Place, hive: &str| place.ledger(hive);
    let (place, name) = (asked.place.clone(), asked.hive.clone());
    let open = move || ledger(&place, &name);
    let writer = Arc::new(Writer::start(hive.clone(), asked.name, asked.manner, Box::new(open)));
    let part = Part::default();
    let working = async {
        match asked.shards {
            0 => std::future::pending().await,
            count => part.work(&hive, count, &writer).await,
        }
    };
    if asked.shards > 0 {
        tokio::spawn(serve(hive.clone()));
    }
    let mut told = commands();
    let left = Cell::new(false);
    let leading = async {
        if !asked.duty {
            return std::future::pending().await;
        }
        match hive.lead(LEASE, |term| writer.while_led(&term)).await {
            Err(failure) if !left.get() => failure,
            // It was told to leave, and waits for its end.
            _ => std::future::pending().await,
        }
    };
    let commanded = async {
        while let Some(word) = told.recv().await {
            match word.as_str() {
                "hold" => writer.stop_inside(true),
                "move" => writer.stop_inside(false),
                "count" => writer.say_counts(),
                "rest" => {
                    let role = if matches!(hive.role(), Role::Queen(_)) { "queen" } else { "bee" };
                    let engaged = hive.engaged().count.map_or_else(|| "unknown".to_owned(), |count| count.to_string());
                    println!("rests {role} {engaged} {}", part.size());
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
        () = commanded => Ok(()),
    }
}

async fn serve(hive: Hive) {
    let mut every = tokio::time::interval(SERVES_EVERY);
    loop {
        every.tick().await;
        hive.engage();
    }
}

fn commands() -> mpsc::UnboundedReceiver<String> {
    let (tell, told) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if tell.send(line).is_err() {
                return;
            }
        }
    });
    told
}
