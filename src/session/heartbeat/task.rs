//! The task that sends heartbeats in their rhythm, and takes their answers in.
//!
//! Invariant: a lease is extended only by an answer, and ended by the clock. The task ends with the
//! session, and holds no reference to it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::{BoxFuture, OptionFuture};
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::Heartbeat;
use super::request::{HeartbeatAnswer, TicketsRead};
use super::state::{CheckedTicket, Observed};
use crate::link::{Code, Fault, Found, Link, SessionState};
use crate::metrics;
use crate::protocol::lease::Moment;
use crate::session::ending::{ANOTHER_SESSION, EndNotifier};

/// Heartbeats without an answer yet, at most, and reads of tickets. The link gives up each after a
/// session timeout, which is ten heartbeats of a holder.
const UNDER_WAY: usize = 12;
/// After so many heartbeats in a row without an answer, on a connection that does not break, the
/// session is given up. The client can wait for ever for the rest of a broken answer, and its pings
/// then keep our tickets in their queues. That takes almost three session timeouts.
const MOST_UNANSWERED: usize = 12;
pub(super) const DEAF: &str = "the server answers nothing";

/// The task's memory from heartbeat to heartbeat.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    last_sent: Moment,
    is_urgent: bool,
    /// Heartbeats in a row without an answer, on this connection.
    unanswered: usize,
}

impl Heartbeat {
    /// The task: sends heartbeats until the session ends.
    pub(in crate::session) async fn run(
        self: Arc<Self>,
        link: Arc<dyn Link>,
        end_notifier: EndNotifier,
    ) {
        let (mut states, mut proofs) = (link.states(), link.proofs());
        let mut under_way = FuturesUnordered::<BoxFuture<'_, HeartbeatAnswer>>::new();
        let mut reads = FuturesUnordered::<BoxFuture<'_, TicketsRead>>::new();
        let mut rounds = Rounds {
            last_sent: self.clock.now(),
            ..Rounds::default()
        };
        let ended = end_notifier.notify(&self.ending);
        tokio::pin!(ended);
        loop {
            let (lease_end, next) = self.alarms(&rounds);
            let may_send = self.is_connected() && under_way.len() < UNDER_WAY;
            let lapse: OptionFuture<_> = lease_end.map(|end| self.clock.until(end)).into();
            tokio::select! {
                () = &mut ended => break,
                Some(()) = lapse => {}
                Some(heard) = under_way.next() => self.hear(heard, &mut rounds),
                Some(read) = reads.next() => self.hear_read(&read),
                changed = states.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    let state = *states.borrow_and_update();
                    self.follow(state, &mut rounds);
                }
                Ok(()) = proofs.changed() => {
                    tracing::debug!("the server stands alone: the lease reckons with no lag");
                    // A new session's lease is as long as any. After a silence each heartbeat
                    // counts.
                    rounds.is_urgent |= self.reconnects.load(Ordering::Relaxed) > 0;
                }
                () = self.clock.until(next), if may_send => {
                    let heartbeat = self.send(&*link, reads.len() < UNDER_WAY);
                    (rounds.last_sent, rounds.is_urgent) = (heartbeat.sent, false);
                    under_way.push(heartbeat.answer);
                    reads.extend(heartbeat.read);
                }
            }
        }
        self.observe();
    }

    /// When the lease ends, and when the next heartbeat is to be sent.
    fn alarms(&self, rounds: &Rounds) -> (Option<Moment>, Moment) {
        let state = self.observed();
        let is_holding = !state.entries.is_empty();
        let next = match rounds.is_urgent {
            true => Moment::ZERO,
            false => state.lease.next_heartbeat(rounds.last_sent, is_holding),
        };
        (state.lease.valid_until(Moment::ZERO), next)
    }

    /// Takes in a change of the client's state.
    fn follow(&self, state: SessionState, rounds: &mut Rounds) {
        match state {
            // Each change may hide a reconnect between two of them.
            SessionState::Connected => {
                self.reconnects.fetch_add(1, Ordering::Relaxed);
                (rounds.is_urgent, rounds.unanswered) = (true, 0);
                metrics::reconnected();
            }
            SessionState::Disconnected => {
                tracing::warn!("the session is doubtful: its connection is lost");
            }
            SessionState::Over(_) => {}
        }
    }

    /// Takes in a read of tickets that was answered apart from its heartbeat.
    fn hear_read(&self, (batch, found): &TicketsRead) {
        hear_of_read(batch, found.as_deref(), &mut self.observed());
    }

    /// Takes in an answer.
    pub(super) fn hear(&self, heard: HeartbeatAnswer, rounds: &mut Rounds) {
        match heard.is_ours() {
            Some((_, false)) => {
                self.ending.renounce(ANOTHER_SESSION);
                return self.observe();
            }
            Some((reconnects, true)) => self.recognised(reconnects),
            // Asked again, about another ticket, until one of them tells.
            None => {}
        }
        let unclear = heard.answer.as_ref().err().and_then(Fault::unclear);
        if let Some(why) = unclear {
            tracing::debug!(why, "a heartbeat has no answer");
            rounds.unanswered += 1;
            if self.is_connected() && rounds.unanswered >= MOST_UNANSWERED {
                self.ending.renounce(DEAF);
            }
            return self.observed().check_again(&heard.batch);
        }
        let mut state = self.observed();
        rounds.unanswered = 0;
        rounds.is_urgent |= hear_of_tickets(&heard, &mut state);
        let now = state.now;
        state.lease.answered(heard.sent, now, heard.by);
        state.publish_lease(&self.leased);
    }
}

/// Takes in an answer about tickets that were checked or read. Whether one of them was refused: its
/// check hides those behind it.
fn hear_of_tickets(heard: &HeartbeatAnswer, state: &mut Observed<'_>) -> bool {
    let refused = match &heard.answer {
        Err(Fault::Refused(at, code)) => heard.batch.get(*at).map(|ticket| (*at, ticket, code)),
        _ => None,
    };
    if let Some((at, ticket, code)) = refused {
        state.check_again(heard.batch.get(at + 1..).unwrap_or_default());
        match code {
            Code::NoNode => state.miss(ticket.id, "the ticket was removed"),
            _ => state.hide(ticket.id),
        }
    }
    hear_of_read(&heard.batch, heard.found.as_deref(), state);
    refused.is_some()
}

/// Takes in what a read of tickets found, if it did not fail.
fn hear_of_read(batch: &[CheckedTicket], found: Option<&[Found]>, state: &mut Observed<'_>) {
    if found.is_none() {
        state.check_again(batch);
    }
    for (ticket, found) in batch.iter().zip(found.into_iter().flatten()) {
        match found {
            Found::Node(node) if node.czxid == ticket.czxid => {}
            Found::Node(_) => state.miss(ticket.id, "another ticket stands under its name"),
            Found::Failed(Code::NoNode) => state.miss(ticket.id, "the ticket was removed"),
            _ => {}
        }
    }
}
