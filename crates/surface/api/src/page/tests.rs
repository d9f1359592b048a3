//! Data stays text everywhere on the page, and drawings stay readable.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use honeyflow_engine::core::{
    gate::ClosedGate,
    status::{SourceStatus, Status, StepCounts, WorkflowStatus},
};
use honeyflow_event::{Epoch, Stamp};
use honeyflow_hive::{
    NodeId,
    contract::{self as hive, LeaseRow, NodeRow},
    member::Engaged,
    service::{Counters, Snapshot},
};
use honeyflow_runtime::Failure;
use honeyflow_sink::MemorySink;
use honeyflow_store::{Reply, Request, Store, admin::Lag};
use honeyflow_workflow::{
    Catalogue, Checkpoint, Graph, Kind, Role, Workflow,
    builder::{Step, step},
    compile,
};
use serde_json::{Value, json};

use super::*;
use crate::{
    hive::HiveSample,
    node::{Limits, SinkView},
    sample::{Rates, Sample},
    search::Hit,
};

struct Silent;

impl Store for Silent {
    fn call(&self, _: Request) -> futures_util::future::BoxFuture<'static, Result<Reply, Failure>> {
        Box::pin(std::future::ready(Err(Failure::retry("silent", "says nothing"))))
    }
}

fn catalogue() -> Catalogue {
    let kind = |name, role| Kind {
        name,
        settings: &[],
        role,
        checkpoint: Checkpoint::Never,
        batch_max: 1,
        timeout: Duration::from_secs(1),
    };
    Catalogue::new(vec![kind("work", Role::Work), kind("sink", Role::Sink)])
}

