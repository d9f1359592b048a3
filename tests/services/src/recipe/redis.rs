//! Redis: it stores nothing on disk, so that it is empty after a restart, and evicts nothing when its memory is full.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{InstanceHome, MissingProgram, Recipe, path_text, program, words};
use crate::error::Error;

pub struct Redis;

const ANSWER_TIME: Duration = Duration::from_secs(5);

impl Recipe for Redis {
    fn program(&self) -> Result<PathBuf, MissingProgram> {
        program("redis-server")
    }

    fn accounts(&self) -> &'static [&'static str] {
        &["redis", "nobody"]
    }

    fn make_data(&self, _instance: &InstanceHome, _empty: &Path) -> Result<(), Error> {
        Ok(())
    }

    fn arguments(&self, instance: &InstanceHome, port: u16) -> Result<Vec<String>, Error> {
        let mut arguments = words(["--bind", "127.0.0.1", "--port"]);
        arguments.extend([port.to_string(), "--dir".to_owned(), path_text(&instance.data())]);
        arguments.extend(words(["--save", "", "--appendonly", "no"]));
        arguments.extend(words(["--maxmemory", "256mb", "--maxmemory-policy", "noeviction"]));
        // The command line identifies the process, so its title must not change; tests of faults use DEBUG.
        arguments.extend(words(["--daemonize", "no", "--set-proc-title", "no", "--enable-debug-command", "local"]));
        Ok(arguments)
    }

    fn ask(&self, _instance: &InstanceHome, port: u16, pid: u32) -> Result<String, String> {
        let about = info(port).map_err(|error| error.to_string())?;
        let field = |name: &str| about.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        // It has no password: only the pid tells it from another Redis that took the port first.
        match field("process_id").map(str::parse::<u32>) {
            Some(Ok(answering)) if answering == pid => Ok(field("redis_version").unwrap_or("unknown").to_owned()),
            _ => Err(format!("another program answers at port {port}")),
        }
    }

    fn url(&self, _instance: &InstanceHome, port: u16) -> String {
        format!("redis://127.0.0.1:{port}/")
    }
}

/// The section `server` of Redis's INFO.
fn info(port: u16) -> std::io::Result<Vec<String>> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), ANSWER_TIME)?;
    stream.set_read_timeout(Some(ANSWER_TIME))?;
    stream.set_write_timeout(Some(ANSWER_TIME))?;
    stream.write_all(b"INFO server\r\nQUIT\r\n")?;
    BufReader::new(stream).lines().collect()
}
