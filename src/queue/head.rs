//! The head of a semaphore's queue: it alone takes permits, its ticket in exchange for them, all
//! that it asked for or none.
//!
//! Invariants: what is decided on is read in one request together with our own ticket, and commits
//! only while the limit and the queue are as they were read; nobody else takes permits meanwhile,
//! because nobody else is the head. So a release wakes the head, and a grant the next one, whatever
//! the limit and however many wait.

use std::sync::Arc;

use uuid::Uuid;

use super::WAITING;
use super::now_ms;
use super::permits::{Limit, PermitPool};
use super::place::{Exchange, Exchanged, TicketPlace};
use super::verified_read::{Unverified, VerifiedRead};
use super::{Directory, Queue};
use crate::error::{Error, Result};
use crate::link::{Change, Code, Node, Read, Write};
use crate::name::LockName;
use crate::protocol::mark::{DirectoryData, Mark, ReleasePlan};
use crate::protocol::permits;
use crate::protocol::permits::PermitVerdict;
use crate::protocol::ticket::{Mode, Ticket, TicketData};
use crate::protocol::walk::REMOVED;
use crate::session::heartbeat::LeaseEntry;
use crate::session::setbacks::Setbacks;
use crate::session::watching::WatchSlot;
use crate::session::{End, Failure, Session, failed, refused};

impl Queue {
    /// Makes this the queue of those who want permits, below the name, and says where the permits
    /// are.
    pub(crate) fn permits(&mut self, limit: u32) -> PermitPool {
        let base: Directory = self.directory.clone();
        let permits = PermitPool::new(self.name.clone(), base, limit);
        self.directory = self.directory.below(permits::QUEUE);
        let pool = &self.pool;
        self.head_watches = permits
            .watched()
            .map(|path| pool.sent_len(path.len()))
            .sum();
        self.becomes = permits.permit_len();
        // A permit excludes nobody by itself, so there is nobody to wait for after its end.
        self.delay = std::time::Duration::ZERO;
        permits
    }

    /// Waits until so many permits are there for this call, after those who came before it.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, the ticket or the permits, whichever is there, are removed by the
    /// janitor.
    pub(crate) async fn take_permits(
        &self,
        permits: &PermitPool,
        asked: u32,
    ) -> Result<(TicketPlace, LeaseEntry)> {
        Box::pin(self.introduce(permits, asked)).await?;
        let mut waiter = self.wanting(asked).join().await?;
        waiter.reach().await?;
        let place = waiter.into_place();
        // On the heap: among many who wait only one is the head.
        Box::pin(Head::new(self, place, permits, asked).take()).await
    }

    /// As [`take_permits`](Self::take_permits), if nobody is in the queue and they are there now.
    /// Writes nothing otherwise.
    pub(crate) async fn try_take_permits(
        &self,
        permits: &PermitPool,
        asked: u32,
    ) -> Result<Option<(TicketPlace, LeaseEntry)>> {
        let session = self.introduce(permits, asked).await?;
        let mut snapshot = permits.look(&session).await?;
        if snapshot.limit.is_some_and(|limit| asked > limit.value) {
            // A server that lags behind may not know of a resize yet.
            permits.catch_up(&session).await?;
            snapshot = permits.look(&session).await?;
        }
        if let Some(stored) = snapshot.limit {
            permits.learn(&session, stored).await?;
        }
        let limit = permits.limit_or(snapshot.limit);
        if asked > limit {
            return Err(permits.too_many(asked, limit));
        }
        if permits::judge(snapshot.names(), asked, limit) != PermitVerdict::Fits
            || self.is_busy().await?
        {
            return Ok(None);
        }
        let mut waiter = self.wanting(asked).join().await?;
        let is_head = waiter.try_granted().await?;
        let mut head = Head::new(self, waiter.into_place(), permits, asked);
        loop {
            let tried = if is_head {
                head.try_take().await?
            } else {
                Tried::Full
            };
            match tried {
                Tried::Taken => {
                    let entry = head.begin_hold().await?;
                    return Ok(Some((head.place, entry)));
                }
                Tried::Again => head.pause().await?,
                Tried::Full => break,
            }
        }
        head.place.leave().await;
        Ok(None)
    }

