//! Looking at the leaders of a queue: once, or for as long as somebody wants to follow them.
//!
//! It only reads, but for the directory, which it makes when there is none to watch. No ticket, no
//! task. What is asked next, and what an answer means, the watch decides.

use std::sync::Arc;

use super::leader::{list, read};
use super::{Queue, acl};
use crate::brief::shows;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::link::{Change, Code, Node};
use crate::protocol::leader::{Leader, LeaderStep, LeaderWatch};
use crate::session::pool::Need;
use crate::session::setbacks::Setbacks;
use crate::session::watching::WatchSlot;
use crate::session::{End, Failure, Session};

const FOLLOWING: &str = "follow the leaders of";

/// Follows the leaders of an election, from [`Election::observe`](crate::Election::observe).
///
/// It works as a [`tokio::sync::watch`] receiver does: it knows the last leader that it has seen,
/// so a slow caller misses leaders in between. Each leader is shown once, in the order of their
/// tokens, and so is each new value of the same leader, and that nobody leads any more. A leader
/// that is there when [`changed`](Self::changed) looks is never missed.
///
/// It does nothing unless asked. While asked it watches the leader's ticket and the election's
/// directory, so a change of leaders wakes it for five requests and a new value for two, whatever
/// the number of candidates; while nobody stands each coming of a ticket wakes it. It makes the
/// election's directory if there is none. It outlives sessions: with the keeper's next one it goes
/// on.
///
/// # Examples
///
/// ```
/// # use lockkeeper::{Keeper, embedded::EmbeddedServer};
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = EmbeddedServer::start().await?;
/// let keeper = Keeper::connect(server.connect_string()).await?;
/// let election = keeper.election("scheduler")?;
/// let mut observer = election.observe();
/// let leadership = election.campaign("10.0.0.7:80").await?;
///
/// let leader = observer.changed().await?.ok_or("the new leader")?;
/// assert_eq!(leader.value, "10.0.0.7:80");
/// assert_eq!(leader.token, leadership.token());
/// # leadership.resign().await?;
/// # keeper.close().await;
/// # Ok(())
/// # }
/// ```
pub struct Observer {
    queue: Queue,
    watch: LeaderWatch,
    post: Option<Post>,
    /// Since the directory was there.
    setbacks: Setbacks,
}

shows!(|observer| Observer {
    name: observer.queue.name(),
    leader: observer.borrow().map(|leader| leader.token),
});

/// Where it watches, and what it watches there.
#[derive(Debug)]
struct Post {
    directory: WatchSlot,
    /// Of the first ticket, or of the children while there is none.
    first: WatchSlot,
}

impl Observer {
    pub(crate) fn new(queue: Queue) -> Self {
        Self {
            queue,
            watch: LeaderWatch::default(),
            post: None,
            setbacks: Setbacks::default(),
        }
    }

    /// The leader that was last seen. Nobody before the first call of [`changed`](Self::changed)
    /// has ended.
    pub fn borrow(&self) -> Option<&Leader> {
        self.watch.leader()
    }

    /// Waits for a change that was not seen yet, and gives the leader: another one, the same one
    /// with another value, or none. The first call waits for the first leader.
    ///
    /// # Errors
    ///
    /// [`is_closed`](Error::is_closed) if the keeper was closed. [`Error::Unreachable`] if a new
    /// session was needed and no server gave one within the connect timeout. [`Error::Denied`] or
    /// [`Error::Refused`] if the server refuses what is needed. After any of them it can be asked
    /// again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing that it saw is lost. What it watches stays watched until it is asked
    /// again or dropped.
    pub async fn changed(&mut self) -> Result<Option<Leader>> {
        while !self.watch.take_news() {
            if self.watch.step() == LeaderStep::Wait {
                self.wait().await?;
                continue;
            }
            // On the heap, so that the future is no larger than its wait.
            match Box::pin(self.ask()).await {
                Err(error) if error.is_session_over() => {
                    tracing::debug!(%error, "follows with the next session");
                    self.leave_post();
                }
                result => result?,
            }
        }
        Ok(self.watch.leader().cloned())
    }

    /// Waits for any of the watches.
    async fn wait(&mut self) -> Result<()> {
        let post = self.post.as_mut().filter(|post| post.first.is_armed());
        let Some(Post { directory, first }) = post else {
            // Nothing is watched that could tell.
            self.leave_post();
            return Ok(());
        };
        let is_directory_watched = directory.is_armed();
        let (change, is_first) = tokio::select! {
            biased;
            change = first.changed() => (change, true),
            change = directory.changed(), if is_directory_watched => (change, false),
        };
        match change {
            Change::SessionOver => {
                let end = first.session().ended().await;
                self.leave_post();
                if end == End::Closed {
                    return Err(end.while_trying(FOLLOWING, self.queue.name()));
                }
            }
            Change::Deleted | Change::Changed if is_first => self.watch.first_changed(),
            Change::Changed => self.watch.directory_changed(),
            Change::Deleted => self.start_over(),
        }
        Ok(())
    }

