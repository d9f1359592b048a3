//! One server in one folder: created, started, watched until it answers, stopped.
//!
//! The invariant: before a start, no process of this folder is left, so a record never describes two processes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::account::Account;
use crate::error::Error;
use crate::process::{self, Signal, wait_until};
use crate::recipe::{self, InstanceHome, MissingProgram, Recipe, Upstream};
use crate::record::{Record, write_private};
use crate::server::Server;
use crate::{folder, port};

/// A loaded machine with two cores is slow.
const READY_TIME: Duration = Duration::from_secs(120);
/// For a server that runs already: after this time it counts as unhealthy.
const HEALTHY_TIME: Duration = Duration::from_secs(10);
const STOP_TIME: Duration = Duration::from_secs(20);
const KILL_TIME: Duration = Duration::from_secs(20);
/// Another program may take the port between our check and the server's start.
const PORT_TRIES: usize = 3;
const LOG_LINES: usize = 20;

pub struct Instance {
    server: Server,
    home: InstanceHome,
    program: PathBuf,
    recipe: Box<dyn Recipe>,
    /// The caller's arguments for the server, after ours.
    arguments: Vec<String>,
}

/// A process that has answered, and its record.
pub struct StartedProcess {
    pub child: Child,
    pub record: Record,
}

enum StartError {
    /// Another program has taken the port: another port is worth a try.
    PortTaken(String),
    Other(Error),
}

impl Instance {
    /// Creates the folder, without starting anything. A missing program is `Error::Missing`.
    pub fn at(folder: &Path, server: Server, upstream: Option<Upstream>, arguments: &[&str]) -> Result<Self, Error> {
        Self::with_recipe(folder, server, recipe::for_server(server, upstream)?, arguments)
    }

    /// Like [`Instance::at`], with a given recipe.
    pub fn with_recipe(
        folder: &Path,
        server: Server,
        recipe: Box<dyn Recipe>,
        arguments: &[&str],
    ) -> Result<Self, Error> {
        let program =
            recipe.program().map_err(|MissingProgram(what)| Error::Missing(format!("{what} is not installed")))?;
        let folder = folder::make(folder)?;
        let account = Account::for_folder(recipe.accounts(), &folder)?;
        let secret = secret(&folder)?;
        let arguments = arguments.iter().map(|&word| word.to_owned()).collect();
        Ok(Self { server, home: InstanceHome { folder, account, secret }, program, recipe, arguments })
    }

    pub fn folder(&self) -> &Path {
        &self.home.folder
    }

    /// The record of the running server, if it has the right settings and answers.
    pub fn healthy(&self) -> Option<Record> {
        let record = Record::read(self.folder())?;
        let pid = record.alive()?;
        let wanted = self.command_line(record.port).ok()?;
        let answers = || self.recipe.ask(&self.home, record.port, pid).is_ok();
        (record.command == wanted && wait_until(HEALTHY_TIME, answers) && record.alive().is_some()).then_some(record)
    }

    /// Starts the server and waits until it answers; first it ends what is left of an earlier one.
    pub fn start(&self, preferred_port: Option<u16>) -> Result<StartedProcess, Error> {
        stop(self.server, self.folder());
        self.provide_data()?;
        let mut preferred = preferred_port;
        let mut taken = String::new();
        for _ in 0..PORT_TRIES {
            let port = port::free(self.recipe.address(), preferred.take())
                .ok_or_else(|| Error::failed("no free port in 20000–32000"))?;
            match self.start_at(port) {
                Ok(started) => return Ok(started),
                Err(StartError::PortTaken(log)) => taken = log,
                Err(StartError::Other(error)) => return Err(error),
            }
        }
        Err(Error::failed(format!("other programs took its port {PORT_TRIES} times; its log ends with\n{taken}")))
    }

    fn start_at(&self, port: u16) -> Result<StartedProcess, StartError> {
        let mut child = self.launch(port).map_err(StartError::Other)?;
        let pid = child.id();
        let record = |version: String, command| Record {
            name: self.server.name().to_owned(),
            pid: Some(pid),
            port,
            url: self.recipe.url(&self.home, port),
            version,
            command,
        };
        match self.await_answer(&mut child, port) {
            Ok(version) => {
                let record = record(version, self.command_line(port).map_err(StartError::Other)?);
                record.write(self.folder()).map_err(StartError::Other)?;
                Ok(StartedProcess { child, record })
            }
            Err(why) => {
                let died = matches!(child.try_wait(), Ok(Some(_)));
                kill_family(self.server, self.folder());
                let _ = child.wait();
                let log = self.log_end();
                if died && !port::is_free(self.recipe.address(), port) {
                    return Err(StartError::PortTaken(log));
                }
                let log = if log.is_empty() { String::new() } else { format!("; its log ends with\n{log}") };
                Err(StartError::Other(Error::failed(format!("{why}{log}"))))
            }
        }
    }

