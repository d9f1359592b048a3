//! The definition versions of the workflows: the current ones, and the earlier ones that still have runs.
//!
//! A version is a number that a source's store gives to the content of a workflow. Stored content keeps its number:
//! going back to a former definition brings its number back, and two nodes with different configurations each use their
//! own number. The content is everything in the workflow's section, including its events.

use std::sync::Arc;

use honeyflow_engine::core::plan::Version;
use honeyflow_event::Name;
use honeyflow_runtime::Failure;
use honeyflow_step::Step;
use honeyflow_store::{
    Admin, AdminReply,
    admin::{Definition, NewDefinition, Versions},
};
use honeyflow_workflow::{self as workflow, Catalogue, Graph, compile, definition};

use super::{plan, reindex::ask, source::OpenSource};
use crate::{codes, registry::Database};

/// The workflows that one source starts, with the version numbers of its store.
pub struct NumberedDefinitions {
    wanted: Vec<NewDefinition>,
    versions: Versions,
}

/// The earlier versions that still have runs or parked events.
#[derive(Default)]
pub struct OlderVersions {
    pub graphs: Vec<Arc<Graph>>,
    /// The steps of each graph.
    pub steps: Vec<Vec<Arc<dyn Step>>>,
    /// The versions of each source.
    pub versions: Vec<Vec<Version>>,
}

/// The version number of a workflow in the first source that starts it.
pub fn number(numbered: &[NumberedDefinitions], workflow: &str) -> Option<u32> {
    let place = |of: &NumberedDefinitions| of.wanted.iter().position(|wanted| &*wanted.workflow == workflow);
    numbered.iter().find_map(|of| place(of).map(|at| of.versions.numbers[at]))
}

/// Gets the version numbers from every source's store, which stores new definitions. The caller repeats this from time
/// to time while the versions are in use, because a store deletes versions that are not mentioned for long.
pub async fn put(
    workflows: &[workflow::Definition],
    sources: &[OpenSource],
) -> Result<Vec<NumberedDefinitions>, Failure> {
    let mut numbered = Vec::new();
    for source in sources {
        let begins = |workflow: &&workflow::Definition| workflow.on.iter().any(|on| on.source == source.name);
        let new = |workflow: &workflow::Definition| NewDefinition {
            workflow: workflow.name.clone(),
            content: definition::text(workflow),
        };
        let wanted: Vec<NewDefinition> = workflows.iter().filter(begins).map(new).collect();
        match ask(&source.database.store, Admin::PutDefinitions(wanted.clone())).await? {
            AdminReply::Versions(versions) => numbered.push(NumberedDefinitions { wanted, versions }),
            other => return Err(misplaced(&other)),
        }
    }
    Ok(numbered)
}

/// Reads, compiles and builds the earlier versions. A version that can no longer be built does not stop the node from
/// starting: its runs wait, and the status says why.
pub fn older(
    numbered: &[NumberedDefinitions],
    current: &[Arc<Graph>],
    kinds: &Catalogue,
    build: impl Fn(&Graph) -> Result<Vec<Arc<dyn Step>>, Failure>,
) -> OlderVersions {
    let mut older = OlderVersions::default();
    let content = |graph: &Arc<Graph>| (graph.name.clone(), definition::text(&graph.definition));
    let mut known: Vec<((Name, String), Result<usize, String>)> =
        current.iter().map(content).enumerate().map(|(at, content)| (content, Ok(at))).collect();
    for NumberedDefinitions { wanted, versions } in numbered {
        let mut of_source = Vec::new();
        let new = wanted.iter().zip(&versions.numbers).map(|(new, number)| (&new.workflow, *number, &new.content));
        let begun = versions.begun.iter().map(|begun| (&begun.workflow, begun.version, &begun.content));
        for (workflow, number, content) in new.chain(begun) {
            let same = known.iter().find(|((name, text), _)| name == workflow && text == content);
            let planned = same.map(|(_, planned)| planned.clone()).unwrap_or_else(|| {
                let planned = read(workflow, number, content, kinds).and_then(|graph| Ok((build(&graph)?, graph)));
                let planned = planned.map(|(steps, graph)| {
                    older.graphs.push(Arc::new(graph));
                    older.steps.push(steps);
                    current.len() + older.graphs.len() - 1
                });
                let planned = planned.map_err(|failure| format!("cannot be used on this node: {}", failure.message));
                known.push(((workflow.clone(), content.clone()), planned.clone()));
                planned
            });
            of_source.push(Version { workflow: workflow.clone(), number, planned });
        }
        older.versions.push(of_source);
    }
    older
}

