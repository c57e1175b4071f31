//! One heartbeat: its requests, and its answer.
//!
//! Invariant: all of its requests leave together, in this order: the question for the session's own
//! tickets, the proof of life, the read of tickets. It decides nothing.

use futures_util::future::{BoxFuture, FutureExt, OptionFuture, TryFutureExt};

use super::state::CheckedTicket;
use super::{Heartbeat, LeaseStrength};
use crate::link::{Fault, Found, Link, Read, Reply, Write};
use crate::protocol::lease::{By, Moment};

/// The answer to a heartbeat.
#[derive(Debug)]
pub(super) struct HeartbeatAnswer {
    pub(super) sent: Moment,
    pub(super) batch: Vec<CheckedTicket>,
    pub(super) answer: Result<(), Fault>,
    pub(super) by: By,
    /// The batch was checked, and not only synced.
    pub(super) is_checked: bool,
    /// This session's own tickets under the name of the first of the batch, if that was asked, and
    /// after how many reconnects.
    pub(super) owned: Option<(u64, Vec<String>)>,
    /// The tickets of the batch, if they were to be read and are not told apart from this; `None`
    /// if that failed.
    pub(super) found: Option<Vec<Found>>,
}

/// What a read of tickets found; `None` if it failed.
pub(super) type TicketsRead = (Vec<CheckedTicket>, Option<Vec<Found>>);

/// A heartbeat on its way.
pub(super) struct SentHeartbeat<'a> {
    pub(super) sent: Moment,
    pub(super) answer: BoxFuture<'a, HeartbeatAnswer>,
    /// The read of tickets beside it. A store may answer that much later than a proof of life.
    pub(super) read: Option<BoxFuture<'a, TicketsRead>>,
}

impl HeartbeatAnswer {
    /// Whether the first ticket of the batch is this session's, and after how many reconnects that
    /// was asked. A ticket that is gone tells nothing.
    pub(super) fn is_ours(&self) -> Option<(u64, bool)> {
        let (reconnects, owned) = self.owned.as_ref()?;
        let first = self.batch.first()?;
        if owned.iter().any(|path| **path == *first.path) {
            return Some((*reconnects, true));
        }
        let found = self.found.as_ref().and_then(|found| found.first());
        let is_there = match (found, &self.answer) {
            (Some(Found::Node(node)), _) => node.czxid == first.czxid,
            (None, Ok(())) => self.is_checked,
            (None, Err(Fault::Refused(at, _))) => self.is_checked && *at > 0,
            _ => false,
        };
        is_there.then_some((*reconnects, false))
    }
}

impl Heartbeat {
    /// Sends one heartbeat. `may_read`: whether tickets are read if that is due.
    pub(super) fn send<'a>(&self, link: &'a dyn Link, may_read: bool) -> SentHeartbeat<'a> {
        let (batch, is_due) = self.observed().next_batch();
        let sent = self.clock.now();
        // Asked before anything is sent, and again once it is answered.
        let standalone = link.standalone();
        let is_sync = self.strength == LeaseStrength::Sync || !self.has_tickets();
        let owned = self.ask_for_owned(link, &batch);
        let is_asking = owned.is_some();
        let owned: OptionFuture<_> = owned.into();
        let answer = match is_sync {
            true => link.sync("/"),
            false => check(link, &batch),
        };
        let is_reading = may_read && !batch.is_empty() && (is_sync || is_due);
        let mut found = is_reading.then(|| read(link, &batch));
        // Only what the question for the session's own tickets has left open waits for it.
        let read = found.take_if(|_| !is_asking);
        let read = read.map(|found| of_batch(batch.clone(), found));
        let answer = async move {
            let owned = owned.await.and_then(Result::ok);
            let answer = answer.await;
            let is_alone = standalone.is_some() && link.standalone() == standalone;
            let by = if is_alone { By::Standalone } else { By::Any };
            let found = match found {
                Some(found) => found.await,
                None => Some(Vec::new()),
            };
            HeartbeatAnswer {
                sent,
                batch,
                answer,
                by,
                is_checked: !is_sync,
                owned,
                found,
            }
        };
        let answer = answer.boxed();
        SentHeartbeat { sent, answer, read }
    }

    /// After a reconnect: is this still our session? A server may have opened another one in
    /// silence.
    fn ask_for_owned<'a>(
        &self,
        link: &'a dyn Link,
        batch: &[CheckedTicket],
    ) -> Option<Reply<'a, (u64, Vec<String>)>> {
        let (reconnects, first) = self.is_strange().zip(batch.first())?;
        let (synced, listed) = (link.sync("/"), link.ephemerals(&first.path));
        Some(Box::pin(async move {
            let owned = synced.await.and(listed.await);
            owned.map(|owned| (reconnects, owned))
        }))
    }
}

/// A commit that changes nothing.
fn check<'a>(link: &'a dyn Link, batch: &[CheckedTicket]) -> Reply<'a, ()> {
    let mut checks: Vec<Write<'_>> = batch
        .iter()
        .map(|ticket| Write::check(&ticket.path))
        .collect();
    if checks.is_empty() {
        checks.push(Write::check("/"));
    }
    let reply = link.multi(&checks);
    reply.map_ok(drop).boxed()
}

fn of_batch(
    batch: Vec<CheckedTicket>,
    found: BoxFuture<'_, Option<Vec<Found>>>,
) -> BoxFuture<'_, TicketsRead> {
    found.map(|found| (batch, found)).boxed()
}

fn read<'a>(link: &'a dyn Link, batch: &[CheckedTicket]) -> BoxFuture<'a, Option<Vec<Found>>> {
    let reads = batch.iter().map(|ticket| Read::Data(&ticket.path));
    let found = link.multi_read(&reads.collect::<Vec<_>>());
    found.map(Result::ok).boxed()
}
