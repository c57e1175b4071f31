//! Guards: a granted place with its token and its lease.
//!
//! A guard protects a name, not a value, so it dereferences to nothing. Invariants: releasing or dropping it touches the
//! ticket of this hold and nothing else; once it has said that it is lost it never says anything else.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::error::{Error, Result};
use crate::fenced::Fenced;
use crate::link::{ANY_VERSION, Code, Found, Read, Write};
use crate::name::LockName;
use crate::queue::Waiter;
use crate::queue::place::Place;
use crate::session::janitor::Left;
use crate::session::pulse::{Hold, Loss, Witness};
use crate::session::{Failure, failed};
use crate::token::Token;

const HOLDING: &str = "hold";

/// A held lock.
///
/// Drop it to release in the background, or [`release`](Self::release) it to know the answer.
///
/// # What it promises
///
/// The guard of a healthy session holds for as long as you keep it. When the network, the servers or this process fail for too
/// long, the servers give the lock to somebody else, and the guard says so before they can: its *lease* ends nine tenths of the
/// session timeout after the last moment at which the servers surely knew that we live (about 0.57 of it after the last answer in
/// a quiet time), by this machine's clock, without a packet having to arrive. A ticket that somebody
/// removes by hand is noticed with the next beat, within a sixth of the session timeout for each hundred locks that the
/// session holds; a session that an operator ends by force, when the client is told. What a guard says is nevertheless advice: between
/// your look and your write the process may be paused for any length of time. Only a resource that compares
/// [`token`](Self::token)s, or [`fenced`](Self::fenced) for what is in ZooKeeper itself, refuses a late write.
///
/// It rests on clocks that run at the same rate, on a `tickTime` of at most half of the session timeout, which servers see to
/// unless told otherwise, and on servers that all grant the same session timeouts: a client is not told of a lower one that it is
/// given when it connects again. On Linux the clock counts the time for which the machine was suspended; elsewhere it does not.
#[must_use = "the lock is released when the guard is dropped"]
#[clippy::has_significant_drop]
pub struct Guard {
    pub(crate) place: Place,
    name: LockName,
    token: Token,
    hold: Hold,
}

/// What a guard knows of its hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GuardState {
    /// The lock is ours, as far as anybody can know.
    Held,
    /// The connection is down or an answer is late. The lock is still ours, until the lease ends.
    Suspect,
    /// Others may hold the lock. Final.
    Lost,
}

impl Guard {
    pub(crate) fn new(granted: Waiter, hold: Hold) -> Result<Self> {
        let (_, czxid) = granted.ticket()?;
        let name = granted.name().clone();
        let token = Token::new(czxid);
        let waited_ms = u64::try_from(granted.waited().as_millis()).unwrap_or(u64::MAX);
        tracing::debug!(waited_ms, token = u64::from(token), "granted");
        let mut place = granted.into_place();
        place.hold_under(hold.witness());
        Ok(Self {
            place,
            name,
            token,
            hold,
        })
    }

