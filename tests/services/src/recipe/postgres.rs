//! PostgreSQL: only TCP with scram, and full durability.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{InstanceHome, MissingProgram, Recipe, path_text, program, words};
use crate::client_program;
use crate::error::Error;
use crate::record::write_private;

pub struct Postgres;

pub const USER: &str = "honeyflow";

impl Recipe for Postgres {
    fn program(&self) -> Result<PathBuf, MissingProgram> {
        folder().map(|folder| folder.join("postgres"))
    }

    fn accounts(&self) -> &'static [&'static str] {
        &["postgres", "nobody"]
    }

    fn make_data(&self, instance: &InstanceHome, empty: &Path) -> Result<(), Error> {
        let initdb = folder().map_err(|MissingProgram(what)| Error::failed(format!("no {what}")))?.join("initdb");
        let password = instance.folder.join("initdb.password");
        write_private(&password, instance.secret.as_bytes())?;
        instance.account.own(&password)?;
        let mut command = instance.account.command(&initdb, &instance.folder);
        command.args(["--username", USER, "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8"]);
        // Only initdb's own writes are not synced to disk; the server syncs its writes.
        command.args(["--data-checksums", "--no-sync"]).arg("--pgdata").arg(empty);
        command.arg("--pwfile").arg(&password);
        let result = client_program::run_within(command, client_program::SETUP_TIME).map(drop);
        let _ = fs::remove_file(&password);
        result.map_err(|complaint| Error::failed(format!("initdb failed: {complaint}")))
    }

    fn arguments(&self, instance: &InstanceHome, port: u16) -> Result<Vec<String>, Error> {
        let mut arguments = vec!["-D".to_owned(), path_text(&instance.data()), "-p".to_owned(), port.to_string()];
        for setting in [
            "listen_addresses=127.0.0.1",
            // Paths of sockets are limited to 107 bytes, and the path of a clone may be longer.
            "unix_socket_directories=",
            "fsync=on",
            "synchronous_commit=on",
            "full_page_writes=on",
            "max_connections=300",
            "shared_buffers=64MB",
        ] {
            arguments.extend(words(["-c", setting]));
        }
        Ok(arguments)
    }

    fn ask(&self, instance: &InstanceHome, port: u16, _pid: u32) -> Result<String, String> {
        client_program::run(psql(&self.url(instance, port), "show server_version")?).map(|version| first_word(&version))
    }

    fn url(&self, instance: &InstanceHome, port: u16) -> String {
        format!("postgres://{USER}:{}@127.0.0.1:{port}/postgres", instance.secret)
    }
}

/// A command that runs one statement in `psql`. The password goes through the environment: command lines are public.
pub fn psql(url: &str, question: &str) -> Result<Command, String> {
    let client = folder().map_err(|MissingProgram(what)| format!("no {what}"))?.join("psql");
    let without_scheme = url.strip_prefix("postgres://").unwrap_or(url);
    let (login, address) = without_scheme.split_once('@').ok_or("a URL without user")?;
    let (user, secret) = login.split_once(':').ok_or("a URL without password")?;
    let mut command = Command::new(client);
    command.args(["--no-psqlrc", "--no-password", "--tuples-only", "--no-align", "--command", question]);
    command.args(["--dbname", &format!("postgres://{user}@{address}")]);
    command.env("PGPASSWORD", secret).env("PGCONNECT_TIMEOUT", "4");
    for inherited in ["PGOPTIONS", "PGSERVICE", "PGSSLMODE", "PGHOSTADDR"] {
        command.env_remove(inherited);
    }
    Ok(command)
}

pub fn first_word(text: &str) -> String {
    text.split_whitespace().next().unwrap_or("unknown").to_owned()
}

/// The folder of the newest version that Debian installed (its programs are not on the path), or else the one on the
/// path.
fn folder() -> Result<PathBuf, MissingProgram> {
    let is_complete = |folder: &Path| ["postgres", "initdb", "psql"].iter().all(|name| folder.join(name).is_file());
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let numbered = versions.filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path())));
    let mut numbered: Vec<_> = numbered.map(|(version, path)| (version, path.join("bin"))).collect();
    numbered.retain(|(_, folder)| is_complete(folder));
    if let Some((_, newest)) = numbered.into_iter().max() {
        return Ok(newest);
    }
    // A link on the path leads to the folder of the other programs.
    let linked = program("postgres")?.canonicalize().map_err(|_| MissingProgram("postgres"))?;
    linked
        .parent()
        .filter(|folder| is_complete(folder))
        .map(Path::to_path_buf)
        .ok_or(MissingProgram("postgres, initdb and psql"))
}
