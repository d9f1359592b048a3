//! What `cargo metadata` says about the packages of the tree, reduced to what the checks ask.

use std::path::PathBuf;

use serde::Deserialize;

use crate::error::Error;
use crate::process;

#[derive(Debug, Deserialize)]
pub struct Metadata {
    pub packages: Vec<Package>,
    pub workspace_root: String,
    #[serde(default)]
    pub target_directory: PathBuf,
}

#[derive(Debug, Deserialize)]
pub struct Package {
    pub name: String,
    pub version: String,
    /// None for a package on this disk.
    pub source: Option<String>,
    pub license: Option<String>,
    pub manifest_path: String,
    #[serde(default)]
    pub targets: Vec<Target>,
}

#[derive(Debug, Deserialize)]
pub struct Target {
    pub name: String,
    pub kind: Vec<String>,
}

impl Metadata {
    /// The members of the workspace alone; needs no network.
    pub fn of_members() -> Result<Self, Error> {
        read(&["--no-deps"])
    }

    /// Members and all their dependencies, for every platform. Without network, packages of other platforms may not
    /// be on this disk: then those of this one.
    pub fn of_everything() -> Result<Self, Error> {
        let locked: &[&str] = if process::in_ci() { &["--locked"] } else { &[] };
        read(locked).or_else(|_| {
            let host = host_platform()?;
            eprintln!("packages of other platforms cannot be had; looking at those of {host} only");
            read(&[locked, &["--offline", "--filter-platform", &host]].concat())
        })
    }

    pub fn has_binary(&self, package: &str, binary: &str) -> bool {
        let is_binary = |target: &Target| target.name == binary && target.kind.iter().any(|kind| kind == "bin");
        self.packages.iter().any(|found| found.name == package && found.targets.iter().any(is_binary))
    }
}

/// Says plainly that a command has nothing to run yet, instead of cargo's message about package specifications.
pub fn require_binary(package: &str, binary: &str) -> Result<(), Error> {
    if Metadata::of_members()?.has_binary(package, binary) {
        return Ok(());
    }
    Err(Error::failed(format!("this tree has no binary `{binary}` in a package `{package}`; nothing was run")))
}

fn host_platform() -> Result<String, Error> {
    let mut command = std::process::Command::new("rustc");
    let output = command.arg("-vV").output().map_err(|error| process::cannot_start(&command, &error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| Error::failed("rustc -vV names no host"))
}

fn read(options: &[&str]) -> Result<Metadata, Error> {
    let mut command = process::cargo(["metadata", "--format-version", "1"]);
    command.args(options).stderr(std::process::Stdio::inherit());
    let output = command.output().map_err(|error| process::cannot_start(&command, &error))?;
    process::succeeded(&command, output.status)?;
    serde_json::from_slice(&output.stdout)
        .map_err(|error| Error::failed(format!("cargo metadata is not readable: {error}")))
}
