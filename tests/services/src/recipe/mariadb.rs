//! MariaDB: utf8mb4, every commit on disk, one user who may do everything and whom only a password lets in.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Absent, Place, Recipe, program, shown, words};
use crate::ask;
use crate::error::Error;
use crate::folder;
use crate::install;
use crate::record::write_private;

pub struct Mariadb;

const USER: &str = "honeyflow";
const DATABASE: &str = "honeyflow";

/// The log of a fresh server would otherwise be 96 MB, and take seconds to write.
const LOG_SIZE: &str = "--innodb-log-file-size=32M";

/// One that starts removes every temporary table it finds, also those of its neighbours at work.
fn temporary(place: &Place) -> Result<PathBuf, Error> {
    let folder = folder::make(&place.folder.join("tmp"))?;
    place.account.own(&folder)?;
    Ok(folder)
}

impl Recipe for Mariadb {
    fn program(&self) -> Result<PathBuf, Absent> {
        for companion in ["mariadb-install-db", "mariadb"] {
            program(companion)?;
        }
        program("mariadbd")
    }

    fn accounts(&self) -> &'static [&'static str] {
        &["mysql", "nobody"]
    }

    fn make_data(&self, place: &Place, empty: &Path) -> Result<(), Error> {
        let mut command = place.account.command(Path::new("mariadb-install-db"), &place.folder);
        // Root is let in by the socket alone; the other way leaves four roots without a password.
        command.args([
            "--no-defaults",
            "--auth-root-authentication-method=socket",
            "--skip-test-db",
            "--skip-name-resolve",
        ]);
        command.arg(LOG_SIZE).arg(format!("--datadir={}", empty.display()));
        command.arg(format!("--tmpdir={}", shown(&temporary(place)?)));
        ask::answer_within(command, ask::SETUP_TIME)
            .map(drop)
            .map_err(|complaint| Error::failed(format!("mariadb-install-db failed: {complaint}")))
    }

    fn arguments(&self, place: &Place, port: u16) -> Result<Vec<String>, Error> {
        let script = place.folder.join("init.sql");
        // One statement a line: that is how the server reads the file.
        let statements = [
            format!("CREATE USER IF NOT EXISTS '{USER}'@'127.0.0.1';"),
            format!("ALTER USER '{USER}'@'127.0.0.1' IDENTIFIED BY '{}';", place.secret),
            format!("GRANT ALL ON *.* TO '{USER}'@'127.0.0.1' WITH GRANT OPTION;"),
            format!("CREATE DATABASE IF NOT EXISTS {DATABASE};"),
        ];
        write_private(&script, (statements.join("\n") + "\n").as_bytes())?;
        place.account.own(&script)?;
        let mut arguments = words(["--no-defaults", "--bind-address=127.0.0.1", "--skip-name-resolve"]);
        arguments.extend([
            format!("--port={port}"),
            format!("--datadir={}", shown(&place.data())),
            format!("--tmpdir={}", shown(&temporary(place)?)),
            format!("--init-file={}", shown(&script)),
        ]);
        arguments.extend(words([
            // Beside the data and named without a path: paths of sockets are limited to 107 bytes.
            "--socket=mariadb.sock",
            "--character-set-server=utf8mb4",
            "--collation-server=utf8mb4_unicode_ci",
            "--innodb-flush-log-at-trx-commit=1",
            "--innodb-buffer-pool-size=64M",
            LOG_SIZE,
            "--max-connections=300",
            "--performance-schema=OFF",
        ]));
        Ok(arguments)
    }

    fn ask(&self, place: &Place, port: u16, _pid: u32) -> Result<String, String> {
        let mut command = Command::new(install::program("mariadb").ok_or("no mariadb")?);
        command.args(["--no-defaults", "--host=127.0.0.1", "--connect-timeout=4", "--batch", "--skip-column-names"]);
        command.arg(format!("--port={port}")).arg(format!("--user={USER}"));
        // In the environment: command lines are public.
        command.env("MYSQL_PWD", &place.secret).args(["--execute", "select version()", DATABASE]);
        ask::answer(command).map(|version| version.split('-').next().unwrap_or("unknown").to_owned())
    }

    fn url(&self, place: &Place, port: u16) -> String {
        format!("mysql://{USER}:{}@127.0.0.1:{port}/{DATABASE}", place.secret)
    }
}
