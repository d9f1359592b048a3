//! Reads from `cargo metadata` what the checks need to know about packages.

use std::path::PathBuf;

use honeyflow_services::Server;
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
    /// `None` for a package of this workspace.
    pub source: Option<String>,
    pub license: Option<String>,
    pub manifest_path: String,
    /// The registries where it may be published; `None`: any, empty: none.
    #[serde(default)]
    publish: Option<Vec<String>>,
    #[serde(default)]
    pub targets: Vec<Target>,
    #[serde(default)]
    pub dependencies: Vec<Dependency>,
    /// `[package.metadata]`, which cargo does not interpret.
    #[serde(default)]
    metadata: serde_json::Value,
}

#[derive(Debug, Deserialize)]
pub struct Dependency {
    name: String,
    rename: Option<String>,
}

impl Dependency {
    /// The name by which Rust code refers to it.
    pub fn name_in_code(&self) -> String {
        self.rename.as_ref().unwrap_or(&self.name).replace('-', "_")
    }
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

    /// Members and all their dependencies, for every platform. Without network, packages of other platforms may be
    /// missing on this disk; then it reads only those of this platform.
    pub fn of_everything() -> Result<Self, Error> {
        let locked: &[&str] = if process::in_ci() { &["--locked"] } else { &[] };
        read(locked).or_else(|_| {
            let host = host_platform()?;
            eprintln!("cannot fetch packages of other platforms; checking those of {host} only");
            read(&[locked, &["--offline", "--filter-platform", &host]].concat())
        })
    }

    /// The servers that tests of the members name: `[package.metadata.honeyflow] services = ["postgres"]`.
    pub fn services(&self) -> Result<Vec<Server>, Error> {
        let mut servers = Vec::new();
        for package in &self.packages {
            for word in package.metadata["honeyflow"]["services"].as_array().into_iter().flatten() {
                let server = word.as_str().and_then(Server::from_name);
                servers.push(
                    server.ok_or_else(|| {
                        Error::failed(format!("{}: no server is called {word}", package.manifest_path))
                    })?,
                );
            }
        }
        servers.sort_unstable();
        servers.dedup();
        Ok(servers)
    }

    /// The members that may be published.
    pub fn published(&self) -> impl Iterator<Item = &str> {
        let may = |package: &&Package| package.publish.as_ref().is_none_or(|places| !places.is_empty());
        self.packages.iter().filter(may).map(|package| package.name.as_str())
    }

    pub fn has_binary(&self, package: &str, binary: &str) -> bool {
        let is_binary = |target: &Target| target.name == binary && target.kind.iter().any(|kind| kind == "bin");
        self.packages.iter().any(|found| found.name == package && found.targets.iter().any(is_binary))
    }
}

/// Fails with a clear message if the binary does not exist, instead of cargo's message about package specifications.
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
    command.args(options);
    serde_json::from_str(&process::output(command)?)
        .map_err(|error| Error::failed(format!("cargo metadata is not readable: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(services: &str) -> Result<Vec<Server>, Error> {
        let package = |name: &str, metadata: &str| {
            format!(r#"{{"name":"{name}","version":"1.0.0","manifest_path":"/{name}","metadata":{metadata}}}"#)
        };
        let ours = package("a", &format!(r#"{{"honeyflow":{{"services":{services}}}}}"#));
        let json = format!(r#"{{"workspace_root":"/","packages":[{ours},{}]}}"#, package("b", "null"));
        serde_json::from_str::<Metadata>(&json).unwrap().services()
    }

    #[test]
    fn packages_that_may_be_published_are_known() {
        let package = |name: &str, publish: &str| {
            format!(r#"{{"name":"{name}","version":"1.0.0","manifest_path":"/{name}","publish":{publish}}}"#)
        };
        let packages = [package("a", "null"), package("b", "[]"), package("c", r#"["elsewhere"]"#)].join(",");
        let json = format!(r#"{{"workspace_root":"/","packages":[{packages}]}}"#);
        let metadata: Metadata = serde_json::from_str(&json).unwrap();
        assert_eq!(metadata.published().collect::<Vec<_>>(), ["a", "c"]);
    }

    #[test]
    fn packages_name_their_servers() {
        assert_eq!(named(r#"["redis","postgres","redis"]"#).unwrap(), [Server::Postgres, Server::Redis]);
        assert_eq!(named("[]").unwrap(), []);
    }

    #[test]
    fn a_misspelled_server_is_no_silence() {
        assert!(named(r#"["postgresql"]"#).unwrap_err().to_string().contains("postgresql"));
    }
}
