//! The heartbeat of a session: the beats that keep its lease, and the holds that live by it.
//!
//! One task per session sends a beat every sixth of the session timeout for as long as the session
//! lives, every tenth while something is held: a `sync` while no ticket of ours is in a queue,
//! otherwise a commit without a change, which only a live quorum can answer
//! (`multi{check(held tickets)}`; a deposed leader answers a `sync` for many ticks). Invariants: a
//! hold begins only under a lease; it is lost at the latest when that lease ends, by the clock and
//! not by a packet; and a loss is final. It sends nothing that changes a node, and removes nothing.

use std::collections::BTreeMap;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, OptionFuture};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::watch;

use super::arrival::stamped;
use super::clock::Clock;
use super::ending::{End, EndListener, EndNotifier};
use crate::error::Error;
use crate::latch;
use crate::latch::{Latch, Latched};
use crate::link::{Code, Fault, Found, Link, Read, SessionState, Write};
use crate::metrics;
use crate::metrics::{Holding, LockMetrics, Reason};
use crate::protocol::lease::{By, Lease, Moment};

pub(super) const ANOTHER_SESSION: &str = "the server has given us another session";
/// Registration tickets that one beat checks; more go round.
const BATCH: usize = 100;
/// Beats without an answer yet, at most; the link gives up each after a session timeout, which is
/// ten beats of a holder.
const UNDER_WAY: usize = 12;
/// So many beats in a row without an answer, on a connection that does not break, and the session
/// is given up: the client can wait for ever for the rest of an answer that is none, and its pings
/// then keep our tickets in their queues. That takes almost three session timeouts.
const MOST_UNANSWERED: usize = 12;
const DEAF: &str = "the server answers nothing";
/// After so many beats a ticket is read too, because a check knows names only.
const READ_EVERY: u64 = 10;

/// What proves that the session is alive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseStrength {
    /// While we hold or wait, beats are commits without a change: a server that is cut off from its
    /// quorum cannot answer them. One commit each sixth of the session timeout for each session
    /// that waits, each tenth for one that holds.
    #[default]
    Quorum,
    /// Beats are always `sync`s: no commits, but a leader that is cut off answers them for a few of
    /// its ticks, in which a guard may believe too long. Refused where the server had to raise the
    /// session timeout to its minimum.
    Sync,
}

/// How a hold was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// No server confirmed the session for so long that it may be over.
    Lapsed,
    Ended(End),
    /// The ticket is gone, or is somebody else's.
    Gone(&'static str),
}

impl Loss {
    /// What it is counted as.
    fn reason(self) -> Reason {
        match self {
            Self::Lapsed => Reason::Lease,
            Self::Ended(End::Over(_)) => Reason::Session,
            Self::Ended(End::Closed) => Reason::Closed,
            Self::Gone(_) => Reason::Ticket,
        }
    }

    /// The error for whoever held.
    pub(crate) fn while_trying(self, doing: &'static str, name: impl ToString) -> Error {
        match self {
            Self::Lapsed => Error::LeaseOver {
                name: name.to_string(),
            },
            Self::Ended(end) => end.while_trying(doing, name),
            Self::Gone(why) => Error::PlaceLost {
                name: name.to_string(),
                why,
            },
        }
    }
}

#[derive(Debug)]
pub(crate) struct Heartbeat {
    clock: Arc<dyn Clock>,
    strength: LeaseStrength,
    ending: EndListener,
    states: watch::Receiver<SessionState>,
    state: Latch<HeartbeatState>,
    leased: watch::Sender<bool>,
    /// Tickets of ours in queues, also those that wait.
    tickets: AtomicUsize,
    /// How often the client has connected again.
    reconnects: AtomicU64,
    /// After how many of them it was last known to be our session.
    recognised: AtomicU64,
}

#[derive(Debug)]
struct HeartbeatState {
    lease: Lease,
    entries: BTreeMap<u64, Registration>,
    next: u64,
    /// Beats that were sent.
    beats: u64,
}

#[derive(Debug)]
struct Registration {
    path: Arc<str>,
    czxid: i64,
    told: watch::Sender<Option<Loss>>,
    /// The last beat that looked at it; 0 if what that said is not known.
    looked: u64,
    /// The beat from which on it is to be read.
    read_at: u64,
    /// It is not looked at: the server does not let us, or it is being released and will be gone.
    is_hidden: bool,
    /// Counts it, once it is somebody's.
    holding: Option<Holding>,
}

