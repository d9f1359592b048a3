//! Processes as the kernel shows them. A zombie counts as gone: its parent may reap it late.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, kill_process};

pub use rustix::process::Signal;

const CHECK_EVERY: Duration = Duration::from_millis(5);

pub fn is_alive(pid: u32) -> bool {
    state_and_parent(pid).is_some()
}

/// Whether the process has stopped. It takes SIGSTOP when it next runs, not when the signal is sent.
pub fn is_paused(pid: u32) -> bool {
    state_and_parent(pid).is_some_and(|(state, _)| state == 'T')
}

/// The process's state and parent; `None` if it is gone.
fn state_and_parent(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // `pid (name) state parent …`: the name may contain any character, also `)`.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    (!matches!(state, 'Z' | 'X' | 'x')).then_some((state, parent))
}

/// The words that the process was started with; `None` if it is gone.
pub fn command_line(pid: u32) -> Option<Vec<String>> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let text = String::from_utf8_lossy(bytes.strip_suffix(b"\0")?).into_owned();
    is_alive(pid).then(|| text.split('\0').map(str::to_owned).collect())
}

/// Every process of one instance: those with that name which work inside its folder. This finds them even when the
/// record was lost or the folder was deleted.
pub fn family(folder: &Path, name: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    let is_ours = |pid: &u32| {
        fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|directory| directory.starts_with(folder))
            && fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == name)
            && is_alive(*pid)
    };
    pids.filter(is_ours).collect()
}

/// The processes of a family whose parents are not in it. They get the stop signal, and stop the others.
pub fn root_processes(family: &[u32]) -> Vec<u32> {
    let has_none = |pid: &u32| state_and_parent(*pid).is_none_or(|(_, parent)| !family.contains(&parent));
    family.iter().copied().filter(has_none).collect()
}

/// Sends a signal; a process that is gone already is no error.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Waits until `done` returns true; returns false if the time is over first.
pub fn wait_until(time: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + time;
    while !done() {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(CHECK_EVERY);
    }
    true
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_zombie_is_gone() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        assert!(wait_until(Duration::from_secs(60), || command_line(pid) == Some(vec!["cat".to_owned()])));
        drop(child.stdin.take());
        // It is not reaped, so it stays in the process table.
        assert!(wait_until(Duration::from_secs(60), || !is_alive(pid)));
        assert!(Path::new(&format!("/proc/{pid}")).exists());
        assert_eq!(command_line(pid), None);
        child.wait().unwrap();
    }

    #[test]
    fn a_process_of_another_name_in_the_folder_is_not_of_the_family() {
        let folder = tempfile::tempdir().unwrap();
        let mut reader =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).current_dir(&folder).spawn().unwrap();
        assert!(wait_until(Duration::from_secs(60), || family(folder.path(), "cat") == [reader.id()]));
        assert!(family(folder.path(), "postgres").is_empty());
        drop(reader.stdin.take());
        reader.wait().unwrap();
    }
}
