//! The parts of the page, from top to bottom.

use maud::{Markup, html};
use serde_json::Value;

use super::{
    SearchForm, View,
    chart::{HEIGHT, WIDTH},
    draw,
    format::{plural, short},
};
use crate::{node::Node, search::Hit};

const FIELDS_SHOWN: usize = 8;
const VALUE_CHARACTERS_MAX: usize = 300;

pub(crate) fn header(node: &Node, view: &View) -> Markup {
    html! {
        header .top {
            a .brand href="/" aria-label="Honeyflow, first page" {
                svg width="30" height="30" viewBox="0 0 32 32" aria-hidden="true" focusable="false" {
                    path .comb d="M16 2l12 7v14l-12 7-12-7V9z" {}
                    path .cell d="M16 9l6 3.5v7L16 23l-6-3.5v-7z" {}
                }
                span { "Honeyflow" }
            }
            h1 #node title="This node" { (node.name) }
            span .pill #state data-state=(view.state("state")) role="status" { (view.text("state")) }
            div .facts {
                span { "up " b #uptime { (view.text("uptime")) } }
                span #connection .muted {}
            }
        }
    }
}

pub(crate) fn tiles(view: &View) -> Markup {
    let tile = |id: &'static str, label: &str, unit: &str, help: &str| {
        let note = match id {
            "events-rate" => "events-note".to_owned(),
            "runs-rate" => "runs-note".to_owned(),
            other => format!("{other}-note"),
        };
        html! {
            div .tile title=(help) {
                dt { (label) }
                dd {
                    span .value #(id) data-state=(view.state(id)) { (view.text(id)) }
                    @if !unit.is_empty() { " " span .unit { (unit) } }
                    span .note #(note) { (view.text(&note)) }
                }
            }
        }
    };
    html! {
        dl .tiles aria-label="At a glance" {
            (tile("events-rate", "Events", "/s", "Events taken from the sources"))
            (tile("runs-rate", "Runs", "/s", "Runs ended; events of one key merge into one run"))
            (tile("lag", "Lag, oldest", "", "Age of the oldest event that is due, by the database's clock"))
            (tile("in-flight", "In flight", "rows", "Outbox rows in flight"))
            (tile("parked", "Parked", "", "Events parked with their error"))
        }
    }
}

pub(crate) fn rates(view: &View) -> Markup {
    let chart = &view.chart;
    html! {
        section .card aria-labelledby="rates-title" {
            div .card-head {
                h2 #rates-title { "Rates" }
                p .legend { span .key-events { "events/s" } span .key-runs { "runs/s" } }
                p .muted #chart-readout { "last 5 minutes" }
            }
            div .chart {
                div .scale aria-hidden="true" {
                    span #chart-top { (chart.top) } span #chart-middle { (chart.middle) } span { "0" }
                }
                div .plot {
                    svg #chart viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img"
                        aria-label="Events and runs per second over the last five minutes" {
                        path .grid d=(format!("M0 1H{WIDTH}M0 {0}H{WIDTH}M0 {1}H{WIDTH}", HEIGHT / 2.0, HEIGHT - 1.0)) {}
                        path .area-events #chart-events-area d=(chart.events_area) {}
                        path .area-runs #chart-runs-area d=(chart.runs_area) {}
                        path .line-events #chart-events d=(chart.events_line) {}
                        path .line-runs #chart-runs d=(chart.runs_line) {}
                        path .cursor #chart-cursor d="" {}
                    }
                    div .times aria-hidden="true" {
                        span { "−5 m" } span { "−4 m" } span { "−3 m" } span { "−2 m" } span { "−1 m" } span { "now" }
                    }
                }
            }
        }
    }
}

pub(crate) fn workflows(node: &Node, view: &View) -> Markup {
    let fact = |id: String, label: &str| html! { div { dt { (label) } dd #(id) { (view.text(&id)) } } };
    html! {
        @for (at, graph) in node.workflows.iter().enumerate() {
            section .card .workflow aria-labelledby=(format!("workflow-{at}-title")) {
                div .card-head {
                    h2 #(format!("workflow-{at}-title")) { (graph.name) }
                    span .muted { "version " (graph.version) }
                    dl .facts {
                        (fact(format!("workflow-{at}-rate"), "runs/s"))
                        (fact(format!("workflow-{at}-open"), "open"))
                        (fact(format!("workflow-{at}-ended"), "ended"))
                        (fact(format!("workflow-{at}-mean"), "mean"))
                    }
                }
                (draw::workflow(at, graph, view))
            }
        }
        @if node.workflows.is_empty() {
            section .card { h2 { "Workflows" } p .muted { "None is configured." } }
        }
    }
}

pub(crate) fn search(node: &Node, form: &SearchForm<'_>) -> Markup {
    html! {
        section .card aria-labelledby="search-title" {
            div .card-head { h2 #search-title { "Search" } p .muted #results-note role="status" { (note(form)) } }
            form #search-form action="/" method="get" role="search" {
                label .hidden for="sink" { "Sink" }
                select #sink name="sink" {
                    @for view in &node.sinks {
                        option value=(view.name) selected[form.sink == Some(&*view.name)] { (view.name) }
                    }
                }
                label .hidden for="search" { "Query" }
                input #search type="search" name="q" value=(form.query.unwrap_or_default()) autocomplete="off"
                    spellcheck="false" placeholder="What has just changed?" maxlength="1000";
                button type="submit" { "Search" }
            }
            ol #results {
                @if let Some(Ok(found)) = &form.found { @for found in &found.hits { (hit(found)) } }
            }
        }
    }
}

