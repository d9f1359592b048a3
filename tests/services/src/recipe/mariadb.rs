//! MariaDB: utf8mb4, every commit on disk, one user with all rights and a password.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{InstanceHome, MissingProgram, Recipe, path_text, program, words};
use crate::client_program;
use crate::error::Error;
use crate::folder;
use crate::install;
use crate::record::write_private;

pub struct Mariadb;

const USER: &str = "honeyflow";
const DATABASE: &str = "honeyflow";

/// The default log of a new server has 96 MB and takes seconds to write.
const LOG_SIZE: &str = "--innodb-log-file-size=32M";

/// The instance's own folder for temporary tables: a starting server removes all that it finds, also those of other
/// running servers.
fn temporary(instance: &InstanceHome) -> Result<PathBuf, Error> {
    let folder = folder::make(&instance.folder.join("tmp"))?;
    instance.account.own(&folder)?;
    Ok(folder)
}

impl Recipe for Mariadb {
    fn program(&self) -> Result<PathBuf, MissingProgram> {
        for companion in ["mariadb-install-db", "mariadb"] {
            program(companion)?;
        }
        program("mariadbd")
    }

    fn accounts(&self) -> &'static [&'static str] {
        &["mysql", "nobody"]
    }

    fn make_data(&self, instance: &InstanceHome, empty: &Path) -> Result<(), Error> {
        let mut command = instance.account.command(Path::new("mariadb-install-db"), &instance.folder);
        // Root logs in through the socket only; the other method leaves four root users without a password.
        command.args([
            "--no-defaults",
            "--auth-root-authentication-method=socket",
            "--skip-test-db",
            "--skip-name-resolve",
        ]);
        command.arg(LOG_SIZE).arg(format!("--datadir={}", empty.display()));
        command.arg(format!("--tmpdir={}", path_text(&temporary(instance)?)));
        client_program::run_within(command, client_program::SETUP_TIME)
            .map(drop)
            .map_err(|complaint| Error::failed(format!("mariadb-install-db failed: {complaint}")))
    }

    fn arguments(&self, instance: &InstanceHome, port: u16) -> Result<Vec<String>, Error> {
        let script = instance.folder.join("init.sql");
        // One statement per line: that is how the server reads the file.
        let statements = [
            format!("CREATE USER IF NOT EXISTS '{USER}'@'127.0.0.1';"),
            format!("ALTER USER '{USER}'@'127.0.0.1' IDENTIFIED BY '{}';", instance.secret),
            format!("GRANT ALL ON *.* TO '{USER}'@'127.0.0.1' WITH GRANT OPTION;"),
            format!("CREATE DATABASE IF NOT EXISTS {DATABASE};"),
        ];
        write_private(&script, (statements.join("\n") + "\n").as_bytes())?;
        instance.account.own(&script)?;
        let mut arguments = words(["--no-defaults", "--bind-address=127.0.0.1", "--skip-name-resolve"]);
        arguments.extend([
            format!("--port={port}"),
            format!("--datadir={}", path_text(&instance.data())),
            format!("--tmpdir={}", path_text(&temporary(instance)?)),
            format!("--init-file={}", path_text(&script)),
        ]);
        arguments.extend(words([
            // The socket is in the data folder, without a path: paths of sockets are limited to 107 bytes.
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

    fn ask(&self, instance: &InstanceHome, port: u16, _pid: u32) -> Result<String, String> {
        let mut command = Command::new(install::program("mariadb").ok_or("no mariadb")?);
        command.args(["--no-defaults", "--host=127.0.0.1", "--connect-timeout=4", "--batch", "--skip-column-names"]);
        command.arg(format!("--port={port}")).arg(format!("--user={USER}"));
        // The password goes through the environment: command lines are public.
        command.env("MYSQL_PWD", &instance.secret).args(["--execute", "select version()", DATABASE]);
        client_program::run(command).map(|version| version.split('-').next().unwrap_or("unknown").to_owned())
    }

    fn url(&self, instance: &InstanceHome, port: u16) -> String {
        format!("mysql://{USER}:{}@127.0.0.1:{port}/{DATABASE}", instance.secret)
    }
}
