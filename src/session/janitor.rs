//! The janitor: one task per session that removes what was left behind, until that is confirmed.
//!
//! Invariants: `protocol/departure.rs` says what is sent and read; at most one delete of a ticket
//! is under way; and the janitor never acts for a session that is over, because the server removes
//! those tickets. It never grants anything.

mod orphans;
mod work;

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tracing::Instrument;
use uuid::Uuid;
use work::Work;

use super::ending::EndListener;
use super::roll::{Roll, There};
use super::{End, Failure};
use crate::link::{Link, Reply, Write};
use crate::protocol::departure::Departure;
use crate::protocol::mark::ReleasePlan;
use crate::protocol::sweep::Wish;
use crate::protocol::ticket::path_in;

/// A ticket whose identity is known.
#[derive(Debug, Clone)]
pub(crate) struct TicketId {
    pub(crate) directory: Arc<str>,
    pub(crate) ticket: String,
    pub(crate) czxid: i64,
}

impl TicketId {
    pub(crate) fn path(&self) -> String {
        path_in(&self.directory, &self.ticket)
    }
}

/// Whether our delete removed a ticket that was to leave. Otherwise it was gone already, by an
/// earlier delete of ours or by somebody else's.
pub(crate) type ReleaseOutcome = Result<bool, Failure>;

/// Whether a create with an unknown outcome made a ticket: its name and identity.
pub(crate) type Settled = Result<Option<(String, i64)>, End>;

/// Attempts that are looked for, by their directories, with the callers that wait for the answer.
type Wanted = HashMap<Arc<str>, HashMap<Uuid, Asker>>;

/// What a caller wants, and the caller.
type Asker = (Wish, oneshot::Sender<Settled>);

#[derive(Debug)]
enum CleanUp {
    Leave {
        id: TicketId,
        departure: Departure,
        /// Gone with the ticket.
        there: Option<There>,
        /// The caller may be gone; the ticket goes all the same.
        done: oneshot::Sender<ReleaseOutcome>,
    },
    Settle {
        directory: Arc<str>,
        attempt: Uuid,
        asker: Asker,
    },
    Finish {
        done: oneshot::Sender<()>,
    },
}

/// The handle of the janitor's task. Giving it work never waits, fails or needs a runtime.
#[derive(Debug)]
pub(crate) struct Janitor {
    tasks: mpsc::UnboundedSender<CleanUp>,
    /// Aborted, it ends whatever it still has to do.
    pub(super) task: AbortHandle,
    /// The tickets that a place or the janitor answers for.
    pub(crate) roll: Arc<Roll>,
    /// Why it does not answer, if it does not.
    ending: EndListener,
}

impl Janitor {
    pub(super) fn start(link: Arc<dyn Link>, ending: EndListener, alive: mpsc::Sender<()>) -> Self {
        let (tasks, inbox) = mpsc::unbounded_channel();
        let span = tracing::debug_span!(
            "janitor",
            session = format_args!("{:#x}", link.session_id())
        );
        let roll = Arc::<Roll>::default();
        let known = Arc::clone(&roll);
        let work = async move {
            Work::new(link, known).serve(inbox).await;
            drop(alive);
        };
        let task = tokio::spawn(work.instrument(span)).abort_handle();
        Self {
            tasks,
            task,
            roll,
            ending,
        }
    }

    /// How the session ended, for a caller that gets no answer.
    fn end(&self) -> End {
        self.ending.end().unwrap_or(End::Closed)
    }

    /// Has a ticket removed from now on, whether the caller waits to be told what became of it or
    /// not.
    pub(crate) fn leave(
        &self,
        id: TicketId,
        departure: Departure,
        there: Option<There>,
    ) -> impl Future<Output = ReleaseOutcome> {
        let (done, told) = oneshot::channel();
        self.give(CleanUp::Leave {
            id,
            departure,
            there,
            done,
        });
        async move {
            let left = self.answer(told).await;
            left.unwrap_or_else(|| Err(Failure::Ended(self.end())))
        }
    }

    /// Finds out from now on what a create with an unknown outcome made. If the caller is gone by
    /// then, it is removed.
    pub(crate) fn settle(
        &self,
        directory: Arc<str>,
        attempt: Uuid,
    ) -> impl Future<Output = Settled> {
        self.ask(directory, attempt, Wish::Own)
    }

