//! The page's one script and one stylesheet. Their names contain the hash of their content, so that a browser may cache
//! them for ever and never combines a new page with an old script.

use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
};
use honeyflow_event::document;
use serde_json::Value;

use crate::answer;

/// A comb cell as a data URL: `img-src data:` allows it.
pub(crate) const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E\
    %3Cpath d='M16 2l12 7v14l-12 7-12-7V9z' fill='%23e8a317'/%3E%3Cpath d='M16 9l6 3.5v7L16 23l-6-3.5v-7z' \
    fill='%23fff6dd'/%3E%3C/svg%3E";

pub(crate) struct Assets {
    pub script: Asset,
    pub style: Asset,
}

pub(crate) struct Asset {
    pub path: String,
    content_type: &'static str,
    text: &'static str,
}

impl Assets {
    pub fn new() -> Assets {
        Assets {
            script: Asset::new(include_str!("page.js"), "js", "text/javascript; charset=utf-8"),
            style: Asset::new(include_str!("page.css"), "css", "text/css; charset=utf-8"),
        }
    }
}

impl Asset {
    fn new(text: &'static str, ending: &str, content_type: &'static str) -> Asset {
        let hash = document::hash(&Value::String(text.to_owned()));
        Asset { path: format!("/static/{hash:016x}.{ending}"), content_type, text }
    }

    pub fn answer(&self) -> Response<Body> {
        let mut response = answer::with_type(StatusCode::OK, self.content_type, self.text);
        let kept = HeaderValue::from_static("public, max-age=31536000, immutable");
        response.headers_mut().insert(header::CACHE_CONTROL, kept);
        response
    }
}
