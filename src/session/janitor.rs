//! The janitor: one task per session that removes what was left behind, until that is confirmed.
//!
//! Invariants: it never repeats a delete without reading the ticket and comparing the `czxid`
//! first, because the name may be a stranger's by then (docs/failures.md row 71); at most one
//! delete of a ticket is under way; and it never acts for a session that is over, because the
//! server removes those tickets. It never grants anything.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tracing::Instrument;
use uuid::Uuid;

use super::ending::EndListener;
use super::roll::{Roll, There};
use super::setbacks::Setbacks;
use super::{End, reconnected};
use crate::link::{Code, Fault, Found, Link, Read, SessionState, Write};
use crate::protocol::mark::ReleasePlan;
use crate::protocol::permits;
use crate::protocol::ticket::{Ticket, TicketData};

/// Tickets that are removed at the same time.
const AT_ONCE: usize = 256;
/// Tickets that are read in one request when one of ours is looked for.
const READ_AT_ONCE: usize = 100;

/// A ticket whose identity is known.
#[derive(Debug, Clone)]
pub(crate) struct TicketId {
    pub(crate) directory: Arc<str>,
    pub(crate) ticket: String,
    pub(crate) czxid: i64,
}

impl TicketId {
    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.directory, self.ticket)
    }
}

/// How far the removal of a ticket has come when the janitor gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeleteProgress {
    /// Nothing was sent, and the ticket was seen to be ours a moment ago: it may be sent at once.
    Fresh,
    /// Nothing was sent, but the name may be somebody else's by now: read it first.
    Doubtful,
    /// A delete was sent and its outcome is unknown: read the ticket before anything else.
    Sent,
}

/// What became of a ticket that was to leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReleaseOutcome {
    /// Our delete removed it.
    Now,
    /// It was gone already, by an earlier delete of ours or by somebody else's.
    WasGone,
    /// The session is over, and the ticket with it.
    Over(&'static str),
    /// The keeper was closed, and the session with it.
    Closed,
    /// The server refuses for lack of permission: somebody changed an ACL.
    Refused { servers: String },
    /// It has children, which none of ours ever has: another program's node that looks like a
    /// ticket.
    NotEmpty { servers: String },
}

/// Whether a create with an unknown outcome made a ticket: its name and identity.
pub(crate) type Settled = Result<Option<(String, i64)>, End>;

#[derive(Debug)]
enum CleanUp {
    Leave {
        id: TicketId,
        plan: ReleasePlan,
        begun: DeleteProgress,
        /// Gone with the ticket.
        there: Option<There>,
        done: Option<oneshot::Sender<ReleaseOutcome>>,
    },
    Settle {
        directory: Arc<str>,
        attempt: Uuid,
        wish: Wish,
    },
    Finish {
        done: oneshot::Sender<()>,
    },
}

/// The handle of the janitor's task. Giving it work never waits, fails or needs a runtime.
#[derive(Debug)]
pub(crate) struct Janitor {
    tasks: mpsc::UnboundedSender<CleanUp>,
    task: AbortHandle,
    /// What somebody else than the janitor answers for, or it already.
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
            Work {
                states: link.states(),
                link,
                roll: known,
            }
            .serve(inbox)
            .await;
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

    /// What ends the task whatever it still has to do.
    pub(super) fn task(&self) -> AbortHandle {
        self.task.clone()
    }

    /// How the session ended, for whoever gets no answer.
    fn end(&self) -> End {
        self.ending.end().unwrap_or(End::Closed)
    }

    /// Ends the task whatever it still has to do: the session is about to end, and does it all.
    pub(crate) fn abort(&self) {
        self.task.abort();
    }

    /// Has a ticket removed; nobody waits for it.
    pub(crate) fn leave(
        &self,
        id: TicketId,
        plan: ReleasePlan,
        begun: DeleteProgress,
        there: There,
    ) {
        self.give(CleanUp::Leave {
            id,
            plan,
            begun,
            there: Some(there),
            done: None,
        });
    }