/// The state for a moment, after whatever the clock and the client have to say. A loss is seen from
/// then on by everybody who looks, and told of when the latch is open again.
struct Observed<'a> {
    // Dropped in this order.
    state: Latched<'a, HeartbeatState>,
    untold: Untold<'a>,
    now: Moment,
}

/// What is still to be told of.
struct Untold<'a> {
    /// So many holds lapsed.
    lapsed: usize,
    losses: Vec<(Registration, Loss)>,
    leased: Option<&'a watch::Sender<bool>>,
}

impl Drop for Untold<'_> {
    fn drop(&mut self) {
        if self.lapsed > 0 {
            tracing::warn!(
                entries = self.lapsed,
                "the lease ended: no server confirmed the session in time"
            );
        }
        for (held, loss) in self.losses.drain(..) {
            if let Loss::Gone(why) = loss {
                tracing::warn!(ticket = &*held.path, why, "a held lock is lost");
            }
            latch::tell(&held.told);
            if let Some(holding) = held.holding {
                holding.lost(loss.reason());
            }
        }
        if let Some(leased) = self.leased {
            latch::tell(leased);
        }
    }
}

impl Heartbeat {
    pub(super) fn new(
        link: &dyn Link,
        ending: EndListener,
        clock: Arc<dyn Clock>,
        strength: LeaseStrength,
        tick: Option<Duration>,
        opening: Moment,
    ) -> Self {
        let lease = Lease::new(link.session_timeout(), tick, opening, clock.now());
        let is_leased = lease.valid_until(clock.now()).is_some();
        Self {
            clock,
            strength,
            ending,
            states: link.states(),
            state: Latch::new(HeartbeatState {
                lease,
                entries: BTreeMap::new(),
                next: 0,
                beats: 0,
            }),
            leased: watch::Sender::new(is_leased),
            tickets: AtomicUsize::new(0),
            reconnects: AtomicU64::new(0),
            recognised: AtomicU64::new(0),
        }
    }

    /// A ticket of ours is about to be in a queue.
    pub(crate) fn ticket_comes(&self) {
        self.tickets.fetch_add(1, Ordering::Relaxed);
    }

    /// A ticket of ours is gone, or in the hands of the janitor.
    pub(crate) fn ticket_goes(&self) {
        self.tickets.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether the client has connected again and nobody has looked yet whose session it came back
    /// with; if so, how often it has.
    pub(crate) fn is_strange(&self) -> Option<u64> {
        let reconnects = self.reconnects.load(Ordering::Relaxed);
        (self.recognised.load(Ordering::Relaxed) < reconnects).then_some(reconnects)
    }

    /// It is ours, after so many reconnects.
    pub(crate) fn recognised(&self, reconnects: u64) {
        self.recognised.fetch_max(reconnects, Ordering::Relaxed);
    }

    /// Begins a hold if there is a lease now.
    pub(crate) fn try_begin_hold(
        self: &Arc<Self>,
        path: Arc<str>,
        czxid: i64,
    ) -> Result<Option<LeaseEntry>, End> {
        let mut state = self.observed();
        if let Some(end) = self.ending.end() {
            return Err(end);
        }
        if state.lease.valid_until(state.now).is_none() {
            return Ok(None);
        }
        let id = state.next;
        state.next += 1;
        let (told, loss) = watch::channel(None);
        // It was seen a moment ago.
        let (looked, read_at) = (state.beats, state.beats + READ_EVERY);
        state.entries.insert(
            id,
            Registration {
                path,
                czxid,
                told,
                looked,
                read_at,
                is_hidden: false,
                holding: None,
            },
        );
        Ok(Some(LeaseEntry {
            heartbeat: Arc::clone(self),
            id,
            loss,
        }))
    }

    /// Whether that moment is no longer ago than the last beat should be.
    pub(crate) fn is_recent(&self, moment: Moment) -> bool {
        let state = self.observed();
        state.now <= moment + state.lease.rhythm()
    }

    /// The session's clock.
    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Waits for an answer; with it, the moment at which it came, or an earlier one.
    pub(crate) async fn stamped<T>(&self, answer: impl Future<Output = T>) -> (Moment, T) {
        stamped(&self.clock, answer).await
    }

    /// Waits until that moment of the session's clock.
    pub(crate) async fn until(&self, moment: Moment) {
        self.clock.until(moment).await;
    }

    /// Waits until there is a lease.
    pub(crate) async fn leased(&self) {
        // The sender is in here, so it outlives the wait.
        self.leased
            .subscribe()
            .wait_for(|leased| *leased)
            .await
            .map(drop)
            .unwrap_or_default();
    }

    /// The state, after whatever the clock and the client have to say: everybody who looks sees a
    /// loss before acting. With the moment: whoever asks the clock again may find that the lease
    /// has ended since, and nobody was told.
    fn observed(&self) -> Observed<'_> {
        let state = self.state.lock();
        let untold = Untold {
            lapsed: 0,
            losses: Vec::new(),
            leased: None,
        };
        // Read with the latch, so that no extension that is based on an earlier moment can follow.
        let now = self.clock.now();
        let mut observed = Observed { state, untold, now };
        if let Some(end) = self.ending.end() {
            observed.lose_all(Loss::Ended(end));
        }
        if observed.lease.end_if_over(now) {
            observed.untold.lapsed = observed.entries.len();
            observed.lose_all(Loss::Lapsed);
            self.set_leased(&mut observed, false);
        }
        observed
    }

