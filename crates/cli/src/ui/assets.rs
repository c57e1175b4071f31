//! The files of the page, as they are in `page/`, and the rules under which a browser reads them.
//!
//! Invariant: nothing is loaded from elsewhere, and nothing in a page runs but these files.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response};
use axum::response::IntoResponse;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// What a browser may do with all that is served.
const RULES: [(&str, &str); 7] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
];

/// Those that show no lock: they are for everybody, so that the login has its looks.
const FILES: [(&str, &str, &str); 11] = [
    ("/page.css", CSS, include_str!("page/page.css")),
    ("/icon.svg", SVG, include_str!("page/icon.svg")),
    ("/main.js", JS, include_str!("page/main.js")),
    ("/text.js", JS, include_str!("page/text.js")),
    ("/rows.js", JS, include_str!("page/rows.js")),
    ("/locks.js", JS, include_str!("page/locks.js")),
    ("/lock.js", JS, include_str!("page/lock.js")),
    ("/timeline.js", JS, include_str!("page/timeline.js")),
    ("/breaking.js", JS, include_str!("page/breaking.js")),
    ("/waits.js", JS, include_str!("page/waits.js")),
    ("/lists.js", JS, include_str!("page/lists.js")),
];

pub(super) fn page() -> Response<Body> {
    ([(CONTENT_TYPE, HTML)], include_str!("page/index.html")).into_response()
}

pub(super) fn login() -> Response<Body> {
    ([(CONTENT_TYPE, HTML)], include_str!("page/login.html")).into_response()
}

/// The file at a path.
pub(super) fn file(path: &str) -> Option<Response<Body>> {
    let file = FILES.iter().find(|(name, ..)| *name == path);
    file.map(|(_, kind, text)| ([(CONTENT_TYPE, *kind)], *text).into_response())
}

/// Adds the rules to an answer.
pub(super) fn rule(headers: &mut HeaderMap) {
    for (name, value) in RULES {
        headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }
}
