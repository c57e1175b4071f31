//! One granted ticket of a hold: its place in the queue, its entry under the session's lease, and
//! its line in the journal.
//!
//! Invariant: a ticket that is held is counted, and its place knows under which entry it holds.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::link::{Code, Fault, Found, Read, Write};
use crate::metrics::LockMetrics;
use crate::name::LockName;
use crate::protocol::journal_page::ms;
use crate::protocol::walk::REMOVED;
use crate::queue::Waiter;
use crate::queue::journal::{Draft, Record};
use crate::queue::place::TicketPlace;
use crate::queue::revoke;
use crate::queue::verified_read::ticket_in;
use crate::session::heartbeat::{LeaseEntry, Loss, LossWatch};
use crate::session::janitor::ReleaseOutcome;
use crate::session::{Failure, Session, failed, node_in};
use crate::token::Token;

const HOLDING: &str = "hold";

/// One granted ticket.
#[derive(Debug)]
pub(crate) struct HeldTicket {
    pub(crate) name: LockName,
    /// The name of its node, also once the ticket was given up.
    node: Box<str>,
    pub(crate) place: TicketPlace,
    pub(crate) entry: LeaseEntry,
    /// Writes down how the hold ends.
    pub(crate) record: Option<Box<Record>>,
}

impl HeldTicket {
    /// The held ticket of a ticket whose turn it is.
    pub(crate) fn new(mut granted: Waiter, entry: LeaseEntry) -> Self {
        let (name, token) = (granted.name().clone(), Token::new(granted.token()));
        let waited = granted.waited();
        let (metrics, draft) = (granted.metrics().clone(), granted.take_draft());
        let held = Self::of(name, granted.into_place(), entry, &metrics);
        held.recorded(draft, token, waited)
    }

    /// The held ticket of a place that holds. From here on the hold is counted.
    pub(crate) fn of(
        name: LockName,
        mut place: TicketPlace,
        entry: LeaseEntry,
        metrics: &LockMetrics,
    ) -> Self {
        place.hold_under(entry.loss_watch());
        entry.count(metrics);
        let node = place.ticket().map(|(ticket, _)| &*ticket.name);
        let node = node.unwrap_or_default().into();
        Self {
            name,
            node,
            place,
            entry,
            record: None,
        }
    }

    /// The hold was granted. It is written down, if there is a draft of it.
    pub(crate) fn recorded(
        mut self,
        draft: Option<Box<Draft>>,
        token: Token,
        waited: Duration,
    ) -> Self {
        tracing::debug!(waited_ms = ms(waited), token = u64::from(token), "granted");
        self.record = draft.map(|draft| {
            let loss_watch = self.entry.loss_watch();
            Box::new(draft.begin(&self.name, self.ticket(), token.czxid(), waited, loss_watch))
        });
        self
    }

    /// The entry's loss, for a future, and whose it is.
    pub(crate) fn loss_watch(&self) -> (LossWatch, LockName) {
        (self.entry.loss_watch(), self.name.clone())
    }

    /// Its place, which leaves, and what is known of it meanwhile.
    pub(crate) fn leaving(self) -> (TicketPlace, Leaving) {
        let path = self.path();
        let mut record = self.record;
        if let Some(record) = &mut record {
            record.is_released();
        }
        let leaving = Leaving {
            name: self.name,
            path,
            entry: self.entry,
            _record: record,
        };
        (self.place, leaving)
    }

    /// The name and the identity of its ticket.
    pub(crate) fn ticket(&self) -> (&str, i64) {
        let ticket = self.place.ticket();
        ticket.map_or(("", 0), |(ticket, czxid)| (&*ticket.name, czxid))
    }

    /// The name of its node in the lock's directory.
    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// The ticket's path.
    pub(crate) fn path(&self) -> String {
        self.place.path().unwrap_or_default()
    }

    pub(crate) fn czxid(&self) -> i64 {
        self.place.ticket().map_or(0, |(_, czxid)| czxid)
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        self.place.session()
    }

    /// Marks the hold as lost, and says so.
    pub(crate) fn lose(&self, why: &'static str) -> Error {
        self.entry.lose(why);
        self.error(Loss::Gone(why))
    }

    pub(crate) fn error(&self, loss: Loss) -> Error {
        loss.while_trying(HOLDING, &self.name)
    }

    pub(crate) async fn ask(&self) -> Result<()> {
        let session = self.session();
        let path = self.path();
        let asked = session.read(|link| {
            // Sent back to back; the session answers in order.
            let (checked, read) = (
                link.multi(&[Write::check(&path)]),
                link.multi_read(&[Read::Data(&path)]),
            );
            Box::pin(async move {
                match checked.await {
                    Err(Fault::Refused(_, Code::NoNode)) => Ok(Some(Found::Failed(Code::NoNode))),
                    Ok(_) | Err(Fault::Refused(..)) => read.await.map(|mut found| found.pop()),
                    Err(fault) => Err(fault),
                }
            })
        });
        let found = asked.await.and_then(node_in);
        let verified = found.and_then(|node| ticket_in(node, self.czxid()));
        let verified = verified.map_err(|failure| self.failed("look at", &path, failure));
        verified.map(drop)
    }

    /// The error of a read that does not show the ticket. If it is no longer ours, its hold is
    /// lost.
    pub(crate) fn failed(&self, doing: &'static str, path: &str, failure: Failure) -> Error {
        match failure {
            Failure::Lost(why) => self.lose(why),
            failure => failed(self.session(), doing, &self.name, path, failure),
        }
    }

    /// Waits until the ticket is asked for.
    pub(crate) async fn revoked(&self) -> Result<()> {
        let path = self.path();
        let revoked = revoke::revoked(self.session(), &path, self.czxid()).await;
        revoked.map_err(|failure| self.failed("look at", &path, failure))
    }
}

/// A ticket that is on its way out.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) name: LockName,
    pub(crate) path: String,
    /// It is written when the ticket has gone, or the hold is lost: before the entry goes, which
    /// knows of a loss.
    _record: Option<Box<Record>>,
    entry: LeaseEntry,
}

impl Leaving {
    /// What became of the ticket is news for the hold.
    pub(crate) fn has_left(&self, left: &ReleaseOutcome) {
        match left {
            Ok(false) => self.entry.lose(REMOVED),
            // Its end says so.
            Err(Failure::Ended(_)) => {
                self.entry.loss();
            }
            Ok(true) | Err(_) => {}
        }
    }
}

/// What became of a ticket that was to leave, as an error unless it was removed by us.
pub(crate) fn told(
    session: &Session,
    left: ReleaseOutcome,
    doing: &'static str,
    name: &LockName,
    path: String,
) -> Result<()> {
    if !left.map_err(|failure| failed(session, doing, name, &path, failure))? {
        return Err(Error::place_lost(name, REMOVED));
    }
    tracing::debug!(path, "released");
    Ok(())
}