    fn set_leased<'a>(&'a self, observed: &mut Observed<'a>, is_leased: bool) {
        if *self.leased.borrow() != is_leased {
            latch::set(&self.leased, is_leased);
            observed.untold.leased = Some(&self.leased);
        }
    }

    /// Tells every hold of the session's end.
    pub(super) fn observe(&self) {
        drop(self.observed());
    }

    fn is_connected(&self) -> bool {
        *self.states.borrow() == SessionState::Connected
    }

    /// The task: beats until the session ends.
    pub(super) async fn run(self: Arc<Self>, link: Arc<dyn Link>, end_notifier: EndNotifier) {
        let (mut states, mut proofs) = (link.states(), link.proofs());
        let mut under_way: FuturesUnordered<BoxFuture<'_, Heard>> = FuturesUnordered::new();
        let mut rounds = Rounds {
            last_sent: self.clock.now(),
            ..Rounds::default()
        };
        let ended = end_notifier.cry(&self.ending);
        tokio::pin!(ended);
        loop {
            let (lease_end, next) = {
                let state = self.observed();
                let is_holding = !state.entries.is_empty();
                let next = state.lease.next_beat(rounds.last_sent, is_holding);
                (state.lease.valid_until(Moment::ZERO), next)
            };
            let next = if rounds.is_urgent { Moment::ZERO } else { next };
            let may_beat = self.is_connected() && under_way.len() < UNDER_WAY;
            let lapse: OptionFuture<_> = lease_end.map(|end| self.clock.until(end)).into();
            tokio::select! {
                () = &mut ended => break,
                Some(()) = lapse => {}
                Some(heard) = under_way.next() => self.hear(heard, &mut rounds),
                changed = states.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    let state = *states.borrow_and_update();
                    match state {
                        // Each change may hide a reconnect between two looks.
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
                Ok(()) = proofs.changed() => {
                    tracing::debug!("the server stands alone: the lease reckons with no lag");
                    // Right after a silence each beat counts; a new session's lease is as long as
                    // any.
                    rounds.is_urgent |= self.reconnects.load(Ordering::Relaxed) > 0;
                }
                () = self.clock.until(next), if may_beat => {
                    under_way.push(self.beat(&*link, &mut rounds));
                }
            }
        }
        self.observe();
    }

    /// Sends one beat.
    fn beat<'a>(&self, link: &'a dyn Link, rounds: &mut Rounds) -> BoxFuture<'a, Heard> {
        let (batch, is_due) = self.observed().next_batch();
        rounds.is_urgent = false;
        let sent = self.clock.now();
        rounds.last_sent = sent;
        // Looked at before anything is sent, and again once it is answered.
        let standalone = link.standalone();
        let by = move || match standalone {
            Some(_) if link.standalone() == standalone => By::Standalone,
            _ => By::Any,
        };
        let is_sync =
            self.strength == LeaseStrength::Sync || self.tickets.load(Ordering::Relaxed) == 0;
        if is_sync && batch.is_empty() {
            let reply = link.sync("/");
            return async move {
                let answer = reply.await.map(Ok);
                Heard::new(sent, batch, answer, by())
            }
            .boxed();
        }
        // After a reconnect: is this still our session? A server may have opened another one in
        // silence.
        let strange = self.is_strange().zip(batch.first());
        let owned = strange.map(|(reconnects, (_, ticket))| {
            let asked = (link.sync("/"), link.ephemerals(&ticket.path));
            (reconnects, asked)
        });
        let checks: Vec<Write<'_>> = match &batch[..] {
            [] => vec![Write::check("/")],
            batch => batch
                .iter()
                .map(|(_, ticket)| Write::check(&ticket.path))
                .collect(),
        };
        let reply = if is_sync {
            link.sync("/").map(|answer| answer.map(Ok)).boxed()
        } else {
            let reply = link.attempt(&checks);
            reply
                .map(|answer| answer.map(|done| done.map(drop)))
                .boxed()
        };
        let reads: Vec<Read<'_>> = batch
            .iter()
            .map(|(_, ticket)| Read::Data(&ticket.path))
            .collect();
        let is_reading = !reads.is_empty() && (is_sync || is_due);
        let found = is_reading.then(|| link.multi_read(&reads));
        async move {
            let owned = match owned {
                Some((reconnects, (synced, listed))) => {
                    let owned = synced.await.and(listed.await).ok();
                    owned.map(|owned| (reconnects, owned))
                }
                None => None,
            };
            let answer = reply.await;
            let mut heard = Heard::new(sent, batch, answer, by());
            (heard.owned, heard.is_checked) = (owned, !is_sync);
            if let Some(found) = found {
                match found.await {
                    Ok(found) => heard.found = found,
                    Err(_) => heard.is_unread = true,
                }
            }
            heard
        }
        .boxed()
    }

    /// Takes in an answer.
    fn hear(&self, heard: Heard, rounds: &mut Rounds) {
        match heard.is_ours() {
            Some((_, false)) => {
                self.ending.renounce(ANOTHER_SESSION);
                return self.observe();
            }
            Some((reconnects, true)) => self.recognised(reconnects),
            // Asked again, about another ticket, until one of them tells.
            None => {}
        }
        if let Err(Fault::Unknown(why) | Fault::Answered(Code::NotNow(why))) = &heard.answer {
            tracing::debug!(why, "a beat has no answer");
            rounds.unanswered += 1;
            if self.is_connected() && rounds.unanswered >= MOST_UNANSWERED {
                self.ending.renounce(DEAF);
            }
            return self.observed().look_again(&heard.batch);
        }
        let mut state = self.observed();
        if let Ok(Err((at, code))) = &heard.answer {
            if let Some((id, _)) = heard.batch.get(*at) {
                // A check that failed hides those behind it.
                rounds.is_urgent = true;
                state.look_again(heard.batch.get(at + 1..).unwrap_or_default());
                match code {
                    Code::NoNode => state.miss(*id, "the ticket was removed"),
                    _ => state.hide(*id),
                }
            }
        }
        if heard.is_unread {
            state.look_again(&heard.batch);
        }
        for ((id, ticket), found) in heard.batch.iter().zip(&heard.found) {
            match found {
                Found::Node(node) if node.czxid == ticket.czxid => {}
                Found::Node(_) => state.miss(*id, "another ticket stands under its name"),
                Found::Failed(Code::NoNode) => state.miss(*id, "the ticket was removed"),
                _ => {}
            }
        }
        rounds.unanswered = 0;
        let now = state.now;
        state.lease.answered(heard.sent, now, heard.by);
        let is_leased = state.lease.valid_until(now).is_some();
        self.set_leased(&mut state, is_leased);
    }
}

