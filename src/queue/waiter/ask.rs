//! The waiter's requests: each step of the walk, sent and answered.
//!
//! Invariants: an answer is taken in only when it is there. A lock delay that has begun, the time
//! that a holder's resource has after the holder may have crashed, is sat out before the turn is
//! taken, and the turn is read again after it; none begins after a release that a mark proves. It
//! decides nothing about turns.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, ready};

use futures_util::FutureExt;
use tokio::sync::oneshot;
use tracing::{Level, Span};

use super::super::{WAITING, doubts};
use super::{GuestCall, Waiter};
use crate::error::Result;
use crate::link::{Change, Code};
use crate::protocol::dialect::{self, check_neighbours};
use crate::protocol::lease::Moment;
use crate::protocol::ticket::{TicketData, path_in};
use crate::protocol::walk::{Step, Turn};
use crate::session::{Failure, failed};

impl Waiter {
    /// One step of the walk.
    pub(super) async fn advance(&mut self) -> Result<()> {
        if self.delay_until.is_none() {
            if let Some(turn) = self.walk.shown_turn().cloned() {
                self.take_turn(turn);
                return Ok(());
            }
            if self.walk.step() == Step::Wait {
                return self.wait().await;
            }
        }
        // On the heap, so that a waiter's future is no larger than its wait, in which it spends its
        // life.
        Box::pin(self.ask()).await
    }

    /// Waits for the watch to tell, for a release that is on its way, or for a wake-up.
    async fn wait(&mut self) -> Result<()> {
        let change = tokio::select! {
            biased;
            change = self.place.slot().changed() => change,
            () = is_sent(&mut self.release) => {
                self.walk.departs();
                return Ok(());
            }
            () = is_woken(self.guest.as_deref()) => {
                self.walk.nudged();
                return Ok(());
            }
        };
        match change {
            Change::Deleted => self.walk.woken(),
            Change::Changed => self.walk.watch_again(),
            Change::SessionOver => {
                let end = self.place.session().ended().await;
                return Err(end.while_trying(WAITING, &self.name));
            }
        }
        Ok(())
    }

    /// Does what the walk needs next.
    async fn ask(&mut self) -> Result<()> {
        if let Some(until) = self.delay_until {
            return Box::pin(self.sit_out(until)).await;
        }
        match self.walk.step() {
            Step::Read { .. } => self.read().await,
            Step::Watch(ahead) => {
                let path = path_in(self.place.directory(), &ahead);
                drop(ahead);
                self.watch(&path).await
            }
            Step::GuestEntry(entry) => {
                let entry = entry.clone();
                // The host may be the first and not in yet.
                let is_over = entry.ended_well || self.sat_out == Some(entry.token);
                if !is_over && self.begins_delay() {
                    return Ok(());
                }
                Box::pin(self.enter_as_guest(entry)).await
            }
            Step::Turn(_) | Step::Wait => Ok(()),
        }
    }

    /// The only read that can grant.
    async fn read(&mut self) -> Result<()> {
        let Step::Read {
            with_children,
            tickets,
            behind_sync,
        } = self.walk.step()
        else {
            return Ok(());
        };
        let listed = self
            .place
            .verified_list(with_children, tickets, behind_sync);
        let listed = listed.await;
        let (read, children) = self.in_place(listed)?;
        check_neighbours(&self.name, Some(self.walk.recipe()), &children)?;
        // Only a list names them.
        if with_children && !self.knows_neighbours {
            let took_time = self.reads_doubts(&children).await?;
            self.knows_neighbours = true;
            if took_time {
                // Another read tells of the turn.
                return Ok(());
            }
        }
        let path = Arc::clone(self.place.directory());
        let checked = self.place.checks_acl(&self.name, &path, &read.directory);
        if !checked.await? {
            return Ok(());
        }
        self.count(&read.directory);
        self.seen = read.at;
        let taken_in = self.walk.take_in(&read.snapshot(&children));
        taken_in.map_err(|why| self.failed(Failure::Lost(why)))
    }

