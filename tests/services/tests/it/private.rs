//! Servers in a folder that only its owner may enter; they end with the test, however it ends.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use honeyflow_services::{Guard, Record, Server, Service, Services, State};
use tempfile::TempDir;

pub struct PrivateServices {
    pub services: Services,
    /// The folder, removed after the servers are stopped.
    pub folder: TempDir,
    _guard: Guard,
}

impl PrivateServices {
    /// Returns `None` if this machine lacks one of the servers; the suite then prints `SKIPPED`.
    pub fn with(servers: &[Server]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let services = Services::at(folder.path(), []);
        let absent = servers.iter().find(|server| services.state(**server) == State::NotInstalled);
        if let Some(server) = absent {
            println!("SKIPPED {server}: not installed; apt-get install {}", server.packages().join(" "));
            return None;
        }
        let folders: Vec<_> = Server::ALL.map(|server| (server, services.folder_of(server))).to_vec();
        Some(Self { services, folder, _guard: Guard::for_instances(&folders).unwrap() })
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

impl Drop for PrivateServices {
    fn drop(&mut self) {
        let _ = self.services.down(&Server::ALL);
    }
}

/// Waits until `done` returns true; the deadline only prevents a test that hangs.
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

/// Sends one command to a Redis; returns all it answers until it closes the connection.
pub fn redis(port: u16, command: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Runs statements in PostgreSQL; returns the output, or the error output.
pub fn psql(url: &str, statements: &str) -> Result<String, String> {
    run(Command::new("psql").args(["--no-psqlrc", "-w", "-At", "-v", "ON_ERROR_STOP=1", "-c", statements, url]))
}

pub fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

pub fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
