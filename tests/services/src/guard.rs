//! Stops servers when their starter is gone, however it went: Ctrl-C, a panic that aborts, `kill -9`.
//!
//! A small shell waits at a pipe whose other end only we hold. When the pipe ends without a word, we are dead.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::error::Error;
use crate::server::Server;

/// `$1` is what to do with the folders, then for each instance its folder, the name of its processes and the signal
/// that ends it well (a killed PostgreSQL would leave its shared memory). What is paused is woken; the hard signal is last.
const SCRIPT: &str = r#"
trap '' INT TERM HUP
read -r word && exit 0
after=$1; shift
family() {
    for process in /proc/[0-9]*; do
        read -r name <"$process/comm" || continue
        [ "$name" = "$2" ] || continue
        case "$(readlink "$process/cwd")" in "$1" | "$1"/*) echo "${process#/proc/}" ;; esac
    done 2>/dev/null
}
while [ $# -gt 2 ]; do
    kill -"$3" $(family "$1" "$2"); kill -CONT $(family "$1" "$2")
    tries=0
    while [ $tries -lt 30 ] && [ -n "$(family "$1" "$2")" ]; do sleep 0.1; tries=$((tries + 1)); done
    kill -KILL $(family "$1" "$2")
    [ "$after" = remove ] && rm -rf -- "$1"
    shift 3
done
"#;

pub struct Guard {
    shell: Child,
}

impl Guard {
    /// Stops the servers in these folders, which stay.
    pub fn over(instances: &[(Server, PathBuf)]) -> Result<Self, Error> {
        Self::new("keep", instances)
    }

    /// Stops the server in this folder and removes the folder.
    pub(crate) fn over_throwaway(server: Server, folder: PathBuf) -> Result<Self, Error> {
        Self::new("remove", &[(server, folder)])
    }

    fn new(after: &str, instances: &[(Server, PathBuf)]) -> Result<Self, Error> {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "guard", after]);
        for (server, folder) in instances {
            command.arg(folder).arg(server.process_name()).arg(server.stop_signal().1);
        }
        // Nothing of ours stays open in it, and a Ctrl-C meant for us does not reach it.
        command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let shell = command.spawn().map_err(|error| Error::failed(format!("sh cannot be started: {error}")))?;
        Ok(Self { shell })
    }
}

/// Whoever lets go of a guard in good order has stopped the servers himself.
impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.shell.stdin.take() {
            let _ = pipe.write_all(b"done\n");
        }
        let _ = self.shell.wait();
    }
}