    /// Has a ticket removed and tells what became of it.
    pub(crate) async fn leave_and_tell(
        &self,
        id: TicketId,
        plan: ReleasePlan,
        begun: DeleteProgress,
        there: Option<There>,
    ) -> ReleaseOutcome {
        let (done, told) = oneshot::channel();
        self.give(CleanUp::Leave {
            id,
            plan,
            begun,
            there,
            done: Some(done),
        });
        told.await.unwrap_or_else(|_| match self.end() {
            End::Over(reason) => ReleaseOutcome::Over(reason),
            End::Closed => ReleaseOutcome::Closed,
        })
    }

    /// Has whatever a create with an unknown outcome made removed.
    pub(crate) fn sweep(&self, directory: Arc<str>, attempt: Uuid) {
        self.give(CleanUp::Settle {
            directory,
            attempt,
            wish: Wish::Remove,
        });
    }

    /// Finds out what a create with an unknown outcome made. If the caller is gone by then, it is
    /// removed.
    pub(crate) async fn settle(&self, directory: Arc<str>, attempt: Uuid) -> Settled {
        let (owner, told) = oneshot::channel();
        self.give(CleanUp::Settle {
            directory,
            attempt,
            wish: Wish::Own(owner),
        });
        told.await.unwrap_or_else(|_| Err(self.end()))
    }

    /// As [`settle`](Self::settle), but whoever asks answers for the ticket whether it waits for
    /// the answer or not.
    pub(crate) async fn find_out(&self, directory: Arc<str>, attempt: Uuid) -> Settled {
        let (asker, told) = oneshot::channel();
        self.give(CleanUp::Settle {
            directory,
            attempt,
            wish: Wish::Know(asker),
        });
        told.await.unwrap_or_else(|_| Err(self.end()))
    }

    /// Waits until everything given before is done, and ends the task.
    pub(crate) async fn finish(&self) {
        let (done, told) = oneshot::channel();
        self.give(CleanUp::Finish { done });
        // An error means that the task has ended already, which is what is asked for.
        told.await.ok();
    }

    fn give(&self, task: CleanUp) {
        // After the task's end the session is over or closed, and its tickets with it.
        self.tasks.send(task).ok();
    }
}

struct Work {
    link: Arc<dyn Link>,
    states: watch::Receiver<SessionState>,
    roll: Arc<Roll>,
}

impl Work {
    /// Serves until the handle is dropped or told to finish. A ticket that cannot be removed yet
    /// holds up no other.
    async fn serve(&self, mut inbox: mpsc::UnboundedReceiver<CleanUp>) {
        let mut batch = Vec::new();
        let mut under_way: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
        // One search at a time, for everything that is wanted by then: what is asked for meanwhile
        // shares the next one, and no orphan is removed twice.
        let mut wanted = Wanted::new();
        let mut searching: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
        let mut finish = None;
        loop {
            let is_open = finish.is_none() && under_way.len() < AT_ONCE;
            let received = tokio::select! {
                received = inbox.recv_many(&mut batch, AT_ONCE), if is_open => Some(received),
                Some(()) = under_way.next() => None,
                Some(()) = searching.next() => None,
                doubtful = self.roll.settled(), if finish.is_none() => {
                    for directory in doubtful {
                        wanted.entry(directory).or_default();
                    }
                    None
                }
                else => break,
            };
            if received == Some(0) {
                // The handle is gone; what is under way is still finished.
                finish = Some(None);
            }
            for task in batch.drain(..) {
                match task {
                    CleanUp::Leave {
                        id,
                        plan,
                        begun,
                        there,
                        done,
                    } => {
                        let removal = self.remove_and_tell(id, plan, begun, done);
                        under_way.push(removal.map(|()| drop(there)).boxed());
                    }
                    CleanUp::Settle {
                        directory,
                        attempt,
                        wish,
                    } => {
                        let there = wanted.entry(directory).or_default();
                        there.insert(attempt, wish);
                    }
                    CleanUp::Finish { done } => finish = Some(Some(done)),
                }
            }
            if searching.is_empty() && !wanted.is_empty() {
                searching.push(self.settle_all(std::mem::take(&mut wanted)).boxed());
            }
        }
        if let Some(Some(done)) = finish {
            // The closer may have run out of time and left.
            done.send(()).ok();
        }
    }

