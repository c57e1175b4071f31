//! The raw operations of a lock on ZooKeeper, by the client crate, because that is what the link is
//! measured against.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;
use zookeeper_client as zk;

use super::baseline::RawLane;
use super::bench_dir::{RawError, raw};
use super::sample::Result;

const MARK: &[u8] = b"released";

/// The operations in one directory.
pub struct Lane {
    pub client: zk::Client,
    pub(super) acl: Arc<[zk::Acl]>,
    pub directory: String,
}

impl RawLane for Lane {
    /// Its number and its path.
    type Ticket = (i64, String);

    async fn pass(&self) -> Result<()> {
        let mine = self.join().await?;
        self.look(&mine.1).await?;
        self.leave(&mine).await
    }

    async fn join(&self) -> Result<(i64, String)> {
        let prefix = format!("{}/lock-", self.directory);
        let ticket = zk::CreateMode::EphemeralSequential.with_acls(zk::Acls::new(&self.acl));
        let created = self.client.create(&prefix, b"", &ticket).await;
        let (_, number) = created.map_err(raw("create", &prefix))?;
        Ok((number.into_i64(), self.path(number.into_i64())))
    }

    async fn wait(&self, armed: mpsc::UnboundedSender<()>) -> Result<Instant> {
        let mine = self.join().await?;
        let gone = self.watch(mine.0 - 1).await?;
        // The receiver is there until all are armed.
        armed.send(()).unwrap_or_default();
        gone.changed().await;
        self.look(&mine.1).await?;
        let granted = Instant::now();
        self.leave(&mine).await?;
        Ok(granted)
    }

    async fn leave(&self, (_, mine): &(i64, String)) -> Result<()> {
        let mut writer = self.client.new_multi_writer();
        let mut add = || {
            writer.add_set_data(&self.directory, MARK, None)?;
            writer.add_delete(mine, None)
        };
        add().map_err(raw("delete", mine))?;
        let left = writer.commit().await.map_err(zk::Error::from);
        Ok(left.map(drop).map_err(raw("delete", mine))?)
    }
}

impl Lane {
    /// Tells when the ticket of this number is gone.
    pub async fn watch(&self, number: i64) -> Result<zk::OneshotWatcher, RawError> {
        let path = self.path(number);
        let watched = self.client.get_and_watch_data(&path).await;
        let (_, _, gone) = watched.map_err(raw("watch", &path))?;
        Ok(gone)
    }

    pub async fn look(&self, mine: &str) -> Result<(), RawError> {
        let mut reader = self.client.new_multi_reader();
        let mut add = || {
            reader.add_get_data(&self.directory)?;
            reader.add_get_data(mine)
        };
        add().map_err(raw("read", mine))?;
        for found in reader.commit().await.map_err(raw("read", mine))? {
            if let zk::MultiReadResult::Error { err } = found {
                return Err(raw("read", mine)(err));
            }
        }
        Ok(())
    }

    fn path(&self, number: i64) -> String {
        format!("{}/lock-{number:010}", self.directory)
    }
}
