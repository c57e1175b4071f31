//! The pulse of a session: the beats that keep its lease, and the holds that live by it.
//!
//! One task per session sends a beat every sixth of the session timeout for as long as the session lives: a `sync` while no
//! ticket of ours is in a queue, otherwise a commit without a change, which only a live quorum can answer
//! (`multi{check(held tickets)}`; a deposed leader answers a `sync` for many ticks). Invariants: a hold begins only under a
//! lease; it is lost at the latest when that lease ends, by the clock and not by a packet; and a loss is final. It sends
//! nothing that changes a node, and removes nothing.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, OptionFuture};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::watch;

use super::clock::Clock;
use super::ending::{Crier, End, Ending};
use super::lease::{Lease, Moment};
use crate::error::Error;
use crate::link::{Code, Fault, Found, Link, Read, SessionState, Write};

pub(super) const ANOTHER_SESSION: &str = "the server has given us another session";
/// Held tickets that one beat checks; more go round.
const BATCH: usize = 100;
/// Beats without an answer yet, at most; the link gives up each after a session timeout, which is six beats.
const UNDER_WAY: usize = 8;
/// Every so many beats the tickets are read too, because a check knows names only.
const READ_EVERY: u64 = 6;

/// What proves that the session is alive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseStrength {
    /// While we hold or wait, beats are commits without a change: a server that is cut off from its quorum cannot answer
    /// them. One commit each sixth of the session timeout for each session.
    #[default]
    Quorum,
    /// Beats are always `sync`s: no commits, but a leader that is cut off answers them for a few of its ticks, in which a guard
    /// may believe too long. Refused where the server had to raise the session timeout to its minimum.
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
pub(crate) struct Pulse {
    clock: Arc<dyn Clock>,
    strength: LeaseStrength,
    ending: Ending,
    states: watch::Receiver<SessionState>,
    state: Mutex<State>,
    leased: watch::Sender<bool>,
    /// Tickets of ours in queues, also those that wait.
    tickets: AtomicUsize,
    /// How often the client has connected again.
    reconnects: AtomicU64,
    /// After how many of them it was last known to be our session.
    recognised: AtomicU64,
}

#[derive(Debug)]
struct State {
    lease: Lease,
    holds: BTreeMap<u64, Held>,
    next: u64,
}

#[derive(Debug)]
struct Held {
    path: Arc<str>,
    czxid: i64,
    told: watch::Sender<Option<Loss>>,
    /// It is not looked at: the server does not let us, or it is being released and will be gone.
    is_hidden: bool,
}

