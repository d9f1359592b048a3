//! The folder of the instances: `services` in cargo's target folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Cargo keeps this file only at the root of a target folder.
const MARK: &str = ".rustc_info.json";

/// Finds the target folder by the location of our own program, which works however the target folder is configured.
pub fn of_target() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let target = program.ancestors().skip(1).find(|folder| folder.join(MARK).is_file());
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    target.map_or_else(beside, Path::to_path_buf).join("services")
}

/// Creates the folder and its missing parents, so that servers that run as another user can pass through.
pub fn make(folder: &Path) -> Result<PathBuf, Error> {
    if let Some(above) = folder.parent().filter(|above| !above.exists()) {
        make(above)?;
    }
    match fs::create_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(Error::io("create", folder)(error)),
        Ok(()) => {
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(folder, mode).map_err(Error::io("set the mode of", folder))?;
        }
    }
    folder.canonicalize().map_err(Error::io("find", folder))
}

/// Removes the folder; a missing one is no error.
pub fn remove(folder: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", folder)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_folder_is_the_one_this_program_was_built_into() {
        let folder = of_target();
        let target = folder.parent().unwrap();
        assert!(std::env::current_exe().unwrap().starts_with(target));
        assert!(target.join("debug").is_dir() || target.join("release").is_dir());
    }
}
