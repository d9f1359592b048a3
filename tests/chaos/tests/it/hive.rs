//! A few rounds of every kind on every backend, with and without the fence; more by `cargo xtask chaos hive`.

use std::sync::{Mutex, PoisonError};

use honeyflow_chaos::hive::{Backend, Clocks, Options, run};

/// Plays a short campaign and returns the faults that it found.
fn play(backend: Backend, rounds: u32, fenced: bool) -> Vec<String> {
    let program = env!("CARGO_BIN_EXE_honeyflow-chaos").into();
    let clocks = Clocks::find().map_err(|reason| println!("SKIPPED rounds with wrong clocks: {reason}")).ok();
    let options = Options { backend, program, rounds, hives: 10, fenced, seed: 7, clocks };
    let report = run(&options).unwrap_or_else(|error| panic!("{}: {error}", backend.name()));
    println!("{}", serde_json::to_string(&report).unwrap());
    report.faults()
}

/// The campaigns run one after the other: thirty processes at a time are enough.
static ALONE: Mutex<()> = Mutex::new(());

/// HV-84, HV-85, HV-42, HI-3, HI-4, HI-11: the store refuses what a former leader writes; without the fence it accepts
/// it.
fn paused_leaders_are_refused(backend: Backend) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(play(backend, 16, true), Vec::<String>::new());
    assert_eq!(play(backend, 5, false), Vec::<String>::new());
}

#[test]
fn hv_85_paused_leaders_are_refused_on_sqlite() {
    paused_leaders_are_refused(Backend::Sqlite);
}

#[test]
fn hv_85_paused_leaders_are_refused_on_postgres() {
    if honeyflow_services::postgres().is_some() {
        paused_leaders_are_refused(Backend::Postgres);
    }
}

#[test]
fn hv_85_paused_leaders_are_refused_on_mysql() {
    if honeyflow_services::mariadb().is_some() {
        paused_leaders_are_refused(Backend::Mysql);
    }
}

#[test]
fn hv_85_paused_leaders_are_refused_on_redis() {
    if honeyflow_services::redis().is_some() {
        paused_leaders_are_refused(Backend::Redis);
    }
}
