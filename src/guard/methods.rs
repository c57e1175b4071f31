//! The methods that guards have in common, as macros: the same words and the same code for all.

/// The methods of all guards.
macro_rules! guard_methods {
    ($guard:ident) => {
        impl $guard {
            /// Releases the lock and waits until the servers have confirmed that. It sends one
            /// request. After a hold of more than a second it sends three, because the ticket is
            /// then read first.
            ///
            /// # Errors
            ///
            /// [`is_lost`](crate::Error::is_lost) if the hold had ended, or ends before the servers
            /// confirm the release. A ticket that is left is removed in the background. For a
            /// ticket that is removed by hand, see "The gap that remains" in `docs/guarantees.md`.
            /// [`Error::Denied`](crate::Error::Denied) if we may not remove the ticket any more; it
            /// then stays until the session ends.
            ///
            /// # Cancel safety
            ///
            /// Cancel safe: dropped at any await, the release goes on in the background.
            pub async fn release(self) -> $crate::error::Result<()> {
                self.hold.release().await
            }

            fn loss(&self) -> $crate::guard::lost::Lost {
                self.hold.lost()
            }
        }

        $crate::guard::guard_methods!(@looks $guard);
    };
    // For a guard with its own release and loss.
    (@looks $guard:ident) => {
        impl $guard {
            /// The owner of the hold, if there is one.
            pub fn owner(&self) -> Option<&$crate::owner::Owner> {
                self.hold.owner.as_ref()
            }

            /// Whether the lock is still ours: not [`Lost`](crate::GuardState::Lost). It looks at
            /// the clock, so a process that was paused learns of a loss before it acts. It sends
            /// nothing.
            pub fn is_held(&self) -> bool {
                self.hold.loss().is_none()
            }

            /// The rest of the lease: the lock is ours for so long without any answer of the
            /// servers. It is zero once the lock is lost. In a quiet time it goes up and down
            /// between about 0.4 and 0.57 of the session timeout.
            pub fn valid_for(&self) -> std::time::Duration {
                self.hold.valid_for()
            }

            /// The state of the hold.
            pub fn state(&self) -> $crate::guard::hold::GuardState {
                self.hold.state()
            }

            /// A future that ends when the lock is lost, with the reason: an error for which
            /// [`is_lost`](crate::Error::is_lost) is true. It can be cloned and kept, and keeps
            /// nothing alive. If the guard is released or dropped without a loss, it never ends.
            ///
            /// It ends within 50 ms of the end of the lease, without a packet, and at its next poll
            /// after a pause of the process. If all threads of the runtime are blocked, no future
            /// is polled: ask [`is_held`](Self::is_held) there.
            pub fn lost(&self) -> $crate::guard::lost::Lost {
                self.loss()
            }

            /// Does some work while the lock is ours. If the lock is lost, it drops the work at its
            /// next await.
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
            pub async fn run<T>(&self, work: impl Future<Output = T>) -> $crate::error::Result<T> {
                self.hold.run(work).await
            }

            /// Asks the servers, behind a commit of the quorum, whether the ticket is still there
            /// and ours. It waits through disconnects until the lease ends.
            ///
            /// # Errors
            ///
            /// [`is_lost`](crate::Error::is_lost). [`Error::Denied`](crate::Error::Denied) if we
            /// may not read the ticket.
            ///
            /// # Cancel safety
            ///
            /// Cancel safe: it changes nothing.
            pub async fn check(&self) -> $crate::error::Result<()> {
                self.hold.check().await
            }
        }

        $crate::brief::shows!(|guard| $guard {
            name: $crate::brief::Brief(guard.hold.names()),
            token: guard.hold.token,
            state: guard.hold.state(),
        });
    };
}

/// The methods of guards that another client may ask back: all but the leadership.
macro_rules! revocable_methods {
    ($guard:ident) => {
        impl $guard {
            /// Its place is never kept.
            fn heard(&self) {}
        }

        $crate::guard::revocable_methods!(@heard $guard);
    };
    // For a guard with a hold that may be passed on.
    (@heard $guard:ident) => {
        impl $guard {
            /// Waits until another client asks for the lock: with
            /// [`Keeper::revoke`](crate::Keeper::revoke), `lockkeeper break`, or Curator's
            /// `Revoker`. The lock stays ours until it is released. The request stays in the
            /// ticket, so a later call returns at once.
            ///
            /// It sends one request for each ticket, and keeps a watch while this future lives. If
            /// thousands of guards of one session listen, some wait for room in the connection's
            /// watches, and hear of the request then.
            ///
            /// # Errors
            ///
            /// [`is_lost`](crate::Error::is_lost) when the lock is lost instead.
            /// [`Error::Denied`](crate::Error::Denied) if we may not read the ticket.
            ///
            /// # Cancel safety
            ///
            /// Cancel safe: dropped at any await, its watch is removed.
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
            /// // Work until another client needs the lock.
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
            pub async fn revoked(&self) -> $crate::error::Result<()> {
                self.hold.revoked().await?;
                self.heard();
                Ok(())
            }
        }
    };
}

/// The methods of all guards of one queue.
macro_rules! place_methods {
    ($guard:ident) => {
        impl $guard {
            /// The lock's name.
            pub fn name(&self) -> &$crate::name::LockName {
                &self.hold.held().name
            }

            /// The name of our node in the lock's directory, as `lockkeeper queue` shows it.
            pub fn node(&self) -> &str {
                self.hold.held().node()
            }
        }
    };
}

/// The methods of guards that exclude all others.
macro_rules! exclusive_methods {
    ($guard:ident) => {
        impl $guard {
            /// The fencing token of this hold, for the resource that the lock protects.
            pub fn token(&self) -> $crate::token::Token {
                self.hold.token
            }

            /// Begins a set of writes to your own nodes, which commit only while our ticket exists.
            pub fn fenced(&self) -> $crate::guard::fenced::Fenced<'_> {
                $crate::guard::fenced::Fenced::new(&self.hold)
            }
        }
    };
}

pub(crate) use {exclusive_methods, guard_methods, place_methods, revocable_methods};
