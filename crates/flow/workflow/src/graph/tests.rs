//! Golden texts of the problems of definitions, and tests of the graphs that valid ones give.

use std::time::Instant;

use serde_json::{Map, Value, json};

use super::*;
use crate::definition::{STEPS_MAX, read};
use crate::sample::{catalogue, graph, problems, problems_of};

#[test]
fn emcee_cycle_refused_at_load() {
    insta::assert_snapshot!(problems(json!({
        "a": { "use": "work", "needs": ["c"] },
        "b": { "use": "work", "needs": ["a"] },
        "c": { "use": "work", "needs": ["b", "root"] },
        "root": { "use": "work" },
        "after": { "use": "work", "needs": ["b"] },
        "self": { "use": "work", "needs": ["self"] },
    })), @"
    workflow.book.step.a.needs cycle these steps wait for each other: a → b → c → a
    workflow.book.step.self.needs cycle these steps wait for each other: self → self
    ");
}

#[test]
fn wf_18_a_long_cycle_is_shown_in_part() {
    let steps: Map<String, Value> = (0..10_000)
        .map(|n| (format!("s{n}"), json!({ "use": "work", "needs": [format!("s{}", (n + 9999) % 10_000)] })))
        .collect();
    insta::assert_snapshot!(problems(steps.into()), @"workflow.book.step.s0.needs cycle these steps wait for each other: s0 → s1 → s2 → s3 → s4 → s5 → … (9993 more) → s9999 → s0");
}

#[test]
fn wf_18_unknown_step() {
    insta::assert_snapshot!(problems(json!({
        "load": { "use": "work" },
        "index": { "use": "sink", "needs": ["laod", { "step": "nowhere", "on": "done" }] },
        "show": { "use": "work", "needs": ["load"], "when": "$steps.laod.a" },
    })), @"
    workflow.book.step.index.needs[0] unknown-step there is no step `laod` (did you mean `load`?)
    workflow.book.step.index.needs[1] unknown-step there is no step `nowhere`
    workflow.book.step.show.when unknown-step there is no step `laod` (did you mean `load`?)
    ");
}

#[test]
fn wf_18_duplicate_step() {
    let mut definition = read("book", &json!({ "step": { "a": { "use": "work" } } }), &catalogue()).unwrap();
    definition.steps.push(definition.steps[0].clone());
    let problems = compile(&definition, 1, &catalogue()).unwrap_err();
    assert_eq!(problems.len(), 1);
    insta::assert_snapshot!(problems[0], @"workflow.book.step.a duplicate-step there are two steps `a`");
    insta::assert_snapshot!(crate::sample::problems(json!({
        "a": { "use": "work" },
        "b": { "use": "work", "needs": ["a", { "step": "a", "on": "done" }] },
    })), @"workflow.book.step.b.needs[1] duplicate-step `a` is needed twice");
}

#[test]
fn wf_18_unreachable() {
    insta::assert_snapshot!(problems(json!({
        "never": { "use": "work", "when": "false" },
        "after": { "use": "work", "needs": ["never"] },
        "rescue": { "use": "work", "needs": [{ "step": "never", "on": "failure" }] },
        "join": { "use": "work", "needs": ["never", "good"] },
        // these can run
        "good": { "use": "work" },
        "lenient": { "use": "work", "needs": ["never", "good"], "trigger": "none-failed" },
        "always": { "use": "work", "needs": ["never"], "trigger": "all-done" },
        "deletes": { "use": "sink", "needs": ["good"], "when": "false" },
        "keeps": { "use": "sink", "needs": ["good"], "when": "null", "else": "keep" },
    })), @"
    workflow.book.step.after.needs unreachable this step never runs: its needs can never end as its trigger asks
    workflow.book.step.join.needs unreachable this step never runs: its needs can never end as its trigger asks
    workflow.book.step.keeps.when unreachable this step never runs: its condition is always false
    workflow.book.step.never.when unreachable this step never runs: its condition is always false
    workflow.book.step.rescue.needs unreachable this step never runs: its needs can never end as its trigger asks
    ");
}

#[test]
fn wf_18_not_an_ancestor() {
    insta::assert_snapshot!(problems_of(&json!({
        "on": [{ "source": "shop", "entity": "book", "when": "$steps.load" }],
        "step": {
            "load": { "use": "work" },
            "author": { "use": "work", "needs": ["load"], "for-each": "$steps.load.ids" },
            "beside": { "use": "work", "needs": ["load"], "input": "$steps.author" },
            "self": { "use": "work", "when": "$steps.self" },
            "shape": { "use": "transform", "needs": ["author"], "expression": "$steps.load.title + $steps.beside.title" },
        },
    })), @r#"
    workflow.book.on[0].when not-an-ancestor no step has run before the event is looked at
    workflow.book.step.beside.input not-an-ancestor reads `$steps.author`, which need not have ended before `beside` (add "author" to its `needs`)
    workflow.book.step.self.when not-an-ancestor reads `$steps.self`, which need not have ended before `self` (add "self" to its `needs`)
    workflow.book.step.shape.expression not-an-ancestor reads `$steps.beside`, which need not have ended before `shape` (add "beside" to its `needs`)
    "#);
}

/// WF-15: expressions inside texts are compiled and checked like the others.
#[test]
fn wf_15_placeholders_are_expressions_of_the_step() {
    let call = |url: &str| json!({ "use": "http.call", "needs": ["load"], "url": url });
    insta::assert_snapshot!(problems(json!({
        "load": { "use": "work" },
        "beside": { "use": "work" },
        "one": call("https://host/{$steps.beside.id}"),
        "two": call("https://host/{.id |}"),
    })), @"
    workflow.book.step.one.url not-an-ancestor reads `$steps.beside`, which need not have ended before `one` (add \"beside\" to its `needs`)
    workflow.book.step.two.url bad-expression line 1, column 6: expected term
    ");
    let graph = graph(json!({
        "load": { "use": "work" },
        "between": { "use": "work", "needs": ["load"], "input": "1" },
        "call": { "use": "http.call", "needs": ["between"], "url": "https://host/{$steps.load.id}/{$run.key}", "input": "1" },
        "shape": { "use": "transform", "needs": ["between"], "expression": "$steps | keys", "for-each": "[1]" },
    }));
    let sees = |name: &str| graph[graph.step(name).unwrap()].sees.clone();
    let id = |name: &str| graph.step(name).unwrap();
    assert_eq!(sees("call"), ContextReads { event: false, run: true, item: false, steps: vec![id("load")] });
    assert_eq!(
        sees("shape"),
        ContextReads { event: false, run: false, item: false, steps: vec![id("between"), id("load")] }
    );
    assert_eq!(sees("between"), ContextReads::default());
    assert!(graph[id("load")].output_read);
}

/// WF-35, WF-34, WF-33
#[test]
fn wf_8_control_kinds_have_no_instances() {
    insta::assert_snapshot!(problems(json!({
        "wait": { "use": "sleep", "for": "1s", "for-each": "[1, 2]" },
    })), @"workflow.book.step.wait.for-each bad-for-each `sleep` is done once in a run (move `for-each` to an earlier step; event.emit takes a list as its `input`)");
}

/// WF-23: before a run exists, an expression can read only the event.
#[test]
fn wf_23_the_condition_of_an_event_reads_only_the_event() {
    let on = |when: &str| json!({ "source": "shop", "entity": "book", "when": when });
    insta::assert_snapshot!(problems_of(&json!({
        "on": [on("$event.payload.paid and .priority < 5"), on("$run.key"), on("$index"), on("false"), on(".a |")],
        "step": { "load": { "use": "work" } },
    })), @"
    workflow.book.on[1].when bad-expression there is no `$run` before a run has begun (`.` and `$event` are the event)
    workflow.book.on[2].when bad-expression there is no `$index` before a run has begun (`.` and `$event` are the event)
    workflow.book.on[3].when unreachable no event begins a run here: the condition is always false
    workflow.book.on[4].when bad-expression line 1, column 5: expected term
    ");
}

#[test]
fn wf_18_unknown_kind() {
    insta::assert_snapshot!(problems(json!({
        "load": { "use": "sql.laod", "anything": 1 }, "call": { "use": "telepathy" },
    })), @"
    workflow.book.step.call.use unknown-kind there is no kind of step `telepathy`
    workflow.book.step.load.use unknown-kind there is no kind of step `sql.laod` (did you mean `sql.load`?)
    ");
}

#[test]
fn wf_18_bad_expression() {
    insta::assert_snapshot!(problems_of(&json!({
        "on": [{ "source": "shop", "entity": "book", "when": "now" }],
        "step": {
            "load": { "use": "work", "when": ".a +", "input": "{a: env}", "for-each": "[" },
            "shape": { "use": "transform", "expression": "\n  lenght" },
        },
    })), @"
    workflow.book.on[0].when bad-expression line 1, column 1: `now` is not available here; did you mean `not`?
    workflow.book.step.load.for-each bad-expression line 1, column 2: expected closing bracket
    workflow.book.step.load.input bad-expression line 1, column 5: `env` is not available here
    workflow.book.step.load.when bad-expression line 1, column 5: expected term
    workflow.book.step.shape.expression bad-expression line 2, column 3: `lenght` is not available here; did you mean `length`?
    ");
}

#[test]
fn wf_18_bad_trigger() {
    insta::assert_snapshot!(problems(json!({
        "a": { "use": "work", "trigger": "all-done" },
        "b": { "use": "work", "needs": ["a"], "trigger": "all-succes" },
        "c": { "use": "work", "needs": ["a"], "trigger": "sometimes" },
        "d": { "use": "work", "needs": ["a", { "step": "b", "on": "done" }], "trigger": "one-failed" },
    })), @r#"
    workflow.book.step.a.trigger bad-trigger `all-done` looks at needs, and this step has none
    workflow.book.step.b.trigger bad-trigger there is no trigger `all-succes` (did you mean `all-success`?)
    workflow.book.step.c.trigger bad-trigger there is no trigger `sometimes` (one of: all-success, none-failed, one-success, all-done, one-failed, all-failed)
    workflow.book.step.d.needs[1] bad-trigger `one-failed` never counts a need with on = "done" as failed (leave `on` out)
    "#);
}

#[test]
fn wf_18_too_large() {
    let steps: Map<String, Value> =
        (0..=STEPS_MAX).map(|n| (format!("s{n}"), json!({ "use": "work", "needs": ["nowhere"] }))).collect();
    insta::assert_snapshot!(problems(steps.into()), @"workflow.book too-large 10001 steps: a workflow has at most 10000");
    let (first, second): (Vec<_>, Vec<_>) = ((0..320).collect(), (0..320).collect());
    let mut steps: Map<String, Value> = first.iter().map(|n| (format!("a{n}"), json!({ "use": "work" }))).collect();
    let all: Vec<String> = steps.keys().cloned().collect();
    steps.extend(second.iter().map(|n| (format!("b{n}"), json!({ "use": "work", "needs": all }))));
    insta::assert_snapshot!(problems(steps.into()), @"workflow.book too-large 102400 needs: a workflow has at most 100000");
}

#[test]
fn wf_18_names_appear_in_expressions() {
    insta::assert_snapshot!(problems(json!({ "Load": { "use": "work" }, "a-b": { "use": "work" } })), @"
    workflow.book.step.Load bad-name `Load` cannot be the name of a step (a name is a lowercase letter, then lowercase letters, digits and _)
    workflow.book.step.a-b bad-name `a-b` cannot be the name of a step (a name is a lowercase letter, then lowercase letters, digits and _)
    ");
    insta::assert_snapshot!(problems_of(&json!({})), @"workflow.book missing-key a workflow needs at least one step");
}

#[test]
fn wf_17_all_errors_are_reported_at_once_sorted_by_place() {
    insta::assert_snapshot!(problems_of(&json!({
        "histroy": "all",
        "order": "latets",
        "step": {
            "a": { "use": "wrok", "needs": ["b"] },
            "b": { "use": "work", "needs": ["a"], "tries": 0 },
            "c": { "needs": "a", "when": "env" },
        },
    })), @"
    workflow.book.histroy unknown-key there is no key `histroy` here (did you mean `history`?)
    workflow.book.order bad-value `order` cannot be `latets` (did you mean `latest`?)
    workflow.book.step.a.needs cycle these steps wait for each other: a → b → a
    workflow.book.step.a.use unknown-kind there is no kind of step `wrok` (did you mean `work`?)
    workflow.book.step.b.tries bad-value expected a whole number from 1 to 1000
    workflow.book.step.c missing-key the key `use` is missing
    workflow.book.step.c.needs bad-value expected a list
    workflow.book.step.c.when bad-expression line 1, column 1: `env` is not available here
    ");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test may look at the clock")]
fn wf_19_chain_and_fan_at_the_limit_are_validated_quickly() {
    let chain: Map<String, Value> = (0..STEPS_MAX)
        .map(|n| {
            let needs = if n == 0 { json!([]) } else { json!([format!("s{}", n - 1)]) };
            (format!("s{n}"), json!({ "use": "work", "needs": needs }))
        })
        .collect();
    let mut fan: Map<String, Value> =
        (0..STEPS_MAX - 2).map(|n| (format!("s{n}"), json!({ "use": "work", "needs": ["a"] }))).collect();
    let all: Vec<String> = fan.keys().cloned().collect();
    fan.insert("a".to_owned(), json!({ "use": "work" }));
    // it reads a distant step, so that ancestors are built too
    fan.insert("z".to_owned(), json!({ "use": "work", "needs": all, "when": "$steps.a" }));
    // ten needs each: the maximum number of edges
    let dense: Map<String, Value> = (0..STEPS_MAX)
        .map(|n| {
            let needs: Vec<String> = (n.saturating_sub(10)..n).map(|need| format!("s{need}")).collect();
            (format!("s{n}"), json!({ "use": "work", "needs": needs }))
        })
        .collect();
    for (shape, steps) in [("chain", chain), ("fan", fan), ("dense", dense)] {
        let value = json!({ "step": steps });
        // the quickest of several runs, since the machine may be busy
        let quickest = (0..5).map(|_| {
            let begin = Instant::now();
            let definition = read("book", &value, &catalogue()).unwrap();
            let graph = compile(&definition, 1, &catalogue()).unwrap();
            assert_eq!(graph.topological().len(), STEPS_MAX);
            begin.elapsed()
        });
        let quickest = quickest.min().unwrap();
        println!("{shape}: {quickest:?}");
        // 200 ms if optimised; a quadratic algorithm would take seconds
        assert!(quickest.as_millis() < 2000, "{shape} took {quickest:?}");
    }
}

#[test]
fn wf_20_equal_content_has_equal_hash() {
    let hash = |value: &Value| read("book", value, &catalogue()).unwrap().hash();
    let first = json!({ "step": { "a": { "use": "work", "tries": 5 }, "b": { "use": "work", "needs": ["a"] } } });
    let same = json!({
        "exclusion": "key", "order": "latest",
        "step": { "b": { "needs": [{ "step": "a", "on": "success" }], "use": "work", "timeout": "60s" }, "a": { "use": "work" } },
    });
    let mut without_timeout = same.clone();
    without_timeout["step"]["b"].as_object_mut().unwrap().remove("timeout");
    assert_eq!(hash(&first), hash(&without_timeout));
    assert_ne!(hash(&first), hash(&same));
    let graph = compile(&read("book", &first, &catalogue()).unwrap(), 3, &catalogue()).unwrap();
    assert_eq!((graph.version, graph.hash), (3, hash(&first)));
    // the hash is stored with every version, so a new program must not change it
    assert_eq!(hash(&first), 6_938_102_997_450_692_449);
}

#[test]
fn a_graph_knows_its_neighbours() {
    let graph = graph(json!({
        "load": { "use": "sql.load" },
        "author": { "use": "work", "needs": ["load"], "trigger": "all-done" },
        "index": { "use": "search.index", "needs": ["author", { "step": "load", "on": "done" }], "into": "books", "batch": 1000 },
    }));
    let id = |name: &str| graph.step(name).unwrap();
    assert_eq!(graph.roots().collect::<Vec<_>>(), [id("load")]);
    assert_eq!(graph.needs(id("index")), [(id("author"), Edge::Success), (id("load"), Edge::Done)]);
    assert_eq!(graph.needs(id("author")), [(id("load"), Edge::Done)]);
    assert_eq!(graph.dependents(id("load")), [id("author"), id("index")]);
    assert_eq!(graph.topological(), [id("load"), id("author"), id("index")]);
    assert_eq!(graph.step("nowhere"), None);
    let index = &graph[id("index")];
    assert_eq!(
        (index.batch_max, index.tries, index.timeout.as_secs(), index.checkpoint),
        (500, 5, 60, Checkpoint::Never)
    );
    assert_eq!(index.settings["into"], "books");
}

#[test]
fn an_output_that_no_step_reads_is_marked() {
    let graph = graph(json!({
        "load": { "use": "sql.load" },
        "flag": { "use": "work" },
        "early": { "use": "work" },
        "pause": { "use": "sleep", "needs": ["early"], "for": "5s" },
        "shape": { "use": "transform", "needs": ["load", "pause"], "expression": "$steps.load.title" },
        "index": { "use": "search.index", "needs": ["shape", "flag"], "into": "books" },
        "other": { "use": "work", "needs": ["index"], "input": "{a: 1}" },
    }));
    let read: Vec<&str> = graph.steps.iter().filter(|step| step.output_read).map(|step| &*step.name).collect();
    // the input of `transform` is the output of all its needs
    assert_eq!(read, ["load", "pause", "shape"]);
}
