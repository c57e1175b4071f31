//! Guards: what the holder of a lock has in hand.
//!
//! A guard protects a name, not a value, so it dereferences to nothing. All of it is a thin layer
//! over the hold, which guards of one owner share; the macros below say the same of every kind of
//! guard in the same words.

pub(crate) mod cohort;
pub(crate) mod fenced;
pub(crate) mod held_ticket;
pub(crate) mod hold;
pub(crate) mod local_holds;
pub(crate) mod local_turn;
pub(crate) mod lost;
pub(crate) mod proclaim;
pub(crate) mod self_wait;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::guard::fenced::Fenced;
use crate::guard::hold::{GuardState, Hold};
use crate::guard::local_turn::LocalTurn;
use crate::guard::lost::Lost;
use crate::name::LockName;
use crate::owner::Owner;
use crate::token::Token;

/// A held lock.
///
/// Drop it to release in the background, or [`release`](Self::release) it to know the answer.
///
/// # What it promises
///
/// The guard of a healthy session holds for as long as you keep it. When the network, the servers
/// or this process fail for too long, the servers give the lock to somebody else, and the guard
/// says so before they can: its *lease* ends nine tenths of the session timeout after the last
/// moment at which the servers surely knew that we live (about 0.57 of it after the last answer in
/// a quiet time), by this machine's clock, without a packet having to arrive. A ticket that
/// somebody removes by hand is noticed with the next beat, within a tenth of the session timeout
/// for each hundred locks that the session holds; a session that an operator ends by force, when
/// the client is told. What a guard says is nevertheless advice: between your look and your write
/// the process may be paused for any length of time. Only a resource that compares
/// [`token`](Self::token)s, or [`fenced`](Self::fenced) for what is in ZooKeeper itself, refuses a
/// late write.
///
/// It rests on clocks that run at the same rate, on a `tickTime` of at most half of the session
/// timeout, which servers see to unless told otherwise, and on servers that all grant the same
/// session timeouts: a client is not told of a lower one that it is given when it connects again.
/// On Linux the clock counts the time for which the machine was suspended; elsewhere it does not.
#[must_use = "the lock is released when the guard is dropped"]
#[clippy::has_significant_drop]
pub struct Guard {
    /// Dropped before the turn, which passes it on.
    pub(crate) hold: Arc<Hold>,
    /// Of a mutex that lingers.
    turn: Option<Box<LocalTurn>>,
}

impl Guard {
    pub(crate) fn new(hold: Arc<Hold>) -> Self {
        let turn = None;
        Self { hold, turn }
    }

    /// Of a hold that may be passed on.
    pub(crate) fn in_turn(hold: Arc<Hold>, turn: LocalTurn) -> Self {
        let turn = Some(Box::new(turn));
        Self { hold, turn }
    }

    /// Releases the lock and waits until the server has confirmed it. Sends one request, or three
    /// after a hold of more than a second, whose ticket is read again first. A mutex that
    /// [lingers](crate::Mutex::linger) sends nothing if it keeps the place for the next task.
    ///
    /// # Errors
    ///
    /// [`is_lost`](crate::Error::is_lost) if the hold had ended before, or ends before the servers
    /// have confirmed the release: the session is over or was not confirmed in time, the keeper was
    /// closed, or somebody removed the ticket. Whatever is left of the ticket is removed in the
    /// background. ARCHITECTURE.md says what remains where a ticket is removed by hand.
    /// [`Error::Denied`](crate::Error::Denied) if our permission to remove the ticket was taken
    /// away; the ticket then stays until the session ends.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, the release goes on in the background.
    pub async fn release(self) -> Result<()> {
        let Self { hold, turn } = self;
        match turn {
            Some(turn) => {
                drop(hold);
                Box::pin(turn.release()).await
            }
            None => hold.release().await,
        }
    }

