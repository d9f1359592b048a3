//! Runs the script of the five-minute tour (`docs/tour.md`) and checks that its output contains what the page shows.

use std::{
    path::Path,
    process::{Command, Stdio},
};

/// What must be found in the transcript, in this order.
const FOUND: &[&str] = &[
    "honeyflow.toml: 3 entities, each with a sink and a workflow",
    "honeyflow.toml is fine, with 1 warning",
    "$ honeyflow search patient fever\n",
    r#""staffs":["Barbara","Grace"],"ward":"N","ward_name":"North"}"#,
    "$ honeyflow search patient\n",
    r#"{"bed":2,"name":"Eve","note":"sleeps badly","staffs":[],"ward":"S","ward_name":"South"}"#,
    "$ honeyflow search staff liskov\n",
    r#""name":"Barbara Liskov""#,
    "equal to the row",
    "patient: equal: 3 rows, 3 documents; 0 missing, 0 stale, 0 extra",
    "staff: equal: 3 rows, 3 documents; 0 missing, 0 stale, 0 extra",
    "### another configuration",
    "ignored the changed configuration, the last valid one stays in use",
    "= help: did you mean `sql.load`?",
    "### a bad row",
    "invalid-utf8",
    "parked    1: ",
    "$ honeyflow parked list\n$ honeyflow verify patient\npatient: equal: 3 rows",
    "### other fields",
    "the next generation is being built",
    "the next generation is served",
    "$ honeyflow search patient note:sleeping\n",
    r#""note":"sleeps well""#,
    "### the end",
    "patient: equal: 3 rows, 3 documents",
    "draining",
    "clinic: removed",
];

#[test]
fn the_tour_prints_what_the_page_shows() {
    if Command::new("sqlite3").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("SKIPPED tour: sqlite3 is not installed");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tour.sh");
    // Both streams go into one, as on a terminal.
    let ran = Command::new("sh")
        .args(["-c", "sh \"$0\" 0 2>&1"])
        .arg(script)
        .env("HONEYFLOW", env!("CARGO_BIN_EXE_honeyflow"))
        .env_remove("HONEYFLOW_CONFIG")
        .env_remove("HONEYFLOW_LOG")
        .stdin(Stdio::null())
        .output()
        .expect("a shell");
    let transcript = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{}\n{transcript}", ran.status);
    let mut rest = &*transcript;
    for found in FOUND {
        let Some((_, after)) = rest.split_once(found) else { panic!("not found: {found}\n{transcript}") };
        rest = after;
    }
}
