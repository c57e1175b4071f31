//! `resize`: stores another limit of a semaphore. It makes no semaphore.

use lockkeeper::{Error, Keeper, LockName};
use serde_json::json;

use crate::args::{Resize, Server};
use crate::failure::Failure;
use crate::look;
use crate::report;

pub(crate) async fn run(server: &Server, order: &Resize, as_json: bool) -> Result<u8, Failure> {
    let name = LockName::new(&order.name)?;
    let keeper = server.connect().await?;
    let resized = resize(server, &keeper, &name, order.limit).await;
    keeper.close().await;
    let (before, limit) = (resized?, order.limit);
    if as_json {
        report::print_json(&json!({ "limit": limit, "before": before }))?;
    } else {
        report::say(format_args!(
            "the limit of {name} is {limit}; it was {before}"
        ));
    }
    Ok(0)
}

/// The limit that it had.
async fn resize(
    server: &Server,
    keeper: &Keeper,
    name: &LockName,
    limit: u32,
) -> Result<u32, Failure> {
    let semaphore = keeper.semaphore(name, limit)?;
    let stored = semaphore
        .stored_limit()
        .await
        .map_err(|error| match error {
            Error::UnsafeMix { node, what, .. } => Failure::OtherLock {
                name: name.to_string(),
                node,
                what,
            },
            error => error.into(),
        })?;
    let Some(before) = stored else {
        let why = format!(
            "{name} is no semaphore: no limit is stored there (the first `run --permits N/LIMIT` of a name stores one)"
        );
        let why = look::nothing(server, keeper, why).await?;
        return Err(Failure::NoSemaphore { why });
    };
    semaphore.resize(limit).await?;
    Ok(before)
}

/// Reads a limit, or says what one is.
pub(crate) fn limit(word: &str) -> Result<u32, String> {
    match word.parse() {
        Ok(0) => Err("a semaphore has at least one permit".into()),
        Ok(limit) => Ok(limit),
        Err(_) => Err("a limit is a number of permits, from 1 to 4294967295".into()),
    }
}