    /// Whoever asked wants the ticket gone: it is not kept for the next one.
    fn heard(&self) {
        if let Some(turn) = &self.turn {
            turn.stop();
        }
    }

    fn loss(&self) -> Lost {
        match &self.turn {
            Some(turn) => turn.lost(&self.hold),
            None => self.hold.lost(),
        }
    }
}

/// What every guard can say and do.
macro_rules! guard_methods {
    ($guard:ident) => {
        impl $guard {
            pub(crate) fn new(hold: Arc<Hold>) -> Self {
                Self { hold }
            }
        }

        $crate::guard::guard_methods!(@known $guard);
    };
    // For a guard that is made of more than a hold.
    (@known $guard:ident) => {
        impl $guard {
            /// Releases the lock and waits until the server has confirmed it. Sends one request, or
            /// three after a hold of more than a second, whose ticket is read again first.
            ///
            /// # Errors
            ///
            /// [`is_lost`](crate::Error::is_lost) if the hold had ended before, or ends before the
            /// servers have confirmed the release: the session is over or was not confirmed in
            /// time, the keeper was closed, or somebody removed the ticket. Whatever is left of the
            /// ticket is removed in the background. ARCHITECTURE.md says what remains where a
            /// ticket is removed by hand. [`Error::Denied`](crate::Error::Denied) if our permission
            /// to remove the ticket was taken away; the ticket then stays until the session ends.
            ///
            /// # Cancel safety
            ///
            /// Cancel safe: dropped at any await, the release goes on in the background.
            pub async fn release(self) -> Result<()> {
                self.hold.release().await
            }

            fn loss(&self) -> Lost {
                self.hold.lost()
            }
        }

        $crate::guard::guard_methods!(@looks $guard);
    };
    // For a guard that has a way to go and a loss of its own.
    (@looks $guard:ident) => {
        impl $guard {
            /// Whose hold it is, if an owner took it.
            pub fn owner(&self) -> Option<&Owner> {
                self.hold.owner()
            }

            /// Whether the lock is still ours: not [`Lost`](GuardState::Lost). Looks at the clock,
            /// so a process that was paused learns of a loss before it acts; sends nothing.
            pub fn is_held(&self) -> bool {
                self.hold.loss().is_none()
            }

            /// For how long the lock is ours even if nothing is heard of the servers any more. Zero
            /// once it is lost. In a quiet time it goes up and down between about 0.4 and 0.57 of
            /// the session timeout.
            pub fn valid_for(&self) -> Duration {
                self.hold.valid_for()
            }

            /// What is known of the hold.
            pub fn state(&self) -> GuardState {
                self.hold.state()
            }

            /// A future that ends when the lock is lost, with the reason: an error for which
            /// [`is_lost`](crate::Error::is_lost) is true. It can be cloned, given away and kept;
            /// it keeps nothing alive, and never ends once the guard was released or dropped
            /// without a loss.
            ///
            /// It ends within 50 ms of the end of the lease, even if no packet arrives, as long as
            /// the runtime polls its tasks; and at its next poll after a pause of the process. A
            /// runtime whose threads are all blocked tells nobody: ask [`is_held`](Self::is_held)
            /// there.
            pub fn lost(&self) -> Lost {
                self.loss()
            }

            /// Does some work for as long as the lock is ours: cancels it, by dropping it at its
            /// next await, when the lock is lost.
            ///
            /// # Errors
            ///
            /// [`is_lost`](crate::Error::is_lost) if the lock was lost before the work had ended.
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
                self.hold.run(work).await
            }

            /// Asks the servers whether the ticket is still there and ours, behind a commit of the
            /// quorum. Waits through disconnects, for as long as the lease lasts.
            ///
            /// # Errors
            ///
            /// [`is_lost`](crate::Error::is_lost). [`Error::Denied`](crate::Error::Denied) if we
            /// may not look at the ticket.
            ///
            /// # Cancel safety
            ///
            /// Cancel safe: it changes nothing.
            pub async fn check(&self) -> Result<()> {
                self.hold.check().await
            }
        }

        impl std::fmt::Debug for $guard {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.hold.describe(stringify!($guard), f)
            }
        }
    };
}

