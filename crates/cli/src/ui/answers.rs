//! What is read, as JSON. No handler asks the servers: each shows what the reader knows.

use std::sync::Arc;
use std::time::SystemTime;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use lockkeeper::LockName;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::desk::{self, Desk};
use super::events::BEAT;
use super::picture::Picture;
use super::routes::{Asked, Site, refused};
use super::{blockers, sessions};
use crate::doctor::Finding;
use crate::queue;
use crate::visible;

/// The most entries of a queue in one answer.
const MOST: usize = 500;

#[derive(Deserialize)]
pub(super) struct Named {
    name: String,
    #[serde(default)]
    from: usize,
    count: Option<usize>,
}

/// JSON that steers no terminal.
pub(super) fn json(value: &Value) -> Response<Body> {
    let text = visible::escape(value.to_string());
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

/// What every answer says of its age.
pub(super) fn ages(picture: &Picture) -> Value {
    json!({
        "read_ms": picture.read.map(queue::since_ms),
        "now_ms": queue::since_ms(SystemTime::now()),
        "error": picture.error,
    })
}

fn with_ages(picture: &Picture, mut value: Value) -> Response<Body> {
    if let (Value::Object(all), Value::Object(ages)) = (&mut value, ages(picture)) {
        all.extend(ages);
    }
    json(&value)
}

pub(super) async fn about(State(site): State<Arc<Site>>) -> Response<Body> {
    json(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "servers": site.place,
        "root": site.root,
        "allow_break": site.allows_break,
        "requests": site.requests,
        "token": site.gate.csrf(),
    }))
}

pub(super) async fn locks(State(site): State<Arc<Site>>) -> Response<Body> {
    match read(&site, Desk::look, |picture| picture.read.map(|_| ())).await {
        Ok((picture, ())) => {
            let rows = picture.rows.iter();
            let rows: Vec<Value> = rows.map(|(name, row)| row.object(name)).collect();
            with_ages(&picture, json!({ "locks": rows }))
        }
        Err(refusal) => refusal,
    }
}

pub(super) async fn queue(
    State(site): State<Arc<Site>>,
    Asked(asked): Asked<Named>,
) -> Response<Body> {
    if let Err(error) = LockName::new(&asked.name) {
        return refused(StatusCode::BAD_REQUEST, &error.to_string());
    }
    let look = |desk: &Desk| {
        desk.look_at(&asked.name);
    };
    let (picture, ()) = match read(&site, look, |picture| picture.read.map(|_| ())).await {
        Ok(read) => read,
        Err(refusal) => return refusal,
    };
    let row = picture.rows.get(&asked.name);
    let entries = row.map(|row| row.queue.iter().enumerate());
    let entries = entries.into_iter().flatten().skip(asked.from);
    let entries = entries.take(asked.count.unwrap_or(MOST).min(MOST));
    let entries: Vec<Value> = entries
        .map(|(position, entry)| queue::object(position, entry))
        .collect();
    let answer = json!({
        "name": asked.name,
        "holders": row.map_or(0, |row| row.holders()),
        "waiting": row.map_or(0, |row| row.waiting()),
        "denied": row.is_some_and(|row| row.is_denied),
        "deadlock": row.is_some_and(|row| row.is_in_circle),
        "from": asked.from,
        "entries": entries,
    });
    with_ages(&picture, answer)
}

pub(super) async fn journal(
    State(site): State<Arc<Site>>,
    Asked(asked): Asked<Named>,
) -> Response<Body> {
    if let Err(error) = LockName::new(&asked.name) {
        return refused(StatusCode::BAD_REQUEST, &error.to_string());
    }
    if !site.desk.look_at(&asked.name) {
        let why = format!("{} other locks are looked at: ask again", desk::MOST);
        return refused(StatusCode::SERVICE_UNAVAILABLE, &why);
    }
    let look = |desk: &Desk| {
        desk.look_at(&asked.name);
    };
    let known = |picture: &Picture| picture.journals.get(&asked.name).cloned();
    match read(&site, look, known).await {
        Ok((picture, journal)) => match &journal.entries {
            Ok(entries) => with_ages(&picture, json!({ "name": asked.name, "entries": entries })),
            Err(why) => refused(StatusCode::BAD_GATEWAY, why),
        },
        Err(refusal) => refusal,
    }
}

pub(super) async fn waits(State(site): State<Arc<Site>>) -> Response<Body> {
    match read(&site, Desk::look, |picture| picture.read.map(|_| ())).await {
        Ok((picture, ())) => with_ages(&picture, blockers::of(&picture)),
        Err(refusal) => refusal,
    }
}

pub(super) async fn sessions(State(site): State<Arc<Site>>) -> Response<Body> {
    match read(&site, Desk::look, |picture| picture.read.map(|_| ())).await {
        Ok((picture, ())) => with_ages(&picture, sessions::of(&picture)),
        Err(refusal) => refusal,
    }
}

pub(super) async fn doctor(State(site): State<Arc<Site>>) -> Response<Body> {
    let known = |picture: &Picture| picture.examined.clone();
    match read(&site, Desk::look_at_findings, known).await {
        Ok((picture, examined)) => {
            let findings = examined.findings.iter().map(Finding::object);
            let answer = json!({
                "findings": findings.collect::<Vec<_>>(),
                "unchecked": examined.unchecked,
                "examined_ms": queue::since_ms(examined.at),
            });
            with_ages(&picture, answer)
        }
        Err(refusal) => refusal,
    }
}

/// Waits until the reader knows something that is looked at meanwhile.
async fn read<T>(
    site: &Site,
    look: impl Fn(&Desk),
    known: impl Fn(&Picture) -> Option<T>,
) -> Result<(Arc<Picture>, T), Response<Body>> {
    let mut pictures = site.desk.pictures();
    let waiting = async {
        loop {
            look(&site.desk);
            let picture = pictures.borrow_and_update().clone();
            if let Some(known) = known(&picture) {
                return Some((picture, known));
            }
            if let Ok(changed) = timeout(BEAT, pictures.changed()).await {
                changed.ok()?;
            }
        }
    };
    let silent = || {
        let picture = site.desk.picture();
        let why = match (&picture.error, picture.read) {
            (Some(error), _) => error,
            (None, None) => "the servers have not answered yet",
            (None, Some(_)) => "not all locks have been read yet: ask again",
        };
        refused(StatusCode::SERVICE_UNAVAILABLE, why)
    };
    match timeout(site.patience, waiting).await {
        Ok(Some(read)) => Ok(read),
        _ => Err(silent()),
    }
}
