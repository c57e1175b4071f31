//! The waiter: takes a ticket through its walk, on the wire, and begins the hold.
//!
//! Invariants: what the walk asks for is asked in one request, and an answer is taken in only when
//! it is there, so a waiter whose future was dropped goes on from the same step; a hold begins only
//! under a lease. It decides nothing about turns (the walk does), and creates nothing but a guest's
//! ticket in exchange for its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{Level, Span};
use uuid::Uuid;

use super::WAITING;
use super::doubts;
use super::journal::Draft;
use super::now_ms;
use super::place::{Exchange, Exchanged, TicketPlace};
use super::verified_read::VerifiedRead;
use crate::error::{Error, Result};
use crate::link::{Change, Code, Found, Node, Write};
use crate::metrics::LockMetrics;
use crate::name::LockName;
use crate::protocol::dialect;
use crate::protocol::dialect::check_neighbours;
use crate::protocol::lease::Moment;
use crate::protocol::mark::ReleasePlan;
use crate::protocol::ticket::{Mode, Ticket, TicketData};
use crate::protocol::walk::{GuestEntry, REMOVED, REPLACED, SpeculativeRead, Step, Turn, Walk};
use crate::session::heartbeat::LeaseEntry;
use crate::session::setbacks::Setbacks;
use crate::session::watching::WatchSlot;
use crate::session::{Failure, Session, failed, refused};

/// A ticket on its way to the grant.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(super) place: TicketPlace,
    pub(super) name: LockName,
    walk: Walk,
    /// Of going in as a guest.
    setbacks: Setbacks,
    stage: Stage,
    /// When what is known of its turn was answered.
    seen: Moment,
    /// What a guest's ticket says; none without an owner.
    line: Option<Arc<TicketData>>,
    since: Instant,
    /// None once it is over.
    delay: Option<Duration>,
    /// The hold beside which the delay was sat out, by its token.
    sat_out: Option<i64>,
    /// Whether those were read whose names do not tell whether they can share the queue.
    knows_neighbours: bool,
    /// What will be written down of the hold, if anything is.
    draft: Option<Box<Draft>>,
    metrics: LockMetrics,
    /// Whether it was counted what else stands in the queue.
    is_counted: bool,
}

/// How far a ticket has come.
#[derive(Debug)]
enum Stage {
    Walking,
    /// Nobody is before mine, but whoever was may not have ended well: not before that moment.
    Delaying {
        until: Moment,
    },
    /// Nobody was before mine, with the directory at that version; and perhaps nobody behind it.
    First {
        version: i32,
        is_alone: bool,
    },
    /// A guest of the hold with this token.
    Inside {
        token: i64,
    },
}

impl Waiter {
    pub(super) fn new(
        place: TicketPlace,
        name: LockName,
        walk: Walk,
        line: Option<Arc<TicketData>>,
        delay: Duration,
        draft: Option<Draft>,
        metrics: LockMetrics,
    ) -> Self {
        Self {
            place,
            name,
            walk,
            setbacks: Setbacks::default(),
            stage: Stage::Walking,
            seen: Moment::ZERO,
            line,
            since: Instant::now(),
            delay: Some(delay).filter(|delay| !delay.is_zero()),
            sat_out: None,
            knows_neighbours: false,
            draft: draft.map(Box::new),
            metrics,
            is_counted: false,
        }
    }

    pub(crate) fn name(&self) -> &LockName {
        &self.name
    }

    /// The name of its ticket.
    pub(crate) fn node(&self) -> &str {
        let ticket = self.place.ticket();
        ticket.map_or("", |(ticket, _)| &*ticket.name)
    }

    /// The token of the hold that this ticket gives: its own identity, or, for a guest, that of its
    /// host.
    pub(crate) fn token(&self) -> i64 {
        match self.stage {
            Stage::Inside { token, .. } => token,
            _ => self.walk.czxid(),
        }
    }