/// What every guard can hear that others may ask to give back: not a leadership.
macro_rules! revocable_methods {
    ($guard:ident) => {
        impl $guard {
            /// It goes with its guard anyway.
            fn heard(&self) {}
        }

        $crate::guard::revocable_methods!(@heard $guard);
    };
    // For a guard whose hold may be passed on.
    (@heard $guard:ident) => {
        impl $guard {
            /// Waits until somebody asks for the lock back:
            /// [`Keeper::revoke`](crate::Keeper::revoke), `lockkeeper break`, or Curator's
            /// `Revoker`. Nobody has to follow, and the lock stays ours until it is released. Sends
            /// one request for each ticket, which leaves a watch while this future is kept; nothing
            /// is listened for without it. Where thousands of guards of one session listen, those
            /// beyond what one connection may watch hear of it once there is room.
            ///
            /// Ask again after it has ended, and it ends at once: what was asked stays asked for as
            /// long as the ticket is there.
            ///
            /// # Errors
            ///
            /// [`is_lost`](crate::Error::is_lost) when the lock is lost instead.
            /// [`Error::Denied`](crate::Error::Denied) if we may not look at the ticket.
            ///
            /// # Cancel safety
            ///
            /// Cancel safe: dropped at any await, its watch is taken back.
            ///
            /// # Examples
            ///
            /// ```
            /// # use std::time::Duration;
            /// # use lockkeeper::{Keeper, embedded::EmbeddedServer};
            /// # #[tokio::main]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let server = EmbeddedServer::start().await?;
            /// let keeper = Keeper::connect(server.connect_string()).await?;
            /// let guard = keeper.mutex("cache")?.lock().await?;
            /// # let operator = Keeper::connect(server.connect_string()).await?;
            /// # let asking = tokio::spawn(async move {
            /// #     let queue = operator.queue("cache").await?;
            /// #     operator.revoke("cache", &queue[0], Duration::from_secs(10)).await
            /// # });
            /// // Work for as long as nobody else needs the lock.
            /// tokio::select! {
            ///     asked = guard.revoked() => asked?,
            ///     () = std::future::pending() => {} // the work
            /// }
            /// guard.release().await?;
            /// # assert!(asking.await??);
            /// # keeper.close().await;
            /// # Ok(())
            /// # }
            /// ```
            pub async fn revoked(&self) -> Result<()> {
                self.hold.revoked().await?;
                self.heard();
                Ok(())
            }
        }
    };
}

/// What every guard of one queue can say.
macro_rules! place_methods {
    ($guard:ident) => {
        impl $guard {
            /// The lock's name.
            pub fn name(&self) -> &LockName {
                &self.hold.held().name
            }

            /// The name of our node in the lock's directory, as `lockkeeper queue` shows it.
            pub fn node(&self) -> &str {
                let ticket = self.hold.held().place.ticket();
                ticket.map_or("", |(ticket, _)| &ticket.name)
            }
        }
    };
}

/// What every guard that excludes others can say and do.
macro_rules! exclusive_methods {
    ($guard:ident) => {
        impl $guard {
            /// The fencing token of this hold, for the resource that the lock protects.
            pub fn token(&self) -> Token {
                self.hold.token()
            }

            /// Begins a set of writes to nodes of your own that commit only while our ticket is
            /// there.
            pub fn fenced(&self) -> Fenced<'_> {
                Fenced::new(&self.hold)
            }
        }
    };
}

pub(crate) use {exclusive_methods, guard_methods, place_methods, revocable_methods};

guard_methods!(@looks Guard);
revocable_methods!(@heard Guard);
place_methods!(Guard);
exclusive_methods!(Guard);

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
