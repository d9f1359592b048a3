//! Thirty rounds on every backend, and ten without the fence; more by `cargo xtask chaos hive`.

use std::sync::{Mutex, PoisonError};

use honeyflow_chaos::hive::{Backend, Options, Report, run};

fn play(backend: Backend, rounds: u32, fenced: bool) -> Report {
    let program = env!("CARGO_BIN_EXE_honeyflow-chaos").into();
    let options = Options { backend, program, rounds, hives: 10, fenced, seed: 7 };
    let report = run(&options).unwrap_or_else(|error| panic!("{}: {error}", backend.name()));
    println!("{}", serde_json::to_string(&report).unwrap());
    report
}

/// Thirty processes at a time are enough.
static ALONE: Mutex<()> = Mutex::new(());

/// HV-84, HV-85, HV-42, HI-3, HI-11: what a paused leader writes is refused; without the fence it is not.
fn paused_leaders_are_refused(backend: Backend) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let fenced = play(backend, 30, true);
    assert!(fenced.holds(), "something stale was accepted, or nothing was tried");
    let open = play(backend, 10, false);
    assert!(open.holds(), "without the fence nothing stale was accepted: this test has no teeth");
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
