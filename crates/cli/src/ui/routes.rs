//! The paths of the site, and the gate before all of them.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Form, FromRequestParts, Query, Request, State};
use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::{Response, StatusCode};
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use lockkeeper::Keeper;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::desk::Desk;
use super::gate::{Gate, Refusal};
use super::{answers, assets, breaks, events, exposition};
use crate::args::{Server, Ui};
use crate::pattern::Pattern;
use crate::visible;

/// The most pages that are kept up to date at the same time.
const MOST_VIEWERS: usize = 256;
/// The most tickets that are removed at the same time.
const MOST_BREAKS: usize = 16;
/// The longest body of a request, in bytes, and the longest that it may take.
const LONGEST_BODY: usize = 16 << 10;
const BODY: Duration = Duration::from_secs(10);

/// What all handlers share.
pub(super) struct Site {
    pub(super) desk: Arc<Desk>,
    pub(super) keeper: Keeper,
    pub(super) gate: Gate,
    pub(super) viewers: Arc<Semaphore>,
    pub(super) breaks: Arc<Semaphore>,
    /// Of the store, as it may be shown.
    pub(super) place: String,
    pub(super) root: String,
    pub(super) allows_break: bool,
    pub(super) requests: u32,
    pub(super) patience: Duration,
    pub(super) metrics: Vec<Pattern>,
}

impl Site {
    pub(super) fn new(
        server: &Server,
        order: &Ui,
        keeper: Keeper,
        desk: Arc<Desk>,
        gate: Gate,
    ) -> Self {
        Self {
            desk,
            keeper,
            gate,
            viewers: Arc::new(Semaphore::new(MOST_VIEWERS)),
            breaks: Arc::new(Semaphore::new(MOST_BREAKS)),
            place: server.place.shown().to_string(),
            root: server.root.clone(),
            allows_break: order.allow_break,
            requests: order.requests,
            patience: server.read_timeout,
            metrics: order.metrics.clone(),
        }
    }
}

pub(super) fn of(site: Arc<Site>) -> Router {
    Router::new()
        .route("/", get(async || assets::page()))
        .route("/login", post(login))
        .route("/metrics", get(exposition::metrics))
        .route("/api/about", get(answers::about))
        .route("/api/locks", get(answers::locks))
        .route("/api/queue", get(answers::queue))
        .route("/api/journal", get(answers::journal))
        .route("/api/waits", get(answers::waits))
        .route("/api/sessions", get(answers::sessions))
        .route("/api/doctor", get(answers::doctor))
        .route("/api/events", get(events::stream))
        .route("/api/break", post(breaks::remove))
        .fallback(async || refused(StatusCode::NOT_FOUND, "there is nothing at this path"))
        .layer(middleware::from_fn_with_state(site.clone(), guard))
        .with_state(site)
}

/// Lets in who may come in, and rules what browsers may do with the answer.
async fn guard(State(site): State<Arc<Site>>, request: Request, next: Next) -> Response<Body> {
    let mut answer = match admit(&site, &request) {
        Ok(None) => match with_body(request).await {
            Ok(request) => next.run(request).await,
            Err(answer) => answer,
        },
        Ok(Some(answer)) => answer,
        Err(refusal) => refused(refusal.status(), &refusal.why()),
    };
    assets::rule(answer.headers_mut());
    answer
}

/// The request when all of it is there.
async fn with_body(request: Request) -> Result<Request, Response<Body>> {
    let (head, body) = request.into_parts();
    match timeout(BODY, to_bytes(body, LONGEST_BODY)).await {
        Ok(Ok(body)) => Ok(Request::from_parts(head, body.into())),
        Ok(Err(_)) => Err(refused(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the body is too long, or broken off",
        )),
        Err(_) => Err(refused(
            StatusCode::REQUEST_TIMEOUT,
            "the body does not come",
        )),
    }
}

/// An answer for everybody, or the right to go on.
fn admit(site: &Site, request: &Request) -> Result<Option<Response<Body>>, Refusal> {
    let (headers, path) = (request.headers(), request.uri().path());
    site.gate.check_host(headers)?;
    if let Some(file) = assets::file(path) {
        return Ok(Some(file));
    }
    if path == "/login" && site.gate.asks_for_a_token() {
        return Ok(None);
    }
    match site.gate.check_access(headers) {
        Err(Refusal::Login) if path == "/" => return Ok(Some(assets::login())),
        access => access?,
    }
    if !request.method().is_safe() {
        site.gate.check_change(headers)?;
    }
    Ok(None)
}

#[derive(Deserialize)]
struct Login {
    token: String,
}

async fn login(State(site): State<Arc<Site>>, Form(login): Form<Login>) -> Response<Body> {
    match site.gate.login(&login.token) {
        Some(cookie) => {
            let headers = [(SET_COOKIE, cookie), (LOCATION, "/".to_owned())];
            (StatusCode::SEE_OTHER, headers).into_response()
        }
        None => (StatusCode::SEE_OTHER, [(LOCATION, "/#wrong")]).into_response(),
    }
}

/// What the query of a request asks for.
pub(super) struct Asked<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Response<Body>;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(asked)) => Ok(Self(asked)),
            Err(wrong) => Err(refused(wrong.status(), &wrong.body_text())),
        }
    }
}

/// One line that says why not.
pub(super) fn refused(status: StatusCode, why: &str) -> Response<Body> {
    (
        status,
        answers::json(&json!({ "error": visible::clean(why) })),
    )
        .into_response()
}
