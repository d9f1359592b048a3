//! The admission check. Every request passes it before anything is read, registered or looked up.
//!
//! Against DNS rebinding, the host of a request must be a loopback name. Against foreign pages in a browser on the same
//! machine, a state change, and every path beneath `/v1`, must come from our own page or from no page.
//! Answers of the protocol parser before there is a request (unparsable, far too large) have no body.

use axum::http::{HeaderMap, Method, StatusCode, Uri, header, request::Parts, uri::Authority};

use crate::{answer::Refusal, codes, node::Limits, page::Assets, route::Route};

const LOOPBACK: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

pub(crate) fn admit(request: &Parts, limits: &Limits, assets: &Assets) -> Result<Route, Refusal> {
    let host = host(&request.uri, &request.headers)?;
    let header_bytes: usize = request.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    if header_bytes > limits.header_bytes_max {
        let message = format!("the headers have more than {} bytes", limits.header_bytes_max);
        return Err(Refusal::new(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            codes::refusal::HEADERS_TOO_LARGE,
            message,
        )
        .closing());
    }
    if url_bytes(&request.uri) > limits.url_bytes_max {
        let message = format!("the URL has more than {} bytes", limits.url_bytes_max);
        return Err(Refusal::new(StatusCode::URI_TOO_LONG, codes::refusal::URL_TOO_LONG, message).closing());
    }
    let path = request.uri.path();
    let Some(route) = Route::find(path, assets) else {
        return Err(Refusal::new(StatusCode::NOT_FOUND, codes::refusal::NOT_FOUND, "there is no such path")
            .hint("paths are compared exactly; GET / is the first page"));
    };
    if route.method() != request.method {
        let allow = if route.method() == Method::POST { "POST" } else { "GET" };
        let message = format!("this path answers {allow} only");
        let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, codes::refusal::METHOD_NOT_ALLOWED, message);
        return Err(Refusal { allow: Some(allow), ..refusal });
    }
    if route.changes_state() {
        same_origin(&request.headers, &host)?;
    }
    if route.changes_state() || path.starts_with("/v1/") {
        same_site(&request.headers)?;
    }
    Ok(route)
}

fn foreign_host() -> Refusal {
    Refusal::new(StatusCode::FORBIDDEN, codes::refusal::FOREIGN_HOST, "the request names a host that is not this node")
        .hint("use http://127.0.0.1, http://localhost or http://[::1], each with the port")
        .closing()
}

fn foreign_page() -> Refusal {
    Refusal::new(
        StatusCode::FORBIDDEN,
        codes::refusal::FOREIGN_ORIGIN,
        "the request comes from a page of another origin",
    )
    .hint("only this node's own page and programs outside a browser may use this path")
    .closing()
}

/// Returns the host as sent, with its port. A target in absolute form must name the same host.
fn host(uri: &Uri, headers: &HeaderMap) -> Result<String, Refusal> {
    let mut named = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (named.next(), named.next()) else { return Err(foreign_host()) };
    let host = host.to_str().map_err(|_| foreign_host())?.to_ascii_lowercase();
    if !is_loopback(&host) || uri.authority().is_some_and(|authority| !same_authority(authority, &host)) {
        return Err(foreign_host());
    }
    Ok(host)
}

fn same_authority(authority: &Authority, host: &str) -> bool {
    authority.as_str().eq_ignore_ascii_case(host)
}

fn is_loopback(host: &str) -> bool {
    LOOPBACK.iter().any(|name| match host.strip_prefix(name) {
        Some("") => true,
        Some(port) => port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok() && !port.starts_with('+')),
        None => false,
    })
}

fn same_origin(headers: &HeaderMap, host: &str) -> Result<(), Refusal> {
    let own = format!("http://{host}");
    let is_own = |value: &axum::http::HeaderValue| value.to_str().is_ok_and(|origin| origin.eq_ignore_ascii_case(&own));
    if headers.get_all(header::ORIGIN).iter().all(is_own) { Ok(()) } else { Err(foreign_page()) }
}

fn same_site(headers: &HeaderMap) -> Result<(), Refusal> {
    let fine = |value: &axum::http::HeaderValue| matches!(value.as_bytes(), b"same-origin" | b"none");
    if headers.get_all("sec-fetch-site").iter().all(fine) { Ok(()) } else { Err(foreign_page()) }
}

fn url_bytes(uri: &Uri) -> usize {
    uri.authority().map_or(0, |authority| authority.as_str().len() + 8)
        + uri.path_and_query().map_or(0, |path| path.as_str().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn se_7_only_loopback_names_are_accepted() {
        for host in ["127.0.0.1", "127.0.0.1:7171", "localhost:1", "[::1]", "[::1]:65535"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "example.com",
            "127.0.0.1.example.com",
            "localhost.example.com:7171",
            "localhost:",
            "localhost:+1",
            "localhost:70000",
            "localhost:1:2",
            "localhost@example.com",
            "127.0.0.10",
            "0.0.0.0",
            "::1",
            "[::1",
            "[::1]x",
            "[::ffff:127.0.0.1]",
            "2130706433",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
