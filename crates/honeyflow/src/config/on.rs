//! Checks of `on` across sections: where `change` and `columns` can have a meaning, and what a message can start.

use honeyflow_event::Changes;
use honeyflow_workflow::{Definition, On, Problem};

use super::{MessageConfig, sinks_of, warning};
use crate::codes;

pub fn check(messages: &[MessageConfig], workflows: &[Definition], problems: &mut Vec<Problem>) {
    for workflow in workflows {
        for (n, on) in workflow.on.iter().enumerate() {
            let path = format!("workflow.{}.on[{n}]", workflow.name);
            let is_message = messages.iter().any(|message| message.name == on.entity);
            problems.extend(misplaced_change(workflow, on, is_message, &path));
            problems.extend(delete_without_run(workflow, on, &path));
            if is_message {
                problems.extend(loads_messages(workflow, on));
            }
        }
    }
}

/// A document must follow every change, and a message changes no row.
fn misplaced_change(workflow: &Definition, on: &On, is_message: bool, path: &str) -> Option<Problem> {
    if on.change.is_unknown() {
        return None;
    }
    let sink = sinks_of(workflow).next();
    let (message, help) = match sink {
        _ if is_message => {
            let message = format!("`{}` has messages only, and a message changes no row", on.entity);
            (message, "remove `change` and `columns`; `when` can look at `$event.payload`")
        }
        Some((step, into)) => {
            let message =
                format!("the step `{step}` writes documents into `{into}`, which must follow every change of a row");
            (message, "remove `change` and `columns`, or put the other steps into a workflow of their own")
        }
        None => return None,
    };
    let key = if on.columns.is_empty() { "change" } else { "columns" };
    Some(Problem::error(format!("{path}.{key}"), codes::problem::BAD_CHANGE, message).help(help))
}

/// Warns of steps that are skipped because the row is gone, in a workflow that starts with deletes only.
fn delete_without_run(workflow: &Definition, on: &On, path: &str) -> Option<Problem> {
    let skipped = |step: &&honeyflow_workflow::StepDefinition| &*step.kind == "http.call" && !step.on_missing_run;
    let step = workflow.steps.iter().find(skipped).filter(|_| on.change == Changes::DELETE)?;
    let message = format!("a deleted row cannot be loaded, so the step `{}` is skipped", step.name);
    let help = "add on-missing = \"run\" to the step; it has `$event.key`, but no row";
    Some(warning(format!("{path}.change"), codes::problem::SKIPPED_ON_DELETE, &message, help))
}