    /// Whether what it holds by excludes others.
    pub(crate) fn kind(&self) -> Mode {
        let ticket = self.place.ticket();
        ticket.map_or(Mode::Exclusive, |(ticket, _)| ticket.kind)
    }

    /// Whether nobody else was in the queue when its turn was seen.
    pub(crate) fn is_alone(&self) -> bool {
        matches!(self.stage, Stage::First { is_alone: true, .. })
    }

    /// How long this ticket has been in the queue.
    pub(crate) fn waited(&self) -> Duration {
        self.since.elapsed()
    }

    /// What is counted of it.
    pub(crate) fn metrics(&self) -> &LockMetrics {
        &self.metrics
    }

    /// Counts what else stood in the queue when this ticket first saw it.
    fn count(&mut self, directory: &Node) {
        if !std::mem::replace(&mut self.is_counted, true) {
            self.metrics.joined(directory.num_children);
        }
    }

    /// Takes in what the directory looked like after the create; the answer came then.
    pub(super) fn speculated(&mut self, at: Moment, directory: &Node) {
        self.count(directory);
        self.walk.speculated(&SpeculativeRead {
            data: &directory.data,
            version: directory.version,
            num_children: directory.num_children,
            pzxid: directory.pzxid,
        });
        self.seen = at;
    }

    /// Takes in what was found at this moment of a ticket whose turn it is: being the first does
    /// not end by itself.
    pub(super) async fn seen_again(
        &mut self,
        at: Moment,
        directory: &Node,
        mine: &Found,
    ) -> Result<()> {
        match mine {
            Found::Node(mine) if mine.czxid == self.walk.czxid() => {}
            other => {
                self.place.leave_in_doubt();
                return Err(self.lost(match other {
                    Found::Node(_) => REPLACED,
                    _ => REMOVED,
                }));
            }
        }
        let path = Arc::clone(self.place.directory());
        let is_checked = self.place.checks_acl(&self.name, &path, directory).await?;
        match &mut self.stage {
            Stage::First { version, .. } if is_checked && *version == directory.version => {
                self.seen = at;
                self.place.seen(at);
            }
            // Its exit is no longer right.
            _ => self.look_again(),
        }
        Ok(())
    }

    /// Whether a look has shown that nobody is before this ticket.
    pub(super) fn is_first(&self) -> bool {
        match self.stage {
            Stage::First { .. } | Stage::Inside { .. } => true,
            Stage::Walking | Stage::Delaying { .. } => {
                matches!(self.walk.step(), Step::Turn(_))
            }
        }
    }

    /// Whether it was this ticket's turn at a moment no longer ago than a beat.
    pub(super) fn has_turn(&self) -> bool {
        matches!(self.stage, Stage::First { .. } | Stage::Inside { .. }) && self.is_recent()
    }

    /// Whether what is known was answered no longer ago than a beat.
    fn is_recent(&self) -> bool {
        self.place.session().heartbeat.is_recent(self.seen)
    }

    /// Waits until it is this ticket's turn and the session has a lease.
    ///
    /// # Cancel safety
    ///
    /// The ticket keeps its place; call again to go on.
    pub(crate) async fn granted(&mut self) -> Result<LeaseEntry> {
        loop {
            self.reach().await?;
            // On the heap, as every step but the wait.
            if let Some(entry) = Box::pin(self.begin_hold()).await? {
                return Ok(entry);
            }
        }
    }

    /// Waits until it is this ticket's turn, and that was seen no longer ago than a beat.
    ///
    /// # Cancel safety
    ///
    /// The ticket keeps its place; call again to go on.
    pub(crate) async fn reach(&mut self) -> Result<()> {
        loop {
            match self.stage {
                Stage::First { .. } | Stage::Inside { .. } if self.is_recent() => return Ok(()),
                // A held ticket is looked at with each beat, and somebody may have removed this one
                // meanwhile.
                Stage::First { .. } => self.look_again(),
                Stage::Inside { .. } => {
                    let looked = Box::pin(self.look(false, &[])).await;
                    self.seen = self.in_place(looked)?.at;
                }
                Stage::Walking | Stage::Delaying { .. } => {
                    self.advance().await?;
                }
            }
        }
    }

