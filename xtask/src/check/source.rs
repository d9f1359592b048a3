//! Where packages come from: the public registry, or this repository. No git, no other registry, no path outside.

use std::path::Path;

use crate::metadata::Metadata;

/// Cargo's own name of the public registry, also if a mirror delivers the packages.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub fn findings(metadata: &Metadata) -> Vec<String> {
    let mut findings = Vec::new();
    for package in &metadata.packages {
        let at_home = match package.source.as_deref() {
            Some(source) => source == REGISTRY,
            None => Path::new(&package.manifest_path).starts_with(&metadata.workspace_root),
        };
        if !at_home {
            let place = package.source.as_deref().unwrap_or(&package.manifest_path);
            findings.push(format!(
                "{} {} comes from {place}; only the public registry is allowed",
                package.name, package.version
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings_of(source: &str, manifest_path: &str) -> Vec<String> {
        let json = format!(
            r#"{{"workspace_root":"/tree","packages":[{{"name":"a","version":"1.0.0","source":{source},"license":null,"manifest_path":"{manifest_path}"}}]}}"#
        );
        findings(&serde_json::from_str(&json).unwrap())
    }

    #[test]
    fn registry_and_own_paths_pass() {
        assert!(findings_of(&format!("\"{REGISTRY}\""), "/cache/a/Cargo.toml").is_empty());
        assert!(findings_of("null", "/tree/lib/a/Cargo.toml").is_empty());
    }

    /// SE-37
    #[test]
    fn git_foreign_registry_and_outside_path_are_found() {
        assert_eq!(findings_of(r#""git+https://example.org/a""#, "/cache/a/Cargo.toml").len(), 1);
        assert_eq!(findings_of(r#""registry+https://example.org/index""#, "/cache/a/Cargo.toml").len(), 1);
        assert_eq!(findings_of("null", "/elsewhere/a/Cargo.toml").len(), 1);
    }
}
