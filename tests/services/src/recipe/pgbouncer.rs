//! PgBouncer in transaction mode: the state of a session (settings, named statements, advisory locks) is lost between
//! transactions, and tests need exactly that.

use std::path::{Path, PathBuf};

use super::{InstanceHome, MissingProgram, Recipe, Upstream, path_text, postgres};
use crate::client_program;
use crate::error::Error;
use crate::record::write_private;

pub struct Pgbouncer {
    pub upstream: Upstream,
}

pub fn program() -> Result<PathBuf, MissingProgram> {
    super::program("pgbouncer")
}

impl Recipe for Pgbouncer {
    fn program(&self) -> Result<PathBuf, MissingProgram> {
        program()
    }

    fn accounts(&self) -> &'static [&'static str] {
        &["postgres", "nobody"]
    }

    fn make_data(&self, _instance: &InstanceHome, _empty: &Path) -> Result<(), Error> {
        Ok(())
    }

    fn arguments(&self, instance: &InstanceHome, port: u16) -> Result<Vec<String>, Error> {
        let users = instance.folder.join("users.txt");
        write_private(&users, format!("\"{}\" \"{}\"\n", postgres::USER, self.upstream.secret).as_bytes())?;
        // Both ports are in the file's name, so that the command line shows whether the settings are still right.
        let settings = instance.folder.join(format!("{port}-before-{}.ini", self.upstream.port));
        write_private(&settings, self.settings(port, &users).as_bytes())?;
        for file in [&users, &settings] {
            instance.account.own(file)?;
        }
        Ok(vec![path_text(&settings)])
    }

    fn ask(&self, instance: &InstanceHome, port: u16, _pid: u32) -> Result<String, String> {
        client_program::run(postgres::psql(&self.url(instance, port), "select 1")?)?;
        let mut version = std::process::Command::new(program().map_err(|MissingProgram(what)| format!("no {what}"))?);
        version.arg("--version");
        let output = client_program::run(version)?;
        Ok(output.lines().next().and_then(|line| line.split_whitespace().nth(1)).unwrap_or("unknown").to_owned())
    }

    fn url(&self, _instance: &InstanceHome, port: u16) -> String {
        format!("postgres://{}:{}@127.0.0.1:{port}/postgres", postgres::USER, self.upstream.secret)
    }
}

impl Pgbouncer {
    /// The pool is small, so that clients really share connections.
    fn settings(&self, port: u16, users: &Path) -> String {
        format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = scram-sha-256\nauth_file = {}\nadmin_users = {}\npool_mode = transaction\n\
             default_pool_size = 10\nserver_idle_timeout = 10\nmax_client_conn = 500\n\
             ignore_startup_parameters = extra_float_digits,search_path\n",
            self.upstream.port,
            users.display(),
            postgres::USER,
        )
    }
}
