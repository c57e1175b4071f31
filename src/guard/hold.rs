//! A hold: what a guard holds by, shared by all guards of one hold.
//!
//! Invariants: releasing or dropping the last guard removes the tickets of this hold and nothing
//! else; once a hold has said that it is lost it never says anything else. It waits for no turn.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, select_all};

use crate::brief::Brief;
use crate::error::{Error, Result};
use crate::guard::self_wait::SelfWait;
use crate::link::{ANY_VERSION, Code, Read, Write};
use crate::metrics::LockMetrics;
use crate::name::LockName;
use crate::owner::Owner;
use crate::protocol::ticket::Mode;
use crate::protocol::walk::REMOVED;
use crate::queue::Waiter;
use crate::queue::evict::removed;
use crate::queue::journal::{Draft, Record};
use crate::queue::place::TicketPlace;
use crate::queue::revoke;
use crate::queue::verified_read::{Unverified, ticket_in};
use crate::session::heartbeat::{LeaseEntry, Loss, LossWatch};
use crate::session::janitor::ReleaseOutcome;
use crate::session::{Session, failed};
use crate::token::Token;

const HOLDING: &str = "hold";

/// Granted places with their holds.
#[derive(Debug)]
pub(crate) struct Hold {
    /// At least one; several for several locks that are held together, all in one session.
    all_held: Vec<HeldTicket>,
    token: Token,
    owner: Option<Owner>,
    kind: Mode,
    _self_wait: Vec<SelfWait>,
}

/// One granted place.
#[derive(Debug)]
pub(crate) struct HeldTicket {
    pub(crate) name: LockName,
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
        let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        tracing::debug!(waited_ms, token = u64::from(token), "granted");
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
        Self {
            name,
            place,
            entry,
            record: None,
        }
    }

    /// The hold is written down, if there is a draft of it.
    pub(crate) fn recorded(
        mut self,
        draft: Option<Box<Draft>>,
        token: Token,
        waited: Duration,
    ) -> Self {
        self.record = draft.map(|draft| {
            let loss_watch = self.entry.loss_watch();
            Box::new(draft.begin(&self.name, self.ticket(), token.czxid(), waited, loss_watch))
        });
        self
    }

    /// The name and the identity of its ticket.
    pub(crate) fn ticket(&self) -> (&str, i64) {
        let ticket = self.place.ticket();
        ticket.map_or(("", 0), |(ticket, czxid)| (&*ticket.name, czxid))
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

    fn error(&self, loss: Loss) -> Error {
        loss.while_trying(HOLDING, &self.name)
    }

    async fn ask(&self) -> Result<()> {
        let session = self.session();
        let path = self.path();
        let asked = session.read(|link| {
            // Sent back to back; the session answers in order.
            let (checked, read) = (
                link.attempt(&[Write::Check {
                    path: &path,
                    version: ANY_VERSION,
                }]),
                link.multi_read(&[Read::Data(&path)]),
            );
            Box::pin(async move { Ok((checked.await?, read.await?)) })
        });
        let verified = match asked.await {
            Ok((Err((_, Code::NoNode)), _)) => Err(Unverified::Lost(REMOVED)),
            Ok((_, found)) => ticket_in(found.into_iter().next(), self.czxid()),
            Err(failure) => Err(Unverified::Failed(failure)),
        };
        let verified = verified.map_err(|error| self.unverified("look at", &path, error));
        verified.map(drop)
    }

    /// The error of a read that does not show the ticket. If it is no longer ours, its hold is
    /// lost.
    pub(crate) fn unverified(
        &self,
        doing: &'static str,
        path: &str,
        unverified: Unverified,
    ) -> Error {
        match unverified {
            Unverified::Lost(why) => self.lose(why),
            Unverified::Failed(failure) => failed(self.session(), doing, &self.name, path, failure),
        }
    }

    /// Waits until the ticket is asked for.
    async fn revoked(&self) -> Result<()> {
        let path = self.path();
        let revoked = revoke::revoked(self.session(), &path, self.czxid()).await;
        revoked.map_err(|error| self.unverified("look at", &path, error))
    }
}