fn note(form: &SearchForm<'_>) -> String {
    match &form.found {
        None => String::new(),
        Some(Ok(found)) => plural(found.hits.len(), "hit", "hits"),
        Some(Err(refusal)) => refusal.message.clone(),
    }
}

/// Renders a hit. The script builds the same elements.
fn hit(hit: &Hit<'_>) -> Markup {
    html! {
        li {
            div .hit-head { b { (hit.key) } span .muted { (hit.entity) } code title="Version" { (hit.version) } }
            dl {
                @match &*hit.document {
                    Value::Object(fields) => @for (name, value) in fields.iter().take(FIELDS_SHOWN) {
                        dt { (name) } dd { (shown(value)) }
                    },
                    other => { dt { "document" } dd { (shown(other)) } }
                }
            }
        }
    }
}

fn shown(value: &Value) -> String {
    let plain = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let text = match value {
        Value::Array(parts) => parts.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => plain(other),
    };
    short(&text, VALUE_CHARACTERS_MAX)
}

pub(crate) fn waits(view: &View) -> Markup {
    html! {
        section .card aria-labelledby="waits-title" {
            div .card-head { h2 #waits-title { "Why it waits" } span .count #waits-count { (view.text("waits-count")) } }
            p .muted #waits-none hidden[!view.waits.is_empty()] { "Nothing waits: every gate is open." }
            ul #waits {
                @for wait in &view.waits {
                    li { b { (wait.name) } span .reason { (wait.reason) } p { (wait.detail) } }
                }
            }
        }
    }
}

pub(crate) fn sources(node: &Node, view: &View) -> Markup {
    html! {
        section .card aria-labelledby="sources-title" {
            div .card-head { h2 #sources-title { "Sources" } }
            @for (at, (name, _)) in node.sources.iter().enumerate() {
                @let id = |what: &str| format!("source-{at}-{what}");
                div .source {
                    h3 { (name) }
                    span .pill .small #(id("state")) data-state=(view.state(&id("state"))) { (view.text(&id("state"))) }
                    dl .facts {
                        @for (what, label) in [
                            ("lag", "lag"), ("waiting", "waiting"), ("in-flight", "in flight"),
                            ("delayed", "delayed"), ("parked", "parked"), ("epoch", "epoch"),
                        ] {
                            div { dt { (label) } dd #(id(what)) { (view.text(&id(what))) } }
                        }
                    }
                }
            }
            @if node.sources.is_empty() { p .muted { "None is configured." } }
        }
    }
}

pub(crate) fn hive(view: &View) -> Markup {
    html! {
        @if !view.text("hive-state").is_empty() {
            section .card aria-labelledby="hive-title" {
                div .card-head {
                    h2 #hive-title { "Hive" }
                    span .pill .small #hive-state data-state=(view.state("hive-state")) { (view.text("hive-state")) }
                }
                dl .facts {
                    @for (what, label) in [
                        ("hive-queen", "queen"), ("hive-epoch", "epoch"), ("hive-nodes", "nodes"), ("hive-engaged", "engaged"),
                    ] {
                        div { dt { (label) } dd #(what) { (view.text(what)) } }
                    }
                }
                ul #nodes .plain {
                    @for member in &view.nodes {
                        li { b { (member.name) } span .reason { (member.role) } p { (member.state) ", " (member.shards) } }
                    }
                }
            }
        }
    }
}

pub(crate) fn sinks(node: &Node, view: &View) -> Markup {
    html! {
        section .card aria-labelledby="sinks-title" {
            div .card-head { h2 #sinks-title { "Sinks" } }
            @if node.sinks.is_empty() { p .muted { "None is configured." } } @else {
                table {
                    thead { tr { th scope="col" { "sink" } th scope="col" { "entity" } th scope="col" .number { "documents" } } }
                    tbody {
                        @for (at, sink) in node.sinks.iter().enumerate() {
                            @let id = format!("sink-{at}-documents");
                            tr { th scope="row" { (sink.name) } td { (sink.entity) } td .number #(id) { (view.text(&id)) } }
                        }
                    }
                }
            }
        }
    }
}

/// Renders the servers as they were when the page was made; the script keeps their numbers current.
pub(crate) fn pools(node: &Node, view: &View) -> Markup {
    html! {
        @for (at, pool) in node.pools.iter().enumerate() {
            @let id = |what: &str| format!("pool-{at}-{what}");
            section .card .pool aria-labelledby=(id("title")) {
                div .card-head {
                    h2 #(id("title")) { "Cluster " (pool.name) }
                    span .pill .small #(id("state")) data-state=(view.state(&id("state"))) { (view.text(&id("state"))) }
                }
                dl .facts {
                    @for (what, label) in [("open", "connections"), ("lent", "in flight"), ("waiting", "waiting")] {
                        div { dt { (label) } dd #(id(what)) { (view.text(&id(what))) } }
                    }
                }
                table {
                    thead { tr {
                        th scope="col" { "server" } th scope="col" { "state" } th scope="col" .number { "open" }
                        th scope="col" .number { "latency" } th scope="col" .number { "share" }
                    } }
                    tbody {
                        @for server in 0..view.servers(at) {
                            @let id = |what: &str| format!("pool-{at}-server-{server}-{what}");
                            tr {
                                th scope="row" #(id("address")) { (view.text(&id("address"))) }
                                td #(id("state")) { (view.text(&id("state"))) }
                                @for what in ["open", "latency", "share"] { td .number #(id(what)) { (view.text(&id(what))) } }
                            }
                        }
                    }
                }
                p .muted #(id("error")) hidden[view.text(&id("error")).is_empty()] { (view.text(&id("error"))) }
            }
        }
    }
}