    async fn remove_and_tell(
        &self,
        id: TicketId,
        plan: ReleasePlan,
        begun: DeleteProgress,
        done: Option<oneshot::Sender<ReleaseOutcome>>,
    ) {
        let left = self.remove(&id, plan, begun).await;
        if let Some(done) = done {
            // The caller may be gone; the ticket is gone all the same.
            done.send(left).ok();
        }
    }

    /// Removes one ticket and stops only when it is known to be gone.
    async fn remove(
        &self,
        id: &TicketId,
        mut plan: ReleasePlan,
        begun: DeleteProgress,
    ) -> ReleaseOutcome {
        let path = id.path();
        let mut sent = begun == DeleteProgress::Sent;
        let mut is_ours = begun == DeleteProgress::Fresh;
        let mut setbacks = Setbacks::default();
        loop {
            if is_ours {
                match send(&*self.link, id, &path, &plan).await {
                    Ok(()) => return ReleaseOutcome::Now,
                    Err(Fault::Answered(Code::NoAuth(_))) if matches!(plan, ReleasePlan::Plain) => {
                        return self.refused(&path);
                    }
                    Err(Fault::Answered(Code::NotNow(why))) => {
                        tracing::debug!(ticket = path, why, "delete again");
                        if let Err(reason) = self.reconnected(setbacks.pause()).await {
                            return ReleaseOutcome::Over(reason);
                        }
                    }
                    Err(Fault::Answered(Code::NotEmpty)) if matches!(plan, ReleasePlan::Plain) => {
                        let servers = self.link.servers().into();
                        return ReleaseOutcome::NotEmpty { servers };
                    }
                    // Nothing was changed, and whatever was wrong with the whole, it goes without
                    // its outer part.
                    Err(Fault::Answered(_)) => plan = plan.plainer(),
                    Err(Fault::Unknown(why)) => {
                        tracing::debug!(ticket = path, why, "a delete has an unknown outcome");
                        sent = true;
                    }
                }
            }
            is_ours = match self.look(id, &path).await {
                Probed::Ours => true,
                // Gone with our delete under way: it was ours that removed it.
                Probed::Gone if sent => return ReleaseOutcome::Now,
                Probed::Gone => return ReleaseOutcome::WasGone,
                Probed::Refused => return self.refused(&path),
                Probed::Unknown => {
                    if let Err(reason) = self.reconnected(setbacks.pause_after_a_race()).await {
                        return ReleaseOutcome::Over(reason);
                    }
                    false
                }
            };
        }
    }

    fn refused(&self, path: &str) -> ReleaseOutcome {
        tracing::warn!(ticket = path, "no permission to remove a ticket of ours");
        ReleaseOutcome::Refused {
            servers: self.link.servers().into(),
        }
    }

    /// Whether the ticket at the path is still the one with our identity.
    async fn look(&self, id: &TicketId, path: &str) -> Probed {
        let link = &*self.link;
        // Sent back to back; the session answers in order.
        let (synced, found) = (
            link.sync(&id.directory),
            link.multi_read(&[Read::Data(path)]),
        );
        match (synced.await, found.await) {
            // A directory that is gone cannot be synced, and holds no ticket: that is an answer
            // too.
            (Err(Fault::Unknown(_) | Fault::Answered(Code::NotNow(_))), _) | (_, Err(_)) => {
                Probed::Unknown
            }
            (_, Ok(found)) => match found.into_iter().next() {
                Some(Found::Node(node)) if node.czxid == id.czxid => Probed::Ours,
                Some(Found::Node(_) | Found::Failed(Code::NoNode)) => Probed::Gone,
                Some(Found::Failed(Code::NoAuth(_))) => Probed::Refused,
                _ => Probed::Unknown,
            },
        }
    }

