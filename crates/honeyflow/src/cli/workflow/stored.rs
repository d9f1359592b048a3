//! The definition versions of a workflow in a store: finds them, prints them as TOML and compares them.

use std::str::FromStr;

use honeyflow_runtime::Failure;
use honeyflow_store::admin::Definition;
use honeyflow_workflow::{self as workflow, definition};

use crate::{
    cli::{Fault, no_such, open},
    config::Config,
    node,
};

/// A range of versions to compare: `3..4`, or `3..` to compare with the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VersionRange {
    pub from: u32,
    pub to: Option<u32>,
}

impl FromStr for VersionRange {
    type Err = String;

    fn from_str(text: &str) -> Result<VersionRange, String> {
        let bad = || "expected two version numbers, such as 3..4".to_owned();
        let (from, to) = text.split_once("..").ok_or_else(bad)?;
        let number = |text: &str| text.parse().map_err(|_| bad());
        Ok(VersionRange { from: number(from)?, to: if to.is_empty() { None } else { Some(number(to)?) } })
    }
}

/// One side of a comparison: its name and its canonical content.
#[derive(Debug)]
pub struct Side {
    pub name: String,
    pub content: String,
}

/// The stored versions of a workflow. Each source numbers versions itself: the sources that start the workflow are read
/// first, then, for a workflow that is no longer configured, all others.
pub async fn versions(config: &Config, workflow: &str) -> Result<Vec<Definition>, Failure> {
    let configured = config.workflows.iter().find(|known| &*known.name == workflow);
    let begins = |name: &str| configured.is_some_and(|workflow| workflow.on.iter().any(|on| &*on.source == name));
    let mut sources: Vec<_> = config.sources.iter().collect();
    sources.sort_by_key(|source| !begins(&source.name));
    for source in sources {
        let found = node::versions::stored(&open(config, source).await?, workflow).await?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(Vec::new())
}

/// The version number of the configured definition.
pub fn version_of(workflow: &workflow::Definition, stored: &[Definition]) -> Option<u32> {
    let content = definition::text(workflow);
    stored.iter().rev().find(|known| known.content == content).map(|known| known.version)
}

pub fn find<'a>(workflow: &str, version: u32, stored: &'a [Definition]) -> Result<&'a Definition, Fault> {
    stored.iter().find(|known| known.version == version).ok_or_else(|| {
        let numbers: Vec<String> = stored.iter().map(|known| known.version.to_string()).collect();
        let help = if numbers.is_empty() {
            "no node has used the workflow yet: `honeyflow start` stores its versions".to_owned()
        } else {
            format!("stored versions: {}", numbers.join(", "))
        };
        Fault::usage(format!("workflow `{workflow}` has no version {version}"), help)
    })
}

pub fn both_sides(
    workflow: &str,
    between: VersionRange,
    config: &Config,
    stored: &[Definition],
) -> Result<(Side, Side), Fault> {
    let side = |version: u32| -> Result<Side, Fault> {
        let found = find(workflow, version, stored)?;
        Ok(Side { name: format!("{workflow} version {version}"), content: found.content.clone() })
    };
    let to = match between.to {
        Some(version) => side(version)?,
        None => {
            let names = || config.workflows.iter().map(|known| &*known.name);
            let configured = config.workflows.iter().find(|known| &*known.name == workflow);
            let configured = configured.ok_or_else(|| no_such("workflow", workflow, names()))?;
            Side { name: format!("{workflow} as configured"), content: definition::text(configured) }
        }
    };
    Ok((side(between.from)?, to))
}

/// The definition as TOML, as it would be written in the configuration.
pub fn toml(workflow: &str, content: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(content).unwrap_or_default();
    let whole = serde_json::json!({ "workflow": { workflow: value } });
    toml::to_string_pretty(&whole).unwrap_or_else(|_| content.to_owned())
}

/// The unified diff of the two definitions; empty if they are equal.
pub fn diff(workflow: &str, from: &Side, to: &Side) -> String {
    let (old, new) = (toml(workflow, &from.content), toml(workflow, &to.content));
    if old == new {
        return String::new();
    }
    similar::TextDiff::from_lines(&old, &new).unified_diff().header(&from.name, &to.name).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn side(name: &str, value: &serde_json::Value) -> Side {
        Side { name: name.to_owned(), content: value.to_string() }
    }

    #[test]
    fn wf_20_two_versions_are_compared_as_toml() {
        let on = json!([{ "source": "shop", "entity": "book" }]);
        let old = json!({ "on": on, "exclusion": "key", "step": {
            "load": { "use": "sql.load" },
            "index": { "use": "search.index", "needs": ["load"], "into": "book" } } });
        let new = json!({ "on": on, "exclusion": "key", "step": {
            "load": { "use": "sql.load", "batch": 100 },
            "shape": { "use": "transform", "needs": ["load"], "expression": ".title |= ascii_upcase" },
            "index": { "use": "search.index", "needs": ["shape"], "into": "book" } } });
        let (old, new) = (side("book version 3", &old), side("book version 4", &new));
        let wanted = [
            "--- book version 3",
            "+++ book version 4",
            "@@ -7,8 +7,14 @@",
            " ",
            " [workflow.book.step.index]",
            r#" into = "book""#,
            r#"-needs = ["load"]"#,
            r#"+needs = ["shape"]"#,
            r#" use = "search.index""#,
            " ",
            " [workflow.book.step.load]",
            "+batch = 100",
            r#" use = "sql.load""#,
            "+",
            "+[workflow.book.step.shape]",
            r#"+expression = ".title |= ascii_upcase""#,
            r#"+needs = ["load"]"#,
            r#"+use = "transform""#,
        ];
        assert_eq!(diff("book", &old, &new).lines().collect::<Vec<_>>(), wanted);
        assert_eq!(diff("book", &old, &old), "");
    }

    #[test]
    fn versions_to_compare_are_two_numbers() {
        assert_eq!("3..4".parse(), Ok(VersionRange { from: 3, to: Some(4) }));
        assert_eq!("3..".parse(), Ok(VersionRange { from: 3, to: None }));
        for bad in ["", "3", "3..x", "..4", "3...4", "-1..2"] {
            assert!(bad.parse::<VersionRange>().is_err(), "{bad}");
        }
    }
}