/// What became of a ticket that was to leave, as an error unless it was removed by us.
pub(crate) fn told(
    left: ReleaseOutcome,
    doing: &'static str,
    name: &LockName,
    path: String,
) -> Result<()> {
    if !removed(left, doing, name, &path)? {
        return Err(Error::PlaceLost {
            name: name.to_string(),
            why: REMOVED,
        });
    }
    tracing::debug!(path, "released");
    Ok(())
}

/// What a guard knows of its hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GuardState {
    /// The lock is ours, as far as anybody can know.
    Held,
    /// The connection is down or an answer is late. The lock is still ours, until the lease ends.
    Suspect,
    /// Others may hold the lock. Final.
    Lost,
}

impl Hold {
    pub(crate) fn new(
        all_held: Vec<HeldTicket>,
        token: Token,
        kind: Mode,
        owner: Option<Owner>,
        self_wait: Vec<SelfWait>,
    ) -> Arc<Self> {
        Arc::new(Self {
            all_held,
            token,
            owner,
            kind,
            _self_wait: self_wait,
        })
    }

    /// The hold of one ticket that excludes others, in nobody's name.
    pub(crate) fn of_one(granted: Waiter, entry: LeaseEntry, token: Token) -> Arc<Self> {
        let all_held = vec![HeldTicket::new(granted, entry)];
        Self::new(all_held, token, Mode::Exclusive, None, Vec::new())
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    pub(crate) fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    pub(crate) fn kind(&self) -> Mode {
        self.kind
    }

    pub(crate) fn all_held(&self) -> &[HeldTicket] {
        &self.all_held
    }

    /// The first held ticket, which is the only one but for several locks.
    pub(crate) fn held(&self) -> &HeldTicket {
        // There is at least one.
        &self.all_held[0]
    }

    /// The all_held of a hold that nobody else shares; otherwise the hold.
    pub(crate) fn into_held(self: Arc<Self>) -> Result<Vec<HeldTicket>, Arc<Self>> {
        Arc::try_unwrap(self).map(|hold| hold.all_held)
    }

    /// Why it is lost, if it is. Looks at the clock.
    pub(crate) fn loss(&self) -> Option<Error> {
        self.all_held
            .iter()
            .find_map(|held| held.entry.loss().map(|loss| held.error(loss)))
    }

    pub(crate) fn valid_for(&self) -> Duration {
        let each = self.all_held.iter().map(|held| held.entry.valid_for());
        each.min().unwrap_or_default()
    }

    pub(crate) fn state(&self) -> GuardState {
        if self.loss().is_some() {
            GuardState::Lost
        } else if self.all_held.iter().any(|held| held.entry.is_suspect()) {
            GuardState::Suspect
        } else {
            GuardState::Held
        }
    }

    pub(crate) fn lost(&self) -> Lost {
        let each = self.all_held.iter();
        Lost {
            entries: each
                .map(|held| (held.entry.loss_watch(), held.name.clone()))
                .collect(),
            waiting: None,
            is_passed_on: None,
        }
    }

    pub(crate) async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        let done = tokio::select! {
            // The loss first: after a pause of the process both are ready.
            biased;
            error = self.lost() => return Err(error),
            done = work => done,
        };
        // The pause may have been in the middle of the work's last step.
        self.loss().map_or(Ok(done), Err)
    }

    pub(crate) async fn check(&self) -> Result<()> {
        let ask = async {
            for held in &self.all_held {
                held.ask().await?;
            }
            Ok(())
        };
        tokio::select! {
            biased;
            error = self.lost() => Err(error),
            result = ask => result,
        }
    }

    /// Until somebody asks for one of the tickets back.
    pub(crate) async fn revoked(&self) -> Result<()> {
        let each = self.all_held.iter().map(|held| held.revoked().boxed());
        tokio::select! {
            biased;
            error = self.lost() => Err(error),
            (asked, _, _) = select_all(each) => asked,
        }
    }

    /// Gives one guard's share back; with the last one the tickets go.
    pub(crate) async fn release(self: Arc<Self>) -> Result<()> {
        // On the heap: a task that waits for the lock has room for its release from the beginning.
        Box::pin(self.give_back()).await
    }