impl Pulse {
    pub(super) fn new(
        link: &dyn Link,
        ending: Ending,
        clock: Arc<dyn Clock>,
        strength: LeaseStrength,
        opening: Moment,
    ) -> Self {
        let lease = Lease::new(link.session_timeout(), opening, clock.now());
        let is_leased = lease.valid_until(clock.now()).is_some();
        Self {
            clock,
            strength,
            ending,
            states: link.states(),
            state: Mutex::new(State {
                lease,
                holds: BTreeMap::new(),
                next: 0,
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

    /// Whether the client has connected again and nobody has looked yet whose session it came back with; if so, how often it has.
    pub(crate) fn is_strange(&self) -> Option<u64> {
        let reconnects = self.reconnects.load(Ordering::Relaxed);
        (self.recognised.load(Ordering::Relaxed) < reconnects).then_some(reconnects)
    }

    /// It is ours, after so many reconnects.
    pub(crate) fn recognised(&self, reconnects: u64) {
        self.recognised.fetch_max(reconnects, Ordering::Relaxed);
    }

    /// Begins a hold if there is a lease now.
    pub(crate) fn try_hold(
        self: &Arc<Self>,
        path: Arc<str>,
        czxid: i64,
    ) -> Result<Option<Hold>, End> {
        let mut state = self.observed();
        if let Some(end) = self.ending.end() {
            return Err(end);
        }
        if state.lease.valid_until(self.clock.now()).is_none() {
            return Ok(None);
        }
        let id = state.next;
        state.next += 1;
        let (told, loss) = watch::channel(None);
        state.holds.insert(
            id,
            Held {
                path,
                czxid,
                told,
                is_hidden: false,
            },
        );
        Ok(Some(Hold {
            pulse: Arc::clone(self),
            id,
            loss,
        }))
    }

    /// The session's clock.
    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
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

    /// The state, after whatever the clock and the client have to say: everybody who looks sees a loss before acting.
    fn observed(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(end) = self.ending.end() {
            state.lose_all(Loss::Ended(end));
        }
        // Read under the lock, so that no extension that is based on an earlier moment can follow.
        if state.lease.end_if_over(self.clock.now()) {
            if !state.holds.is_empty() {
                tracing::warn!(
                    holds = state.holds.len(),
                    "the lease ended: no server confirmed the session in time"
                );
            }
            state.lose_all(Loss::Lapsed);
            self.leased.send_replace(false);
        }
        state
    }

    /// Tells every hold of the session's end.
    pub(super) fn observe(&self) {
        drop(self.observed());
    }

    fn is_connected(&self) -> bool {
        *self.states.borrow() == SessionState::Connected
    }

    /// The task: beats until the session ends.
    pub(super) async fn run(self: Arc<Self>, link: Arc<dyn Link>, crier: Crier) {
        let mut states = link.states();
        let mut under_way: FuturesUnordered<BoxFuture<'_, Heard>> = FuturesUnordered::new();
        let mut rounds = Rounds {
            last_sent: self.clock.now(),
            ..Rounds::default()
        };
        let ended = crier.cry(&self.ending);
        tokio::pin!(ended);
        loop {
            let (lease_end, next) = {
                let state = self.observed();
                let next = state.lease.next_beat(rounds.last_sent);
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
                    // Each change may hide a reconnect between two looks.
                    if *states.borrow_and_update() == SessionState::Connected {
                        self.reconnects.fetch_add(1, Ordering::Relaxed);
                        rounds.is_urgent = true;
                    }
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
        let batch = self.next_batch(rounds);
        rounds.is_urgent = false;
        rounds.number += 1;
        let sent = self.clock.now();
        rounds.last_sent = sent;
        let is_sync =
            self.strength == LeaseStrength::Sync || self.tickets.load(Ordering::Relaxed) == 0;
        if is_sync && batch.is_empty() {
            let reply = link.sync("/");
            return async move { Heard::new(sent, batch, reply.await.map(Ok)) }.boxed();
        }
        // After a reconnect: is this still our session? A server may have opened another one in silence.
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
            link.attempt(&checks)
        };
        let reads: Vec<Read<'_>> = batch
            .iter()
            .map(|(_, ticket)| Read::Data(&ticket.path))
            .collect();
        let is_reading = !reads.is_empty() && (is_sync || rounds.number % READ_EVERY == 0);
        let found = is_reading.then(|| link.multi_read(&reads));
        async move {
            let owned = match owned {
                Some((reconnects, (synced, listed))) => {
                    let owned = synced.await.and(listed.await).ok();
                    owned.map(|owned| (reconnects, owned))
                }
                None => None,
            };
            let mut heard = Heard::new(sent, batch, reply.await);
            heard.owned = owned;
            if let Some(found) = found {
                heard.found = found.await.unwrap_or_default();
            }
            heard
        }
        .boxed()
    }

    /// The held tickets whose turn it is to be checked.
    fn next_batch(&self, rounds: &mut Rounds) -> Vec<(u64, Known)> {
        let state = self.observed();
        let rest = state.holds.range((rounds.cursor, Bound::Unbounded));
        let batch: Vec<(u64, Known)> = rest
            .filter(|(_, held)| !held.is_hidden)
            .take(BATCH)
            .map(|(id, held)| {
                let path = Arc::clone(&held.path);
                (
                    *id,
                    Known {
                        path,
                        czxid: held.czxid,
                    },
                )
            })
            .collect();
        rounds.cursor = match batch.last() {
            Some((last, _)) if batch.len() == BATCH => Bound::Excluded(*last),
            _ => Bound::Unbounded,
        };
        batch
    }

    /// Takes in an answer.
    fn hear(&self, heard: Heard, rounds: &mut Rounds) {
        let mut state = self.observed();
        match heard.owned_by_us() {
            Some((_, false)) => {
                self.ending.renounce(ANOTHER_SESSION);
                return state.lose_all(Loss::Ended(End::Over(ANOTHER_SESSION)));
            }
            Some((reconnects, true)) => self.recognised(reconnects),
            None => {}
        }
        match &heard.answer {
            // A moved session fails in the check itself; that says nothing about the ticket.
            Err(Fault::Unknown(why) | Fault::Answered(Code::NotNow(why)))
            | Ok(Err((_, Code::NotNow(why)))) => {
                tracing::debug!(why, "a beat has no answer");
                return;
            }
            Ok(Err((at, code))) => {
                if let Some((id, _)) = heard.batch.get(*at) {
                    // A check that failed hides those behind it.
                    rounds.is_urgent = true;
                    match code {
                        Code::NoNode => state.lose(*id, "the ticket was removed"),
                        _ => state.hide(*id),
                    }
                }
            }
            Ok(Ok(())) | Err(Fault::Answered(_)) => {}
        }
        for ((id, ticket), found) in heard.batch.iter().zip(&heard.found) {
            match found {
                Found::Node(node) if node.czxid == ticket.czxid => {}
                Found::Node(_) => state.lose(*id, "another ticket stands under its name"),
                Found::Failed(Code::NoNode) => state.lose(*id, "the ticket was removed"),
                _ => {}
            }
        }
        let now = self.clock.now();
        state.lease.answered(heard.sent, now);
        let is_leased = state.lease.valid_until(now).is_some();
        self.leased
            .send_if_modified(|leased| std::mem::replace(leased, is_leased) != is_leased);
    }
}

impl State {
    fn lose_all(&mut self, loss: Loss) {
        for held in std::mem::take(&mut self.holds).into_values() {
            held.told.send_replace(Some(loss));
        }
    }

    fn lose(&mut self, id: u64, why: &'static str) {
        // It may have been released since the beat was sent, or be about to be.
        let is_looked_at = self.holds.get(&id).is_some_and(|held| !held.is_hidden);
        if is_looked_at && let Some(held) = self.holds.remove(&id) {
            tracing::warn!(ticket = &*held.path, why, "a held lock is lost");
            held.told.send_replace(Some(Loss::Gone(why)));
        }
    }

    fn hide(&mut self, id: u64) {
        if let Some(held) = self.holds.get_mut(&id) {
            held.is_hidden = true;
        }
    }
}

/// What the task remembers from beat to beat.
#[derive(Debug)]
struct Rounds {
    number: u64,
    last_sent: Moment,
    /// The last held ticket of the last batch.
    cursor: Bound<u64>,
    is_urgent: bool,
}

impl Default for Rounds {
    fn default() -> Self {
        Self {
            number: 0,
            last_sent: Moment::ZERO,
            cursor: Bound::Unbounded,
            is_urgent: false,
        }
    }
}

#[derive(Debug)]
struct Known {
    path: Arc<str>,
    czxid: i64,
}

/// The answer to a beat.
#[derive(Debug)]
struct Heard {
    sent: Moment,
    batch: Vec<(u64, Known)>,
    answer: Result<Result<(), (usize, Code)>, Fault>,
    /// This session's own tickets under the name of the first of the batch, if that was asked, and after how many reconnects.
    owned: Option<(u64, Vec<String>)>,
    /// The tickets of the batch, if they were read.
    found: Vec<Found>,
}

impl Heard {
    fn new(
        sent: Moment,
        batch: Vec<(u64, Known)>,
        answer: Result<Result<(), (usize, Code)>, Fault>,
    ) -> Self {
        Self {
            sent,
            batch,
            answer,
            owned: None,
            found: Vec::new(),
        }
    }

    /// Whether the first ticket of the batch, if it is there, is this session's, and after how many reconnects that was asked.
    fn owned_by_us(&self) -> Option<(u64, bool)> {
        let (reconnects, owned) = self.owned.as_ref()?;
        let (_, first) = self.batch.first()?;
        if owned.iter().any(|path| **path == *first.path) {
            return Some((*reconnects, true));
        }
        let is_there = match &self.answer {
            Ok(Ok(())) => true,
            Ok(Err((at, _))) => *at > 0,
            Err(_) => false,
        };
        is_there.then_some((*reconnects, false))
    }
}

/// One granted ticket, for as long as its guard lives.
#[derive(Debug)]
pub(crate) struct Hold {
    pulse: Arc<Pulse>,
    id: u64,
    loss: watch::Receiver<Option<Loss>>,
}

impl Hold {
    /// How it was lost, if it was. Looks at the clock.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.pulse.observe();
        *self.loss.borrow()
    }

    /// For how long the lease lasts; nothing once the hold is lost.
    pub(crate) fn valid_for(&self) -> Duration {
        let state = self.pulse.observed();
        let now = self.pulse.clock.now();
        match state.lease.valid_until(now) {
            Some(end) if self.loss.borrow().is_none() => end - now,
            _ => Duration::ZERO,
        }
    }

    /// Whether the connection is down or a beat is missing.
    pub(crate) fn is_suspect(&self) -> bool {
        let state = self.pulse.observed();
        !self.pulse.is_connected() || state.lease.is_late(self.pulse.clock.now())
    }

    /// What tells a loss to somebody who may outlive the guard.
    pub(crate) fn witness(&self) -> Witness {
        Witness {
            pulse: Arc::clone(&self.pulse),
            loss: self.loss.clone(),
        }
    }

    /// The ticket is about to be removed by us: from now on only the lease and the session decide.
    pub(crate) fn begin_release(&self) {
        self.pulse.observed().hide(self.id);
    }

    /// The ticket was found to be gone by somebody who looked.
    pub(crate) fn lose(&self, why: &'static str) {
        self.pulse.observed().lose(self.id, why);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self
            .pulse
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        state.holds.remove(&self.id);
    }
}

/// Sees a hold's loss, and does not keep it alive.
#[derive(Debug, Clone)]
pub(crate) struct Witness {
    pulse: Arc<Pulse>,
    loss: watch::Receiver<Option<Loss>>,
}

impl Witness {
    /// Looks at the clock.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.pulse.observe();
        *self.loss.borrow()
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