    /// Does what the watch needs next.
    async fn ask(&mut self) -> Result<()> {
        let Some(post) = &mut self.post else {
            return self.take_post().await;
        };
        let session = Arc::clone(post.directory.session());
        let path = Arc::clone(self.queue.path());
        let answer = match self.watch.step() {
            LeaderStep::Make => return self.make(&session).await,
            LeaderStep::Read(ticket) => {
                let read = read(&session, &path, ticket).await;
                if let Ok((directory, _)) = &read {
                    let name = self.queue.name();
                    if !acl::check(&session, name, &path, directory).await? {
                        return Ok(());
                    }
                }
                read.map(|(directory, first)| {
                    post.take_in(&mut self.watch, &directory, first.as_ref())
                })
            }
            _ => post.ask(&mut self.watch, &path).await,
        };
        match answer {
            Ok(()) => {
                self.setbacks = Setbacks::default();
                Ok(())
            }
            Err(Failure::Answered(Code::NoNode)) => {
                post.disarm();
                self.watch.directory_missing();
                Ok(())
            }
            Err(failure) => Err(self.queue.failed_to(FOLLOWING, &session, failure)),
        }
    }

    /// Makes the directory: what is missing cannot be watched.
    async fn make(&mut self, session: &Session) -> Result<()> {
        let (directory, name) = (&self.queue.directory, &self.queue.name);
        let pause = self.setbacks.pause_after_a_race();
        let back = session.reconnected(pause).await;
        back.map_err(|end| end.while_trying(FOLLOWING, name))?;
        directory.make(session, name).await?;
        self.watch.start_over();
        Ok(())
    }

    /// Finds room to watch in a session, and has its server catch up with what another one has
    /// shown already.
    async fn take_post(&mut self) -> Result<()> {
        let queue = &self.queue;
        let (path, longest) = (queue.path(), queue.watched_len());
        let need = Need::to_watch(queue.pool.sent_len(path.len()) + longest);
        let post = queue.pool.reserve(need, FOLLOWING).await;
        let mut directory = post.map_err(|error| error.about(&queue.name))?.into_slot();
        let caught_up = directory.session().catch_up(path).await;
        caught_up.map_err(|ended| queue.failed_to(FOLLOWING, directory.session(), ended))?;
        let first = directory.part(longest);
        self.post = Some(Post { directory, first });
        Ok(())
    }

    fn leave_post(&mut self) {
        self.start_over();
        self.post = None;
    }

    fn start_over(&mut self) {
        if let Some(post) = &mut self.post {
            post.disarm();
        }
        self.watch.start_over();
    }
}

impl Post {
    fn disarm(&mut self) {
        self.directory.disarm();
        self.first.disarm();
    }

    /// Takes in what the only read that shows anything has found.
    fn take_in(&mut self, watch: &mut LeaderWatch, directory: &Node, first: Option<&Node>) {
        let first = first.map(|node| (node.czxid, node.owner, &node.data[..]));
        if !watch.read(directory.czxid, &directory.data, first) {
            self.first.disarm();
        }
    }

    /// Asks what the watch wants to know. A directory that is not there is a failure.
    async fn ask(&mut self, watch: &mut LeaderWatch, path: &str) -> Result<(), Failure> {
        match watch.step() {
            LeaderStep::Make | LeaderStep::Wait | LeaderStep::Read(_) => {}
            LeaderStep::WatchDirectory => {
                let node = self.directory.watch(path).await?;
                watch.directory_watched(node.czxid);
            }
            LeaderStep::List => {
                let (directory, children) = list(self.directory.session(), path).await?;
                let children = children.iter().map(String::as_str);
                watch.listed(directory, children);
            }
            LeaderStep::WatchChildren => {
                let children = self.first.watch_children(path).await?;
                let children = children.iter().map(String::as_str);
                if !watch.children_watched(children) {
                    self.first.disarm();
                }
            }
            LeaderStep::WatchTicket(ticket) => match self.first.watch(&ticket.path(path)).await {
                Ok(node) => watch.ticket_watched(node.czxid),
                Err(Failure::Answered(Code::NoNode)) => watch.first_changed(),
                Err(failure) => return Err(failure),
            },
        }
        Ok(())
    }
}
