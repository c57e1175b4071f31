//! The janitor's task: what it was given, all at the same time.
//!
//! Invariants: a ticket that cannot be removed yet holds up no other; one search for hidden tickets
//! runs at a time, for everything that is wanted by then. It decides nothing about a removal:
//! `protocol/departure.rs` does.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, oneshot, watch};

use super::{CleanUp, ReleaseOutcome, TicketId, Wanted, send};
use crate::link::{Code, Fault, Found, Link, Read, Right, SessionState};
use crate::protocol::answer::Answer;
use crate::protocol::departure::{Departure, DepartureEnd, DepartureStep, TicketRead};
use crate::protocol::mark::ReleasePlan;
use crate::session::roll::{Roll, There};
use crate::session::setbacks::Setbacks;
use crate::session::{End, Failure, reconnected};

/// Tickets that are removed at the same time.
pub(super) const AT_ONCE: usize = 256;

pub(super) struct Work {
    pub(super) link: Arc<dyn Link>,
    states: watch::Receiver<SessionState>,
    pub(super) roll: Arc<Roll>,
}

/// Removals and searches that are under way.
#[derive(Default)]
struct UnderWay<'a> {
    removals: FuturesUnordered<BoxFuture<'a, ()>>,
    /// At most one search at a time. What is asked for meanwhile shares the next one, and no orphan
    /// is removed twice.
    searching: FuturesUnordered<BoxFuture<'a, ()>>,
    wanted: Wanted,
    /// Nothing more is taken; the closer may wait for the end.
    finish: Option<Option<oneshot::Sender<()>>>,
}

impl Work {
    pub(super) fn new(link: Arc<dyn Link>, roll: Arc<Roll>) -> Self {
        Self {
            states: link.states(),
            link,
            roll,
        }
    }

    /// Serves until the handle is dropped or told to finish.
    pub(super) async fn serve(&self, mut inbox: mpsc::UnboundedReceiver<CleanUp>) {
        let mut batch = Vec::new();
        let mut now = UnderWay::default();
        loop {
            let is_open = now.finish.is_none() && now.removals.len() < AT_ONCE;
            let received = tokio::select! {
                received = inbox.recv_many(&mut batch, AT_ONCE), if is_open => Some(received),
                Some(()) = now.removals.next() => None,
                Some(()) = now.searching.next() => None,
                doubtful = self.roll.settled(), if now.finish.is_none() => {
                    for directory in doubtful {
                        now.wanted.entry(directory).or_default();
                    }
                    None
                }
                else => break,
            };
            if received == Some(0) {
                // The handle is gone; what is under way is still finished.
                now.finish = Some(None);
            }
            for task in batch.drain(..) {
                self.begin(task, &mut now);
            }
            if now.searching.is_empty() && !now.wanted.is_empty() {
                let search = self.settle_all(std::mem::take(&mut now.wanted));
                now.searching.push(search.boxed());
            }
        }
        if let Some(Some(done)) = now.finish {
            // The closer may have run out of time and left.
            done.send(()).ok();
        }
    }

    fn begin<'a>(&'a self, task: CleanUp, now: &mut UnderWay<'a>) {
        match task {
            CleanUp::Leave {
                id,
                departure,
                there,
                done,
            } => {
                let removal = async move {
                    let removed = self.remove(&id, departure, there.as_ref());
                    done.send(removed.await).ok();
                    drop(there);
                };
                now.removals.push(removal.boxed());
            }
            CleanUp::Settle {
                directory,
                attempt,
                asker,
            } => {
                let there = now.wanted.entry(directory).or_default();
                there.insert(attempt, asker);
            }
            CleanUp::Finish { done } => now.finish = Some(Some(done)),
        }
    }

    /// Removes one ticket and stops only when it is known to be gone, or that it has to stay.
    pub(super) async fn remove(
        &self,
        id: &TicketId,
        mut departure: Departure,
        there: Option<&There>,
    ) -> ReleaseOutcome {
        let path = id.path();
        let mut setbacks = Setbacks::default();
        loop {
            let pause = match departure.step() {
                DepartureStep::Delete(plan) => {
                    let reply = send(&*self.link, id, &path, plan);
                    if let Some(there) = there {
                        there.leaves_by(plan);
                    }
                    let deleted = reply.await;
                    let fault = deleted.as_ref().err();
                    if let Some(why) = fault.and_then(Fault::unclear) {
                        tracing::debug!(ticket = path, why, "a delete has no result");
                    }
                    let answer = fault.map_or(Answer::Done, Answer::from);
                    let is_repeated = match answer {
                        Answer::NotNow => true,
                        // Without an outer part to do without, the next try is the same.
                        Answer::Refused => *plan == ReleasePlan::Plain,
                        _ => false,
                    };
                    departure.answered(answer, 1);
                    is_repeated.then(|| setbacks.pause())
                }
                DepartureStep::Read => {
                    let found = self.read(id, &path).await;
                    departure.read(found);
                    (found == TicketRead::Unknown).then(|| setbacks.pause_after_a_race())
                }
                DepartureStep::End(end) => return outcome(end, &path),
            };
            if let Some(pause) = pause {
                if let Err(reason) = self.reconnected(pause).await {
                    return Err(Failure::Ended(End::Over(reason)));
                }
            }
        }
    }

    /// What stands at the path of a ticket of ours.
    async fn read(&self, id: &TicketId, path: &str) -> TicketRead {
        let read = self
            .link
            .read_behind_sync(&id.directory, &[Read::Data(path)]);
        match read.await.ok().and_then(|mut found| found.pop()) {
            Some(Found::Node(node)) => TicketRead::of(Some(node.czxid), id.czxid),
            Some(Found::Failed(Code::NoNode)) => TicketRead::Gone,
            Some(Found::Failed(Code::NoAuth(_))) => TicketRead::NoAuth,
            _ => TicketRead::Unknown,
        }
    }

    /// Waits for the connection, with a pause if it is not seen to go; `Err` with the reason when
    /// the session is over.
    pub(super) async fn reconnected(&self, pause: Duration) -> Result<(), &'static str> {
        reconnected(&mut self.states.clone(), pause).await
    }
}

fn outcome(end: DepartureEnd, path: &str) -> ReleaseOutcome {
    Err(Failure::Answered(match end {
        DepartureEnd::Removed => return Ok(true),
        DepartureEnd::WasGone => return Ok(false),
        DepartureEnd::NotEmpty => Code::NotEmpty,
        DepartureEnd::NoAuth => {
            tracing::warn!(ticket = path, "no permission to remove a ticket of ours");
            Code::NoAuth(Right::Delete)
        }
    }))
}