    /// How many permits nobody holds.
    pub(crate) async fn permits_left(&self, permits: &PermitPool) -> Result<u32> {
        let session = self.home().await?;
        permits.catch_up(&session).await?;
        let snapshot = permits.look(&session).await?;
        if let Some(stored) = snapshot.limit {
            permits.learn(&session, stored).await?;
        }
        let limit = permits.limit_or(snapshot.limit);
        Ok(permits::left(snapshot.names(), limit))
    }

    /// The stored limit.
    pub(crate) async fn stored_limit(&self, permits: &PermitPool) -> Result<u32> {
        let session = self.home().await?;
        permits.catch_up(&session).await?;
        permits.current(&session).await
    }

    /// Stores another limit.
    pub(crate) async fn resize(&self, permits: &PermitPool, limit: u32) -> Result<()> {
        permits.resize(&*self.home().await?, limit).await
    }

    /// Sees to it that a limit is stored and that it is ours, and refuses what would never be
    /// there.
    async fn introduce(&self, permits: &PermitPool, asked: u32) -> Result<Arc<Session>> {
        permits.check_own(asked)?;
        let session = self.home().await?;
        permits.introduce(&session).await?;
        permits.check(&session, asked).await?;
        Ok(session)
    }

    async fn home(&self) -> Result<Arc<Session>> {
        self.pool.home("look at", &self.name).await
    }

    /// This queue, with what is wanted in the ticket.
    fn wanting(&self, permits: u32) -> Self {
        let mut queue = self.clone();
        Arc::make_mut(&mut queue.line).permits = Some(permits);
        queue
    }
}

