//! The waiter: takes a ticket through its walk, on the wire, and begins the hold.
//!
//! Invariants: each step of the walk is one request, and its answer is taken in only when it is
//! there, so a waiter whose future was dropped goes on from the same step. A hold begins only under
//! a lease. It decides nothing about turns (the walk does), and creates nothing but a guest's
//! ticket in exchange for its own.
//!
//! A speculative read that is older than a heartbeat is followed by a verified read when the
//! grant of an enqueued place is asked for. Until then the place leaves as one that never had
//! its turn.
//!
//! The future of a lock is under 1 KiB, and a waiter takes 3 to 4 KB of a fresh process: the
//! allocator keeps what a crowd of joining tasks once needed.

mod ask;
mod guest;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};

use super::journal::Draft;
use super::place::TicketPlace;
use super::verified_read::ticket_in;
use super::{Queue, WAITING};
use crate::error::{Error, Result};
use crate::link::{Found, Node};
use crate::metrics::LockMetrics;
use crate::name::LockName;
use crate::protocol::departure::Departure;
use crate::protocol::dialect::check_neighbours;
use crate::protocol::lease::Moment;
use crate::protocol::rule;
use crate::protocol::ticket::{Mode, Ticket, TicketData};
use crate::protocol::walk::{SpeculativeRead, Step, Turn, Walk};
use crate::session::heartbeat::LeaseEntry;
use crate::session::setbacks::Setbacks;
use crate::session::watching::WatchSlot;
use crate::session::{Failure, Session, node_in};

/// A ticket on its way to the grant.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(super) place: TicketPlace,
    pub(super) name: LockName,
    walk: Walk,
    /// Tells that a release of the watched ticket is on its way, if it is one of this session.
    release: Option<oneshot::Receiver<()>>,
    /// Whether the turn to which the walk has come is taken: as the first, or as a guest.
    is_taken: bool,
    /// When what is known of its turn was answered.
    seen: Moment,
    /// Of entering as a guest.
    setbacks: Setbacks,
    /// What it needs to come in as a guest; none without an owner.
    guest: Option<Box<GuestCall>>,
    since: Instant,
    /// The lock delay; none once it is over.
    delay: Option<Duration>,
    /// The end of a lock delay that has begun.
    delay_until: Option<Moment>,
    /// The hold beside which the delay was sat out, by its token.
    sat_out: Option<i64>,
    /// Whether the nodes were read whose names do not tell whether they can share the queue.
    knows_neighbours: bool,
    /// What the journal will say of the hold, if anything.
    draft: Option<Box<Draft>>,
    metrics: LockMetrics,
    /// Whether the length of the queue was counted.
    is_counted: bool,
}

/// A call of an owner, who may come to hold elsewhere meanwhile.
#[derive(Debug)]
struct GuestCall {
    /// What a guest's ticket says.
    line: Arc<TicketData>,
    /// Tells that the owner may have come to hold.
    wake: Option<Arc<Notify>>,
}

impl GuestCall {
    fn new(line: &Arc<TicketData>) -> Self {
        let line = Arc::clone(line);
        Self { line, wake: None }
    }
}

impl Waiter {
    /// The waiter of a ticket that is in the queue.
    pub(super) fn new(queue: &Queue, place: TicketPlace) -> Result<Self> {
        let seated = place.seated();
        let (ticket, czxid) =
            seated.map_err(|lost| queue.failed_to(WAITING, place.session(), lost))?;
        let owner = queue.line.owner.as_deref();
        let forget = queue.directory.is_container();
        Ok(Self {
            name: queue.name.clone(),
            walk: Walk::new(queue.recipe, ticket.clone(), czxid, owner, forget),
            release: None,
            is_taken: false,
            seen: Moment::ZERO,
            setbacks: Setbacks::default(),
            guest: owner.map(|_| Box::new(GuestCall::new(&queue.line))),
            since: Instant::now(),
            delay: Some(queue.delay).filter(|delay| !delay.is_zero()),
            delay_until: None,
            sat_out: None,
            knows_neighbours: false,
            draft: queue.draft(queue.recipe.lock_kind()).map(Box::new),
            metrics: queue.metrics.clone(),
            is_counted: false,
            place,
        })
    }

    pub(crate) fn name(&self) -> &LockName {
        &self.name
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        self.place.session()
    }

    /// The name of its ticket.
    pub(crate) fn node(&self) -> &str {
        let ticket = self.place.ticket();
        ticket.map_or("", |(ticket, _)| &*ticket.name)
    }

    /// The token of the hold that this ticket gives: its own identity, or that of a guest's host.
    pub(crate) fn token(&self) -> i64 {
        match self.walk.step() {
            Step::GuestEntry(entry) if self.is_taken => entry.token,
            _ => self.walk.czxid(),
        }
    }

    /// Whether its hold excludes others.
    pub(crate) fn kind(&self) -> Mode {
        let ticket = self.place.ticket();
        ticket.map_or(Mode::Exclusive, |(ticket, _)| ticket.kind)
    }

    /// Whether the queue had no other ticket when its turn was seen.
    pub(crate) fn is_alone(&self) -> bool {
        self.first().is_some_and(|turn| turn.is_alone)
    }

    /// How long this ticket has been in the queue.
    pub(crate) fn waited(&self) -> Duration {
        self.since.elapsed()
    }

    /// What is counted of it.
    pub(crate) fn metrics(&self) -> &LockMetrics {
        &self.metrics
    }

