//! etcd's lock, through etcd-client: one connection, and a lease for each waiter, because a lease
//! is the owner of a lock.
//!
//! Leases are made before the clock starts. They are long, so that nothing is spent on keeping them
//! alive.

use etcd_client::{Client, CompactionOptions, LockOptions};

use super::contender::Contender;
use crate::Result;
use crate::words;

const LEASE_SECONDS: i64 = 900;

#[derive(Clone)]
pub(super) struct Etcd {
    client: Client,
    /// Where the server says how many watchers it holds.
    aside: String,
}

impl Etcd {
    pub(super) async fn connect(server: &str, aside: &str) -> Result<Self> {
        Ok(Self {
            client: Client::connect([server], None).await?,
            aside: aside.to_owned(),
        })
    }
}

impl Contender for Etcd {
    type Seat = i64;
    type Hold = Vec<u8>;

    async fn prepare(&self, _: &str) -> Result<()> {
        Ok(())
    }

    /// Compacts the history: a waiter searches all keys that its lock ever had for those before it.
    /// Without this, a hand-over to one waiter took 1.4 ms in the first round and 5 ms in the last.
    /// Servers compact by themselves (`--auto-compaction-retention`), but not at a moment of our
    /// choosing.
    async fn tidy(&self) -> Result<()> {
        let mut client = self.client.clone();
        let answer = client.get("any", None).await?;
        let revision = answer.header().map_or(0, |header| header.revision());
        // Nothing to forget yet.
        if revision > 1 {
            let options = CompactionOptions::new().with_physical();
            client.compact(revision, Some(options)).await?;
        }
        Ok(())
    }

    async fn seat(&self) -> Result<i64> {
        let lease = self
            .client
            .lease_client()
            .grant(LEASE_SECONDS, None)
            .await?;
        Ok(lease.id())
    }

    async fn leave(&self, lease: i64) -> Result<()> {
        self.client.lease_client().revoke(lease).await?;
        Ok(())
    }

    async fn lock(&self, name: &str, lease: &i64) -> Result<Vec<u8>> {
        let options = LockOptions::new().with_lease(*lease);
        let mut locks = self.client.lock_client();
        Ok(locks.lock(name, Some(options)).await?.key().to_vec())
    }

    async fn unlock(&self, key: Vec<u8>) -> Result<()> {
        self.client.lock_client().unlock(key).await?;
        Ok(())
    }

    async fn all_wait(&self, _: &str, waiters: usize) -> Result<bool> {
        let (watchers, _) = words::etcd_watchers(&self.aside).await?;
        if watchers < waiters {
            return Ok(false);
        }
        // A fresh watcher may have to catch up first, which the server does ten times a second. One
        // answer counts the two one after the other, so that a watcher of the moment between is in
        // one count only: hence another question.
        let (watchers, behind) = words::etcd_watchers(&self.aside).await?;
        Ok(watchers >= waiters && behind == 0)
    }
}