impl HeartbeatState {
    /// The held tickets that were not looked at for longest, for the next beat, and whether they
    /// are to be read too.
    fn next_batch(&mut self) -> (Vec<(u64, KnownTicket)>, bool) {
        self.beats += 1;
        let visible = self.entries.iter().filter(|(_, held)| !held.is_hidden);
        let mut turns: Vec<(u64, u64)> = visible.map(|(id, held)| (held.looked, *id)).collect();
        if turns.len() > BATCH {
            turns.select_nth_unstable(BATCH);
            turns.truncate(BATCH);
        }
        turns.sort_unstable();
        let held = |(_, id): &(u64, u64)| self.entries.get(id);
        let is_due = turns
            .iter()
            .filter_map(held)
            .any(|held| held.read_at <= self.beats);
        let mut batch = Vec::with_capacity(turns.len());
        for (_, id) in turns {
            let Some(held) = self.entries.get_mut(&id) else {
                continue;
            };
            held.looked = self.beats;
            if is_due {
                held.read_at = self.beats + READ_EVERY;
            }
            let (path, czxid) = (Arc::clone(&held.path), held.czxid);
            batch.push((id, KnownTicket { path, czxid }));
        }
        (batch, is_due)
    }

    /// A beat has told nothing of these tickets: they come first in the next one, which reads them.
    fn look_again(&mut self, batch: &[(u64, KnownTicket)]) {
        for (id, _) in batch {
            if let Some(held) = self.entries.get_mut(id) {
                (held.looked, held.read_at) = (0, 0);
            }
        }
    }
}