    /// Counts the tickets that stood in the queue when this one first saw it.
    fn count(&mut self, directory: &Node) {
        if !std::mem::replace(&mut self.is_counted, true) {
            self.metrics.joined(directory.num_children);
        }
    }

    /// Takes in the directory as it was read after the create; the answer came then.
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

    /// Takes in a later read of a ticket whose turn it is: being the first does not end by itself.
    pub(super) async fn seen_again(
        &mut self,
        at: Moment,
        directory: &Node,
        mine: Option<Found>,
    ) -> Result<()> {
        self.in_place(node_in(mine).and_then(|mine| ticket_in(mine, self.walk.czxid())))?;
        let path = Arc::clone(self.place.directory());
        let is_checked = self.place.checks_acl(&self.name, &path, directory).await?;
        if is_checked && self.is_taken && self.walk.has_turn_at(directory.version) {
            self.seen = at;
            self.place.leaves(|departure| departure.seen(at));
        } else {
            // Its plan to leave is no longer right.
            self.start_over();
        }
        Ok(())
    }

    /// The turn that was taken, if not as a guest.
    fn first(&self) -> Option<&Turn> {
        self.walk.shown_turn().filter(|_| self.is_taken)
    }

    /// Whether a read has shown that this ticket waits for no other.
    pub(super) fn is_first(&self) -> bool {
        self.is_taken || self.walk.shown_turn().is_some()
    }

    /// Whether it was this ticket's turn at a moment no longer ago than a heartbeat.
    pub(super) fn has_turn(&self) -> bool {
        self.is_taken && self.is_recent()
    }

    /// Whether what is known was answered no longer ago than a heartbeat.
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

    /// Waits until it is this ticket's turn, and that was seen no longer ago than a heartbeat.
    ///
    /// # Cancel safety
    ///
    /// The ticket keeps its place; call again to go on.
    pub(crate) async fn reach(&mut self) -> Result<()> {
        loop {
            if !self.is_taken {
                self.advance().await?;
            } else if self.is_recent() {
                return Ok(());
            } else if self.first().is_some() {
                // A held ticket is read with each heartbeat. This one may have been removed
                // meanwhile.
                self.start_over();
            } else {
                let read = Box::pin(self.place.verified_read(&[], false)).await;
                self.seen = self.in_place(read)?.at;
            }
        }
    }

    /// Asks whether the owner has come to hold elsewhere at each wake-up, once it waits. What is on
    /// its way by then ends first, so that no stream of them starves it.
    pub(crate) fn heeds(&mut self, wake: Arc<Notify>) {
        if let Some(guest) = &mut self.guest {
            guest.wake = Some(wake);
        }
    }

    /// Reads the whole queue again before anything else.
    pub(crate) fn start_over(&mut self) {
        self.walk.start_over();
        self.is_taken = false;
        self.delay_until = None;
    }

    /// Begins the hold. Being the first is not enough: the session must surely be alive, and the
    /// ticket its own. `None` if that took a wait.
    pub(super) async fn begin_hold(&self) -> Result<Option<LeaseEntry>> {
        self.place.begin_hold(&self.name).await
    }

    /// Waits until the ticket before this one is another, or none.
    pub(crate) async fn changed(&mut self) -> Result<()> {
        while !self.is_taken {
            let was_behind = self.walk.is_behind_known();
            self.advance().await?;
            if was_behind && !self.walk.is_behind_known() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether it is this ticket's turn, without waiting.
    pub(super) async fn try_granted(&mut self) -> Result<bool> {
        while !self.is_taken {
            // A delay is sat out, because leaving would begin it anew for the next ticket.
            if self.delay_until.is_none() {
                // A guess only saves others a list, and here is no wait.
                self.walk.skip_guess();
                if matches!(self.walk.step(), Step::Watch(_) | Step::Wait) {
                    return Ok(false);
                }
            }
            self.advance().await?;
        }
        Ok(true)
    }

    /// The tickets before this one, whether they conflict or not. Lists the queue.
    pub(crate) async fn ahead(&self) -> Result<Vec<Ticket>> {
        if self.place.was_exchanged().await {
            return Ok(Vec::new());
        }
        let listed = self.place.verified_list(true, &[], false).await;
        let (_, children) = listed.map_err(|failure| self.failed(failure))?;
        check_neighbours(&self.name, Some(self.walk.recipe()), &children)?;
        self.reads_doubts(&children).await?;
        // A guest stands where its host does.
        let mine = self.place.ticket().map_or(0, |(ticket, _)| ticket.seq);
        Ok(rule::ahead(mine, children.iter().map(String::as_str)))
    }

    /// Room to watch new tickets, after its turn.
    pub(crate) fn take_slot(&mut self) -> WatchSlot {
        self.place.slot().take()
    }

    /// What the journal will say of its hold.
    pub(crate) fn take_draft(&mut self) -> Option<Box<Draft>> {
        self.draft.take()
    }

    /// The place of a ticket whose turn it is, for a guard.
    pub(crate) fn into_place(self) -> TicketPlace {
        self.place
    }

    /// What a read of our ticket saw. Another ticket in its place ends what was known of ours: by
    /// its name it would be the other one's end.
    fn in_place<T>(&mut self, read: Result<T, Failure>) -> Result<T> {
        if matches!(read, Err(Failure::Lost(_))) {
            self.place.leaves(Departure::leave_in_doubt);
        }
        read.map_err(|failure| self.failed(failure))
    }

    fn failed(&self, failure: Failure) -> Error {
        self.place.failed(WAITING, &self.name, failure)
    }
}
