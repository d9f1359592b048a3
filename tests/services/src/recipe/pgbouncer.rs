//! PgBouncer in transaction mode: what a session keeps (settings, named statements, advisory locks) is lost between
//! transactions, and that is what tests want to see.

use std::path::{Path, PathBuf};

use super::{Absent, Place, Recipe, Upstream, postgres, shown};
use crate::ask;
use crate::error::Error;
use crate::record::write_private;

pub struct Pgbouncer {
    pub upstream: Upstream,
}

pub fn program() -> Result<PathBuf, Absent> {
    super::program("pgbouncer")
}

impl Recipe for Pgbouncer {
    fn program(&self) -> Result<PathBuf, Absent> {
        program()
    }

    fn accounts(&self) -> &'static [&'static str] {
        &["postgres", "nobody"]
    }

    fn make_data(&self, _place: &Place, _empty: &Path) -> Result<(), Error> {
        Ok(())
    }

    fn arguments(&self, place: &Place, port: u16) -> Result<Vec<String>, Error> {
        let users = place.folder.join("users.txt");
        write_private(&users, format!("\"{}\" \"{}\"\n", postgres::USER, self.upstream.secret).as_bytes())?;
        // Both ports are in the name: a command line then tells whether the settings are still the right ones.
        let settings = place.folder.join(format!("{port}-before-{}.ini", self.upstream.port));
        write_private(&settings, self.settings(port, &users).as_bytes())?;
        for file in [&users, &settings] {
            place.account.own(file)?;
        }
        Ok(vec![shown(&settings)])
    }

    fn ask(&self, place: &Place, port: u16, _pid: u32) -> Result<String, String> {
        ask::answer(postgres::psql(&self.url(place, port), "select 1")?)?;
        let mut version = std::process::Command::new(program().map_err(|Absent(what)| format!("no {what}"))?);
        version.arg("--version");
        let said = ask::answer(version)?;
        Ok(said.lines().next().and_then(|line| line.split_whitespace().nth(1)).unwrap_or("unknown").to_owned())
    }

    fn url(&self, _place: &Place, port: u16) -> String {
        format!("postgres://{}:{}@127.0.0.1:{port}/postgres", postgres::USER, self.upstream.secret)
    }
}

impl Pgbouncer {
    /// A pool is small, so that clients really share connections.
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