    /// Looks whether the owner has come to hold elsewhere, if it is still waiting.
    pub(crate) fn nudge(&mut self) {
        self.walk.nudged();
    }

    /// Looks at the whole queue again before anything else.
    pub(crate) fn look_again(&mut self) {
        self.walk.look_again();
        self.stage = Stage::Walking;
    }

    /// Begins the hold. Being the first is not enough: the session must surely be alive, and the
    /// ticket its own. `None` if that took a wait.
    pub(super) async fn begin_hold(&self) -> Result<Option<LeaseEntry>> {
        self.place.begin_hold(&self.name).await
    }

    /// Whoever was before this ticket is known to have ended well: no lock delay.
    pub(crate) fn forgo_delay(&mut self) {
        self.delay = None;
    }

    /// Waits until the ticket before this one is another, or none.
    pub(crate) async fn changed(&mut self) -> Result<()> {
        loop {
            if matches!(self.stage, Stage::First { .. } | Stage::Inside { .. }) {
                return Ok(());
            }
            let was_behind = self.walk.is_behind_known();
            self.advance().await?;
            if was_behind && !self.walk.is_behind_known() {
                return Ok(());
            }
        }
    }

    /// Whether it is this ticket's turn, without waiting.
    pub(super) async fn try_granted(&mut self) -> Result<bool> {
        loop {
            match self.stage {
                Stage::First { .. } | Stage::Inside { .. } => return Ok(true),
                // Sat out, because leaving would begin it anew for whoever comes next.
                Stage::Delaying { .. } => self.advance().await?,
                Stage::Walking => {
                    // A guess only saves others a list, and here nobody waits.
                    self.walk.skip_guess();
                    if matches!(self.walk.step(), Step::Watch(_) | Step::Wait) {
                        return Ok(false);
                    }
                    self.advance().await?;
                }
            }
        }
    }

    /// The tickets before this one, whether they conflict or not. Lists the queue.
    pub(crate) async fn ahead(&self) -> Result<Vec<Ticket>> {
        if self.place.was_exchanged().await {
            return Ok(Vec::new());
        }
        // A guest stands where its host does.
        let mine = self.place.ticket().map_or(0, |(ticket, _)| ticket.seq);
        let looked = self.look(true, &[]).await?;
        check_neighbours(&self.name, Some(self.walk.recipe()), &looked.children)?;
        self.asks_doubts(&looked.children).await?;
        let tickets = looked
            .children
            .iter()
            .filter_map(|child| Ticket::parse(child));
        let before = tickets.filter(|other| other.seq.wrapping_sub(mine) < 0);
        Ok(before.collect())
    }

    /// Room to watch who else comes, after its turn.
    pub(crate) fn take_slot(&mut self) -> WatchSlot {
        self.place.slot().take()
    }

    /// What will be written down of its hold.
    pub(crate) fn take_draft(&mut self) -> Option<Box<Draft>> {
        self.draft.take()
    }

    /// The place of a ticket whose turn it is, for a guard.
    pub(crate) fn into_place(self) -> TicketPlace {
        self.place
    }

    /// One step of the walk.
    async fn advance(&mut self) -> Result<()> {
        match (&self.stage, self.walk.step()) {
            (Stage::Walking, Step::Wait) => self.wait().await,
            // On the heap, so that a waiter's future is no larger than its wait, in which it spends
            // its life.
            _ => Box::pin(self.ask()).await,
        }
    }