impl Observed<'_> {
    fn lose_all(&mut self, loss: Loss) {
        for held in mem::take(&mut self.entries).into_values() {
            self.lose_one(held, loss);
        }
    }

    /// Set at once, before anybody else looks.
    fn lose_one(&mut self, held: Registration, loss: Loss) {
        latch::set(&held.told, Some(loss));
        self.untold.losses.push((held, loss));
    }

    /// A beat did not find the ticket.
    fn miss(&mut self, id: u64, why: &'static str) {
        // It may have been released since the beat was sent, or be about to be.
        if self.entries.get(&id).is_some_and(|held| !held.is_hidden) {
            self.lose(id, why);
        }
    }

    fn lose(&mut self, id: u64, why: &'static str) {
        if let Some(held) = self.entries.remove(&id) {
            self.lose_one(held, Loss::Gone(why));
        }
    }

    fn hide(&mut self, id: u64) {
        if let Some(held) = self.entries.get_mut(&id) {
            held.is_hidden = true;
        }
    }
}

impl Deref for Observed<'_> {
    type Target = HeartbeatState;

    fn deref(&self) -> &HeartbeatState {
        &self.state
    }
}

impl DerefMut for Observed<'_> {
    fn deref_mut(&mut self) -> &mut HeartbeatState {
        &mut self.state
    }
}

/// With the task that nobody can listen to any more: whoever still has a ticket is told of the end,
/// although nobody may ask. A session that is given up has none left, and what it held is being
/// given back.
#[derive(Debug)]
pub(super) struct LastLook(pub(super) Arc<Heartbeat>);

impl Drop for LastLook {
    fn drop(&mut self) {
        if self.0.tickets.load(Ordering::Relaxed) > 0 {
            self.0.observe();
        }
    }
}

/// What the task remembers from beat to beat.
#[derive(Debug, Default)]
struct Rounds {
    last_sent: Moment,
    is_urgent: bool,
    /// Beats in a row without an answer, on this connection.
    unanswered: usize,
}

#[derive(Debug)]
struct KnownTicket {
    path: Arc<str>,
    czxid: i64,
}

/// The answer to a beat.
#[derive(Debug)]
struct Heard {
    sent: Moment,
    batch: Vec<(u64, KnownTicket)>,
    answer: Result<Result<(), (usize, Code)>, Fault>,
    by: By,
    /// This session's own tickets under the name of the first of the batch, if that was asked, and
    /// after how many reconnects.
    owned: Option<(u64, Vec<String>)>,
    /// The batch was checked, and not only synced.
    is_checked: bool,
    /// The tickets of the batch, if they were read.
    found: Vec<Found>,
    /// They were to be, and nothing came of it.
    is_unread: bool,
}

impl Heard {
    fn new(
        sent: Moment,
        batch: Vec<(u64, KnownTicket)>,
        answer: Result<Result<(), (usize, Code)>, Fault>,
        by: By,
    ) -> Self {
        Self {
            sent,
            batch,
            answer,
            by,
            owned: None,
            is_checked: false,
            found: Vec::new(),
            is_unread: false,
        }
    }

    /// Whether the first ticket of the batch is this session's, and after how many reconnects that
    /// was asked. A ticket that is gone tells nothing.
    fn is_ours(&self) -> Option<(u64, bool)> {
        let (reconnects, owned) = self.owned.as_ref()?;
        let (_, first) = self.batch.first()?;
        if owned.iter().any(|path| **path == *first.path) {
            return Some((*reconnects, true));
        }
        let is_there = match (self.found.first(), &self.answer) {
            (Some(Found::Node(node)), _) => node.czxid == first.czxid,
            (None, Ok(Ok(()))) => self.is_checked,
            (None, Ok(Err((at, _)))) => self.is_checked && *at > 0,
            _ => false,
        };
        is_there.then_some((*reconnects, false))
    }
}