    fn launch(&self, port: u16) -> Result<Child, Error> {
        let path = self.log();
        let log = fs::File::options().create(true).append(true).open(&path).map_err(Error::io("open", &path))?;
        let error_log = log.try_clone().map_err(Error::io("open", &path))?;
        let mut command = self.home.account.detached(&self.program, self.folder());
        command.args(&self.command_line(port)?[1..]).stdout(log).stderr(error_log);
        command.spawn().map_err(|error| Error::failed(format!("cannot start {}: {error}", self.program.display())))
    }

    /// Waits for an answer. An open port is not enough, and an answer counts only while our process lives: another
    /// program may have taken the port.
    fn await_answer(&self, child: &mut Child, port: u16) -> Result<String, String> {
        let deadline = Instant::now() + READY_TIME;
        loop {
            let answer = self.recipe.ask(&self.home, port, child.id());
            match child.try_wait() {
                Ok(None) => {}
                Ok(Some(status)) => return Err(format!("{} ended with {status} while it started", self.server)),
                Err(error) => return Err(format!("cannot watch {}: {error}", self.server)),
            }
            match answer {
                Ok(version) => return Ok(version),
                Err(why) if Instant::now() >= deadline => {
                    return Err(format!("{} did not answer within {} s: {why}", self.server, READY_TIME.as_secs()));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn command_line(&self, port: u16) -> Result<Vec<String>, Error> {
        let mut words = vec![self.program.to_string_lossy().into_owned()];
        words.extend(self.recipe.arguments(&self.home, port)?);
        words.extend(self.arguments.iter().cloned());
        Ok(words)
    }

    /// Creates the data folder if it is missing or of another version: it belongs to tests, and no version reads the
    /// data of a later one.
    fn provide_data(&self) -> Result<(), Error> {
        let made_by = self.folder().join("made-by");
        let mut command = Command::new(&self.program);
        command.arg("--version");
        let version = crate::client_program::run(command)
            .map_err(|why| Error::failed(format!("cannot read its version: {why}")))?;
        let data = self.home.data();
        if data.is_dir() && fs::read_to_string(&made_by).is_ok_and(|made| made == version) {
            return Ok(());
        }
        self.remove_data()?;
        let empty = self.folder().join("data.new");
        folder::remove(&empty)?;
        folder::make(&empty)?;
        let private = fs::Permissions::from_mode(0o700);
        fs::set_permissions(&empty, private).map_err(Error::io("set the mode of", &empty))?;
        self.home.account.own(&empty)?;
        self.recipe.make_data(&self.home, &empty)?;
        write_private(&made_by, version.as_bytes())?;
        fs::rename(&empty, &data).map_err(Error::io("rename", &empty))
    }

    /// Removes the data, so that the next start begins with an empty server.
    pub fn remove_data(&self) -> Result<(), Error> {
        folder::remove(&self.home.data())
    }

    pub fn log(&self) -> PathBuf {
        self.folder().join("log")
    }

    fn log_end(&self) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }
}

/// Ends every process of an instance: cleanly if that is fast enough, else with SIGKILL. Returns true if there was one.
pub fn stop(server: Server, folder: &Path) -> bool {
    let family = process::family(folder, server.process_name());
    process::root_processes(&family).iter().for_each(|pid| process::signal(*pid, server.stop_signal().0));
    // A paused process takes no signal before it is resumed.
    family.iter().for_each(|pid| process::signal(*pid, Signal::CONT));
    if !wait_until(STOP_TIME, || process::family(folder, server.process_name()).is_empty()) {
        kill_family(server, folder);
    }
    !family.is_empty()
}

/// Kills all processes, like a power cut. The server's children may outlive their parent for a moment, so it repeats
/// until none is left.
pub fn kill_family(server: Server, folder: &Path) {
    wait_until(KILL_TIME, || {
        let family = process::family(folder, server.process_name());
        family.iter().for_each(|pid| process::signal(*pid, Signal::KILL));
        family.is_empty()
    });
}

/// Reads or creates the password of a folder, so that the URL stays valid over restarts.
fn secret(folder: &Path) -> Result<String, Error> {
    let path = folder.join("password");
    if let Ok(secret) = fs::read_to_string(&path)
        && !secret.is_empty()
    {
        return Ok(secret);
    }
    let mut bytes = [0; 16];
    let source = Path::new("/dev/urandom");
    let mut random = fs::File::open(source).map_err(Error::io("open", source))?;
    std::io::Read::read_exact(&mut random, &mut bytes).map_err(Error::io("read", source))?;
    let secret: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    write_private(&path, secret.as_bytes())?;
    Ok(secret)
}