    /// As [`settle`](Self::settle), but the caller answers for the ticket whether it waits for the
    /// answer or not.
    pub(crate) async fn find_out(&self, directory: Arc<str>, attempt: Uuid) -> Settled {
        self.ask(directory, attempt, Wish::Know).await
    }

    fn ask(&self, directory: Arc<str>, attempt: Uuid, wish: Wish) -> impl Future<Output = Settled> {
        let (caller, told) = oneshot::channel();
        self.give(CleanUp::Settle {
            directory,
            attempt,
            asker: (wish, caller),
        });
        async move {
            let settled = self.answer(told).await;
            settled.unwrap_or_else(|| Err(self.end()))
        }
    }

    /// Waits until everything given before is done, and ends the task.
    pub(crate) async fn finish(&self) {
        let (done, told) = oneshot::channel();
        self.give(CleanUp::Finish { done });
        // Without an answer the task has ended already, which is what is asked for.
        self.answer(told).await;
    }

    /// What the task answers, unless it ends before.
    ///
    /// Both are waited for. A message that is sent at the moment of the task's end can stay in the
    /// channel: tokio's receiver drops what is there when it goes, and not what a sender on another
    /// thread is about to add. That message, with its own sender, lives as long as `tasks`.
    async fn answer<T>(&self, mut told: oneshot::Receiver<T>) -> Option<T> {
        tokio::select! {
            biased;
            answer = &mut told => answer.ok(),
            () = self.tasks.closed() => told.try_recv().ok(),
        }
    }

    fn give(&self, task: CleanUp) {
        // After the task's end the session is over or closed, and its tickets with it.
        self.tasks.send(task).ok();
    }
}

/// The writes by which a ticket leaves.
pub(crate) fn writes<'a>(
    directory: &'a str,
    (path, czxid): (&'a str, i64),
    plan: &'a ReleasePlan,
) -> impl Iterator<Item = Write<'a>> {
    let (before, after) = match plan {
        ReleasePlan::Plain => (None, None),
        ReleasePlan::Unmarked { version } => {
            let (path, version) = (directory, *version);
            (Some(Write::Check { path, version }), None)
        }
        ReleasePlan::Marked { mark, version } => {
            (Some(Write::set(directory, mark, *version)), None)
        }
        ReleasePlan::LastOut(_) => (None, Some(Write::delete(directory))),
    };
    let ticket = Write::DeleteTicket { path, czxid };
    before.into_iter().chain([ticket]).chain(after)
}

/// Sends one delete; the request is on its way when this returns.
fn send<'a>(
    link: &'a dyn Link,
    id: &'a TicketId,
    path: &'a str,
    plan: &'a ReleasePlan,
) -> Reply<'a, ()> {
    match plan {
        ReleasePlan::Plain => link.delete_ticket(path, id.czxid),
        plan => {
            let writes: Vec<_> = writes(&id.directory, (path, id.czxid), plan).collect();
            let reply = link.multi(&writes);
            Box::pin(async move { reply.await.map(drop) })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::watch;
    use tokio::time::timeout;

    use super::*;
    use crate::link::SessionState;

    /// The receiver is closed and keeps what it has, as one that goes while a message comes.
    #[tokio::test]
    async fn a_message_that_the_end_of_the_task_leaves_in_the_channel_keeps_no_caller_waiting() {
        let (states, watched) = watch::channel(SessionState::Connected);
        let (ending, _notifier) = EndListener::new(watched, watch::channel(false).1);
        let (tasks, mut inbox) = mpsc::unbounded_channel();
        let janitor = Janitor {
            tasks,
            task: tokio::spawn(async {}).abort_handle(),
            roll: Arc::default(),
            ending,
        };
        let asked = janitor.settle("/locks/a".into(), Uuid::new_v4());
        let told = async {
            tokio::task::yield_now().await;
            states.send_replace(SessionState::Over("it expired"));
            inbox.close();
        };

        let both = async { tokio::join!(asked, told) };
        let (settled, ()) = timeout(Duration::from_secs(5), both)
            .await
            .expect("it ends");

        assert_eq!(settled, Err(End::Over("it expired")));
        assert_eq!(inbox.len(), 1, "nobody has dropped the message");
    }
}
