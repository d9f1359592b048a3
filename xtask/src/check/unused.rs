//! Every dependency of a member is used by it: its name stands somewhere in the member's Rust files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::files;
use crate::metadata::{Dependency, Metadata, Package};

pub fn findings(root: &Path, members: &Metadata) -> Result<Vec<String>, Error> {
    let files = files::of_repository(root)?;
    let folders: Vec<PathBuf> = members.packages.iter().map(|package| folder_of(package, root)).collect();
    let mut findings = Vec::new();
    for (package, folder) in members.packages.iter().zip(&folders) {
        let inner: Vec<&PathBuf> =
            folders.iter().filter(|other| *other != folder && other.starts_with(folder)).collect();
        let own = files.iter().filter(|file| {
            file.starts_with(folder) && !inner.iter().any(|inner| file.starts_with(inner)) && is_rust(file)
        });
        let text: String = own.filter_map(|file| fs::read_to_string(root.join(file)).ok()).collect();
        for name in package.dependencies.iter().map(Dependency::name_in_code) {
            if !is_named(&text, &name) {
                findings.push(format!("{}: the dependency `{name}` is not used", folder.join("Cargo.toml").display()));
            }
        }
    }
    Ok(findings)
}

fn folder_of(package: &Package, root: &Path) -> PathBuf {
    let folder = Path::new(&package.manifest_path).parent().unwrap_or(root);
    folder.strip_prefix(root).unwrap_or(folder).to_owned()
}

fn is_rust(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "rs")
}

fn is_named(text: &str, name: &str) -> bool {
    let inside = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.match_indices(name)
        .any(|(at, _)| !text[..at].ends_with(inside) && !text[at + name.len()..].starts_with(inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_counts_only_as_a_whole_word() {
        assert!(is_named("use serde::Serialize;", "serde"));
        assert!(!is_named("use serde_json::Value;", "serde"));
        assert!(!is_named("let deserde = 1;", "serde"));
    }
}
