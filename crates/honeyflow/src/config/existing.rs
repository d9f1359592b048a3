//! Checks what `on` says about rows that exist already. They always go through a workflow with a sink; so, if such a
//! workflow also calls, emits or waits, its `on` must say that this is intended.

use honeyflow_workflow::{Catalogue, Definition, Problem};

use super::{EntityConfig, SinkConfig};
use crate::{codes, registry};

pub fn check(
    kinds: &Catalogue,
    entities: &[EntityConfig],
    sinks: &[SinkConfig],
    workflows: &[Definition],
    problems: &mut Vec<Problem>,
) {
    let has_rows = |name: &str| entities.iter().any(|entity| *entity.name == *name);
    for workflow in workflows.iter().filter(|workflow| workflow.has_sink(kinds)) {
        let effects = side_effects(workflow, kinds, sinks);
        for (n, on) in workflow.on.iter().enumerate().filter(|(_, on)| has_rows(&on.entity)) {
            let path = format!("workflow.{}.on[{n}]", workflow.name);
            if on.existing == Some(false) {
                let message = "a workflow with a sink always handles the rows that exist already: \
                     without them its documents would be missing";
                let problem = Problem::error(format!("{path}.existing"), codes::problem::EXISTING_BESIDE_SINK, message);
                problems.push(problem.help("remove `existing`, or move the sink into a workflow of its own"));
            } else if on.existing.is_none() && !effects.is_empty() {
                let message = format!(
                    "this workflow fills a sink, so the rows of `{}` that exist already go through it, too, and through {}",
                    on.entity,
                    effects.join(", ")
                );
                let problem = Problem::error(path, codes::problem::EXISTING_UNSAID, message);
                problems.push(problem.help(
                    "add existing = true if that is intended, or move these steps into a workflow without a sink",
                ));
            }
        }
    }
}

/// The steps with an effect beside the documents, each with its kind, for people.
pub fn side_effects(workflow: &Definition, kinds: &Catalogue, sinks: &[SinkConfig]) -> Vec<String> {
    let is_fenced = |into: &str| sinks.iter().find(|sink| &*sink.name == into).is_none_or(registry::is_fenced);
    let effects = workflow.side_effects(kinds, is_fenced);
    effects.into_iter().map(|step| format!("`{}` ({})", step.name, step.kind)).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::{config, registry};

    const SHOP: &str = r#"
        [source.shop]
        url = "sqlite:shop.db"
        [entity.book]
        source = "shop"
        key = ["id"]
        document = "select id, title from book where id in $keys"
        [sink.books]
        url = "tantivy:books"
        field = { title = "text" }
        [workflow.book]
        on = [{ source = "shop", entity = "book" }]
        step.load = { use = "sql.load" }
        step.index = { use = "search.index", needs = ["load"], into = "books" }
    "#;
    const CALL: &str = "step.call = { use = \"http.call\", needs = [\"load\"], url = \"https://example.org\" }\n";

    fn report(text: &str) -> String {
        match config::parse(Path::new("honeyflow.toml"), text.to_owned(), &registry::kinds()) {
            Ok(loaded) => loaded.report(Vec::new()).text(false),
            Err(report) => report.text(false),
        }
    }

    fn saying(text: &str, existing: &str) -> String {
        text.replace("entity = \"book\" }", &format!("entity = \"book\", existing = {existing} }}"))
    }

    #[test]
    fn ob_97_a_sink_beside_another_effect_must_say_what_existing_rows_do() {
        let calling = format!("{SHOP}{CALL}");
        let found = report(&calling);
        for part in [
            "error[existing-unsaid]",
            "the rows of `book` that exist already go through it, too, and through `call` (http.call)",
            "add existing = true if that is intended, or move these steps into a workflow without a sink",
        ] {
            assert!(found.contains(part), "{found}");
        }
        let nap = format!("{SHOP}step.nap = {{ use = \"sleep\", for = \"1s\" }}\n");
        assert!(report(&nap).contains("through `nap` (sleep)"), "{}", report(&nap));
        assert_eq!(report(SHOP), "");
        assert_eq!(report(&saying(&calling, "true")), "");
        let shaped = format!("{SHOP}step.shape = {{ use = \"transform\", needs = [\"load\"], expression = \".\" }}\n");
        assert_eq!(report(&shaped), "");
    }

    #[test]
    fn ob_97_existing_rows_cannot_be_left_out_of_a_sink() {
        for text in [SHOP.to_owned(), format!("{SHOP}{CALL}")] {
            let found = report(&saying(&text, "false"));
            assert!(found.contains("error[existing-beside-sink]"), "{found}");
            assert!(found.contains("remove `existing`, or move the sink into a workflow of its own"), "{found}");
        }
    }

    #[test]
    fn ob_97_without_a_sink_nothing_must_be_said() {
        let aside =
            "[workflow.aside]\non = [{ source = \"shop\", entity = \"book\" }]\nstep.load = { use = \"sql.load\" }\n";
        let calling = format!("{aside}{CALL}");
        for aside in [calling.clone(), saying(&calling, "true"), saying(&calling, "false")] {
            assert_eq!(report(&format!("{SHOP}{aside}")), "");
        }
    }
}
