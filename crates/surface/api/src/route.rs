//! The route table. A path is compared as sent, byte for byte, without decoding or normalising it, so each handler has
//! exactly one spelling of its path.

use axum::http::Method;

use crate::page::Assets;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Route {
    Page,
    Script,
    Style,
    Health,
    Ready,
    Metrics,
    Status,
    Search,
    Runs,
    Live,
    Events,
    Pools,
}

/// All operations; `<hash>` stands for the hash of the content.
pub const ROUTES: [(&str, &str); 12] = [
    ("GET", "/"),
    ("GET", "/static/<hash>.js"),
    ("GET", "/static/<hash>.css"),
    ("GET", "/health"),
    ("GET", "/ready"),
    ("GET", "/metrics"),
    ("GET", "/v1/status"),
    ("GET", "/v1/search"),
    ("GET", "/v1/runs"),
    ("GET", "/v1/live"),
    ("POST", "/v1/events"),
    ("POST", "/v1/pools"),
];

const ALL: [Route; ROUTES.len()] = [
    Route::Page,
    Route::Script,
    Route::Style,
    Route::Health,
    Route::Ready,
    Route::Metrics,
    Route::Status,
    Route::Search,
    Route::Runs,
    Route::Live,
    Route::Events,
    Route::Pools,
];

impl Route {
    pub fn find(path: &str, assets: &Assets) -> Option<Route> {
        ALL.into_iter().find(|route| route.path(assets) == path)
    }

    pub fn path(self, assets: &Assets) -> &str {
        match self {
            Route::Script => &assets.script.path,
            Route::Style => &assets.style.path,
            Route::Page
            | Route::Health
            | Route::Ready
            | Route::Metrics
            | Route::Status
            | Route::Search
            | Route::Runs
            | Route::Live
            | Route::Events
            | Route::Pools => ROUTES[self as usize].1,
        }
    }

    pub fn method(self) -> Method {
        if self.changes_state() { Method::POST } else { Method::GET }
    }

    /// Returns whether a request counts as traffic. Requests about the node itself and health checks do not count.
    pub fn is_traffic(self) -> bool {
        matches!(self, Route::Search | Route::Events)
    }

    pub fn changes_state(self) -> bool {
        matches!(self, Route::Events | Route::Pools)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn se_8_the_table_matches_the_enum() {
        let assets = Assets::new();
        for (route, (method, path)) in ALL.into_iter().zip(ROUTES) {
            assert_eq!(route.method().as_str(), method, "{path}");
            let shown = match route {
                Route::Script => "/static/<hash>.js",
                Route::Style => "/static/<hash>.css",
                _ => route.path(&assets),
            };
            assert_eq!(shown, path);
        }
    }
}