/// One granted ticket, for as long as its guard lives.
#[derive(Debug)]
pub(crate) struct LeaseEntry {
    heartbeat: Arc<Heartbeat>,
    id: u64,
    loss: watch::Receiver<Option<Loss>>,
}

impl LeaseEntry {
    /// Counts it for as long as it lasts.
    pub(crate) fn count(&self, metrics: &LockMetrics) {
        let Some(holding) = metrics.hold() else {
            return;
        };
        let uncounted = match self.heartbeat.observed().entries.get_mut(&self.id) {
            Some(held) => held.holding.replace(holding),
            None => Some(holding),
        };
        // It was lost before anybody had it.
        if let Some(holding) = uncounted {
            let loss = *self.loss.borrow();
            holding.lost(loss.map_or(Reason::Session, Loss::reason));
        }
    }

    /// How it was lost, if it was. Looks at the clock.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.heartbeat.observe();
        *self.loss.borrow()
    }

    /// For how long the lease lasts; nothing once the hold is lost.
    pub(crate) fn valid_for(&self) -> Duration {
        let state = self.heartbeat.observed();
        match state.lease.valid_until(state.now) {
            Some(end) if self.loss.borrow().is_none() => end - state.now,
            _ => Duration::ZERO,
        }
    }

    /// Whether the connection is down or a beat is missing.
    pub(crate) fn is_suspect(&self) -> bool {
        let state = self.heartbeat.observed();
        !self.heartbeat.is_connected() || state.lease.is_late(state.now)
    }

    /// What tells a loss to somebody who may outlive the guard.
    pub(crate) fn loss_watch(&self) -> LossWatch {
        LossWatch {
            heartbeat: Arc::clone(&self.heartbeat),
            id: self.id,
            loss: self.loss.clone(),
        }
    }

    /// The ticket was found to be gone by somebody who looked.
    pub(crate) fn lose(&self, why: &'static str) {
        self.heartbeat.observed().lose(self.id, why);
    }
}

impl Drop for LeaseEntry {
    fn drop(&mut self) {
        let held = self.heartbeat.state.lock().entries.remove(&self.id);
        // Only now: it is counted until then.
        drop(held);
    }
}

/// Sees a hold's loss, and does not keep it alive.
#[derive(Debug, Clone)]
pub(crate) struct LossWatch {
    heartbeat: Arc<Heartbeat>,
    id: u64,
    loss: watch::Receiver<Option<Loss>>,
}

