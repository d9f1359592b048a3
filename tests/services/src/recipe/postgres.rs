//! PostgreSQL: scram over TCP alone, every promise about durability kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Absent, Place, Recipe, program, shown, words};
use crate::ask;
use crate::error::Error;
use crate::record::write_private;

pub struct Postgres;

pub const USER: &str = "honeyflow";

impl Recipe for Postgres {
    fn program(&self) -> Result<PathBuf, Absent> {
        folder().map(|folder| folder.join("postgres"))
    }

    fn accounts(&self) -> &'static [&'static str] {
        &["postgres", "nobody"]
    }

    fn make_data(&self, place: &Place, empty: &Path) -> Result<(), Error> {
        let initdb = folder().map_err(|Absent(what)| Error::failed(format!("no {what}")))?.join("initdb");
        let password = place.folder.join("initdb.password");
        write_private(&password, place.secret.as_bytes())?;
        place.account.own(&password)?;
        let mut command = place.account.command(&initdb, &place.folder);
        command.args(["--username", USER, "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8"]);
        // Only what initdb itself writes is not forced to disk; the server forces what it writes.
        command.args(["--data-checksums", "--no-sync"]).arg("--pgdata").arg(empty);
        command.arg("--pwfile").arg(&password);
        let result = ask::answer_within(command, ask::SETUP_TIME).map(drop);
        let _ = fs::remove_file(&password);
        result.map_err(|complaint| Error::failed(format!("initdb failed: {complaint}")))
    }

    fn arguments(&self, place: &Place, port: u16) -> Result<Vec<String>, Error> {
        let mut arguments = vec!["-D".to_owned(), shown(&place.data()), "-p".to_owned(), port.to_string()];
        for setting in [
            "listen_addresses=127.0.0.1",
            // Paths of sockets are limited to 107 bytes, those of clones are not.
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

    fn ask(&self, place: &Place, port: u16, _pid: u32) -> Result<String, String> {
        ask::answer(psql(&self.url(place, port), "show server_version")?).map(|version| first_word(&version))
    }

    fn url(&self, place: &Place, port: u16) -> String {
        format!("postgres://{USER}:{}@127.0.0.1:{port}/postgres", place.secret)
    }
}

/// One question by the client program. The password travels in the environment: command lines are public.
pub fn psql(url: &str, question: &str) -> Result<Command, String> {
    let client = folder().map_err(|Absent(what)| format!("no {what}"))?.join("psql");
    let without_scheme = url.strip_prefix("postgres://").unwrap_or(url);
    let (login, place) = without_scheme.split_once('@').ok_or("a URL without user")?;
    let (user, secret) = login.split_once(':').ok_or("a URL without password")?;
    let mut command = Command::new(client);
    command.args(["--no-psqlrc", "--no-password", "--tuples-only", "--no-align", "--command", question]);
    command.args(["--dbname", &format!("postgres://{user}@{place}")]);
    command.env("PGPASSWORD", secret).env("PGCONNECT_TIMEOUT", "4");
    for inherited in ["PGOPTIONS", "PGSERVICE", "PGSSLMODE", "PGHOSTADDR"] {
        command.env_remove(inherited);
    }
    Ok(command)
}

pub fn first_word(text: &str) -> String {
    text.split_whitespace().next().unwrap_or("unknown").to_owned()
}

/// The folder of the newest one that Debian installed (its programs are not on the path), else what the path has.
fn folder() -> Result<PathBuf, Absent> {
    let is_whole = |folder: &Path| ["postgres", "initdb", "psql"].iter().all(|name| folder.join(name).is_file());
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let numbered = versions.filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path())));
    let mut numbered: Vec<_> = numbered.map(|(version, path)| (version, path.join("bin"))).collect();
    numbered.retain(|(_, folder)| is_whole(folder));
    if let Some((_, newest)) = numbered.into_iter().max() {
        return Ok(newest);
    }
    // A link on the path leads to where its companions lie.
    let linked = program("postgres")?.canonicalize().map_err(|_| Absent("postgres"))?;
    linked.parent().filter(|folder| is_whole(folder)).map(Path::to_path_buf).ok_or(Absent("postgres, initdb and psql"))
}
