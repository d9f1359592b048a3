//! Stops servers when their starter is gone, however it ended: Ctrl-C, a panic that aborts, `kill -9`.
//!
//! A small shell reads from a pipe whose other end only this process holds. When the pipe ends without a word, this
//! process is dead.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::error::Error;
use crate::server::Server;

/// `$1` says what to do with the folders. Then follow for each instance its folder, the name of its processes and the
/// signal that ends it cleanly (a killed PostgreSQL would leave its shared memory). Paused processes are resumed;
/// SIGKILL comes last.
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
    /// Stops the servers in these folders, and keeps the folders.
    pub fn for_instances(instances: &[(Server, PathBuf)]) -> Result<Self, Error> {
        Self::new("keep", instances)
    }

    /// Stops the server in this folder and removes the folder.
    pub(crate) fn for_throwaway(server: Server, folder: PathBuf) -> Result<Self, Error> {
        Self::new("remove", &[(server, folder)])
    }

    fn new(after: &str, instances: &[(Server, PathBuf)]) -> Result<Self, Error> {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "guard", after]);
        for (server, folder) in instances {
            command.arg(folder).arg(server.process_name()).arg(server.stop_signal().1);
        }
        // The shell inherits no open files, and a Ctrl-C for this process does not reach it.
        command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let shell = command.spawn().map_err(|error| Error::failed(format!("cannot start sh: {error}")))?;
        Ok(Self { shell })
    }
}

/// A guard that is dropped in good order stops nothing: its owner has stopped the servers.
impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.shell.stdin.take() {
            let _ = pipe.write_all(b"done\n");
        }
        let _ = self.shell.wait();
    }
}