    /// The fencing token of this hold, for the resource that the lock protects.
    pub fn token(&self) -> Token {
        self.token
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// The name of our node in the lock's directory, as `lockkeeper queue` shows it.
    pub fn node(&self) -> &str {
        self.place.ticket().map_or("", |(ticket, _)| &ticket.name)
    }

    /// Whether the lock is still ours: not [`Lost`](GuardState::Lost). Looks at the clock, so a process that was paused learns of a
    /// loss before it acts; sends nothing.
    pub fn is_held(&self) -> bool {
        self.hold.loss().is_none()
    }

    /// For how long the lock is ours even if nothing is heard of the servers any more. Zero once it is lost. In a quiet time it goes
    /// up and down between about 0.4 and 0.57 of the session timeout.
    pub fn valid_for(&self) -> Duration {
        self.hold.valid_for()
    }

    /// What is known of the hold.
    pub fn state(&self) -> GuardState {
        if self.hold.loss().is_some() {
            GuardState::Lost
        } else if self.hold.is_suspect() {
            GuardState::Suspect
        } else {
            GuardState::Held
        }
    }

    /// A future that ends when the lock is lost, with the reason: an error for which [`is_lost`](Error::is_lost) is true. It can be
    /// cloned, given away and kept; it keeps nothing alive, and never ends once the guard was released or dropped without a loss.
    ///
    /// It ends within 50 ms of the end of the lease, even if no packet arrives, as long as the runtime polls its tasks; and at its next
    /// poll after a pause of the process. A runtime whose threads are all blocked tells nobody: ask [`is_held`](Self::is_held) there.
    pub fn lost(&self) -> Lost {
        Lost {
            witness: self.hold.witness(),
            name: self.name.clone(),
            waiting: None,
        }
    }

    /// Does some work for as long as the lock is ours: cancels it, by dropping it at its next await, when the lock is lost.
    ///
    /// # Errors
    ///
    /// [`is_lost`](Error::is_lost) if the lock was lost before the work had ended.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as the work.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lockkeeper::{Keeper, embedded::EmbeddedServer};
    /// # async fn rebuild_index() -> usize { 42 }
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = EmbeddedServer::start().await?;
    /// let keeper = Keeper::connect(server.connect_string()).await?;
    /// let guard = keeper.mutex("index")?.lock().await?;
    /// let rows = guard.run(rebuild_index()).await?;
    /// guard.release().await?;
    /// # keeper.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        let done = tokio::select! {
            // The loss first: after a pause of the process both are ready.
            biased;
            error = self.lost() => return Err(error),
            done = work => done,
        };
        match self.hold.loss() {
            // The pause may have been in the middle of the work's last step.
            Some(loss) => Err(self.error(loss)),
            None => Ok(done),
        }
    }

    /// Asks the servers whether the ticket is still there and ours, behind a commit of the quorum. Waits through disconnects, for as
    /// long as the lease lasts.
    ///
    /// # Errors
    ///
    /// [`is_lost`](Error::is_lost). [`Error::Denied`] if we may not look at the ticket.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    pub async fn check(&self) -> Result<()> {
        tokio::select! {
            biased;
            error = self.lost() => Err(error),
            result = self.ask() => result,
        }
    }

    async fn ask(&self) -> Result<()> {
        let session = self.place.session();
        let path = self.path();
        let asked = session.read(|link| {
            // Sent back to back; the session answers in order.
            let (checked, read) = (
                link.attempt(&[Write::Check {
                    path: &path,
                    version: ANY_VERSION,
                }]),
                link.multi_read(&[Read::Data(&path)]),
            );
            Box::pin(async move { Ok((checked.await?, read.await?)) })
        });
        let refused = |failure| failed(session, "look at", &self.name, &path, failure);
        let (checked, found) = asked.await.map_err(refused)?;
        let gone = match (checked, found.first()) {
            (Err((_, Code::NoNode)), _) | (_, Some(Found::Failed(Code::NoNode))) => {
                "the ticket was removed"
            }
            (_, Some(Found::Node(node))) if self.token == Token::new(node.czxid) => return Ok(()),
            (_, Some(Found::Node(_))) => "another ticket stands under its name",
            (Err((_, code)), _) => return Err(refused(Failure::Answered(code))),
            (Ok(()), Some(Found::Failed(code))) => {
                return Err(refused(Failure::Answered(code.clone())));
            }
            (Ok(()), _) => return Ok(()),
        };
        self.hold.lose(gone);
        Err(self.error(Loss::Gone(gone)))
    }

    /// Begins a set of writes to nodes of your own that commit only while our ticket is there.
    pub fn fenced(&self) -> Fenced<'_> {
        Fenced::new(self)
    }

    /// Releases the lock and waits until the server has confirmed it. Sends one request, or three after a hold of more than a
    /// second, whose ticket is read again first.
    ///
    /// # Errors
    ///
    /// [`is_lost`](Error::is_lost) if the hold had ended before, or ends before the servers have confirmed the release: the session
    /// is over or was not confirmed in time, the keeper was closed, or somebody removed the ticket. Whatever is left of the
    /// ticket is removed in the background. ARCHITECTURE.md says what remains where a ticket is removed by hand.
    /// [`Error::Denied`] if our permission to remove the ticket was taken away; the ticket then stays until the session ends.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, the release goes on in the background.
    pub async fn release(self) -> Result<()> {
        // On the heap: a task that waits for the lock has room for its release from the beginning.
        Box::pin(self.give_back()).await
    }

    async fn give_back(self) -> Result<()> {
        let path = self.path();
        let Self {
            place, name, hold, ..
        } = self;
        let doing = "release";
        if let Some(loss) = hold.loss() {
            return Err(loss.while_trying(doing, &name));
        }
        let left = tokio::select! {
            biased;
            left = place.leave() => left,
            loss = hold.witness().lost() => return Err(loss.while_trying(doing, &name)),
        };
        match left {
            Left::Now => {
                tracing::debug!(path, "released");
                Ok(())
            }
            Left::WasGone => Err(Error::PlaceLost {
                name: name.to_string(),
                why: "the ticket was removed",
            }),
            Left::Closed => Err(Error::Closed {
                name: name.to_string(),
                doing,
            }),
            Left::Over(reason) => Err(Error::SessionOver {
                name: name.to_string(),
                doing,
                reason,
            }),
            Left::Refused { servers } => Err(Error::Denied {
                doing,
                path,
                servers,
            }),
        }
    }

    /// The ticket's path.
    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.place.directory(), self.node())
    }

    pub(crate) fn error(&self, loss: Loss) -> Error {
        loss.while_trying(HOLDING, &self.name)
    }

    pub(crate) fn hold(&self) -> &Hold {
        &self.hold
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.name)
            .field("token", &self.token)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// The loss of a lock, as a future: see [`Guard::lost`].
#[must_use = "futures do nothing unless polled"]
pub struct Lost {
    witness: Witness,
    name: LockName,
    waiting: Option<BoxFuture<'static, Loss>>,
}

impl Future for Lost {
    type Output = Error;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Error> {
        // The clock is looked at each time, whatever woke us.
        if let Some(loss) = self.witness.loss() {
            return Poll::Ready(loss.while_trying(HOLDING, &self.name));
        }
        let this = &mut *self;
        let waiting = this
            .waiting
            .get_or_insert_with(|| Box::pin(this.witness.clone().lost()));
        match waiting.as_mut().poll(context) {
            Poll::Ready(loss) => Poll::Ready(loss.while_trying(HOLDING, &self.name)),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Clone for Lost {
    fn clone(&self) -> Self {
        Self {
            witness: self.witness.clone(),
            name: self.name.clone(),
            waiting: None,
        }
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lost")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_and_its_loss_can_cross_threads() {
        fn check<T: Send + Sync + 'static>() {}
        fn gives<T: Clone + Send + 'static>() {}

        check::<Guard>();
        gives::<Lost>();
    }
}
