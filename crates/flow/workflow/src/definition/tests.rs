//! Reading and writing definitions: the round trip, unknown keys, wrong values, secrets.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::builder::{Workflow, step};
use crate::sample::{catalogue, problems, problems_of};

fn everything() -> Value {
    json!({
        "on": [{ "source": "shop", "entity": "book", "when": "$event.kind == \"row\"" }],
        "exclusion": "workflow", "order": "strict", "priority": 2, "deadline": "2h", "on-failure": "stop",
        "unmatched": "park", "history": "all",
        "step": {
            "load": { "use": "sql.load", "query": "select 1", "batch": 100, "timeout": "30s" },
            "call": {
                "use": "http.call", "url": "https://example.org", "key": "env:KEY", "headers": { "accept": "text/html" },
                "needs": ["load", ], "for-each": "$steps.load.ids", "parallel": 4, "tolerate": 2, "input": "$item",
                "tries": 3, "backoff": { "base": "1s", "cap": "1m" }, "give-up-after": "1d", "optional": true,
                "checkpoint": "never", "limit": "api", "labels": { "zone": "a" }, "on-missing": "run",
            },
            "index": {
                "use": "search.index", "into": "books", "needs": ["load", { "step": "call", "on": "done" }],
                "trigger": "none-failed", "when": "$steps.load.visible", "else": "keep", "forgives": true,
            },
        },
    })
}

#[test]
fn wf_1_every_key_is_read_and_written_back() {
    let definition = read("book", &everything(), &catalogue()).unwrap();
    assert_eq!(write(&definition), everything());
    assert_eq!(definition.deadline, Some(Duration::from_secs(7200)));
    let index = definition.steps.iter().find(|step| &*step.name == "index").unwrap();
    assert_eq!((index.trigger, index.otherwise, index.needs[1].on), (Trigger::NoneFailed, Otherwise::Keep, Edge::Done));
    assert_eq!(problems_of(&everything()), "");
}

#[test]
fn emcee_definition_is_data() {
    // a definition survives the round trip through text: it contains no code
    let definition = read("book", &everything(), &catalogue()).unwrap();
    let text = serde_json::to_string(&write(&definition)).unwrap();
    let again = read("book", &serde_json::from_str(&text).unwrap(), &catalogue()).unwrap();
    assert_eq!(again, definition);
    assert_eq!(again.hash(), definition.hash());
}

#[test]
fn wf_20_equal_content_has_one_text() {
    let text_of = |value: &Value| text(&read("book", value, &catalogue()).unwrap());
    let plain = json!({ "on": [{ "source": "shop", "entity": "book" }], "step": {
        "load": { "use": "sql.load" }, "index": { "use": "search.index", "needs": ["load"], "into": "books" } } });
    let other_words = json!({ "step": {
        "index": { "into": "books", "tries": 5, "needs": [{ "on": "success", "step": "load" }], "use": "search.index" },
        "load": { "use": "sql.load", "optional": false } },
        "exclusion": "key", "order": "latest", "on": [{ "entity": "book", "source": "shop" }] });
    assert_eq!(text_of(&plain), text_of(&other_words));
    for (path, other) in [
        ("/on/0/entity", json!("author")),
        ("/step/index/into", json!("other")),
        ("/step/index/needs", json!([{ "step": "load", "on": "done" }])),
    ] {
        let mut changed = plain.clone();
        *changed.pointer_mut(path).unwrap() = other;
        assert_ne!(text_of(&plain), text_of(&changed), "{path}");
    }
    let whole = read("book", &everything(), &catalogue()).unwrap();
    assert_eq!(read("book", &serde_json::from_str(&text(&whole)).unwrap(), &catalogue()).unwrap(), whole);
}