    /// Reads the nodes whose names do not tell whether they can share the queue. Whether there were
    /// any.
    pub(super) async fn reads_doubts(&self, children: &[String]) -> Result<bool> {
        let mine = self.place.ticket().map(|(mine, _)| mine);
        let doubts = dialect::in_doubt(Some(self.walk.recipe()), children, mine);
        let directory = self.place.directory();
        doubts::read(self.place.session(), &self.name, directory, &doubts).await?;
        Ok(!doubts.is_empty())
    }

    /// Arms a watch on a ticket before mine.
    async fn watch(&mut self, path: &str) -> Result<()> {
        match self.place.slot().watch(path).await {
            Ok(node) if self.walk.watched(node.czxid) => {
                self.release = self.place.release_of(node.czxid);
                tracing::trace!(path, "watching");
                tell_of(path, &node.data);
            }
            Ok(_) => self.place.slot().disarm(),
            Err(Failure::Answered(Code::NoNode)) => self.walk.not_there(),
            Err(failure) => {
                let session = self.place.session();
                return Err(failed(session, WAITING, &self.name, path, failure));
            }
        }
        Ok(())
    }

    /// Takes the turn, unless it was seen long ago or the lock delay comes first.
    fn take_turn(&mut self, turn: Turn) {
        if !self.is_recent() {
            // The ticket may have been removed since, and another one taken.
            return self.start_over();
        }
        if turn.ended_well {
            // For good: another read begins no delay.
            self.forgo_delay();
        }
        if !self.begins_delay() {
            self.place.grant(turn.plan, self.seen);
            self.is_taken = true;
        }
    }

    /// The tickets before this one are known to have ended well: no lock delay.
    pub(crate) fn forgo_delay(&mut self) {
        self.delay = None;
    }

    /// Whether the lock delay comes first.
    pub(super) fn begins_delay(&mut self) -> bool {
        let Some(delay) = self.delay else {
            return false;
        };
        tracing::debug!(?delay, "the lock delay begins");
        // A delay without an end is one that an operator ends.
        let now = self.place.session().heartbeat.now();
        self.delay_until = Some(now.saturating_add(delay));
        true
    }

    /// Waits for the end of the lock delay, and reads again: the ticket must still be there.
    pub(super) async fn sit_out(&mut self, until: Moment) -> Result<()> {
        let session = self.place.session();
        tokio::select! {
            () = session.heartbeat.until(until) => {}
            end = session.ended() => return Err(end.while_trying(WAITING, &self.name)),
        }
        match self.walk.step() {
            // Beside this hold only: it may be over before we are in, and then others are before
            // us.
            Step::GuestEntry(entry) => self.sat_out = Some(entry.token),
            _ => self.forgo_delay(),
        }
        self.start_over();
        Ok(())
    }
}

/// Ends when a release is on its way. (No `async fn`, which would be larger in each waiter.)
fn is_sent(release: &mut Option<oneshot::Receiver<()>>) -> impl Future<Output = ()> {
    poll_fn(move |context| match release {
        Some(told) => {
            let is_told = ready!(told.poll_unpin(context)).is_ok();
            *release = None;
            if is_told {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }
        None => Poll::Pending,
    })
}

/// Ends at a wake-up of a call that has an owner. (On the heap, as few have one.)
fn is_woken(guest: Option<&GuestCall>) -> impl Future<Output = ()> {
    let wake = guest.and_then(|guest| guest.wake.as_deref());
    let mut told = wake.map(|wake| Box::pin(wake.notified()));
    poll_fn(move |context| match &mut told {
        Some(told) => told.poll_unpin(context),
        None => Poll::Pending,
    })
}

/// Says which ticket is waited for. Its data came with the watch.
fn tell_of(ticket: &str, data: &[u8]) {
    // Only the event needs the data.
    if !tracing::enabled!(Level::DEBUG) {
        return;
    }
    let line = TicketData::parse(data);
    let (host, pid) = line.as_ref().map(|line| (&*line.host, line.pid)).unzip();
    let holder_trace = line.as_ref().and_then(|line| line.trace.as_deref());
    Span::current().record("holder_trace", holder_trace);
    tracing::debug!(ticket, host, pid, holder_trace, "waits for");
}
