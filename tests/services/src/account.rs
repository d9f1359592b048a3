//! The user that a server runs as. Database servers refuse root, so root starts them as the user that their package
//! made; any other user starts them as itself.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::Error;
use crate::install;

pub struct Account {
    /// The words before the program: `setpriv` with its options, or none. `setpriv` becomes the program, so its pid is
    /// the server's.
    prefix: Vec<String>,
    owner: Option<(u32, u32)>,
}

impl Account {
    /// Chooses the first user of `names` that exists. If the folder lies beneath one that only root may enter (a clone
    /// in a private folder of `/tmp`), the server keeps the one capability that passes it.
    pub fn for_folder(names: &[&str], folder: &Path) -> Result<Self, Error> {
        if !install::is_root() {
            return Ok(Self { prefix: Vec::new(), owner: None });
        }
        let users = fs::read_to_string("/etc/passwd").map_err(Error::io("read", Path::new("/etc/passwd")))?;
        let found = names.iter().find_map(|name| Some((*name, ids(&users, name)?)));
        let Some((name, (user, group))) = found else {
            return Err(Error::failed(format!("the server refuses root, and there is no user {}", names.join(" or "))));
        };
        let plain =
            ["setpriv".to_owned(), format!("--reuid={user}"), format!("--regid={group}"), "--clear-groups".to_owned()];
        let with_capability = ["--inh-caps=+dac_override", "--ambient-caps=+dac_override"].map(str::to_owned);
        for capabilities in [&[][..], &with_capability[..]] {
            let prefix = [&plain[..], capabilities, &["--".to_owned()]].concat();
            let account = Self { prefix, owner: Some((user, group)) };
            if account.can_enter(folder) {
                return Ok(account);
            }
        }
        Err(Error::failed(format!(
            "user {name} cannot enter {}; make the folders above it searchable (chmod o+x), or set CARGO_TARGET_DIR",
            folder.display()
        )))
    }

    fn can_enter(&self, folder: &Path) -> bool {
        let mut command = self.command(Path::new("test"), Path::new("/"));
        command.arg("-x").arg(folder.join(".")).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    /// A command for the server. Of our environment it gets only the path to programs.
    pub fn command(&self, program: &Path, home: &Path) -> Command {
        let words: Vec<PathBuf> = self.prefix.iter().map(PathBuf::from).chain([program.to_owned()]).collect();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env_clear().stdin(Stdio::null()).current_dir(home);
        command.env("PATH", install::path()).env("HOME", home).env("LC_ALL", "C.UTF-8");
        command
    }

    /// Like [`Account::command`], in a new session: the process outlives its starter and gets no signals from the
    /// starter's terminal.
    pub fn detached(&self, program: &Path, home: &Path) -> Command {
        let plain = self.command(program, home);
        let mut command = Command::new("setsid");
        command.arg(plain.get_program()).args(plain.get_args()).env_clear().stdin(Stdio::null()).current_dir(home);
        command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command
    }

    /// Makes the server's user the owner of a path that we created.
    pub fn own(&self, path: &Path) -> Result<(), Error> {
        let Some((user, group)) = self.owner else { return Ok(()) };
        chown(path, Some(user), Some(group)).map_err(Error::io("change the owner of", path))
    }
}

/// The user and group ids of a name in the text of `/etc/passwd`.
fn ids(users: &str, name: &str) -> Option<(u32, u32)> {
    let fields: Vec<&str> = users.lines().map(|line| line.split(':').collect()).find(|f: &Vec<&str>| f[0] == name)?;
    Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_by_the_whole_name() {
        let users =
            "root:x:0:0:root:/root:/bin/bash\npostgresql:x:7:8::/:/bin/sh\npostgres:x:101:104:,,,:/var:/bin/sh\n";
        assert_eq!(ids(users, "postgres"), Some((101, 104)));
        assert_eq!(ids(users, "mysql"), None);
    }

    #[test]
    fn a_folder_that_only_its_owner_may_enter_is_reached() {
        let private = tempfile::tempdir().unwrap();
        let folder = private.path().join("inside");
        fs::create_dir(&folder).unwrap();
        let account = Account::for_folder(&["nobody"], &folder).unwrap();
        assert!(account.can_enter(&folder));
        assert!(!account.can_enter(&private.path().join("absent")));
    }
}
