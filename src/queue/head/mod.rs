//! The head of a semaphore's queue: it alone takes permits, its ticket in exchange for them, all
//! that it asked for or none.
//!
//! Invariants: what is decided on is read in one request together with our own ticket, and commits
//! only while the limit and the queue are as they were read; nobody else takes permits meanwhile,
//! because nobody else is the head. So a release wakes the head, and a grant the next one, whatever
//! the limit and however many wait.

mod exchange;

use super::permits::{Limit, PermitPool};
use super::place::TicketPlace;
use super::verified_read::VerifiedRead;
use super::{Queue, WAITING};
use crate::error::{Error, Result};
use crate::link::{Change, Code, Node, Read};
use crate::name::LockName;
use crate::protocol::departure::Departure;
use crate::protocol::permits::{self, PermitVerdict};
use crate::protocol::ticket::TicketData;
use crate::session::heartbeat::LeaseEntry;
use crate::session::setbacks::Setbacks;
use crate::session::watching::WatchSlot;
use crate::session::{End, Failure, failed};

/// A ticket that is the first in the queue, on its way to its permits.
pub(super) struct Head<'a> {
    pub(super) place: TicketPlace,
    name: &'a LockName,
    permits: &'a PermitPool,
    line: &'a TicketData,
    asked: u32,
    /// Whether the queue's directory lets us leave a mark.
    marks: bool,
    /// Whether the server numbers the permit; not at the end of its counter.
    is_numbered: bool,
    held: WatchSlot,
    limit: WatchSlot,
    /// How often in a row somebody stood in the queue of another lock with this name.
    setbacks: u32,
    /// Since it last waited for permits.
    tries: Setbacks,
}

/// What came of one try.
pub(super) enum Tried {
    Taken,
    /// Something has changed meanwhile.
    Again,
    /// Not before there are more.
    Full,
}

/// What a look saw, all at one moment.
struct HeadSnapshot {
    queue: Node,
    /// The version of the directory of permits; none if it is not there.
    held: Option<i32>,
    limit: Limit,
    verdict: PermitVerdict,
}

impl<'a> Head<'a> {
    pub(super) fn new(
        queue: &'a Queue,
        mut place: TicketPlace,
        permits: &'a PermitPool,
        asked: u32,
    ) -> Self {
        // The version of the queue counts the heads that took permits in it; the first of them has
        // moved the limit's version on. A head that gives up must not count among them: a request
        // that saw an older queue, of the same version, would be let through.
        place.leaves(Departure::forgo_mark);
        let mut held = place.slot().take();
        let limit = held.part(queue.pool.sent_len(permits.limit.len()));
        Self {
            place,
            name: &queue.name,
            permits,
            line: &queue.line,
            asked,
            marks: true,
            is_numbered: true,
            held,
            limit,
            setbacks: 0,
            tries: Setbacks::default(),
        }
    }

    /// Takes the permits as soon as they are there. A release, or another limit, is told by a
    /// watch, after which everything is read again; so it is after a watch was armed.
    pub(super) async fn take(mut self) -> Result<(TicketPlace, LeaseEntry)> {
        loop {
            match self.try_take().await? {
                Tried::Taken => {
                    let entry = self.begin_hold().await?;
                    return Ok((self.place, entry));
                }
                Tried::Again => self.pause().await?,
                Tried::Full if self.held.is_armed() && self.limit.is_armed() => self.wait().await?,
                Tried::Full => self.watch().await?,
            }
        }
    }

    /// Pauses before the next try, unless it is the first: others have changed what was read, or
    /// the server is busy.
    pub(super) async fn pause(&mut self) -> Result<()> {
        let pause = self.tries.pause_after_a_race();
        let back = self.place.session().reconnected(pause).await;
        back.map_err(|end| self.ended(end))
    }

    pub(super) async fn try_take(&mut self) -> Result<Tried> {
        let Some(snapshot) = self.read().await? else {
            return Ok(Tried::Again);
        };
        match (snapshot.verdict, snapshot.held) {
            (PermitVerdict::Never, _) => {
                Err(self.permits.too_many(self.asked, snapshot.limit.value))
            }
            (PermitVerdict::Full, _) => Ok(Tried::Full),
            (PermitVerdict::Fits, Some(held)) => self.exchange(&snapshot, held).await,
            (PermitVerdict::Fits, None) => {
                let (held, session) = (&self.permits.held, self.place.session());
                held.make(session, self.name).await?;
                Ok(Tried::Again)
            }
        }
    }

