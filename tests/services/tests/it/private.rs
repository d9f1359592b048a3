//! Servers in a folder that only its owner may enter, gone with the test however it ends.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use honeyflow_services::{Guard, Record, Server, Service, Services, State};
use tempfile::TempDir;

pub struct Private {
    pub services: Services,
    /// Removed after the servers are stopped.
    pub folder: TempDir,
    _guard: Guard,
}

impl Private {
    /// `None` when this machine lacks one of the servers; the suite is then skipped by name.
    pub fn of(servers: &[Server]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let services = Services::at(folder.path(), []);
        let absent = servers.iter().find(|server| services.state(**server) == State::NotInstalled);
        if let Some(server) = absent {
            println!("SKIPPED {server}: not installed; apt-get install {}", server.packages().join(" "));
            return None;
        }
        let folders: Vec<_> = Server::ALL.map(|server| (server, services.folder_of(server))).to_vec();
        Some(Self { services, folder, _guard: Guard::over(&folders).unwrap() })
    }

    pub fn up(&self, server: Server) -> Service {
        let mut results = self.services.up(&[server]).unwrap();
        let (last, result) = results.pop().unwrap();
        assert_eq!(last, server);
        result.unwrap()
    }

    pub fn record(&self, server: Server) -> Record {
        match self.services.state(server) {
            State::Running(record) => record,
            other => panic!("{server} is not running: {other:?}"),
        }
    }

    pub fn pid(&self, server: Server) -> u32 {
        self.record(server).pid.unwrap()
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        let _ = self.services.down(&Server::ALL);
    }
}

/// A deadline against hanging, not a measure.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The letter of a process's state; a zombie counts as gone.
pub fn process_state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next().filter(|state| *state != 'Z')
}

pub fn signal(pid: u32, signal: &str) {
    let status = Command::new("kill").args([signal, &pid.to_string()]).status().unwrap();
    assert!(status.success());
}

/// One command to a Redis, its whole answer until it hangs up.
pub fn redis(port: u16, command: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Statements to a PostgreSQL; the answer, or the complaint.
pub fn psql(url: &str, statements: &str) -> Result<String, String> {
    said(Command::new("psql").args(["--no-psqlrc", "-w", "-At", "-v", "ON_ERROR_STOP=1", "-c", statements, url]))
}

pub fn said(command: &mut Command) -> Result<String, String> {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

pub fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
