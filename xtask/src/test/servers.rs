//! The servers of a test run: started before it and stopped after it, also when it is interrupted or killed. Servers that
//! were running before are left running.

use honeyflow_services::{self as services, Guard, Server, Services, State};

use super::tally::Tally;
use crate::error::Error;

pub struct Servers {
    services: Services,
    ours: Vec<Server>,
    /// A guard process: it stops the servers if this process dies before it can do so.
    _guard: Option<Guard>,
}

impl Servers {
    /// A server that cannot be installed skips the suites that need it; one that does not start is a failure.
    pub fn start(needed: &[Server], tally: &mut Tally) -> Result<Self, Error> {
        Self::start_of(Services::of_target(), needed, tally)
    }

    fn start_of(services: Services, needed: &[Server], tally: &mut Tally) -> Result<Self, Error> {
        let failed = |error: services::Error| Error::failed(error.to_string());
        let runs = |server: &Server| matches!(services.state(*server), State::Running(_) | State::Named(_));
        let ours: Vec<Server> = services.with_upstreams(needed).into_iter().filter(|server| !runs(server)).collect();
        let folders: Vec<_> = ours.iter().map(|server| (*server, services.folder_of(*server))).collect();
        let guard = if ours.is_empty() { None } else { Some(Guard::for_instances(&folders).map_err(failed)?) };
        let servers = Self { services, ours, _guard: guard };
        for (server, result) in servers.services.up(needed).map_err(failed)? {
            match result {
                Ok(service) => {
                    let how = service
                        .started_in
                        .map_or("ran already".to_owned(), |time| format!("started in {:.1} s", time.as_secs_f64()));
                    eprintln!("{server} {}: {how}", service.version.as_deref().unwrap_or("elsewhere"));
                }
                Err(services::Error::Missing(reason)) => {
                    eprintln!("{server}: {reason}");
                    tally.skip(server.name(), &reason);
                }
                Err(services::Error::Failed(reason)) => {
                    eprintln!("{server}: {reason}");
                    tally.count_failed();
                }
            }
        }
        Ok(servers)
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        if self.ours.is_empty() {
            return;
        }
        let names: Vec<&str> = self.ours.iter().map(|server| server.name()).collect();
        match self.services.down(&self.ours) {
            Ok(_) => eprintln!("stopped: {}", names.join(", ")),
            Err(error) => eprintln!("servers are still running: {error}; `cargo xtask services down` stops them"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    const REDIS: Server = Server::Redis;

    /// `None` if this machine has no Redis; the tests that need it report that.
    fn services(folder: &Path) -> Option<Services> {
        let services = Services::at(folder, []);
        if services.state(REDIS) == State::NotInstalled {
            println!("SKIPPED redis: not installed");
            return None;
        }
        Some(services)
    }

    fn runs(folder: &Path) -> bool {
        matches!(Services::at(folder, []).state(REDIS), State::Running(_))
    }

    #[test]
    fn what_the_run_started_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let Some(services) = services(folder.path()) else { return };
        let mut tally = Tally::default();
        let servers = Servers::start_of(services, &[REDIS], &mut tally).unwrap();
        assert!(runs(folder.path()));
        drop(servers);
        assert!(!runs(folder.path()));
        assert_eq!(tally.to_string(), "0 passed, 0 failed, 0 skipped");
    }

    #[test]
    fn what_ran_before_stays() {
        let folder = tempfile::tempdir().unwrap();
        let Some(before) = services(folder.path()) else { return };
        let _guard = Guard::for_instances(&[(REDIS, before.folder_of(REDIS))]).unwrap();
        before.up(&[REDIS]).unwrap();
        let servers = Servers::start_of(Services::at(folder.path(), []), &[REDIS], &mut Tally::default()).unwrap();
        drop(servers);
        assert!(runs(folder.path()));
        before.down(&[REDIS]).unwrap();
    }

    #[test]
    fn a_server_that_cannot_be_had_skips_its_suite_by_name() {
        let folder = tempfile::tempdir().unwrap();
        if services(folder.path()).is_none_or(|services| services.state(Server::Pgbouncer) == State::NotInstalled) {
            println!("SKIPPED pgbouncer: not installed");
            return;
        }
        let named = (Server::Postgres, "postgres://elsewhere.invalid/".to_owned());
        let mut tally = Tally::default();
        Servers::start_of(Services::at(folder.path(), [named]), &[Server::Pgbouncer], &mut tally).unwrap();
        assert!(tally.skipped_suites()[0].starts_with("pgbouncer: "));
        assert_eq!(tally.to_string(), "0 passed, 0 failed, 1 skipped");
    }

    #[test]
    fn a_run_that_is_killed_leaves_no_server() {
        let folder = tempfile::tempdir().unwrap();
        if services(folder.path()).is_none() {
            return;
        }
        let mut run = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "test::servers::tests::interrupted_run", "--nocapture"])
            .env("INTERRUPTED_RUN", folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(run.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.into_iter().any(|line| line.contains("servers are up")));
        assert!(runs(folder.path()));
        run.kill().unwrap();
        run.wait().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while runs(folder.path()) {
            assert!(Instant::now() < deadline, "the server outlived the run");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The second process of the test above; alone it does nothing.
    #[test]
    fn interrupted_run() {
        let Some(folder) = std::env::var_os("INTERRUPTED_RUN") else { return };
        let services = Services::at(Path::new(&folder), []);
        let _servers = Servers::start_of(services, &[REDIS], &mut Tally::default()).unwrap();
        println!("servers are up");
        std::io::stdin().read_line(&mut String::new()).unwrap();
    }
}