/// A message has no row that could be loaded.
fn loads_messages(workflow: &Definition, on: &On) -> Option<Problem> {
    let step = workflow.steps.iter().find(|step| &*step.kind == "sql.load")?;
    let message = format!("`{}` has messages only: there is no row to load", on.entity);
    let path = format!("workflow.{}.step.{}.use", workflow.name, step.name);
    Some(Problem::error(path, codes::problem::NO_ROWS, message).help("use `$event.payload` instead"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::{config::parse, registry};

    const FILE: &str = r#"[source.shop]
url = "sqlite:shop.db"

[entity.orders]
source   = "shop"
key      = ["id"]
document = "select id from orders where id in $keys"

[entity.payment]
source = "shop"
kind   = "message"

[sink.orders]
url = "tantivy:orders"
"#;

    /// Returns the messages about the file with these workflows, each with its code and help.
    fn problems(more: &str) -> Vec<String> {
        let loaded = match parse(Path::new("honeyflow.toml"), format!("{FILE}{more}"), &registry::kinds()) {
            Ok(loaded) => loaded,
            Err(report) => panic!("{}", report.text(false)),
        };
        let relevant = loaded.problems.iter().filter(|problem| problem.code != "unused");
        let text = |problem: &honeyflow_workflow::Problem| {
            let help = problem.help.as_deref().unwrap_or_default();
            format!("{} {}: {} ({help})", problem.path, problem.code, problem.message)
        };
        relevant.map(text).collect()
    }

    fn workflow(on: &str, steps: &str) -> String {
        format!("\n[workflow.w]\non = [{{ source = \"shop\", {on} }}]\n{steps}")
    }

    const CALL: &str = "step.call = { use = \"http.call\", url = \"https://example.org/{$event.key}\" }\n";
    const INDEX: &str = "step.load = { use = \"sql.load\" }\nstep.index = { use = \"search.index\", needs = [\"load\"], into = \"orders\" }\n";

    #[test]
    fn wf_142_changes_may_be_named_where_no_document_follows_the_row() {
        for on in [
            r#"entity = "orders", change = ["insert", "update", "delete", "related"]"#,
            r#"entity = "orders", columns = ["state"]"#,
            r#"entity = "orders", change = ["insert", "update"], columns = ["state"]"#,
        ] {
            assert_eq!(problems(&workflow(on, CALL)), [""; 0], "{on}");
        }
    }

    #[test]
    fn wf_142_change_and_columns_are_refused_where_they_have_no_meaning() {
        let mut all = Vec::new();
        for (on, steps) in [
            (r#"entity = "orders", change = ["insert"]"#, INDEX),
            (r#"entity = "orders", columns = ["state"]"#, INDEX),
            (r#"entity = "orders", change = ["insert"], columns = ["state"]"#, CALL),
            (r#"entity = "orders", change = ["inserted"]"#, CALL),
            (r#"entity = "orders", change = "insert""#, CALL),
            (r#"entity = "payment", change = ["insert"]"#, CALL),
            (r#"entity = "orders", change = ["delete"]"#, CALL),
        ] {
            all.extend(problems(&workflow(on, steps)));
        }
        insta::assert_snapshot!(all.join("\n"), @r#"
        workflow.w.on[0].change bad-change: the step `index` writes documents into `orders`, which must follow every change of a row (remove `change` and `columns`, or put the other steps into a workflow of their own)
        workflow.w.on[0].columns bad-change: the step `index` writes documents into `orders`, which must follow every change of a row (remove `change` and `columns`, or put the other steps into a workflow of their own)
        workflow.w.on[0].columns bad-change: `columns` narrows updates, and `change` has no `update` (add "update" to `change`, or remove `columns`)
        workflow.w.on[0].change[0] bad-value: `change` cannot contain `inserted` (did you mean `insert`?)
        workflow.w.on[0].change bad-value: expected a list ()
        workflow.w.on[0].change bad-change: `payment` has messages only, and a message changes no row (remove `change` and `columns`; `when` can look at `$event.payload`)
        workflow.w.on[0].change skipped-on-delete: a deleted row cannot be loaded, so the step `call` is skipped (add on-missing = "run" to the step; it has `$event.key`, but no row)
        "#);
    }

    #[test]
    fn wf_144_a_message_entity_has_neither_table_nor_document() {
        assert_eq!(problems(&workflow(r#"entity = "payment""#, CALL)), [""; 0]);
        let both = r#"entity = "orders" }, { source = "shop", entity = "payment""#;
        assert!(problems(&workflow(both, "step.load = { use = \"sql.load\" }\n"))[0].contains("no-rows"));
        let named = "[[entity.orders.edge]]\ntable = \"Payment\"\nkey = [\"order_id\"]\n";
        assert!(problems(named)[0].contains("ambiguous-name"), "{:?}", problems(named));
        let mut all = problems(&workflow(r#"entity = "payment""#, "step.load = { use = \"sql.load\" }\n"));
        let wrong =
            "[entity.note]\nsource = \"shop\"\nkind = \"message\"\ntable = \"notes\"\nkey = [\"id\"]\nsorce = 1\n";
        all.extend(problems(wrong));
        all.extend(problems("[entity.note]\nkind = \"message\"\n"));
        all.extend(problems("[entity.note]\nsource = \"shop\"\nkind = \"messages\"\nkey = [\"id\"]\ndocument = \"select id from note where id in $keys\"\n"));
        insta::assert_snapshot!(all.join("\n"), @r#"
        workflow.w.step.load.use no-rows: `payment` has messages only: there is no row to load (use `$event.payload` instead)
        entity.note.key misplaced-key: `key` is a key of an entity with rows, and this one has messages only (remove it, or remove kind = "message")
        entity.note.sorce unknown-key: [entity.note] has no key `sorce` (did you mean `source`?)
        entity.note.table misplaced-key: `table` is a key of an entity with rows, and this one has messages only (remove it, or remove kind = "message")
        entity.note missing-key: [entity.note] needs the key `source` (The source whose outbox holds the events)
        entity.note.kind bad-value: `kind` cannot be `messages` (did you mean `message`? One of `row`, `message`)
        "#);
    }
}
