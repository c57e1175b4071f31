//! The questions and orders of operators: the locks in use, a queue, the journal, eviction.
//!
//! Only `evict` and `revoke` write. Every answer is old when it arrives, and grants nothing.

use std::time::Duration;

use super::Keeper;
use crate::error::{Error, Result};
use crate::link::engine::Weakness;
use crate::name::LockName;
use crate::protocol::journal_page::JournalEntry;
use crate::protocol::ticket::Recipe;
use crate::queue::acl::WiderAcl;
use crate::queue::census::{self, LockSummary};
use crate::queue::entry::QueueEntry;
use crate::queue::journal;

impl Keeper {
    /// Lists the locks below the root that have a holder or a waiter, by name. It asks behind a
    /// `sync`, so it shows all that was committed on any server before the call.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`] if we may not read the root; a lower directory that we may not read is in
    /// the list, with [`is_denied`](LockSummary::is_denied). [`is_lost`](Error::is_lost) if the
    /// session ended; [`Error::Unreachable`] if the next one cannot be opened.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lockkeeper::{Keeper, embedded::EmbeddedServer};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = EmbeddedServer::start().await?;
    /// # let keeper = Keeper::connect(server.connect_string()).await?;
    /// let _guard = keeper.mutex("orders/42")?.lock().await?;
    /// for lock in keeper.locks().await? {
    ///     println!("{}: {} tickets", lock.name, lock.tickets);
    /// }
    /// # keeper.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn locks(&self) -> Result<Vec<LockSummary>> {
        let session = self.pool.home("list the locks below", &self.root).await?;
        census::locks(&session, &self.root, None).await
    }

    /// Lists a lock and those below its name that have a holder or a waiter: of `orders`, also
    /// `orders/42`. It reads no other directory. Otherwise as [`locks`](Self::locks).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]. [`Error::Denied`] if we may not read the directory of that name.
    /// Otherwise as [`locks`](Self::locks).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lockkeeper::{Keeper, embedded::EmbeddedServer};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = EmbeddedServer::start().await?;
    /// # let keeper = Keeper::connect(server.connect_string()).await?;
    /// let _guards = keeper.lock_all(["orders/42", "jobs/nightly"]).await?;
    /// let locks = keeper.locks_below("orders").await?;
    /// assert_eq!((locks.len(), &*locks[0].name), (1, "orders/42"));
    /// # keeper.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn locks_below<N>(&self, name: N) -> Result<Vec<LockSummary>>
    where
        N: TryInto<LockName, Error: Into<Error>>,
    {
        let name = LockName::of(name)?;
        let session = self.pool.home("list the locks below", &name).await?;
        census::locks(&session, &self.root, Some(&name)).await
    }

    /// Whether the node above all locks exists. The first lock makes it, and it stays. So a root
    /// that does not exist is new, or has a typing error. It asks behind a `sync`.
    ///
    /// # Errors
    ///
    /// As [`locks`](Self::locks).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lockkeeper::{Keeper, embedded::EmbeddedServer};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = EmbeddedServer::start().await?;
    /// # let keeper = Keeper::connect(server.connect_string()).await?;
    /// assert!(!keeper.has_root().await?);
    /// keeper.mutex("orders/42")?.lock().await?.release().await?;
    /// assert!(keeper.has_root().await?);
    /// # keeper.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn has_root(&self) -> Result<bool> {
        let session = self.pool.home("look for the root", &self.root).await?;
        census::has_root(&session, &self.root).await
    }

    /// Names the settings of the store that weaken the promises, as far as they can be asked. On
    /// ZooKeeper there is nothing to ask, so the list is empty.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`] if the store gives no answer within the session timeout.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lockkeeper::{Keeper, embedded::EmbeddedServer};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = EmbeddedServer::start().await?;
    /// # let keeper = Keeper::connect(server.connect_string()).await?;
    /// for weakness in keeper.weaknesses().await? {
    ///     println!("{}: {}", weakness.setting, weakness.why);
    /// }
    /// # keeper.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn weaknesses(&self) -> Result<Vec<Weakness>> {
        self.pool.weaknesses().await
    }

    /// Lists the holders and waiters of a lock, in the order of its queue. The list is empty if the
    /// lock is not in use. It asks behind a `sync`, as [`locks`](Self::locks) does.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]. [`Error::Denied`] if we may not read its directory or one of its
    /// tickets. Otherwise as [`locks`](Self::locks).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lockkeeper::{LockKind, Keeper, embedded::EmbeddedServer};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = EmbeddedServer::start().await?;
    /// # let keeper = Keeper::connect(server.connect_string()).await?;
    /// let guard = keeper.mutex("orders/42")?.with_label("refund").lock().await?;
    /// let queue = keeper.queue("orders/42").await?;
    /// assert!(queue[0].is_holder && queue[0].kind == LockKind::Lock);
    /// assert_eq!(queue[0].label.as_deref(), Some("refund"));
    /// # drop(guard);
    /// # keeper.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn queue<N>(&self, name: N) -> Result<Vec<QueueEntry>>
    where
        N: TryInto<LockName, Error: Into<Error>>,
    {
        let queue = self.queue_of(LockName::of(name)?, Recipe::Lock);
        queue.entries().await
    }

    /// Removes a ticket that [`queue`](Self::queue) has shown: a holder that hangs, or a waiter
    /// that is not needed any more. It is `true` if this call removed the ticket, and `false` if
    /// the ticket was gone. A ticket is known by its token, so no other ticket is ever removed.
    ///
    /// The holder is not asked. Its guard learns that it is [lost](crate::GuardState::Lost) with
    /// the next heartbeat, within a tenth of the session timeout for each hundred locks of its
    /// session. [`check`](crate::Guard::check) tells it at once. Until then it may work on while
    /// the next holder works: only a resource that compares tokens notices. The call of an evicted
    /// waiter ends with [`Error::PlaceLost`] when the ticket before it has left. A guest of an
    /// evicted holder stays; evict it by its own entry.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]. [`Error::InvalidOption`] if the entry is of another lock.
    /// [`Error::Denied`] if we may not remove or read the ticket. [`Error::Refused`] if it is a
    /// node of another library with children. Otherwise as [`locks`](Self::locks).
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await after its first poll, it may still remove the ticket.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lockkeeper::{Keeper, embedded::EmbeddedServer};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = EmbeddedServer::start().await?;
    /// # let keeper = Keeper::connect(server.connect_string()).await?;
    /// let stuck = keeper.mutex("orders/42")?.lock().await?;
    /// let queue = keeper.queue("orders/42").await?;
    /// assert!(keeper.evict("orders/42", &queue[0]).await?);
    /// assert!(!keeper.evict("orders/42", &queue[0]).await?);
    /// assert!(stuck.check().await.unwrap_err().is_lost());
    /// # keeper.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn evict<N>(&self, name: N, entry: &QueueEntry) -> Result<bool>
    where
        N: TryInto<LockName, Error: Into<Error>>,
    {
        let queue = self.queue_of(LockName::of(name)?, Recipe::Lock);
        queue.evict(entry).await
    }

    /// Asks the holder of a ticket that [`queue`](Self::queue) has shown to give it back, and then
    /// waits for that, for at most `grace`. It is `true` if the ticket is gone by then: released,
    /// lost, or exchanged by a [downgrade](crate::WriteGuard::downgrade).
    ///
    /// A holder that listens releases the lock: [`Guard::revoked`](crate::Guard::revoked), a
    /// command under `lockkeeper run`, Curator's revocable locks. Another holder keeps it, until
    /// [`evict`](Self::evict) removes the ticket. A waiter hears the request when it holds.
    ///
    /// The request adds a word to the data of our tickets. In tickets of other libraries it writes
    /// `__REVOKE__`, as Curator's `Revoker` does. It wakes the next waiter, once.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]. [`Error::InvalidOption`] if the entry is of another lock, or is a
    /// candidate of an election: a `LeaderLatch` of Curator behind it would miss its end.
    /// [`Error::Denied`] if we may not write or read the ticket. Otherwise as
    /// [`locks`](Self::locks).
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await after its first poll, it may have asked the holder.
    ///
    /// # Examples
    ///
    /// See [`Guard::revoked`](crate::Guard::revoked).
    pub async fn revoke<N>(&self, name: N, entry: &QueueEntry, grace: Duration) -> Result<bool>
    where
        N: TryInto<LockName, Error: Into<Error>>,
    {
        let queue = self.queue_of(LockName::of(name)?, Recipe::Lock);
        queue.revoke(entry, grace).await
    }

    /// The last holds of a lock, the oldest first. Keepers with a
    /// [journal](crate::KeeperBuilder::journal) have written them. It is empty without one.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]. [`Error::Refused`] if another program has data there.
    /// [`Error::Denied`] if we may not read it. Otherwise as [`locks`](Self::locks).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lockkeeper::{HoldOutcome, Keeper, embedded::EmbeddedServer};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = EmbeddedServer::start().await?;
    /// # let servers = server.connect_string();
    /// let keeper = Keeper::builder(&servers).journal(100).connect().await?;
    /// let guard = keeper.mutex("orders/42")?.with_label("refund").lock().await?;
    /// guard.release().await?;
    /// keeper.close().await; // waits until the journal is written
    ///
    /// # let keeper = Keeper::connect(servers).await?;
    /// let journal = keeper.journal("orders/42").await?;
    /// assert_eq!(journal[0].label.as_deref(), Some("refund"));
    /// assert_eq!(journal[0].outcome, Some(HoldOutcome::Released));
    /// # keeper.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn journal<N>(&self, name: N) -> Result<Vec<JournalEntry>>
    where
        N: TryInto<LockName, Error: Into<Error>>,
    {
        journal::read(&self.pool, &self.root, &LockName::of(name)?).await
    }

    /// The nodes of a lock with wider access lists than the keeper's
    /// [`acl`](crate::KeeperBuilder::acl): its directories, a semaphore's limit, and its page of
    /// the journal. If the keeper's list is open, it is empty. Before the first lock of the keeper,
    /// the entry `auth` is compared by the names of users.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]. [`Error::Denied`] if we may not read one of the nodes. Otherwise as
    /// [`locks`](Self::locks).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lockkeeper::{Keeper, embedded::EmbeddedServer};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = EmbeddedServer::start().await?;
    /// # let servers = server.connect_string();
    /// let stranger = Keeper::connect(&servers).await?;
    /// let _taken = stranger.mutex("orders/42")?.lock().await?;
    ///
    /// let keeper = Keeper::builder(servers).credential("digest", "orders:from-your-vault");
    /// let keeper = keeper.connect().await?;
    /// let wider = keeper.wider_acls("orders/42").await?;
    /// assert_eq!(wider[0].allows, "world:anyone:cdrwa");
    /// assert!(keeper.mutex("orders/42")?.lock().await.unwrap_err().is_refusal());
    /// # keeper.close().await;
    /// # stranger.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wider_acls<N>(&self, name: N) -> Result<Vec<WiderAcl>>
    where
        N: TryInto<LockName, Error: Into<Error>>,
    {
        let queue = self.queue_of(LockName::of(name)?, Recipe::Lock);
        queue.wider_acls(&self.root).await
    }
}
