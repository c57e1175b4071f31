//! Removes what dead sessions and empty containers have left. Whoever comes does it, in small
//! pieces, because others wait for a server meanwhile.

use futures_util::future::join_all;
use tokio::time::sleep;

use super::inbox::Inbox;
use super::{Outcome, StoreRequest, unexpected};
use crate::link::Fault;

/// Sessions that may be over, and containers that have been empty for long.
pub(super) async fn reap(inbox: &Inbox, sessions: Vec<i64>, containers: Vec<String>) {
    // Side by side: each is looked at twice, with a pause between.
    let buried = sessions.iter().map(async |&session| {
        if let Err(fault) = bury(inbox, session).await {
            tracing::debug!(?fault, session, "not removed");
        }
    });
    join_all(buried).await;
    for path in containers {
        if let Err(fault) = inbox.ask(StoreRequest::Collect(path)).await {
            tracing::debug!(?fault, "an empty container is not removed");
        }
    }
}

async fn bury(inbox: &Inbox, session: i64) -> Result<(), Fault> {
    let mut paths = loop {
        match inbox.ask(StoreRequest::Bury(session)).await? {
            Outcome::Buried(pause, paths) if pause.is_zero() => break paths,
            // It was seen to be late: a second look decides.
            Outcome::Buried(pause, _) => sleep(pause).await,
            other => return Err(unexpected(&other)),
        }
    };
    while !paths.is_empty() {
        paths = match inbox.ask(StoreRequest::Reap(session, paths)).await? {
            Outcome::Paths(paths) => paths,
            other => return Err(unexpected(&other)),
        };
    }
    Ok(())
}