fn graph(steps: Vec<(String, Step)>) -> Graph {
    let workflow = Workflow::new("book").on("shop", "book");
    let workflow = steps.into_iter().fold(workflow, |workflow, (name, step)| workflow.step(&name, step));
    let definition = workflow.build(&catalogue()).unwrap_or_else(|problems| panic!("{problems:#?}"));
    compile(&definition, 1, &catalogue()).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

/// Returns a hive with one node of that name, which is the queen.
fn hive(text: &str) -> HiveSample {
    let id = NodeId(uuid::Uuid::from_u128(1));
    let node = NodeRow {
        id,
        name: text.to_owned(),
        beat: 1,
        heartbeat_ms: 2000,
        ttl_ms: 6000,
        expires_ms: 6000,
        engaged_ms: 0,
        ready: true,
        eligible: true,
        warm: Vec::new(),
        meta: json!({ "process": text }).to_string(),
    };
    let lease = |name: &str| LeaseRow {
        name: name.into(),
        epoch: Epoch(7),
        holder: Some(id),
        successor: None,
        since_ms: 0,
        cause: text.to_owned(),
        free: false,
        successor_is_warm: false,
    };
    let leases = vec![lease("queen"), lease("shard/shop/0")];
    HiveSample {
        me: Some(id),
        is_queen: true,
        engaged: Engaged { count: Some(1), divisor: 1, stale: false },
        snapshot: Snapshot { view: None, age: None, stale: false, store_failure: None },
        counters: Counters::default(),
        view: Ok(hive::View { nodes: vec![node], leases, ..hive::View::default() }),
    }
}

#[test]
fn hv_17_the_page_shows_nodes_queen_epoch_and_shards() {
    let (page, _) = page("bee-1");
    for wanted in ["<b>bee-1</b>", "queen, this node", "ready, 1 shard", ">7<"] {
        assert!(page.contains(wanted), "{wanted}");
    }
}

/// Returns the page with `text` in every place that shows data from outside.
fn page(text: &str) -> (String, String) {
    let mut graph = graph(vec![
        ("load".to_owned(), step("work")),
        ("index".to_owned(), step("sink").needs(["load"])),
        ("alert".to_owned(), step("work").need("load", honeyflow_workflow::Edge::Failure)),
    ]);
    graph.name = text.into();
    for step in &mut graph.steps {
        (step.name, step.kind) = (text.into(), text.into());
    }
    for on in &mut graph.on {
        (on.source, on.entity) = (text.into(), text.into());
    }
    let node = Node {
        name: text.to_owned(),
        version: "0",
        started: Instant::now(),
        sources: vec![(text.into(), Arc::new(Silent) as Arc<dyn Store>), ("away".into(), Arc::new(Silent))],
        sinks: vec![SinkView { name: text.into(), entity: text.into(), sink: Arc::new(MemorySink::default()) }],
        workflows: vec![Arc::new(graph)],
        engine: Arc::new(Status::default),
        runs: Arc::new(|_, _| Box::pin(async { Vec::new() })),
        entities: Vec::new(),
        hives: Vec::new(),
        pools: Vec::new(),
        event_limit: None,
        limit_counters: Arc::new(Vec::new),
        limits: Limits::default(),
    };
    let status = Status {
        last_store_failure: Some(text.to_owned()),
        closed: vec![ClosedGate { name: text.into(), reason: "paused", detail: text.to_owned() }],
        sources: vec![SourceStatus {
            name: text.into(),
            shards_owned: 1,
            shards: 1,
            epoch: Some(7),
            sequence: 1,
            in_flight: 1,
            held: vec![text.to_owned()],
        }],
        workflows: vec![WorkflowStatus {
            name: text.into(),
            version: 1,
            open: 1,
            ended: 1,
            mean_run_ms: 1.0,
            ready: vec![1, 2, 3],
            steps: vec![StepCounts { done: 1, retried: 2, failed: 3 }],
        }],
        ..Status::default()
    };
    let seen = Sample {
        status,
        lags: vec![Ok(Lag::default()), Err(Failure::retry("away", text))],
        counts: vec![Ok(1)],
        hives: vec![hive(text)],
        rates: Rates { workflows: vec![1.0], events_history: vec![1.0], ..Rates::default() },
        uptime: Duration::from_secs(1),
    };
    let document = json!({ text: text, "list": [text], "map": { text: text } });
    let hit = Hit { entity: text, key: text.to_owned(), version: Stamp(1), document: Arc::new(document) };
    let bare = Hit { entity: text, key: text.to_owned(), version: Stamp(1), document: Arc::new(text.into()) };
    let view = View::new(&node, &seen);
    let assets = Assets::new();
    let asked = |found| SearchForm { sink: Some(text), query: Some(text), found: Some(found) };
    let found = asked(Ok(SearchReply { hits: vec![hit, bare] }));
    let refused = asked(Err(Refusal::bad_request("bad-query", text)));
    let pages = render(&node, &view, &assets, &found).into_string() + &render(&node, &view, &assets, &refused).0;
    (pages, serde_json::to_string(&view).unwrap())
}

/// Returns the elements with the names of their attributes, in order, as a browser's tokenizer would find them.
fn structure(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        if !rest.starts_with(|first: char| first.is_ascii_alphabetic() || matches!(first, '/' | '!' | '?')) {
            continue;
        }
        let mut shape = String::new();
        let mut quote = None;
        let mut end = rest.len();
        for (at, character) in rest.char_indices() {
            match (quote, character) {
                (None, '>') => {
                    end = at;
                    break;
                }
                (None, '"' | '\'') => quote = Some(character),
                (Some(open), close) if open == close => quote = None,
                (None, other) => shape.push(other),
                (Some(_), _) => {}
            }
        }
        found.push(shape);
        rest = &rest[end..];
    }
    found
}

fn hostile_texts() -> Vec<String> {
    let payloads = [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "<svg onload=alert(1)>",
        "<svg><script>alert(1)</script></svg>",
        "<iframe srcdoc='<script>alert(1)</script>'>",
        "<body onload=alert(1)>",
        "<a href=javascript:alert(1)>x</a>",
        "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
        "<details open ontoggle=alert(1)>",
        "<input autofocus onfocus=alert(1)>",
        "<video><source onerror=alert(1)>",
        "<marquee onstart=alert(1)>",
        "<object data=javascript:alert(1)>",
        "<embed src=javascript:alert(1)>",
        "<form action=javascript:alert(1)><button>x",
        "<link rel=stylesheet href=//evil>",
        "<meta http-equiv=refresh content='0;url=//evil'>",
        "<base href=//evil>",
        "<style>*{background:url(//evil)}</style>",
        "<template><img src=x onerror=alert(1)></template>",
        "<noscript><p title=\"</noscript><img src=x onerror=alert(1)>\">",
        "<!--<img src=\"--><img src=x onerror=alert(1)//\">",
        "<![CDATA[<img src=x onerror=alert(1)>]]>",
        "<?xml version='1'?><x:script xmlns:x='http://www.w3.org/1999/xhtml'>alert(1)</x:script>",
        "<foreignObject><body onload=alert(1)></foreignObject>",
        "<animate onbegin=alert(1) attributeName=x>",
        "<use href=data:image/svg+xml,x>",
        "onmouseover=alert(1) x=",
        "javascript:alert(1)",
        "&lt;script&gt;alert(1)&lt;/script&gt;",
        "&#60;script&#62;alert(1)&#60;/script&#62;",
        "\\u003cscript\\u003ealert(1)",
        "{{constructor.constructor('alert(1)')()}}",
        "${alert(1)}",
        "\u{0}<script\u{0}>alert(1)</script>",
        "\u{2028}<scr\u{0}ipt>alert(1)</script>\u{2029}",
        "＜script＞alert(1)＜/script＞",
    ];
    let wraps: [fn(&str) -> String; 6] = [
        str::to_owned,
        |text| format!("\">{text}"),
        |text| format!("'>{text}"),
        |text| format!("</title></svg></textarea></select>{text}"),
        |text| format!("\" {text} x=\""),
        |text| format!("\n\ndata: {text}\r\nevent: x\n\n"),
    ];
    payloads.iter().flat_map(|payload| wraps.iter().map(move |wrap| wrap(payload))).collect()
}

