//! Programs that some suites need: a browser for the page, `sqlite3` for the tour, `faketime` for wrong clocks. On Debian,
//! as root, missing ones are installed; elsewhere the suites report that they were skipped.

use std::process::{Command, Stdio};

use honeyflow_services::install;

struct Tool {
    program: &'static str,
    package: &'static str,
}

const TOOLS: &[Tool] = &[
    Tool { program: "chromium", package: "chromium" },
    Tool { program: "chromedriver", package: "chromium-driver" },
    Tool { program: "sqlite3", package: "sqlite3" },
    Tool { program: "faketime", package: "faketime" },
];

/// Installs missing programs where possible, and prints the versions. A program that cannot be installed is no failure
/// here: the suite that needs it reports it.
pub fn provide() {
    let missing: Vec<&str> = TOOLS.iter().filter(|tool| !is_there(tool.program)).map(|tool| tool.package).collect();
    if !missing.is_empty()
        && let Err(reason) = install::packages(&missing)
    {
        println!("missing: {}: {reason}", missing.join(", "));
    }
    for tool in TOOLS.iter().filter(|tool| is_there(tool.program)) {
        println!("{}: {}", tool.program, version(tool.program));
    }
}

fn is_there(program: &str) -> bool {
    install::program(program).is_some()
}

/// The first line of the program's version text.
fn version(program: &str) -> String {
    let said = Command::new(program).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output();
    let said = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).unwrap_or_default();
    said.lines().next().unwrap_or("there").trim().to_owned()
}