/// A ticket that is the first in the queue, on its way to its permits.
struct Head<'a> {
    place: TicketPlace,
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
enum Tried {
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
    fn new(queue: &'a Queue, mut place: TicketPlace, permits: &'a PermitPool, asked: u32) -> Self {
        // The version of the queue tells who took permits in it, the first of whom has moved the
        // limit's version on. Whoever gives up must not count among them: a request that saw an
        // older queue, of the same version, would be let through.
        place.forgo_mark();
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
    async fn take(mut self) -> Result<(TicketPlace, LeaseEntry)> {
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

    /// Before the next try, unless it is the first: others have changed what it looked at, or the
    /// server is busy.
    async fn pause(&mut self) -> Result<()> {
        let pause = self.tries.pause_after_a_race();
        let back = self.place.session().reconnected(pause).await;
        back.map_err(|end| self.ended(end))
    }

    async fn try_take(&mut self) -> Result<Tried> {
        let Some(snapshot) = self.look().await? else {
            return Ok(Tried::Again);
        };
        match (snapshot.verdict, snapshot.held) {
            (PermitVerdict::Never, _) => {
                Err(self.permits.too_many(self.asked, snapshot.limit.value))
            }
            (PermitVerdict::Full, _) => Ok(Tried::Full),
            (PermitVerdict::Fits, Some(held)) => self.exchange(&snapshot, held).await,
            (PermitVerdict::Fits, None) => {
                self.permits
                    .held
                    .make(self.place.session(), self.name)
                    .await?;
                Ok(Tried::Again)
            }
        }
    }

    /// The only read that can give permits: the queue, our own ticket, the permits and the limit,
    /// all at one moment. `None` if the limit was not there, an access list has changed meanwhile,
    /// or somebody is beside it who may be about to leave.
    async fn look(&mut self) -> Result<Option<HeadSnapshot>> {
        let snapshot = self.look_once().await?;
        let seems_too_low = |snapshot: &HeadSnapshot| snapshot.verdict == PermitVerdict::Never;
        if !snapshot.as_ref().is_some_and(seems_too_low) {
            return Ok(snapshot);
        }
        // A server that lags behind may not know of a resize yet.
        self.permits.catch_up(self.place.session()).await?;
        self.look_once().await
    }

    async fn look_once(&mut self) -> Result<Option<HeadSnapshot>> {
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

    /// The permits in exchange for the ticket, only while the limit and the queue are as they were
    /// seen.
    async fn exchange(&mut self, snapshot: &HeadSnapshot, held: i32) -> Result<Tried> {
        let Some((ticket, czxid)) = self.place.ticket() else {
            return Err(self.lost("the place was given up"));
        };
        let attempt = Uuid::new_v4();
        let line = TicketData {
            attempt,
            at: now_ms(),
            ..self.line.clone()
        };
        let seq = ticket.seq;
        let mark = Mark { czxid, seq }.to_bytes();
        let directory = Arc::clone(self.place.directory());
        let (path, version) = (&*directory, snapshot.queue.version);
        let marks = self.marks && DirectoryData::parse(&snapshot.queue.data).is_ours();
        let as_seen = if marks {
            let data = &*mark;
            Write::Set {
                path,
                data,
                version,
            }
        } else {
            Write::Check { path, version }
        };
        // The version of a directory that was removed and made again starts again, and a request of
        // ours that is still under way would take it for the old one. So whoever cannot tell, or is
        // the first in a new one, moves the limit's version on.
        let (path, version) = (&*self.permits.limit, snapshot.limit.version);
        let limit = permits::limit_to_bytes(snapshot.limit.value);
        let within_limit = if marks && snapshot.queue.version > 0 {
            Write::Check { path, version }
        } else {
            let data = &*limit;
            Write::Set {
                path,
                data,
                version,
            }
        };
        let mut name = permits::start_of(self.asked);
        if !self.is_numbered {
            name += &attempt.to_string();
        }
        let exchange = Exchange {
            directory: &self.permits.held.path,
            ticket: Ticket {
                seq,
                kind: Mode::Shared,
                name,
            },
            is_sequential: self.is_numbered,
            data: &line.to_bytes(),
            attempt,
            with: &[within_limit, as_seen],
            plan: ReleasePlan::Unmarked { version: held },
        };
        match self.place.exchange(exchange).await {
            Ok(Exchanged::Done) => Ok(Tried::Taken),
            Ok(Exchanged::Gone) => Err(self.lost(REMOVED)),
            Ok(Exchanged::Nothing) => Ok(Tried::Again),
            Ok(Exchanged::Refused(at, code)) => self.refused(at, code, marks).await,
            Err(failure) => Err(self.failed(&self.permits.held.path, failure)),
        }
    }

    /// What to do about a write that was refused, with which all others were.
    async fn refused(&mut self, at: usize, code: Code, marks: bool) -> Result<Tried> {
        const LIMIT: usize = 0;
        const QUEUE: usize = 1;
        const PERMIT: usize = 2;
        match (at, code) {
            (PERMIT, Code::NoNode) => {
                // An empty container goes at any time.
                self.permits
                    .held
                    .make(self.place.session(), self.name)
                    .await?;
            }
            // The counter has stuck at its end; permits need no order.
            (PERMIT, Code::NodeExists) if self.is_numbered => self.is_numbered = false,
            (QUEUE, Code::NoAuth(_)) if marks => self.marks = false,
            (LIMIT | QUEUE, Code::NoNode | Code::BadVersion) | (_, Code::NoNode) => {}
            (at, code) => {
                let path = match at {
                    LIMIT => &*self.permits.limit,
                    PERMIT => &*self.permits.held.path,
                    _ => &**self.place.directory(),
                };
                let link = self.place.session().link();
                let link = link.map_err(|end| self.ended(end))?;
                return Err(refused(&*link, WAITING, path, &code));
            }
        }
        Ok(Tried::Again)
    }

    /// Arms what is not armed. What is not there any more is found out by the next look.
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
    async fn begin_hold(&mut self) -> Result<LeaseEntry> {
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
        if matches!(read, Err(Unverified::Lost(_))) {
            self.place.leave_in_doubt();
        }
        let (session, directory) = (self.place.session(), self.place.directory());
        read.map_err(|error| error.while_trying(WAITING, session, self.name, directory))
    }

    fn failed(&self, path: &str, failure: Failure) -> Error {
        failed(self.place.session(), WAITING, self.name, path, failure)
    }

    fn ended(&self, end: End) -> Error {
        end.while_trying(WAITING, self.name)
    }

    fn lost(&self, why: &'static str) -> Error {
        Error::PlaceLost {
            name: self.name.to_string(),
            why,
        }
    }
}
