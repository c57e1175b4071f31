//! The exchange of a place's ticket for another one, in one transaction.
//!
//! Invariant: until it is known which of the two is there, the place answers for both, as
//! `protocol/exchange.rs` says. It decides nothing about turns.

use std::sync::Arc;

use uuid::Uuid;

use super::{PlaceState, TicketPlace};
use crate::link::{Code, Fault, Node, Read, Write};
use crate::protocol::answer::Answer;
use crate::protocol::exchange::Exchanging;
use crate::protocol::lease::Moment;
use crate::protocol::mark::ReleasePlan;
use crate::protocol::ticket::{Ticket, TicketData};
use crate::protocol::walk::REMOVED;
use crate::session::janitor::TicketId;
use crate::session::{Failure, node_in};

/// Another ticket in exchange for the one that is there: both and whatever belongs to it in one
/// transaction.
#[derive(Debug)]
pub(crate) struct Exchange<'a> {
    /// Where the new ticket is to be.
    pub(crate) directory: &'a Arc<str>,
    /// Its name, or the start of it.
    pub(crate) ticket: Ticket,
    pub(crate) is_sequential: bool,
    pub(crate) data: &'a [u8],
    /// The attempt in its data.
    pub(crate) attempt: Uuid,
    /// What must commit with it; comes first.
    pub(crate) with: &'a [Write<'a>],
    /// How it will leave.
    pub(crate) plan: ReleasePlan,
}

/// What came of an exchange.
#[derive(Debug)]
pub(crate) enum Exchanged {
    Done,
    /// The server refused this write: nothing was changed.
    Refused(usize, Code),
    /// Nothing was changed, for no lasting reason.
    Nothing,
}

/// Refused unless the node is still at this version. Writes its data, if there are any.
pub(crate) fn unchanged<'a>(path: &'a str, version: i32, data: Option<&'a [u8]>) -> Write<'a> {
    match data {
        Some(data) => Write::set(path, data, version),
        None => Write::Check { path, version },
    }
}

impl TicketPlace {
    /// Whether an exchange that was dropped on its way was done. `false` also if nobody can tell
    /// any more.
    pub(crate) async fn was_exchanged(&self) -> bool {
        let Some((directory, attempt)) = self.unsettled() else {
            return false;
        };
        let found = self.session.janitor.find_out(directory, attempt).await;
        found.is_ok_and(|found| found.is_some())
    }

    /// Whether an exchange that was dropped on its way may have been done.
    pub(in crate::queue) fn is_unsettled(&self) -> bool {
        self.exchanging().may_have_new()
    }

    /// What the outcome is not known of, of an exchange that was dropped on its way.
    pub(super) fn unsettled(&self) -> Option<(Arc<str>, Uuid)> {
        let armed = match &self.state {
            PlaceState::Armed(coming) => Some(coming),
            PlaceState::Seated { .. } | PlaceState::Gone => None,
        };
        let coming = self.coming.as_deref().or(armed)?;
        Some((Arc::clone(&coming.directory), coming.attempt))
    }

    pub(super) fn exchanging(&self) -> Exchanging {
        match (&self.coming, &self.state) {
            (Some(_), _) => Exchanging::Both,
            (None, PlaceState::Armed(_)) => Exchanging::Unidentified,
            (None, PlaceState::Seated { .. } | PlaceState::Gone) => Exchanging::Old,
        }
    }

    /// Answers for these tickets from now on.
    fn answer_for(&mut self, tickets: Exchanging) {
        match tickets {
            Exchanging::Both => {}
            Exchanging::Old => self.coming = None,
            // The attempt finds the new one until its identity is known.
            Exchanging::Unidentified | Exchanging::New => {
                if let Some(coming) = self.coming.take() {
                    self.directory = Arc::clone(&coming.directory);
                    self.state = PlaceState::Armed(*coming);
                }
            }
            Exchanging::Neither => (self.coming, self.state) = (None, PlaceState::Gone),
        }
    }