impl LossWatch {
    /// Looks at the clock.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.heartbeat.observe();
        *self.loss.borrow()
    }

    /// The ticket is about to be removed by us: from now on only the lease and the session decide.
    /// Says how the hold was lost already, if it was.
    pub(crate) fn begin_release(&self) -> Option<Loss> {
        self.heartbeat.observed().hide(self.id);
        *self.loss.borrow()
    }

    /// The ticket is not removed after all.
    pub(crate) fn stay(&self) {
        if let Some(held) = self.heartbeat.observed().entries.get_mut(&self.id) {
            held.is_hidden = false;
        }
    }

    /// Waits for the loss. Never ends after the hold was given up without one.
    pub(crate) async fn lost(mut self) -> Loss {
        // An error means that the hold was given up; what it was told last still counts.
        self.loss.wait_for(Option::is_some).await.map(drop).ok();
        let loss = *self.loss.borrow();
        match loss {
            Some(loss) => loss,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;
    use crate::latch::Listener;
    use crate::metrics::MetricsTable;

    const T: Duration = Duration::from_millis(1200);

    fn ms(ms: u64) -> Moment {
        Moment::from_millis(ms)
    }

    /// A clock that goes on by a step each time somebody looks at it.
    #[derive(Debug, Default)]
    struct Steps {
        now: AtomicU64,
        step: AtomicU64,
    }

    impl Clock for Steps {
        fn now(&self) -> Moment {
            let step = self.step.load(Ordering::Relaxed);
            ms(self.now.fetch_add(step, Ordering::Relaxed))
        }

        fn until(&self, _moment: Moment) -> BoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }
    }

    /// A heartbeat without a task, of a session that was opened at 0, and what keeps the session
    /// alive.
    struct Alive {
        heartbeat: Arc<Heartbeat>,
        clock: Arc<Steps>,
        _end_notifier: EndNotifier,
        _states: watch::Sender<SessionState>,
        closing: watch::Sender<bool>,
    }

    impl Alive {
        fn new() -> Self {
            let clock = Arc::new(Steps::default());
            let (_states, states) = watch::channel(SessionState::Connected);
            let (closing, is_closing) = watch::channel(false);
            let (ending, _end_notifier) = EndListener::new(states.clone(), is_closing);
            let heartbeat = Arc::new(Heartbeat {
                clock: Arc::<Steps>::clone(&clock),
                strength: LeaseStrength::Quorum,
                ending,
                states,
                state: Latch::new(HeartbeatState {
                    lease: Lease::new(T, None, ms(0), ms(0)),
                    entries: BTreeMap::new(),
                    next: 0,
                    beats: 0,
                }),
                leased: watch::Sender::new(true),
                tickets: AtomicUsize::new(0),
                reconnects: AtomicU64::new(1),
                recognised: AtomicU64::new(0),
            });
            Self {
                heartbeat,
                clock,
                _end_notifier,
                _states,
                closing,
            }
        }

        fn at(&self, now: u64, step: u64) {
            self.clock.now.store(now, Ordering::Relaxed);
            self.clock.step.store(step, Ordering::Relaxed);
        }

        fn begin_hold(&self, number: i64) -> LeaseEntry {
            let path = format!("/locks/{number}/lock-0000000000").into();
            self.heartbeat
                .try_begin_hold(path, number)
                .unwrap()
                .unwrap()
        }
    }

    fn no_node() -> Result<Result<(), (usize, Code)>, Fault> {
        Ok(Err((0, Code::NoNode)))
    }

    #[test]
    fn a_lease_that_ends_while_an_answer_is_taken_in_is_told() {
        let alive = Alive::new();
        let entry = alive.begin_hold(1);

        alive.at(1079, 1);
        let heard = Heard::new(ms(1000), Vec::new(), Ok(Ok(())), By::Any);
        alive.heartbeat.hear(heard, &mut Rounds::default());

        alive.at(1100, 0);
        assert_eq!(entry.loss(), Some(Loss::Lapsed));
    }

    #[test]
    fn a_hidden_ticket_keeps_no_other_from_being_checked() {
        let alive = Alive::new();
        let entries: Vec<LeaseEntry> = (0..150).map(|number| alive.begin_hold(number)).collect();
        for hidden in &entries[..100] {
            alive.heartbeat.observed().hide(hidden.id);
        }

        let checked: Vec<i64> = (0..4)
            .flat_map(|_| alive.heartbeat.observed().next_batch().0)
            .map(|(_, known)| known.czxid)
            .collect();

        for number in 100..150 {
            assert!(checked.contains(&number), "{number}");
        }
    }

    #[test]
    fn what_a_beat_told_nothing_of_comes_first_in_the_next_one() {
        for (answer, first) in [(Ok(Err((5, Code::NoNode))), 6), (unknown(), 0)] {
            let alive = Alive::new();
            let _holds: Vec<LeaseEntry> = (0..250).map(|number| alive.begin_hold(number)).collect();
            let mut rounds = Rounds::default();
            let batch = alive.heartbeat.observed().next_batch().0;
            alive
                .heartbeat
                .hear(Heard::new(ms(10), batch, answer, By::Any), &mut rounds);

            let batch = alive.heartbeat.observed().next_batch().0;
            let next: Vec<i64> = batch.iter().map(|(_, known)| known.czxid).collect();

            let untold = (first..100).filter(|number| !next.contains(number));
            assert_eq!(untold.collect::<Vec<_>>(), [0_i64; 0], "of {next:?}");
        }
    }

    fn unknown() -> Result<Result<(), (usize, Code)>, Fault> {
        Err(Fault::Unknown("no answer".into()))
    }

    #[test]
    fn a_broken_ticket_answers_no_question_for_the_session() {
        let alive = Alive::new();
        let (broken, other) = (alive.begin_hold(1), alive.begin_hold(2));
        let mut rounds = Rounds::default();
        let batch = alive.heartbeat.observed().next_batch().0;
        let mut heard = Heard::new(ms(10), batch, no_node(), By::Any);
        heard.owned = Some((1, Vec::new()));

        alive.heartbeat.hear(heard, &mut rounds);

        assert!(matches!(broken.loss(), Some(Loss::Gone(_))));
        assert_eq!(other.loss(), None);
        assert!(
            alive.heartbeat.is_strange().is_some(),
            "it is asked again, about another one"
        );
    }

    #[test]
    fn a_sync_that_finds_a_broken_ticket_is_no_reason_to_give_the_session_up() {
        let alive = Alive::new();
        let (broken, other) = (alive.begin_hold(1), alive.begin_hold(2));
        let mut rounds = Rounds::default();
        let batch = alive.heartbeat.observed().next_batch().0;
        let mut heard = Heard::new(ms(10), batch, Ok(Ok(())), By::Any);
        heard.owned = Some((1, Vec::new()));
        heard.found = vec![Found::Failed(Code::NoNode)];

        alive.heartbeat.hear(heard, &mut rounds);

        assert!(matches!(broken.loss(), Some(Loss::Gone(_))));
        assert_eq!(other.loss(), None);
    }

    #[test]
    fn a_ticket_that_is_there_and_another_sessions_ends_ours() {
        let alive = Alive::new();
        let (entry, mut rounds) = (alive.begin_hold(1), Rounds::default());
        let batch = alive.heartbeat.observed().next_batch().0;
        let mut heard = Heard::new(ms(10), batch, Ok(Ok(())), By::Any);
        heard.owned = Some((1, Vec::new()));
        heard.is_checked = true;

        alive.heartbeat.hear(heard, &mut rounds);

        assert!(matches!(entry.loss(), Some(Loss::Ended(End::Over(_)))));
    }

    #[test]
    fn a_beat_that_crosses_a_release_is_no_loss() {
        let alive = Alive::new();
        let (entry, mut rounds) = (alive.begin_hold(1), Rounds::default());
        let batch = alive.heartbeat.observed().next_batch().0;

        assert_eq!(entry.loss_watch().begin_release(), None);
        alive
            .heartbeat
            .hear(Heard::new(ms(10), batch, no_node(), By::Any), &mut rounds);

        assert_eq!(entry.loss(), None);
    }

    #[test]
    fn a_ticket_that_was_found_gone_is_lost_although_it_may_not_be_read() {
        let alive = Alive::new();
        let entry = alive.begin_hold(1);
        alive.heartbeat.observed().hide(entry.id);

        entry.lose("the ticket was removed");

        assert!(matches!(entry.loss(), Some(Loss::Gone(_))));
    }

    #[test]
    fn whatever_is_told_of_a_hold_may_look_at_it() {
        let listener = Listener::default();
        let hear = |of: &Alive, at: u64| {
            let mut rounds = Rounds::default();
            let batch = of.heartbeat.observed().next_batch().0;
            of.heartbeat
                .hear(Heard::new(ms(at), batch, no_node(), By::Any), &mut rounds);
        };
        let lose: [&dyn Fn(&Alive); 4] = [
            &|of| hear(of, 10),
            &|of| of.at(1200, 0),
            &|of| of.heartbeat.ending.renounce(DEAF),
            &|of| of.closing.send(true).unwrap(),
        ];

        let look = || {
            for lose in lose {
                let (alive, before) = (Alive::new(), listener.told());
                let entries = [alive.begin_hold(1), alive.begin_hold(2)];
                let waker = Waker::from(Arc::new(listener.clone()));
                let mut told: Vec<_> = entries
                    .iter()
                    .map(|entry| entry.loss_watch().lost().boxed())
                    .collect();
                for (entry, told) in entries.iter().zip(&mut told) {
                    entry.count(&MetricsTable::default().of("orders", "mutex"));
                    let polled = told.poll_unpin(&mut Context::from_waker(&waker));
                    assert!(polled.is_pending());
                }

                lose(&alive);
                let lost = entries
                    .iter()
                    .filter(|entry| entry.loss().is_some())
                    .count();

                assert!(lost > 0 && listener.told() > before);
                drop(entries);
            }
        };
        let listen = || tracing::subscriber::with_default(listener.clone(), look);
        #[cfg(feature = "metrics")]
        ::metrics::with_local_recorder(&listener, listen);
        #[cfg(not(feature = "metrics"))]
        listen();

        assert_eq!(listener.too_early(), None);
    }
}
