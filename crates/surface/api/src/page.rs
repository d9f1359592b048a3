//! The first page: the server renders it completely, so that it works without its script; the script keeps it current.
//!
//! Data always becomes text, because maud escapes it; ids are made of positions, never of names. Every number is
//! formatted once, in [`View`]; page and live stream show the same texts under the same ids.

mod assets;
mod chart;
mod draw;
mod format;
mod layout;
mod sections;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;

use axum::{
    body::Body,
    http::{Response, StatusCode, Uri},
};
use maud::{DOCTYPE, Markup, html};

pub(crate) use assets::Assets;
pub(crate) use view::View;

use crate::{
    answer::{self, Refusal},
    node::Node,
    query::Parameters,
    search::{self, SearchReply},
    serve::App,
};

/// The maximum number of hits if the form reloads the page, without the script.
const HITS: u32 = 20;

/// The input of the search form, and its result.
pub(crate) struct SearchForm<'a> {
    pub sink: Option<&'a str>,
    pub query: Option<&'a str>,
    pub found: Option<Result<SearchReply<'a>, Refusal>>,
}

pub(crate) async fn answer(app: &Arc<App>, uri: &Uri) -> Result<Response<Body>, Refusal> {
    let node = &app.node;
    let parameters = Parameters::read(uri, &["sink", "q"], node.limits.parameters_max)?;
    let (sink, query) = (parameters.get("sink"), parameters.get("q"));
    let found = match query {
        None => None,
        Some(query) => Some(match search::sink(node, sink) {
            Ok(view) => app.searches.find(node, view, query, HITS).await,
            Err(refusal) => Err(refusal),
        }),
    };
    let view = View::new(node, &app.sampler.sample().await);
    let page = render(node, &view, &app.assets, &SearchForm { sink, query, found });
    Ok(answer::with_type(StatusCode::OK, "text/html; charset=utf-8", page.into_string()))
}

pub(crate) fn render(node: &Node, view: &View, assets: &Assets, form: &SearchForm<'_>) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (node.name) " · Honeyflow" }
                link rel="icon" href=(assets::ICON);
                link rel="stylesheet" href=(assets.style.path);
                script src=(assets.script.path) defer {}
            }
            body {
                a .skip href="#main" { "Skip to content" }
                (draw::arrow_heads())
                (sections::header(node, view))
                main #main {
                    (sections::tiles(view))
                    div .columns {
                        div .wide {
                            (sections::rates(view))
                            (sections::workflows(node, view))
                        }
                        div .side {
                            (sections::search(node, form))
                            (sections::waits(view))
                            (sections::sources(node, view))
                            (sections::sinks(node, view))
                            (sections::pools(node, view))
                            (sections::hive(view))
                        }
                    }
                }
                footer {
                    span { "Honeyflow " (node.version) }
                    nav aria-label="For programs" {
                        a href="/v1/status" { "status" }
                        a href="/metrics" { "metrics" }
                        a href="/ready" { "ready" }
                        a href="/health" { "health" }
                    }
                }
            }
        }
    }
}
