//! Removes what dead sessions and empty containers have left. Whoever comes does it, in small
//! pieces, because a server does nothing else meanwhile.

use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use tokio::time::sleep;

use super::answer;
use super::inbox::Inbox;
use super::request::Keys;
use crate::link::Fault;

/// Sessions that may be over, and containers that have been empty for long.
pub(super) async fn reap(
    inbox: &Inbox,
    keys: &Keys,
    sessions: Vec<String>,
    containers: Vec<String>,
) {
    // Side by side: each is looked at twice, with a pause between.
    let buried = sessions.iter().map(async |session| {
        if let Err(fault) = bury(inbox, keys, session).await {
            tracing::debug!(?fault, session, "not removed");
        }
    });
    join_all(buried).await;
    for path in containers {
        if let Err(fault) = inbox.ask(keys.collect(&path)).await {
            tracing::debug!(?fault, path, "not removed");
        }
    }
}

async fn bury(inbox: &Inbox, keys: &Keys, session: &str) -> Result<(), Fault> {
    let mut paths: Vec<String> = loop {
        let buried = inbox.ask(keys.bury(session)).await?;
        let (pause, paths): (String, Value) = answer::read(buried)?;
        let pause = Duration::from_micros(pause.parse().map_err(answer::broken)?);
        if pause.is_zero() {
            break answer::read(paths)?;
        }
        // It was seen to be late: a second look decides.
        sleep(pause).await;
    };
    while !paths.is_empty() {
        paths = answer::read(inbox.ask(keys.reap(session, &paths)).await?)?;
    }
    Ok(())
}
