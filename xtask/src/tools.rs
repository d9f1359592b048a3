//! Programs that some suites need: a browser for the page, the `sqlite3` program for the tour. On Debian, for root, they
//! are installed when they are missing; elsewhere the suites say that they were skipped.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::process;

struct Tool {
    program: &'static str,
    package: &'static str,
}

const TOOLS: &[Tool] = &[
    Tool { program: "chromium", package: "chromium" },
    Tool { program: "chromedriver", package: "chromium-driver" },
    Tool { program: "sqlite3", package: "sqlite3" },
];

/// Installs what is missing, where that can be done, and prints what there is.
pub fn provide() {
    let missing: Vec<&str> = TOOLS.iter().filter(|tool| !is_there(tool.program)).map(|tool| tool.package).collect();
    if !missing.is_empty() {
        if is_there("apt-get") && is_root() {
            install(&missing);
        } else {
            println!("missing: {} (installed only for root, with apt-get)", missing.join(", "));
        }
    }
    for tool in TOOLS.iter().filter(|tool| is_there(tool.program)) {
        println!("{}: {}", tool.program, version(tool.program));
    }
}

/// What cannot be had is no failure here: the suite that needs it says so.
fn install(packages: &[&str]) {
    println!("installing {}", packages.join(", "));
    let mut update = Command::new("apt-get");
    update.args(["update", "-qq"]);
    let mut install = Command::new("apt-get");
    install.args(["install", "-y", "-qq", "--no-install-recommends"]).args(packages);
    for mut command in [update, install] {
        command.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).stdout(Stdio::null());
        if let Err(error) = process::run(command) {
            println!("{error}");
        }
    }
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// The owner of our own process, as the kernel shows it.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    Path::new("/proc/self").metadata().is_ok_and(|about| about.uid() == 0)
}

/// The first line it says of itself.
fn version(program: &str) -> String {
    let said = Command::new(program).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output();
    let said = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).unwrap_or_default();
    said.lines().next().unwrap_or("there").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_the_path_is_found() {
        assert!(is_there("sh"));
        assert!(!is_there("no-such-program"));
    }
}
