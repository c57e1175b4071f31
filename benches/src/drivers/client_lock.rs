//! The client crate's own lock: `Client::lock` with Curator's kind of names, released by an awaited
//! delete.
//!
//! Its guard can only be dropped, which deletes in the background and waits for nothing. So the
//! guard is forgotten and its node deleted here. The release then has a known answer, as in every
//! other row.

use zookeeper_client as zk;

use super::contender::Contender;
use crate::Result;
use crate::words;

const DIRECTORY: zk::CreateOptions<'static> =
    zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all());

#[derive(Clone)]
pub(super) struct ClientLock {
    client: zk::Client,
    /// Where the server says how many watches it holds.
    aside: String,
}

impl ClientLock {
    pub(super) async fn connect(server: &str, aside: &str) -> Result<Self> {
        let connector = zk::Client::connector().with_session_timeout(super::SESSION_TIMEOUT);
        Ok(Self {
            client: connector.connect(server).await?,
            aside: aside.to_owned(),
        })
    }
}

impl Contender for ClientLock {
    type Seat = ();
    type Hold = String;

    async fn prepare(&self, name: &str) -> Result<()> {
        match self.client.create(name, b"", &DIRECTORY).await {
            Ok(_) | Err(zk::Error::NodeExists) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn seat(&self) -> Result<()> {
        Ok(())
    }

    async fn leave(&self, (): ()) -> Result<()> {
        Ok(())
    }

    async fn lock(&self, name: &str, (): &()) -> Result<String> {
        let prefix = zk::LockPrefix::new_curator(name, "lock-")?;
        let guard = self
            .client
            .lock(prefix, b"", zk::Acls::anyone_all())
            .await?;
        let node = guard.lock_path().to_owned();
        std::mem::forget(guard);
        Ok(node)
    }

    async fn unlock(&self, node: String) -> Result<()> {
        Ok(self.client.delete(&node, None).await?)
    }

    async fn all_wait(&self, _: &str, waiters: usize) -> Result<bool> {
        // A ticket in the queue is not enough: its client may still be reading the list.
        Ok(words::watches(&self.aside).await? >= waiters)
    }
}