    /// Exchanges the ticket for another. It was seen to be ours a moment ago, and `with` sees to it
    /// that this has not changed. The ticket is lost if it was done, and somebody else has removed
    /// the new one.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, this place answers for both tickets, and its drop removes whichever is
    /// there. Asked for again, the same exchange goes on where it was.
    pub(crate) async fn exchange(&mut self, exchange: Exchange<'_>) -> Result<Exchanged, Failure> {
        if self.exchanging() == Exchanging::Old {
            let old = self.id().ok_or(Failure::Lost(REMOVED))?;
            let done = self.send_exchange(&exchange, &old).await?;
            let answer = done.as_ref().err().map_or(Answer::Done, Answer::from);
            self.answer_for(Exchanging::answered(answer));
            match done {
                Ok(made) => return self.identify(&exchange, made).await,
                Err(Fault::Refused(at, code)) => return Ok(Exchanged::Refused(at, code)),
                Err(Fault::Answered(Code::NotNow(why))) => {
                    tracing::debug!(why, "exchange again");
                    return Ok(Exchanged::Nothing);
                }
                Err(Fault::Answered(code)) => return Err(Failure::Answered(code)),
                Err(Fault::Unknown(why)) => {
                    tracing::debug!(why, "an exchange has an unknown outcome");
                }
            }
        }
        // What the exchange rests on was seen long ago, and a name may be somebody else's by now:
        // so it is not sent again.
        self.catch_up(&exchange).await
    }

    async fn send_exchange(
        &mut self,
        exchange: &Exchange<'_>,
        old: &TicketId,
    ) -> Result<Result<Vec<String>, Fault>, Failure> {
        let session = Arc::clone(&self.session);
        let link = session.link().map_err(Failure::Ended)?;
        let mut writes = exchange.with.to_vec();
        let path = exchange.ticket.path(exchange.directory);
        writes.push(Write::Ephemeral {
            path: &path,
            data: exchange.data,
            is_sequential: exchange.is_sequential,
        });
        let (old, czxid) = (old.path(), old.czxid);
        writes.push(Write::DeleteTicket { path: &old, czxid });
        // Armed before anything is sent: building the request sends it.
        let (roll, directory) = (&session.janitor.roll, Arc::clone(exchange.directory));
        self.coming = Some(Box::new(roll.coming(directory, exchange.attempt)));
        tokio::select! {
            answer = link.multi(&writes) => Ok(answer),
            end = session.ended() => Err(Failure::Ended(end)),
        }
    }

    /// The answer of a transaction has no identity; it is read.
    async fn identify(
        &mut self,
        exchange: &Exchange<'_>,
        made: Vec<String>,
    ) -> Result<Exchanged, Failure> {
        let session = Arc::clone(&self.session);
        let path = made
            .into_iter()
            .next_back()
            .unwrap_or_else(|| exchange.ticket.path(exchange.directory));
        let reads = [Read::Data(&path)];
        let (at, found) = session.read_stamped(|link| link.multi_read(&reads)).await;
        let is_ours = |node: &Node| {
            let is_our_session = node.owner == session.id();
            TicketData::was_made_by(exchange.attempt, &node.data, is_our_session)
        };
        let found = node_in(found?.pop())?.filter(is_ours);
        if let Some(node) = &found {
            session.recognise(node.owner).map_err(Failure::Ended)?;
        }
        let name = path.rsplit_once('/').map_or(&*path, |(_, name)| name);
        let found = found.map(|node| (name.to_owned(), node.czxid));
        self.found(exchange, at, found)
    }

    /// Looks for what an exchange made whose reply did not come.
    async fn catch_up(&mut self, exchange: &Exchange<'_>) -> Result<Exchanged, Failure> {
        let Some((directory, attempt)) = self.unsettled() else {
            return Ok(Exchanged::Nothing);
        };
        let found = self.session.janitor.find_out(directory, attempt);
        let (at, found) = self.session.heartbeat.stamped(found).await;
        let found = found.map_err(Failure::Ended)?;
        self.found(exchange, at, found)
    }

    /// Takes in the name and the identity of the new ticket, if it was found.
    fn found(
        &mut self,
        exchange: &Exchange<'_>,
        at: Moment,
        found: Option<(String, i64)>,
    ) -> Result<Exchanged, Failure> {
        let tickets = self.exchanging().found(found.is_some());
        self.answer_for(tickets);
        if let Some((name, czxid)) = found {
            let ticket = Ticket {
                name,
                ..exchange.ticket
            };
            self.set_ticket(ticket, czxid);
            self.watches_on = false;
            self.grant(exchange.plan.clone(), at);
            return Ok(Exchanged::Done);
        }
        match tickets {
            Exchanging::Neither => Err(Failure::Lost(REMOVED)),
            _ => Ok(Exchanged::Nothing),
        }
    }
}