#[test]
fn wf_2_the_builder_gives_what_toml_gives() {
    let built = Workflow::new("book")
        .on("shop", "book")
        .step("load", step("sql.load"))
        .step("author", step("http.call").needs(["load"]).set("url", "https://example.org").optional())
        .step("index", step("search.index").needs(["load", "author"]).trigger(Trigger::NoneFailed).set("into", "books"))
        .build(&catalogue());
    let toml = json!({
        "on": [{ "source": "shop", "entity": "book" }],
        "step": {
            "load": { "use": "sql.load" },
            "author": { "use": "http.call", "needs": ["load"], "url": "https://example.org", "optional": true },
            "index": { "use": "search.index", "needs": ["load", "author"], "trigger": "none-failed", "into": "books" },
        },
    });
    assert_eq!(built, read("book", &toml, &catalogue()));
    let emcee = Workflow::new("book")
        .step("a", step("work"))
        .step("b", step("work"))
        .step("c", step("work"))
        .step("d", step("work"))
        .on_success("a", "b")
        .on_complete("b", "c")
        .on_failure("b", "d")
        .build(&catalogue());
    let toml = json!({ "step": {
        "a": { "use": "work" }, "b": { "use": "work", "needs": ["a"] },
        "c": { "use": "work", "needs": [{ "step": "b", "on": "done" }] },
        "d": { "use": "work", "needs": [{ "step": "b", "on": "failure" }] },
    } });
    assert_eq!(emcee, read("book", &toml, &catalogue()));
}

#[test]
fn wf_2_the_builder_reports_the_same_problems_as_toml() {
    let wrong = Workflow::new("book")
        .set("histroy", "all")
        .step("load", step("sql.laod").needs(["index"]))
        .step("index", step("search.index").needs(["load"]).when("env"));
    let problems = check("book", &wrong.value(), &catalogue());
    assert_eq!(problems.len(), 5, "{problems:#?}");
    assert_eq!(wrong.build(&catalogue()).unwrap_err(), problems);
    let twice = Workflow::new("book").step("a", step("work")).step("a", step("work")).build(&catalogue()).unwrap_err();
    assert_eq!(twice[0].code, "duplicate-step");
    let nowhere = Workflow::new("book").step("a", step("work")).on_success("a", "b").build(&catalogue()).unwrap_err();
    assert_eq!(nowhere[0].to_string(), "workflow.book.step.b missing-key the key `use` is missing");
}

