//! Draws a workflow as SVG. Live numbers have ids; names are text, and the title under the pointer shows them in full.

use honeyflow_workflow::{Edge, Graph, Role, StepId};
use maud::{Markup, html};

use super::{
    View,
    format::{plural, short},
    layout::{self, Layout},
};

const NAME_MAX: usize = 15;
const KIND_MAX: usize = 18;
/// A wider drawing is scrolled instead of being scaled down until it is unreadable.
const SHRUNK_MAX: f64 = 1200.0;

/// Defines the arrow heads once for all drawings of the page.
pub(crate) fn arrow_heads() -> Markup {
    let head = |id: &str| {
        html! {
            marker id=(id) viewBox="0 0 8 8" refX="6.5" refY="4" markerWidth="7" markerHeight="7" orient="auto" {
                path d="M1 1L7 4L1 7Z" {}
            }
        }
    };
    html! {
        svg .defs width="0" height="0" aria-hidden="true" focusable="false" {
            defs { (head("arrow")) (head("arrow-failure")) (head("arrow-done")) }
        }
    }
}

pub(crate) fn workflow(at: usize, graph: &Graph, view: &View) -> Markup {
    let Some(layout) = layout::layout(graph) else {
        return html! { p .muted { (plural(graph.steps.len(), "step", "steps")) ": too many to draw here." } };
    };
    html! {
        div .graph .scrolls[layout.width > SHRUNK_MAX] tabindex="0" role="group" aria-label="Graph of the workflow" {
            svg width=(layout.width) height=(layout.height) viewBox=(format!("0 0 {} {}", layout.width, layout.height))
                role="img" aria-label=(describe(graph)) {
                @for line in &layout.edges {
                    path .edge .(edge_class(line.edge)) d=(line.path) marker-end=(marker(line.edge)) {}
                }
                (start(graph, &layout))
                @for step in graph.ids() { (draw_step(at, step, graph, &layout, view)) }
            }
        }
        @if layout.edges.iter().any(|line| matches!(line.edge, Some(Edge::Done | Edge::Failure))) {
            p .legend-edges aria-hidden="true" {
                span .key-success { "on success" }
                @if layout.edges.iter().any(|line| line.edge == Some(Edge::Done)) { span .key-done { "whenever it ends" } }
                @if layout.edges.iter().any(|line| line.edge == Some(Edge::Failure)) { span .key-failure { "on failure" } }
            }
        }
    }
}

fn start(graph: &Graph, layout: &Layout) -> Markup {
    let (x, y) = layout.start;
    let entities: Vec<_> = graph.on.iter().map(|on| format!("{}.{}", on.source, on.entity)).collect();
    let shown = match &entities[..] {
        [] => "started by other workflows".to_owned(),
        [only] => only.clone(),
        several => format!("{} entities", several.len()),
    };
    html! {
        g .start {
            title { (entities.join(", ")) }
            rect x=(x) y=(y) width=(layout::START_WIDTH) height=(layout::START_HEIGHT) rx=(layout::START_HEIGHT / 2.0) {}
            text x=(x + layout::START_WIDTH / 2.0) y=(y + 25.0) text-anchor="middle" { (short(&shown, 15)) }
        }
    }
}

fn draw_step(at: usize, step: StepId, graph: &Graph, layout: &Layout, view: &View) -> Markup {
    let (x, y) = layout.steps[usize::from(step)];
    let (id, step) = (format!("step-{at}-{step}"), &graph[step]);
    let part = |name: &str| format!("{id}-{name}");
    let (ready, rate, retried, failed) = (part("ready"), part("rate"), part("retried"), part("failed"));
    let right = x + layout::STEP_WIDTH - 12.0;
    html! {
        g #(id) .step .(role_class(step.role)) data-state=(view.state(&id)) {
            title { (step.name) " (" (step.kind) ")" }
            rect .box x=(x) y=(y) width=(layout::STEP_WIDTH) height=(layout::STEP_HEIGHT) rx="10" {}
            rect .bar x=(x + 10.0) y=(y + 13.0) width="4" height=(layout::STEP_HEIGHT - 26.0) rx="2" {}
            text .name x=(x + 24.0) y=(y + 25.0) { (short(&step.name, NAME_MAX)) }
            text .kind x=(x + 24.0) y=(y + 41.0) { (short(&step.kind, KIND_MAX)) }
            text .ready #(ready) x=(x + 24.0) y=(y + 57.0) { (view.text(&ready)) }
            text .rate #(rate) x=(right) y=(y + 57.0) text-anchor="end" { (view.text(&rate)) }
            g { title { "retried because its target failed" } text .retried #(retried) x=(x + 24.0) y=(y + 73.0) { (view.text(&retried)) } }
            g { title { "failed because of the item" } text .failed #(failed) x=(right) y=(y + 73.0) text-anchor="end" { (view.text(&failed)) } }
        }
    }
}

/// Describes the drawing in words, for screen readers.
fn describe(graph: &Graph) -> String {
    let step = |id: StepId| {
        let needs: Vec<_> = graph.needs(id).iter().map(|(need, _)| &*graph[*need].name).collect();
        let after = if needs.is_empty() { "first".to_owned() } else { format!("after {}", needs.join(" and ")) };
        format!("{} ({}), {after}", graph[id].name, graph[id].kind)
    };
    graph.topological().iter().map(|id| step(*id)).collect::<Vec<_>>().join("; ")
}

fn edge_class(edge: Option<Edge>) -> &'static str {
    match edge {
        None => "begin",
        Some(Edge::Success) => "success",
        Some(Edge::Done) => "done",
        Some(Edge::Failure) => "failure",
    }
}

fn marker(edge: Option<Edge>) -> &'static str {
    match edge {
        None | Some(Edge::Success) => "url(#arrow)",
        Some(Edge::Done) => "url(#arrow-done)",
        Some(Edge::Failure) => "url(#arrow-failure)",
    }
}

fn role_class(role: Role) -> &'static str {
    match role {
        Role::Load => "load",
        Role::Work => "work",
        Role::Sink => "sink",
        Role::Sleep | Role::Wait => "rest",
        Role::Emit => "emit",
    }
}
