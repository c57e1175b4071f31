//! The stream of one viewer: what has changed since it last heard.
//!
//! Invariant: a viewer gets each change of the list once, and of one lock, the waits and the
//! findings only that they changed. What it looks at is fetched.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream;
use lockkeeper::LockName;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::timeout;

use super::answers::ages;
use super::picture::Picture;
use super::routes::{Asked, Site, refused};
use crate::queue;
use crate::visible;

/// A viewer is still there after that.
pub(super) const BEAT: Duration = Duration::from_secs(2);

#[derive(Deserialize)]
pub(super) struct Looks {
    /// The lock that is looked at.
    lock: Option<String>,
    /// Whether the findings are looked at.
    #[serde(default)]
    doctor: bool,
    /// What the viewer knows already.
    since: Option<String>,
}

struct Viewer {
    site: Arc<Site>,
    looks: Looks,
    pictures: watch::Receiver<Arc<Picture>>,
    known: Option<u64>,
    is_first: bool,
    _place: OwnedSemaphorePermit,
}

pub(super) async fn stream(
    State(site): State<Arc<Site>>,
    Asked(looks): Asked<Looks>,
    headers: HeaderMap,
) -> Response<Body> {
    if let Some(Err(error)) = looks.lock.as_ref().map(LockName::new) {
        return refused(StatusCode::BAD_REQUEST, &error.to_string());
    }
    let Ok(place) = site.viewers.clone().try_acquire_owned() else {
        let why = "too many pages are open";
        return refused(StatusCode::SERVICE_UNAVAILABLE, why);
    };
    // What a browser heard last counts, if it comes again.
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let since = last.or(looks.since.as_deref());
    let known = since.and_then(|since| version(since, &site.desk.picture()));
    let viewer = Viewer {
        pictures: site.desk.pictures(),
        site,
        looks,
        known,
        is_first: true,
        _place: place,
    };
    let events = stream::unfold(viewer, |mut viewer| async move {
        let event = viewer.next().await?;
        Some((Ok::<_, Infallible>(event), viewer))
    });
    Sse::new(events)
        .keep_alive(KeepAlive::default())
        .into_response()
}

/// The version in `boot-version`, if it is of this process.
fn version(since: &str, picture: &Picture) -> Option<u64> {
    let version = since.strip_prefix(&picture.boot.simple().to_string())?;
    version.strip_prefix('-')?.parse().ok()
}

impl Viewer {
    /// The next event; none when the reader has ended.
    async fn next(&mut self) -> Option<Event> {
        self.look();
        loop {
            let is_known = std::mem::take(&mut self.is_first);
            if !is_known || self.pictures.borrow().read.is_none() {
                match timeout(BEAT, self.pictures.changed()).await {
                    Ok(changed) => changed.ok()?,
                    Err(_) => {
                        self.look();
                        continue;
                    }
                }
            }
            let picture = self.pictures.borrow_and_update().clone();
            let id = format!("{}-{}", picture.boot.simple(), picture.version);
            let data = visible::escape(self.changes(&picture).to_string());
            self.known = Some(picture.version);
            return Some(Event::default().id(id).data(data));
        }
    }

    /// Says that it goes on.
    fn look(&self) {
        self.site.desk.look();
        if let Some(lock) = &self.looks.lock {
            self.site.desk.look_at(lock);
        }
        if self.looks.doctor {
            self.site.desk.look_at_findings();
        }
    }

    fn changes(&self, picture: &Picture) -> Value {
        let (is_whole, changed, gone) = picture.changes(self.known);
        let lock = self.looks.lock.as_ref();
        let row = lock.and_then(|lock| picture.rows.get(lock));
        let journal = lock.and_then(|lock| picture.journals.get(lock));
        let examined = picture.examined.as_ref();
        json!({
            "ages": ages(picture),
            "round_ms": picture.round.map(|round| u64::try_from(round.as_millis()).unwrap_or(u64::MAX)),
            "whole": is_whole,
            "changed": changed,
            "gone": gone,
            "deadlocks": picture.circles.len(),
            "lock": row.map(|row| row.version),
            "journal": journal.map(|journal| journal.version),
            "examined_ms": examined.map(|examined| queue::since_ms(examined.at)),
        })
    }
}