    /// The only read that can give permits: the queue, our own ticket, the permits and the limit,
    /// all at one moment. `None` if the limit was not there, an access list has changed meanwhile,
    /// or a ticket is beside it that may be about to leave.
    async fn read(&mut self) -> Result<Option<HeadSnapshot>> {
        let snapshot = self.read_once().await?;
        let seems_too_low = |snapshot: &HeadSnapshot| snapshot.verdict == PermitVerdict::Never;
        if !snapshot.as_ref().is_some_and(seems_too_low) {
            return Ok(snapshot);
        }
        // A server that lags behind may not know of a resize yet.
        self.permits.catch_up(self.place.session()).await?;
        self.read_once().await
    }

    async fn read_once(&mut self) -> Result<Option<HeadSnapshot>> {
        let permits = self.permits;
        let reads = permits.reads(self.place.session());
        let read = self.verified_read(&reads).await?;
        let session = self.place.session();
        let (directory, queue) = (&**self.place.directory(), read.directory);
        let found = read.others.into_iter();
        let (snapshot, neighbours) = self.permits.snapshot(session, found)?;
        let queue_itself = (directory, &queue);
        let others = snapshot.nodes.iter().map(|(path, node)| (&**path, node));
        for (path, node) in std::iter::once(queue_itself).chain(others) {
            if !self.place.checks_acl(self.name, path, node).await? {
                return Ok(None);
            }
        }
        let setbacks = &mut self.setbacks;
        let is_alone = self
            .permits
            .is_alone(session, snapshot.limit, neighbours, setbacks);
        if !is_alone.await? {
            return Ok(None);
        }
        let Some(limit) = snapshot.limit else {
            // Somebody has removed it; the permits that are held count against ours.
            // The directory is there, because our ticket is.
            let limit = self.permits.limit();
            let mut tries = self.tries;
            self.permits.store(session, limit, &mut tries).await?;
            return Ok(None);
        };
        self.permits.learn(session, limit).await?;
        Ok(Some(HeadSnapshot {
            queue,
            held: snapshot.held,
            limit,
            verdict: permits::judge(snapshot.names(), self.asked, limit.value),
        }))
    }

    /// Arms what is not armed. What is not there any more is found out by the next read.
    async fn watch(&mut self) -> Result<()> {
        let (held, limit) = (&*self.permits.held.path, &*self.permits.limit);
        if !self.held.is_armed() {
            let armed = self.held.watch_children(held).await;
            self.armed(held, armed)?;
        }
        if !self.limit.is_armed() {
            let armed = self.limit.watch(limit).await;
            self.armed(limit, armed)?;
        }
        tracing::trace!("waits for permits");
        Ok(())
    }

    fn armed<T>(&self, path: &str, armed: Result<T, Failure>) -> Result<()> {
        match armed {
            Ok(_) | Err(Failure::Answered(Code::NoNode)) => Ok(()),
            Err(failure) => Err(self.failed(path, failure)),
        }
    }

    /// Waits until one of the watches tells.
    async fn wait(&mut self) -> Result<()> {
        let change = tokio::select! {
            biased;
            change = self.held.changed() => change,
            change = self.limit.changed() => change,
        };
        if change == Change::SessionOver {
            return Err(self.ended(self.place.session().ended().await));
        }
        self.tries = Setbacks::default();
        Ok(())
    }

    /// Begins the hold of permits that were taken. They are there without a lease, but nobody may
    /// rely on them.
    pub(super) async fn begin_hold(&mut self) -> Result<LeaseEntry> {
        loop {
            if let Some(entry) = self.place.begin_hold(self.name).await? {
                return Ok(entry);
            }
            self.verified_read(&[]).await?;
        }
    }

    /// Reads the ticket, its directory and what else is asked for, all at one moment.
    async fn verified_read(&mut self, more: &[Read<'_>]) -> Result<VerifiedRead> {
        let read = self.place.verified_read(more, false).await;
        if matches!(read, Err(Failure::Lost(_))) {
            self.place.leaves(Departure::leave_in_doubt);
        }
        read.map_err(|failure| self.failed(self.place.directory(), failure))
    }

    fn failed(&self, path: &str, failure: Failure) -> Error {
        failed(self.place.session(), WAITING, self.name, path, failure)
    }

    fn ended(&self, end: End) -> Error {
        end.while_trying(WAITING, self.name)
    }
}