fn read(workflow: &str, number: u32, content: &str, kinds: &Catalogue) -> Result<Graph, Failure> {
    let value =
        serde_json::from_str(content).map_err(|error| Failure::fatal(codes::BAD_WORKFLOW, error.to_string()))?;
    let definition = definition::read(workflow, &value, kinds).map_err(|problems| plan::unsound(&problems))?;
    compile(&definition, number, kinds).map_err(|problems| plan::unsound(&problems))
}

/// All versions of a workflow in a source's store.
pub async fn stored(database: &Database, workflow: &str) -> Result<Vec<Definition>, Failure> {
    if database.installed().await?.is_none() {
        return Ok(Vec::new());
    }
    match database.admin(Admin::Definitions { workflow: Some(workflow.into()) }).await? {
        AdminReply::Definitions(found) => Ok(found),
        other => Err(misplaced(&other)),
    }
}

fn misplaced(reply: &AdminReply) -> Failure {
    Failure::fatal(codes::MISPLACED_REPLY, format!("the store sent a reply that does not fit the request: {reply:?}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry;

    fn definition_of(last: &str) -> workflow::Definition {
        let value = json!({ "on": [{ "source": "shop", "entity": "book" }],
            "step": { "wait": { "use": "sleep", "for": "3d" }, last: { "use": "transform", "needs": ["wait"], "expression": "." } } });
        definition::read("book", &value, &registry::kinds()).expect("sound")
    }

    fn begun(version: u32, content: String) -> Definition {
        Definition { workflow: "book".into(), version, content, created_ms: 0 }
    }

    fn numbered(at_work: &workflow::Definition, number: u32, begun: Vec<Definition>) -> NumberedDefinitions {
        let wanted = vec![NewDefinition { workflow: "book".into(), content: definition::text(at_work) }];
        NumberedDefinitions { wanted, versions: Versions { numbers: vec![number], begun } }
    }

    fn build(graph: &Graph) -> Result<Vec<Arc<dyn Step>>, Failure> {
        if graph.step("gone").is_some() {
            return Err(Failure::fatal("bad-step", "workflow.book.step.gone: no sink x"));
        }
        Ok(graph.steps.iter().map(|_| Arc::new(honeyflow_step_control::Inline) as Arc<dyn Step>).collect())
    }

    #[test]
    fn wf_21_each_store_counts_for_itself_and_one_content_is_one_plan() {
        let (new, old) = (definition_of("new"), definition_of("old"));
        let current = [Arc::new(compile(&new, 2, &registry::kinds()).expect("sound"))];
        let first = numbered(&new, 2, vec![begun(1, definition::text(&old))]);
        // A database that was restored, or added later, has other numbers.
        let second = numbered(&new, 7, vec![begun(4, definition::text(&old)), begun(5, definition::text(&new))]);
        let older = older(&[first, second], &current, &registry::kinds(), build);
        assert_eq!((older.graphs.len(), older.steps.len()), (1, 1));
        assert!(older.graphs[0].step("old").is_some());
        let numbers = |of: &[Version]| of.iter().map(|one| (one.number, one.planned.clone())).collect::<Vec<_>>();
        assert_eq!(numbers(&older.versions[0]), [(2, Ok(0)), (1, Ok(1))]);
        assert_eq!(numbers(&older.versions[1]), [(7, Ok(0)), (4, Ok(1)), (5, Ok(0))]);
    }

    #[test]
    fn wf_22_a_version_that_cannot_be_built_says_why() {
        let new = definition_of("new");
        let current = [Arc::new(compile(&new, 4, &registry::kinds()).expect("sound"))];
        let unknown = json!({ "step": { "a": { "use": "carrier-pigeon" } } }).to_string();
        let left =
            vec![begun(1, "{".to_owned()), begun(2, unknown), begun(3, definition::text(&definition_of("gone")))];
        let older = older(&[numbered(&new, 4, left)], &current, &registry::kinds(), build);
        assert!(older.graphs.is_empty());
        let why: Vec<String> = older.versions[0].iter().filter_map(|one| one.planned.clone().err()).collect();
        assert_eq!(why.len(), 3);
        assert!(why[1].contains("carrier-pigeon") && why[2].contains("no sink x"), "{why:?}");
    }
}
