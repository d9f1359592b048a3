//! Tests three processes on one store, with nearly all requests on one of them.

mod fleet;

use std::sync::{Mutex, PoisonError};

use fleet::Fleet;
use honeyflow_invariant::rate::rate_holds;

const RATE: u64 = 100;
const BURST: u64 = 20;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// HV-60, HI-7: all servers together keep the limit in every window, even if one of them gets most requests.
#[test]
fn hi_7_three_processes_keep_one_limit_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    keeps_its_limit(&format!("sqlite:{}", folder.path().join("limits.db").display()));
}

#[test]
fn hi_7_three_processes_keep_one_limit_on_redis() {
    let Some(redis) = honeyflow_services::throwaway_redis() else { return };
    keeps_its_limit(redis.url());
}

#[test]
fn hi_7_three_processes_keep_one_limit_on_postgresql() {
    let Some(postgres) = honeyflow_services::throwaway_postgres() else { return };
    keeps_its_limit(postgres.url());
}

fn keeps_its_limit(store: &str) {
    // Only one fleet runs at a time, so that it has the machine to itself.
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let fleet = Fleet::start(3, store, &format!("{RATE}/s"));
    fleet.wait_for_the_store();
    let mut counted_by_load = 0;
    // The permits follow the demand only if the machine keeps up with the load, so there are four attempts.
    for last in [false, false, false, true] {
        let report = fleet.load(3 * RATE, "90,5,5", 3);
        let admitted = |at: usize| report["targets"][at]["admitted"].as_u64().unwrap();
        counted_by_load += report["total"]["admitted"].as_u64().unwrap();
        let by_demand = admitted(0) > admitted(1) + admitted(2);
        let refused = report["total"]["refused"].as_u64().unwrap();
        assert!(
            !last || by_demand && refused > 0,
            "the busiest copy admits most, and some requests are refused: {report:#}"
        );
        if by_demand && refused > 0 {
            break;
        }
    }
    let given = fleet.admitted();
    // The log's clock has whole milliseconds, so a request may seem up to 1 ms earlier than it was; and a thread may be
    // delayed between being admitted and being counted.
    let (tick, threads) = (RATE.div_ceil(1000), 3 * std::thread::available_parallelism().map_or(2, |n| n.get() as u64));
    let breaches = rate_holds("api", RATE, BURST + tick + threads, &given);
    assert!(breaches.is_empty(), "{:?}", &breaches[..breaches.len().min(3)]);
    let counted: u64 = given.iter().map(|given| given.permits).sum();
    assert_eq!(counted, counted_by_load);
}
