//! The watches of one session.
//!
//! Invariant: each is told once. It has a number of its own, so that an event which comes before
//! the answer to its request, or after it was armed again, is never taken for another one's.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::oneshot;

use super::{Rearmed, WatchKind};
use crate::latch::Latch;
use crate::link::Change;

#[derive(Debug, Default)]
pub(super) struct Watches {
    last: AtomicU64,
    armed: Latch<HashMap<u64, Armed>>,
}

#[derive(Debug)]
struct Armed {
    teller: oneshot::Sender<Change>,
    kind: WatchKind,
    path: String,
    /// The node's id, and its version or its last change of children; none before the answer.
    seen: Option<(i64, i64)>,
}

impl Watches {
    /// Registers a watch that is about to be asked for.
    pub(super) fn begin(
        self: &Arc<Self>,
        kind: WatchKind,
        path: &str,
    ) -> (u64, oneshot::Receiver<Change>) {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (teller, told) = oneshot::channel();
        let armed = Armed {
            teller,
            kind,
            path: path.to_owned(),
            seen: None,
        };
        self.armed.lock().insert(number, armed);
        (number, told)
    }

    /// The server has armed it.
    pub(super) fn armed(&self, number: u64, czxid: i64, last: i64) {
        if let Some(armed) = self.armed.lock().get_mut(&number) {
            armed.seen = Some((czxid, last));
        }
    }

    /// Takes it back. Whether the server may still have it.
    pub(super) fn forget(&self, number: u64) -> bool {
        let forgotten = self.armed.lock().remove(&number);
        forgotten.is_some()
    }

    /// An event: `x` and the number for a delete, `c` for another change.
    pub(super) fn tell(&self, event: &str) {
        let Some((change, number)) = event.split_at_checked(1) else {
            return;
        };
        let change = match change {
            "x" => Change::Deleted,
            _ => Change::Changed,
        };
        let Ok(number) = number.parse::<u64>() else {
            return;
        };
        let armed = self.armed.lock().remove(&number);
        if let Some(armed) = armed {
            armed.teller.send(change).ok();
        }
    }

    /// What a new connection arms again.
    pub(super) fn to_rearm(&self) -> Vec<Rearmed> {
        let armed = self.armed.lock();
        let rearmed = armed.iter().filter_map(|(&number, armed)| {
            let (czxid, last) = armed.seen?;
            Some(Rearmed {
                number,
                kind: armed.kind,
                path: armed.path.clone(),
                czxid,
                last,
            })
        });
        rearmed.collect()
    }

    /// The session is over: every watch is told.
    pub(super) fn end(&self) {
        let all = std::mem::take(&mut *self.armed.lock());
        for (_, armed) in all {
            armed.teller.send(Change::SessionOver).ok();
        }
    }
}