    /// Waits for the watch to tell.
    async fn wait(&mut self) -> Result<()> {
        match self.place.slot().changed().await {
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
        if let Stage::Delaying { until } = self.stage {
            return Box::pin(self.sit_out(until)).await;
        }
        match self.walk.step() {
            Step::Look {
                with_children,
                tickets,
            } => {
                let looked = self.look(with_children, tickets).await;
                let looked = self.in_place(looked)?;
                check_neighbours(&self.name, Some(self.walk.recipe()), &looked.children)?;
                // Only a list names them.
                if with_children && !self.knows_neighbours {
                    let took_time = self.asks_doubts(&looked.children).await?;
                    self.knows_neighbours = true;
                    if took_time {
                        // Another look tells of the turn.
                        return Ok(());
                    }
                }
                let path = Arc::clone(self.place.directory());
                let checked = self.place.checks_acl(&self.name, &path, &looked.directory);
                if !checked.await? {
                    return Ok(());
                }
                self.count(&looked.directory);
                self.seen = looked.at;
                let snapshot = looked.snapshot();
                let told = self.walk.looked(&snapshot);
                told.map_err(|why| self.lost(why))
            }
            Step::Watch(ahead) => {
                let path = format!("{}/{ahead}", self.place.directory());
                drop(ahead);
                self.watch(&path).await
            }
            Step::GuestEntry(guest_entry) => {
                let guest_entry = guest_entry.clone();
                // The host may be the first and not in yet.
                let is_over = guest_entry.ended_well || self.sat_out == Some(guest_entry.token);
                if !is_over && self.begins_delay() {
                    return Ok(());
                }
                Box::pin(self.guest_entry(guest_entry)).await
            }
            Step::Turn(turn) => {
                let turn = turn.clone();
                self.take_turn(turn);
                Ok(())
            }
            Step::Wait => Ok(()),
        }
    }

    /// Reads those whose names do not tell whether they can share the queue. Whether there were
    /// any.
    async fn asks_doubts(&self, children: &[String]) -> Result<bool> {
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

    /// It is our turn; but after somebody who may not have ended well the lock delay comes first.
    fn take_turn(&mut self, turn: Turn) {
        if !self.is_recent() {
            // Long ago: the ticket may have been removed since, and another one taken.
            return self.look_again();
        }
        if turn.ended_well {
            // For good: another look begins no delay.
            self.delay = None;
        }
        if self.begins_delay() {
            return;
        }
        self.place.grant(turn.plan, self.seen);
        let Turn {
            version, is_alone, ..
        } = turn;
        self.stage = Stage::First { version, is_alone };
    }

    /// Whether the lock delay comes first.
    fn begins_delay(&mut self) -> bool {
        let Some(delay) = self.delay else {
            return false;
        };
        tracing::debug!(?delay, "the lock delay begins");
        // A delay without an end is one that an operator ends.
        let until = self.place.session().heartbeat.now().saturating_add(delay);
        self.stage = Stage::Delaying { until };
        true
    }

    /// Waits for the end of the lock delay, and looks again: the ticket must still be there.
    async fn sit_out(&mut self, until: Moment) -> Result<()> {
        let session = self.place.session();
        tokio::select! {
            () = session.heartbeat.until(until) => {}
            end = session.ended() => return Err(end.while_trying(WAITING, &self.name)),
        }
        match self.walk.step() {
            // Beside this hold only: it may be over before we are in, and then others are before
            // us.
            Step::GuestEntry(guest_entry) => self.sat_out = Some(guest_entry.token),
            _ => self.delay = None,
        }
        self.look_again();
        Ok(())
    }

    /// Goes in as a guest: our ticket for one with the host's number, only while the host's is
    /// there. The note in the directory has the host leave without a mark, which would call the
    /// next one in beside us.
    async fn guest_entry(&mut self, guest_entry: GuestEntry) -> Result<()> {
        let attempt = Uuid::new_v4();
        let ticket = guest_entry.host.guest(attempt);
        let line = TicketData {
            attempt,
            at: now_ms(),
            guest_of: Some(guest_entry.token),
            ..self.line.as_deref().cloned().unwrap_or_default()
        };
        let directory = Arc::clone(self.place.directory());
        let host = format!("{directory}/{}", guest_entry.host.name);
        let (told, version) = match &guest_entry.note {
            Some(data) => {
                let (path, version) = (&*directory, guest_entry.version);
                (
                    Write::Set {
                        path,
                        data,
                        version,
                    },
                    version.wrapping_add(1),
                )
            }
            None => {
                let (path, version) = (&*directory, guest_entry.version);
                (Write::Check { path, version }, version)
            }
        };
        let exchange = Exchange {
            directory: &directory,
            ticket,
            is_sequential: false,
            data: &line.to_bytes(),
            attempt,
            with: &[Write::check(&host), told],
            plan: ReleasePlan::Unmarked { version },
        };
        let session = Arc::clone(self.place.session());
        let (at, exchanged) = session
            .heartbeat
            .stamped(self.place.exchange(exchange))
            .await;
        if !matches!(exchanged, Ok(Exchanged::Done)) && !self.place.is_unsettled() {
            // A visit is a matter of names: what it rests on must have been seen a moment ago.
            self.look_again();
        }
        match exchanged {
            Ok(Exchanged::Done) => {
                tracing::debug!(host = guest_entry.host.name, "in as a guest");
                self.seen = at;
                let token = guest_entry.token;
                self.stage = Stage::Inside { token };
                Ok(())
            }
            Ok(Exchanged::Refused(_, Code::NoNode | Code::BadVersion)) => {
                let pause = self.setbacks.pause_after_a_race();
                self.pause(pause).await
            }
            Ok(Exchanged::Nothing) => {
                let pause = self.setbacks.pause();
                self.pause(pause).await
            }
            Ok(Exchanged::Refused(at, code)) => {
                let path = if at == 0 { &host } else { &*directory };
                let link = self.place.session().link();
                let link = link.map_err(|end| end.while_trying(WAITING, &self.name))?;
                Err(refused(&*link, WAITING, path, &code))
            }
            Ok(Exchanged::Gone) => Err(self.lost(REMOVED)),
            Err(failure) => {
                let session = self.place.session();
                Err(failed(session, WAITING, &self.name, &directory, failure))
            }
        }
    }

    async fn pause(&self, pause: Duration) -> Result<()> {
        let back = self.place.session().reconnected(pause).await;
        back.map_err(|end| end.while_trying(WAITING, &self.name))
    }

    /// The only read that can grant.
    async fn look(&self, with_children: bool, tickets: &[Ticket]) -> Result<VerifiedRead> {
        let place = &self.place;
        place
            .look(WAITING, &self.name, with_children, tickets)
            .await
    }

    /// What shows another ticket in the place of ours ends what was known of ours: by its name it
    /// would be the other one's end.
    fn in_place<T>(&mut self, looked: Result<T>) -> Result<T> {
        if matches!(looked, Err(Error::PlaceLost { .. })) {
            self.place.leave_in_doubt();
        }
        looked
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        self.place.session()
    }

    pub(super) fn lost(&self, why: &'static str) -> Error {
        Error::PlaceLost {
            name: self.name.to_string(),
            why,
        }
    }
}

/// Says whose end is waited for, as far as the watch on its ticket has read it anyway.
fn tell_of(ticket: &str, data: &[u8]) {
    // Nobody else needs to know what is in there.
    if !tracing::enabled!(Level::DEBUG) {
        return;
    }
    let line = TicketData::parse(data);
    let (host, pid) = line.as_ref().map(|line| (&*line.host, line.pid)).unzip();
    let holder_trace = line.as_ref().and_then(|line| line.trace.as_deref());
    Span::current().record("holder_trace", holder_trace);
    tracing::debug!(ticket, host, pid, holder_trace, "waits for");
}