    /// Answers every caller who waits to know what its create made, with one list for all.
    async fn settle_all(&self, wanted: Wanted) {
        let mut setbacks = Setbacks::default();
        loop {
            match self.find(&wanted).await {
                Ok((found, lost)) => return self.answer(found, lost, wanted).await,
                Err(why) => tracing::debug!(why, "a create has an unknown outcome"),
            }
            if let Err(reason) = self.reconnected(setbacks.pause()).await {
                for owner in owners(wanted) {
                    // The caller may be gone, and so is whatever its create made.
                    owner.send(Err(End::Over(reason))).ok();
                }
                return;
            }
        }
    }

    /// Tells the callers what was found. A ticket whose caller is gone is removed, and so is what
    /// is lost.
    async fn answer(&self, found: Vec<Orphan>, lost: Vec<TicketId>, mut wanted: Wanted) {
        // Somebody asks for these back, and nobody has them.
        let mut orphans = lost;
        for Orphan { attempt, id } in found {
            let there = wanted.get_mut(&id.directory);
            let Some(wish) = there.and_then(|there| there.remove(&attempt)) else {
                continue;
            };
            let settled = Ok(Some((id.ticket.clone(), id.czxid)));
            let is_orphan = match wish {
                Wish::Remove => true,
                Wish::Own(owner) => owner.send(settled).is_err(),
                Wish::Know(asker) => {
                    // Who does not wait any more asks again, or has it removed.
                    asker.send(settled).ok();
                    false
                }
            };
            if is_orphan {
                orphans.push(id);
            }
        }
        for owner in owners(wanted) {
            // The caller may be gone, and there is nothing to remove.
            owner.send(Ok(None)).ok();
        }
        for ids in orphans.chunks(AT_ONCE) {
            let removals = ids
                .iter()
                .map(|id| self.remove(id, ReleasePlan::Plain, DeleteProgress::Fresh));
            join_all(removals).await;
        }
    }

    /// Finds our tickets by their attempts among this session's own nodes. A node of an older
    /// session of ours is not in that list, so it is never taken for ours. Beside them those whose
    /// data somebody has written over, so that they cannot be found, if nobody answers for them.
    async fn find(&self, wanted: &Wanted) -> Result<(Vec<Orphan>, Vec<TicketId>), String> {
        let link = &*self.link;
        let common = common_start(wanted.keys());
        // One directory will do for all; if it is gone it cannot be synced everywhere, and that is
        // an answer too.
        let any = wanted.keys().next().map_or("/", |directory| &**directory);
        let (synced, listed) = (link.sync(any), link.ephemerals(&common));
        if let Err(Fault::Unknown(why) | Fault::Answered(Code::NotNow(why))) = synced.await {
            return Err(why);
        }
        let listed = listed.await.map_err(|fault| format!("{fault:?}"))?;
        let in_wanted = |path: &&String| {
            let directory = path.rsplit_once('/').map(|(directory, _)| directory);
            directory.is_some_and(|directory| wanted.contains_key(directory))
        };
        let candidates: Vec<&String> = listed.iter().filter(in_wanted).collect();
        let (mut found, mut lost) = (Vec::new(), Vec::new());
        for paths in candidates.chunks(READ_AT_ONCE) {
            let reads: Vec<Read<'_>> = paths.iter().map(|path| Read::Data(path)).collect();
            let nodes = link
                .multi_read(&reads)
                .await
                .map_err(|fault| format!("{fault:?}"))?;
            for (path, node) in paths.iter().zip(nodes) {
                match self.recognise(path, node, wanted) {
                    Some((Some(attempt), id)) => found.push(Orphan { attempt, id }),
                    Some((None, id)) => lost.push(id),
                    None => {}
                }
            }
        }
        Ok((found, lost))
    }