    async fn give_back(self: Arc<Self>) -> Result<()> {
        let doing = "release";
        for held in &self.all_held {
            if let Some(loss) = held.entry.loss() {
                return Err(loss.while_trying(doing, &held.name));
            }
        }
        let lost = self.lost();
        let Some(hold) = Arc::into_inner(self) else {
            // Other guards hold it still.
            return Ok(());
        };
        let count = hold.all_held.len();
        let mut names = Vec::with_capacity(count);
        let mut places = Vec::with_capacity(count);
        let mut entries = Vec::with_capacity(count);
        // They are written when the tickets have gone, or the holds are lost.
        let mut records = Vec::new();
        for held in hold.all_held {
            let path = held.place.path().unwrap_or_default();
            names.push((held.name, path));
            places.push(held.place);
            entries.push(held.entry);
            if let Some(mut record) = held.record {
                record.is_released();
                records.push(record);
            }
        }
        let left = tokio::select! {
            biased;
            left = TicketPlace::leave_together(places) => left,
            (loss, name) = lost.loss() => return Err(loss.while_trying(doing, name)),
        };
        for (left, entry) in left.iter().zip(&entries) {
            match left {
                ReleaseOutcome::WasGone => entry.lose(REMOVED),
                // Its end says so.
                ReleaseOutcome::Over(_) | ReleaseOutcome::Closed => {
                    entry.loss();
                }
                ReleaseOutcome::Now
                | ReleaseOutcome::Refused { .. }
                | ReleaseOutcome::NotEmpty { .. } => {}
            }
        }
        for (left, (name, path)) in left.into_iter().zip(names) {
            told(left, doing, &name, path)?;
        }
        Ok(())
    }

    pub(crate) fn describe(&self, what: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self
            .all_held
            .iter()
            .map(|held| held.name.as_str())
            .collect();
        let state = self.state();
        f.debug_struct(what)
            .field("name", &Brief(names.join(", ")))
            .field("token", &self.token)
            .field("state", &state)
            .finish_non_exhaustive()
    }
}

/// The loss of a lock, as a future: see [`Guard::lost`](crate::Guard::lost).
#[must_use = "futures do nothing unless polled"]
pub struct Lost {
    entries: Vec<(LossWatch, LockName)>,
    waiting: Option<BoxFuture<'static, (Loss, LockName)>>,
    /// Once that is true, the hold is another guard's, and so is its loss.
    is_passed_on: Option<Arc<AtomicBool>>,
}

impl Lost {
    /// Never ends once that is true.
    pub(crate) fn unless(mut self, is_passed_on: Arc<AtomicBool>) -> Self {
        self.is_passed_on = Some(is_passed_on);
        self
    }

    /// The loss itself, with the name of the lock.
    async fn loss(self) -> (Loss, LockName) {
        let each = self
            .entries
            .into_iter()
            .map(|(loss_watch, name)| async move { (loss_watch.lost().await, name) }.boxed());
        select_all(each).await.0
    }
}

impl Future for Lost {
    type Output = Error;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Error> {
        let is_passed_on = self.is_passed_on.as_ref();
        if is_passed_on.is_some_and(|is| is.load(Ordering::Relaxed)) {
            return Poll::Pending;
        }
        // The clock is looked at each time, whatever woke us.
        for (loss_watch, name) in &self.entries {
            if let Some(loss) = loss_watch.loss() {
                return Poll::Ready(loss.while_trying(HOLDING, name));
            }
        }
        let this = &mut *self;
        let waiting = this.waiting.get_or_insert_with(|| {
            let (entries, waiting, is_passed_on) = (this.entries.clone(), None, None);
            let lost = Self {
                entries,
                waiting,
                is_passed_on,
            };
            lost.loss().boxed()
        });
        let told = waiting.as_mut().poll(context);
        told.map(|(loss, name)| loss.while_trying(HOLDING, name))
    }
}

impl Clone for Lost {
    fn clone(&self) -> Self {
        Self {
            entries: self.entries.clone(),
            waiting: None,
            is_passed_on: self.is_passed_on.clone(),
        }
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.entries.iter().map(|(_, name)| name.as_str());
        let names: Vec<&str> = names.collect();
        f.debug_struct("Lost")
            .field("name", &Brief(names.join(", ")))
            .finish_non_exhaustive()
    }
}
