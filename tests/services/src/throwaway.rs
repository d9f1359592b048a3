//! A server for one test, which may do anything to it. It ends with the value, and with the process if that dies.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::error::Error;
use crate::folder;
use crate::guard::Guard;
use crate::instance::{self, Instance, StartedProcess};
use crate::process::{self, Signal};
use crate::recipe::{self, Recipe, Upstream};
use crate::record::Record;
use crate::server::Server;

/// A process that waits for its disk takes the signal only when the disk has answered.
const PAUSE_TIME: Duration = Duration::from_secs(20);

pub struct Throwaway {
    server: Server,
    instance: Instance,
    child: Child,
    record: Record,
    /// The last field: dropped only when the server is gone.
    _guard: Guard,
}

impl Throwaway {
    pub fn new(server: Server, arguments: &[&str]) -> Result<Self, Error> {
        Self::with_recipe(server, recipe::for_server(server, None)?, arguments, None)
    }

    /// Starts a PgBouncer in front of a PostgreSQL.
    pub(crate) fn pgbouncer(before: &Throwaway) -> Result<Self, Error> {
        let password = before.folder().join("password");
        let secret = std::fs::read_to_string(&password).map_err(Error::io("read", &password))?;
        let recipe = recipe::for_server(Server::Pgbouncer, Some(Upstream { port: before.port(), secret }))?;
        Self::with_recipe(Server::Pgbouncer, recipe, &[], None)
    }

    /// Starts a server with this recipe, and at this port if it is free.
    pub(crate) fn with_recipe(
        server: Server,
        recipe: Box<dyn Recipe>,
        arguments: &[&str],
        port: Option<u16>,
    ) -> Result<Self, Error> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{server}-{}-{count}", std::process::id());
        let folder = folder::make(&folder::of_target().join("throwaway").join(name))?;
        let guard = Guard::for_throwaway(server, folder.clone())?;
        let started = Instance::with_recipe(&folder, server, recipe, arguments)
            .and_then(|instance| instance.start(port).map(|started| (instance, started)));
        match started {
            Ok((instance, StartedProcess { child, record })) => {
                Ok(Self { server, instance, child, record, _guard: guard })
            }
            Err(error) => {
                let _ = folder::remove(&folder);
                Err(error)
            }
        }
    }

    /// The URL, which stays the same over restarts.
    pub fn url(&self) -> &str {
        &self.record.url
    }

    pub fn port(&self) -> u16 {
        self.record.port
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The server's log file.
    pub fn log(&self) -> PathBuf {
        self.instance.log()
    }

    /// False if it was killed, stopped, or has died by itself. A paused server is running.
    pub fn is_running(&self) -> bool {
        process::is_alive(self.pid())
    }

    /// Stops all its processes with SIGSTOP: connections stay open, but the server does not answer. Returns when all
    /// have stopped.
    pub fn pause(&self) {
        // The parent stops first, so that it creates no more children.
        process::signal(self.pid(), Signal::STOP);
        process::wait_until(PAUSE_TIME, || process::is_paused(self.pid()) || !self.is_running());
        process::wait_until(PAUSE_TIME, || {
            let moving: Vec<u32> = self.family().into_iter().filter(|pid| !process::is_paused(*pid)).collect();
            moving.iter().for_each(|pid| process::signal(*pid, Signal::STOP));
            moving.is_empty()
        });
    }

    pub fn resume(&self) {
        self.family().iter().for_each(|pid| process::signal(*pid, Signal::CONT));
    }

    /// Kills all its processes with SIGKILL, like a power cut; returns when they are gone.
    pub fn kill(&mut self) {
        process::signal(self.pid(), Signal::KILL);
        instance::kill_family(self.server, self.instance.folder());
        let _ = self.child.wait();
    }

    /// Stops it cleanly, with or without connected clients; returns when it is gone.
    pub fn stop(&mut self) {
        instance::stop(self.server, self.instance.folder());
        let _ = self.child.wait();
    }

    /// Starts it again on the same port with its data (Redis has none). A running one is stopped first.
    pub fn start(&mut self) -> Result<(), Error> {
        self.stop();
        let StartedProcess { child, record } = self.instance.start(Some(self.record.port))?;
        self.child = child;
        let moved = record.port != self.record.port;
        self.record = record;
        if moved { Err(Error::failed("another program took its port while it was down")) } else { Ok(()) }
    }

    /// Starts it again on the same port, empty; the password stays.
    pub fn restart_empty(&mut self) -> Result<(), Error> {
        self.kill();
        self.instance.remove_data()?;
        self.start()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.instance.folder()
    }

    fn family(&self) -> Vec<u32> {
        process::family(self.instance.folder(), self.server.process_name())
    }
}

impl Drop for Throwaway {
    fn drop(&mut self) {
        self.kill();
        let _ = folder::remove(self.instance.folder());
    }
}