#[test]
fn se_35_data_is_only_ever_text() {
    let (harmless, _) = page("plain");
    let expected = structure(&harmless);
    assert!(expected.len() > 200, "the page is there");
    let texts = hostile_texts();
    assert!(texts.len() >= 200, "{}", texts.len());
    for text in texts {
        let (page, snapshot) = page(&text);
        let found = structure(&page);
        let differs = expected.iter().zip(&found).find(|(expected, found)| expected != found);
        assert_eq!(differs, None, "{text}");
        assert_eq!(found.len(), expected.len(), "{text}");
        assert!(!snapshot.contains(['\n', '\r']), "a snapshot is one line, or it could end the event: {text}");
        let read: Value = serde_json::from_str(&snapshot).unwrap();
        assert!(read["waits"].as_array().unwrap().iter().any(|wait| wait["detail"] == text), "{text}");
    }
}

#[test]
fn se_35_the_check_finds_unescaped_text() {
    assert_ne!(structure("<p>plain</p>"), structure("<p><img src=x></p>"));
    assert_ne!(structure("<p title=\"a\"></p>"), structure("<p title=\"a\" onclick=\"b\"></p>"));
}

#[test]
fn se_35_the_script_makes_no_markup() {
    let script = include_str!("page.js");
    for word in
        ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "Function(", "srcdoc", "DOMParser"]
    {
        assert!(!script.contains(word), "{word}");
    }
}

#[test]
fn se_34_nothing_is_inline() {
    let (page, _) = page("plain");
    for shape in structure(&page) {
        assert!(!shape.contains(" on") && !shape.contains(" style"), "{shape}");
    }
    assert!(page.contains("defer></script>") && !page.contains("<style"), "the script is a file");
}

#[test]
fn steps_never_overlap_and_edges_run_to_the_right() {
    let chain = |count: usize, needs: fn(usize) -> Vec<usize>| {
        let name = |at: usize| format!("s{at}");
        let step = |at: usize| {
            let names: Vec<_> = needs(at).into_iter().map(name).collect();
            (name(at), step("work").needs(names.iter().map(String::as_str)))
        };
        graph((0..count).map(step).collect())
    };
    let graphs = [
        chain(1, |_| vec![]),
        chain(12, |at| if at == 0 { vec![] } else { vec![at - 1] }),
        chain(30, |at| if at < 5 { vec![] } else { vec![at - 5, at - 3] }),
        chain(60, |at| if at < 4 { vec![] } else { vec![at - 1, at / 2] }),
    ];
    for graph in graphs {
        let layout = layout::layout(&graph).unwrap();
        for (at, (x, y)) in layout.steps.iter().enumerate() {
            assert!(*x >= 0.0 && x + layout::STEP_WIDTH <= layout.width, "step {at} stands outside");
            assert!(*y >= 0.0 && y + layout::STEP_HEIGHT <= layout.height, "step {at} stands outside");
            for (other_x, other_y) in &layout.steps[..at] {
                let apart = (x - other_x).abs() >= layout::STEP_WIDTH || (y - other_y).abs() >= layout::STEP_HEIGHT;
                assert!(apart, "step {at} covers another");
            }
        }
        for step in graph.ids() {
            for (need, _) in graph.needs(step) {
                assert!(layout.steps[usize::from(*need)].0 < layout.steps[usize::from(step)].0);
            }
        }
    }
}

#[test]
fn a_huge_workflow_is_not_drawn() {
    let steps = (0..=layout::STEPS_DRAWN_MAX).map(|at| (format!("s{at}"), step("work"))).collect();
    assert!(layout::layout(&graph(steps)).is_none());
}