    /// What an attempt that is looked for has made, if this is it; or, without one, what was made
    /// by nobody knows which and is nobody's.
    fn recognise(
        &self,
        path: &str,
        node: Found,
        wanted: &Wanted,
    ) -> Option<(Option<Uuid>, TicketId)> {
        let Found::Node(node) = node else { return None };
        let (directory, name) = path.rsplit_once('/')?;
        let (directory, there) = wanted.get_key_value(directory)?;
        let attempt = TicketData::parse(&node.data).map(|line| line.attempt);
        let is_ours = node.owner == self.link.session_id()
            && match &attempt {
                Some(attempt) => there.contains_key(attempt),
                None => {
                    (Ticket::parse(name).is_some() || permits::weight(name).is_some())
                        && self.roll.is_nobodys(directory, node.czxid, |attempt| {
                            there.contains_key(attempt)
                        })
                }
            };
        let id = TicketId {
            directory: Arc::clone(directory),
            ticket: name.to_owned(),
            czxid: node.czxid,
        };
        is_ours.then_some((attempt, id))
    }

    /// Waits for the connection, with a pause if it is not seen to go; `Err` with the reason when
    /// the session is over.
    async fn reconnected(&self, pause: Duration) -> Result<(), &'static str> {
        reconnected(&mut self.states.clone(), pause).await
    }
}

/// A ticket of ours that a lost reply hid.
struct Orphan {
    attempt: Uuid,
    id: TicketId,
}

/// Attempts that are looked for, by their directories, with whoever waits for the answer.
type Wanted = HashMap<Arc<str>, HashMap<Uuid, Wish>>;

/// What is to become of the ticket that an attempt made, if it made one.
#[derive(Debug)]
enum Wish {
    Remove,
    /// It goes to whoever waits for it; nobody else answers for it.
    Own(oneshot::Sender<Settled>),
    /// It stays, whether somebody waits for the answer or not.
    Know(oneshot::Sender<Settled>),
}

fn owners(wanted: Wanted) -> impl Iterator<Item = oneshot::Sender<Settled>> {
    let wishes = wanted.into_values().flat_map(HashMap::into_values);
    wishes.filter_map(|wish| match wish {
        Wish::Remove => None,
        Wish::Own(owner) | Wish::Know(owner) => Some(owner),
    })
}

/// What the paths of everything in these directories start with.
fn common_start<'a>(directories: impl Iterator<Item = &'a Arc<str>>) -> String {
    let starts = directories.map(|directory| format!("{directory}/"));
    let common = starts.reduce(|common, next| {
        let same = common.chars().zip(next.chars());
        same.take_while(|(ours, theirs)| ours == theirs)
            .map(|(ours, _)| ours)
            .collect()
    });
    // A path must not end with a slash, and a start of fewer letters finds no less.
    match common.as_deref().map(|common| common.trim_end_matches('/')) {
        None | Some("") => "/".into(),
        Some(common) => common.into(),
    }
}

/// What stands at the path of a ticket of ours.
enum Probed {
    Ours,
    Gone,
    Refused,
    Unknown,
}

/// The writes by which a ticket leaves.
pub(crate) fn writes<'a>(id: &'a TicketId, path: &'a str, plan: &'a ReleasePlan) -> Vec<Write<'a>> {
    let directory = &*id.directory;
    let last = Write::delete(path);
    match plan {
        ReleasePlan::Plain => vec![last],
        ReleasePlan::Unmarked { version } => {
            let (path, version) = (directory, *version);
            vec![Write::Check { path, version }, last]
        }
        ReleasePlan::Marked { mark, version } => {
            let (path, data, version) = (directory, &**mark, *version);
            vec![
                Write::Set {
                    path,
                    data,
                    version,
                },
                last,
            ]
        }
        ReleasePlan::LastOut(_) => vec![last, Write::delete(directory)],
    }
}

/// Sends one delete; the request is on its way when this returns.
fn send<'a>(
    link: &'a dyn Link,
    id: &'a TicketId,
    path: &'a str,
    plan: &'a ReleasePlan,
) -> crate::link::Reply<'a, ()> {
    match plan {
        ReleasePlan::Plain => link.delete(path),
        plan => {
            let reply = link.multi(&writes(id, path, plan));
            Box::pin(async move { reply.await.map(drop) })
        }
    }
}
