//! The one change: a holder is asked to leave, and a ticket is removed.
//!
//! Invariant: only the ticket that the page has shown is removed, and only if it was allowed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::{Response, StatusCode};
use lockkeeper::{LockName, QueueEntry};
use serde::Deserialize;
use serde_json::json;

use super::answers;
use super::routes::{Site, refused};
use crate::breaking;
use crate::failure::Failure;
use crate::report;

/// The longest time that a holder may take.
const LONGEST: Duration = Duration::from_secs(3600);

#[derive(Deserialize)]
pub(super) struct Order {
    name: String,
    node: String,
    token: u64,
    /// How long a holder may take that is asked; 0 does not ask it.
    grace_ms: u64,
}

pub(super) async fn remove(
    State(site): State<Arc<Site>>,
    order: Result<Json<Order>, JsonRejection>,
) -> Response<Body> {
    if !site.allows_break {
        let why = "this page only reads: `lockkeeper ui --allow-break` lets it remove tickets";
        return refused(StatusCode::FORBIDDEN, why);
    }
    let Json(order) = match order {
        Ok(order) => order,
        Err(wrong) => return refused(wrong.status(), &wrong.body_text()),
    };
    let Ok(place) = site.breaks.clone().try_acquire_owned() else {
        let why = "too many tickets are being removed";
        return refused(StatusCode::SERVICE_UNAVAILABLE, why);
    };
    // A holder that was asked must go, also if the page that ordered it has gone.
    let acting = tokio::spawn(async move {
        let acted = act(&site, &order).await;
        drop(place);
        acted
    });
    match acting.await {
        Ok(Ok(answer)) => answer,
        Ok(Err(failure)) => refused(status(&failure), &report::in_one_line(&failure)),
        Err(failed) => refused(StatusCode::INTERNAL_SERVER_ERROR, &failed.to_string()),
    }
}

async fn act(site: &Site, order: &Order) -> Result<Response<Body>, Failure> {
    let name = LockName::new(&order.name)?;
    let queue = site.keeper.queue(&name).await?;
    let is_meant =
        |entry: &&QueueEntry| entry.node == order.node && u64::from(entry.token) == order.token;
    let Some(entry) = queue.iter().find(is_meant) else {
        let why = format!("{} is not in the queue of {name} any more", order.node);
        return Ok(refused(StatusCode::CONFLICT, &why));
    };
    // Whoever started this server reads who was removed.
    report::say(format_args!("{name}: {}", breaking::description(entry)));
    let steps = Mutex::new(Vec::new());
    let tell = |step: String| {
        report::say(&step);
        let mut steps = steps.lock().unwrap_or_else(PoisonError::into_inner);
        steps.push(step);
    };
    let grace = Duration::from_millis(order.grace_ms).min(LONGEST);
    let is_removed = breaking::ask_and_remove(&site.keeper, &name, entry, grace, &tell).await?;
    let steps = steps.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(answers::json(
        &json!({ "removed": is_removed, "steps": steps }),
    ))
}

fn status(failure: &Failure) -> StatusCode {
    match failure {
        Failure::Library(error) if error.is_invalid() => StatusCode::BAD_REQUEST,
        Failure::Library(error) if error.is_denied() => StatusCode::FORBIDDEN,
        _ => StatusCode::BAD_GATEWAY,
    }
}
