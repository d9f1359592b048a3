//! Finds programs and installs the packages that contain them. Installing works on Debian only, and as root only.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Tells Debian's packages not to start a server for the whole system.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// The path of a program. It also looks in `sbin`, where servers are, because not every user's path contains it.
pub fn program(name: &str) -> Option<PathBuf> {
    let found = std::env::split_paths(&path()).map(|folder| folder.join(name)).find(|path| path.is_file())?;
    // `/bin` may be a link to `/usr/bin`: two users with different paths must get the same answer.
    Some(found.parent()?.canonicalize().ok()?.join(name))
}

pub(crate) fn path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    path.push(":/usr/local/sbin:/usr/sbin:/sbin");
    path
}

/// Whether our own process belongs to root, as the kernel shows it.
pub fn is_root() -> bool {
    Path::new("/proc/self").metadata().is_ok_and(|about| about.uid() == 0)
}

/// Installs packages. The error says why that is impossible, and what to do instead.
pub fn packages(packages: &[&str]) -> Result<(), String> {
    let line = format!("apt-get install --no-install-recommends {}", packages.join(" "));
    if program("apt-get").is_none() {
        return Err(format!("not installed, and there is no apt-get; on Debian: {line}"));
    }
    if !is_root() {
        return Err(format!("not installed, and only root can install it: {line}"));
    }
    eprintln!("installing: {line}");
    let begun = Instant::now();
    let _policy = Policy::set();
    apt(&["update"], &[])?;
    apt(&["install", "--yes", "--no-install-recommends"], packages)?;
    eprintln!("installed in {:.1} s", begun.elapsed().as_secs_f64());
    Ok(())
}

fn apt(verb: &[&str], packages: &[&str]) -> Result<(), String> {
    let mut command = Command::new("apt-get");
    command.args([
        "-qq",
        "-o",
        "DPkg::Lock::Timeout=300",
        "-o",
        "Acquire::Retries=2",
        "-o",
        "Acquire::http::Timeout=30",
    ]);
    command.args(["-o", "Dpkg::Use-Pty=0"]).args(verb).args(packages);
    command.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let output = command.output().map_err(|error| format!("cannot start apt-get: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let reason = complaint.lines().find(|line| line.starts_with("E:")).unwrap_or("no reason given");
    Err(format!("apt-get {} failed: {reason}", verb[0]))
}

/// Where the system has no policy, ours is in place while we install.
struct Policy {
    ours: bool,
}

impl Policy {
    fn set() -> Self {
        let ours = !Path::new(POLICY).exists()
            && fs::write(POLICY, "#!/bin/sh\nexit 101\n").is_ok()
            && fs::set_permissions(POLICY, fs::Permissions::from_mode(0o755)).is_ok();
        Self { ours }
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        if self.ours {
            let _ = fs::remove_file(POLICY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_on_the_path_is_found() {
        assert!(program("sh").is_some());
        assert!(program("no-such-program").is_none());
    }
}
