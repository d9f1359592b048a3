//! Lists the files of the repository: those that git tracks or would add; in a tree without git, all files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;

/// Folders of generated files.
const MADE: &[&str] = &["target", ".git", "node_modules"];

/// Paths relative to `root`, sorted.
pub fn of_repository(root: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = match listed_by_git(root) {
        Some(found) => found,
        None => {
            let mut found = Vec::new();
            walk(root, Path::new(""), &mut found)
                .map_err(|error| Error::failed(format!("reading the tree: {error}")))?;
            found
        }
    };
    found.sort();
    found.dedup();
    Ok(found)
}

fn listed_by_git(root: &Path) -> Option<Vec<PathBuf>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    let names = String::from_utf8(output.stdout).ok()?;
    // A file deleted but not yet committed is still listed.
    Some(
        names
            .split('\0')
            .filter(|name| !name.is_empty())
            .map(PathBuf::from)
            .filter(|path| root.join(path).is_file())
            .collect(),
    )
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            if !MADE.iter().any(|made| entry.file_name() == *made) {
                walk(root, &path, found)?;
            }
        } else if kind.is_file() {
            found.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_find_this_file_and_nothing_made() {
        let root = crate::process::root();
        let mut walked = Vec::new();
        walk(&root, Path::new(""), &mut walked).unwrap();
        for found in [of_repository(&root).unwrap(), walked] {
            assert!(found.contains(&PathBuf::from("xtask/src/files.rs")));
            assert!(!found.iter().any(|path| path.starts_with("target")));
        }
    }
}
