//! The guards of a read-write lock, and their way from the one to the other.

use std::fmt;
use std::sync::Arc;

use super::Acquirers;
use crate::brief::{Brief, shows};
use crate::error::{Error, Result};
use crate::guard::hold::Hold;
use crate::guard::{exclusive_methods, guard_methods, place_methods, revocable_methods};

/// A [`RwLock`](crate::RwLock) that is held for reading, perhaps with other readers.
///
/// It makes the promises of a [`Guard`](crate::Guard). But shared holders have no fencing token,
/// because they are unordered. Drop it to release in the background, or [`release`](Self::release)
/// it to wait for the answer.
#[must_use = "the lock is released when the guard is dropped"]
#[clippy::has_significant_drop]
pub struct ReadGuard {
    pub(crate) hold: Arc<Hold>,
    pub(super) acquirers: Arc<Acquirers>,
}

/// A [`RwLock`](crate::RwLock) that is held for writing, alone.
///
/// It makes the promises of a [`Guard`](crate::Guard). Drop it to release in the background, or
/// [`release`](Self::release) it to wait for the answer.
#[must_use = "the lock is released when the guard is dropped"]
#[clippy::has_significant_drop]
pub struct WriteGuard {
    pub(crate) hold: Arc<Hold>,
    pub(super) acquirers: Arc<Acquirers>,
}

guard_methods!(ReadGuard);
revocable_methods!(ReadGuard);
place_methods!(ReadGuard);
guard_methods!(WriteGuard);
revocable_methods!(WriteGuard);
place_methods!(WriteGuard);
exclusive_methods!(WriteGuard);

impl WriteGuard {
    /// Becomes a reader at the same place in the queue: no writer comes in between. Readers right
    /// behind us, up to the next writer, are granted the lock. It sends 3 requests.
    ///
    /// While our owner has other guards of the same hold in this keeper, the lock is not shared.
    /// The returned reader then has the writer's hold, and keeps others out while any guard of that
    /// hold lives. A [`lost`](Self::lost) future of the writer ends with the downgrade: the
    /// reader's tells of later losses.
    ///
    /// # Errors
    ///
    /// [`is_lost`](Error::is_lost) if the hold had ended, or ends meanwhile. [`Error::Denied`] or
    /// [`Error::Refused`] if the servers refuse the new ticket. After an error, the lock is
    /// released in the background.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, the lock is released in the background.
    pub async fn downgrade(self) -> Result<ReadGuard> {
        let Self { hold, acquirers } = self;
        let hold = Box::pin(acquirers.read.downgraded(hold)).await?;
        Ok(ReadGuard { hold, acquirers })
    }
}

impl ReadGuard {
    /// Becomes a writer if no other ticket holds the lock or waits for it. It never waits for
    /// others. If two readers try at the same time, one of them succeeds, or none.
    ///
    /// It reads first, and writes nothing if there are other tickets. Otherwise it takes a writer's
    /// ticket at the end of the queue. If only its own ticket is before that one, it gives up the
    /// reader's ticket; else it gives up the writer's. So no other writer comes in between.
    ///
    /// Other reading guards of the same owner in this keeper count as other tickets. A guard that
    /// its owner took while writing already excludes others, and becomes a writer without a
    /// request.
    ///
    /// # Errors
    ///
    /// [`UpgradeError`], with the guard and one of these errors: [`Error::NotUpgradable`] if others
    /// hold the lock or wait for it; [`is_lost`](Error::is_lost) if our hold or the writer's place
    /// has ended; otherwise as [`RwLock::write`](crate::RwLock::write). The guard is usually still
    /// held: ask [`is_held`](Self::is_held).
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, the lock is released in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lockkeeper::{Keeper, embedded::EmbeddedServer};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = EmbeddedServer::start().await?;
    /// let keeper = Keeper::connect(server.connect_string()).await?;
    /// let table = keeper.rw_lock("prices")?;
    /// let (first, second) = (table.read().await?, table.read().await?);
    ///
    /// let refused = first.try_upgrade().await.unwrap_err();
    /// assert!(refused.error().is_refusal() && refused.guard().is_held());
    /// second.release().await?;
    /// let writer = refused.into_guard().try_upgrade().await?;
    /// # writer.release().await?;
    /// # keeper.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_upgrade(self) -> Result<WriteGuard, UpgradeError> {
        let Self { hold, acquirers } = self;
        match Box::pin(acquirers.write.upgraded(hold)).await {
            Ok(hold) => Ok(WriteGuard { hold, acquirers }),
            Err((hold, error)) => {
                let guard = Self { hold, acquirers };
                Err(UpgradeError { guard, error })
            }
        }
    }
}

/// A failed upgrade: the guard, and the error.
///
/// It is displayed as that error, and has its [`source`](std::error::Error::source). Converted to
/// an [`Error`], as `?` does, it drops the guard, which releases the lock in the background.
pub struct UpgradeError {
    guard: ReadGuard,
    error: Error,
}

shows!(|refused| UpgradeError {
    guard: refused.guard,
    why: Brief(refused.error.to_string()),
});

impl UpgradeError {
    /// The guard.
    pub fn guard(&self) -> &ReadGuard {
        &self.guard
    }

    /// Gives the guard back.
    pub fn into_guard(self) -> ReadGuard {
        self.guard
    }

    /// The error of the upgrade.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// Gives both back.
    pub fn into_parts(self) -> (ReadGuard, Error) {
        (self.guard, self.error)
    }
}

impl fmt::Display for UpgradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for UpgradeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl From<UpgradeError> for Error {
    fn from(refused: UpgradeError) -> Self {
        refused.error
    }
}
