//! Removes what dead sessions and empty containers have left. Whoever comes does it, in small
//! pieces, because others wait for a server meanwhile.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::{join, join_all};
use tokio::sync::Mutex;
use tokio::time::sleep;

use super::inbox::Inbox;
use super::{Outcome, StoreRequest, unexpected};
use crate::latch::Latch;
use crate::link::Fault;

/// A session is looked at twice, with a pause between. Who finds its row locked again and again
/// leaves it to those who are told of it later.
const MOST_LOOKS: usize = 10;

/// What one session removes of others.
#[derive(Debug, Default)]
pub(super) struct Reaper {
    /// Sessions that may be over, each of which is under way once: one with a long timeout holds up
    /// no other.
    under_way: Latch<HashSet<i64>>,
    collecting: Mutex<()>,
}

impl Reaper {
    /// Removes sessions that may be over, and containers that have been empty for long.
    pub(super) fn reap(
        self: &Arc<Self>,
        inbox: &Inbox,
        mut sessions: Vec<i64>,
        containers: Vec<String>,
    ) {
        let mut under_way = self.under_way.lock();
        sessions.retain(|session| under_way.insert(*session));
        drop(under_way);
        if sessions.is_empty() && containers.is_empty() {
            return;
        }
        let (reaper, inbox) = (Arc::clone(self), inbox.clone());
        tokio::spawn(async move {
            let buried = sessions.into_iter().map(async |session| {
                if let Err(fault) = bury(&inbox, session).await {
                    tracing::debug!(?fault, session, "not removed");
                }
                reaper.under_way.lock().remove(&session);
            });
            join(join_all(buried), reaper.collect(&inbox, containers)).await;
        });
    }

    async fn collect(&self, inbox: &Inbox, containers: Vec<String>) {
        // What is under way is named again in a second.
        let Ok(_turn) = self.collecting.try_lock() else {
            return;
        };
        for path in containers {
            if let Err(fault) = inbox.ask(StoreRequest::Collect(path)).await {
                tracing::debug!(?fault, "an empty container is not removed");
            }
        }
    }
}

async fn bury(inbox: &Inbox, session: i64) -> Result<(), Fault> {
    let mut looks = 0;
    let mut paths = loop {
        looks += 1;
        match inbox.ask(StoreRequest::Bury(session)).await? {
            Outcome::Buried(pause, paths) if pause.is_zero() => break paths,
            Outcome::Buried(..) if looks == MOST_LOOKS => return Ok(()),
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
