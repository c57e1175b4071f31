//! The watches of a session: room for each watch, and the only way to arm one.
//!
//! Invariant: a watch is counted from before its request is sent until it is dropped. The pool
//! keeps the count below what the link bears.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::sleep;

use super::{Failure, Session};
use crate::link::{Change, Link, Node, Reply, Watch};

/// The pause before the room is checked again.
const ROOM_PAUSE: Duration = Duration::from_millis(200);
/// The length of a path, which comes before it on the wire.
const LENGTH: usize = 4;

/// Bytes of one path in the request that arms watches again, or that names a session's nodes. The
/// client sends a path once for each kind of watch, with its chroot, however many there are
/// (zookeeper-client 0.11.2, `session/watch.rs`, `resend_watches`), so the sum over all watches is
/// never less than what is sent.
pub(crate) fn sent_len(chroot: usize, path: usize) -> usize {
    LENGTH + chroot + path
}

/// Reserves bytes, if there is room. A single path always has room.
pub(super) fn reserve_bytes(reserved: &AtomicUsize, bytes: usize, limit: usize) -> bool {
    let fits = |before: usize| (before == 0 || before + bytes <= limit).then_some(before + bytes);
    let updated = reserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
    updated.is_ok()
}

/// Room in a session for one watch, and the watch. The room is given back on drop.
#[derive(Debug)]
pub(crate) struct WatchSlot {
    session: Arc<Session>,
    bytes: usize,
    watch: Option<Watch>,
}

impl WatchSlot {
    pub(super) fn try_new(session: &Arc<Session>, bytes: usize) -> Option<Self> {
        let limit = session.opener.most_watched();
        reserve_bytes(&session.watched_bytes, bytes, limit).then(|| Self {
            session: Arc::clone(session),
            bytes,
            watch: None,
        })
    }

    /// Waits until there is room for a watch on this path.
    pub(crate) async fn with_room(session: &Arc<Session>, path: &str) -> Self {
        let bytes = session.sent_len(path);
        loop {
            if let Some(slot) = Self::try_new(session, bytes) {
                return slot;
            }
            sleep(ROOM_PAUSE).await;
        }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Takes room away, for another watch.
    pub(crate) fn part(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self {
            session: Arc::clone(&self.session),
            bytes,
            watch: None,
        }
    }

    /// Takes all room away. Nothing is watched in this one any more.
    pub(crate) fn take(&mut self) -> Self {
        self.disarm();
        self.part(usize::MAX)
    }

    /// Nothing is watched any more, and the room is given back.
    pub(crate) fn give_back(&mut self) {
        self.disarm();
        let bytes = std::mem::take(&mut self.bytes);
        let watched = &self.session.watched_bytes;
        watched.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn is_armed(&self) -> bool {
        self.watch.is_some()
    }

    /// Takes the watch back.
    pub(crate) fn disarm(&mut self) {
        self.watch = None;
    }

    /// Reads a node and watches it, and no other node any more.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, nothing is watched.
    pub(crate) async fn watch(&mut self, path: &str) -> Result<Node, Failure> {
        self.arm(path, |link| link.watch(path)).await
    }

    /// As [`watch`](Self::watch), for a directory's children, which it lists.
    pub(crate) async fn watch_children(&mut self, path: &str) -> Result<Vec<String>, Failure> {
        self.arm(path, |link| link.watch_children(path)).await
    }

    async fn arm<T>(
        &mut self,
        path: &str,
        send: impl for<'a> Fn(&'a dyn Link) -> Reply<'a, (T, Watch)> + Send + Sync,
    ) -> Result<T, Failure> {
        self.disarm();
        self.cover(path);
        let (seen, watch) = self.session.read(send).await?;
        self.watch = Some(watch);
        Ok(seen)
    }

    /// Counts a watch for which less room was reserved.
    fn cover(&mut self, path: &str) {
        let more = self.session.sent_len(path).saturating_sub(self.bytes);
        self.bytes += more;
        let watched = &self.session.watched_bytes;
        watched.fetch_add(more, Ordering::Relaxed);
    }

    /// Waits until the watch fires, which spends it, or the session ends. Ends at once if nothing
    /// is watched.
    pub(crate) async fn changed(&mut self) -> Change {
        let Some(watch) = &mut self.watch else {
            return Change::Changed;
        };
        let change = tokio::select! {
            biased;
            _ = self.session.ended() => return Change::SessionOver,
            change = watch.changed() => change,
        };
        self.watch = None;
        change
    }
}

impl Drop for WatchSlot {
    fn drop(&mut self) {
        self.give_back();
    }
}