#[test]
fn emcee_unknown_setting_is_error() {
    insta::assert_snapshot!(problems(json!({
        "load": { "use": "sql.load", "qurey": "select 1", "need": [], "colour": "red" },
        "index": { "use": "search.index", "into": "books", "needs": [{ "step": "load", "when": "done" }], "heartbeat": "5s" },
        "call": { "use": "http.call", "url": "x", "backoff": { "max": "5s" } },
    })), @"
    workflow.book.step.call.backoff.max unknown-key there is no key `max` here
    workflow.book.step.index.heartbeat unknown-key `heartbeat` is planned but not built yet
    workflow.book.step.index.needs[0].when unknown-key there is no key `when` here
    workflow.book.step.load.colour unknown-key there is no key `colour` here
    workflow.book.step.load.need unknown-key there is no key `need` here (did you mean `needs`?)
    workflow.book.step.load.qurey unknown-key there is no key `qurey` here (did you mean `query`?)
    ");
    insta::assert_snapshot!(problems_of(&json!({
        "on": [{ "source": "shop", "entiti": "book" }], "settle": "2s", "step": { "a": { "use": "work" } },
    })), @"
    workflow.book.on[0] missing-key the key `entity` is missing
    workflow.book.on[0].entiti unknown-key there is no key `entiti` here (did you mean `entity`?)
    workflow.book.settle unknown-key `settle` is planned but not built yet
    ");
}

#[test]
fn wf_3_wrong_values_are_named() {
    insta::assert_snapshot!(problems_of(&json!({
        "on": "book", "priority": 10, "deadline": "soon", "exclusion": "keys",
        "step": {
            "a": { "use": "work", "needs": [1], "tries": -1, "optional": "yes", "parallel": 0, "labels": { "a": 1 } },
            "b": { "use": "search.index", "timeout": 5, "else": "ignore", "on-missing": "maybe", "checkpoint": true },
            "c": { "use": "sleep", "for": "long" },
            "d": 5,
        },
    })), @r#"
    workflow.book.deadline bad-value expected a duration such as "200ms", "5s" or "2h", above zero
    workflow.book.exclusion bad-value `exclusion` cannot be `keys` (did you mean `key`?)
    workflow.book.on bad-value expected a list
    workflow.book.priority bad-value expected a whole number from 0 to 9
    workflow.book.step.a.labels.a bad-value expected a text
    workflow.book.step.a.needs[0] bad-value expected the name of a step, or { step, on }
    workflow.book.step.a.optional bad-value expected true or false
    workflow.book.step.a.parallel bad-value expected a whole number from 1 to 10000
    workflow.book.step.a.tries bad-value expected a whole number from 1 to 1000
    workflow.book.step.b missing-key `search.index` needs the key `into` (the name of a sink)
    workflow.book.step.b.checkpoint bad-value expected a text
    workflow.book.step.b.else bad-value `else` cannot be `ignore` (one of: delete, keep)
    workflow.book.step.b.on-missing bad-value `on-missing` cannot be `maybe` (one of: run, pass)
    workflow.book.step.b.timeout bad-value expected a duration such as "200ms", "5s" or "2h"
    workflow.book.step.c.for bad-value expected a duration such as "5s" (how long)
    workflow.book.step.d bad-value expected a table
    workflow.book.step.d missing-key the key `use` is missing
    "#);
}

#[test]
fn wf_18_secret_inline() {
    insta::assert_snapshot!(problems(json!({
        "a": { "use": "http.call", "url": "https://me:hunter2@example.org/x", "key": "hunter2" },
        "b": { "use": "http.call", "url": "https://example.org/a:b@c", "key": "env:KEY",
               "headers": { "Authorization": "Bearer hunter2", "X-Api-Key": ["hunter2"], "accept": "text/html" } },
        "c": { "use": "http.call", "url": "env:URL", "headers": { "authorization": "file:secret/token" } },
        "d": { "use": "http.call", "url": "env:URL", "headers": { "authorization": "Bearer env:TOKEN" } },
    })), @r#"
    workflow.book.step.a.key secret-inline a secret is written out here (name where it is kept: "env:NAME" or "file:path")
    workflow.book.step.a.url secret-inline a secret is written out here (name where it is kept: "env:NAME" or "file:path")
    workflow.book.step.b.headers.Authorization secret-inline a secret is written out here (name where it is kept: "env:NAME" or "file:path")
    workflow.book.step.b.headers.X-Api-Key[0] secret-inline a secret is written out here (name where it is kept: "env:NAME" or "file:path")
    "#);
}

#[test]
fn a_workflow_that_sleeps_excludes_only_runs_of_itself() {
    let exclusion = |value: Value| read("book", &value, &catalogue()).unwrap().exclusion;
    assert_eq!(exclusion(json!({ "step": { "a": { "use": "work" } } })), Exclusion::Key);
    assert_eq!(exclusion(json!({ "step": { "a": { "use": "sleep", "for": "1h" } } })), Exclusion::Workflow);
    assert_eq!(
        exclusion(json!({ "exclusion": "key", "step": { "a": { "use": "sleep", "for": "1h" } } })),
        Exclusion::Key
    );
}

/// Keys and values that are nearly valid, so that the reader gets past the first checks.
fn anything() -> impl Strategy<Value = Value> {
    let word = proptest::sample::select(vec![
        "on", "step", "use", "needs", "trigger", "when", "else", "for-each", "input", "backoff", "base", "labels",
        "work", "sink", "a", "b", "done", "failure", "success", "all-done", "5s", "$steps.a", ".", "tries", "optional",
        "forgives", "source", "entity", "headers", "",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0..9).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, move |inner| {
        let key = word.clone().prop_map(str::to_owned);
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(key, inner, 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn wf_1_what_can_be_read_is_written_and_read_as_the_same(steps in proptest::collection::btree_map("[a-c]", anything(), 1..4)) {
        let steps: Map<String, Value> = steps.into_iter().collect();
        let value = json!({ "step": steps });
        // the reader never panics
        let problems = check("book", &value, &catalogue());
        match read("book", &value, &catalogue()) {
            Err(of_reading) => prop_assert!(of_reading.iter().all(|problem| problems.contains(problem))),
            Ok(definition) => {
                let written = write(&definition);
                prop_assert_eq!(read("book", &written, &catalogue()), Ok(definition.clone()));
                prop_assert_eq!(write(&definition), written);
            }
        }
        prop_assert!(problems.is_sorted());
    }
}
