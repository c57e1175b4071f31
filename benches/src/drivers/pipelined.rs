//! The baseline, with each request sent as early as Lockkeeper sends its own: the read of a free
//! lock right behind the create, and that of the next holder right behind a release.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use crate::Result;
use lockkeeper_cli::bench::baseline::RawLane;
use lockkeeper_cli::bench::bench_dir::{BenchDir, RawStore, Reach, raw};
use lockkeeper_cli::bench::zookeeper_lane;

pub(super) struct Pipelined(BenchDir);

impl RawStore for Pipelined {
    type Lane = Lane;

    async fn open(reach: &Reach, path: &str) -> Result<Self> {
        Ok(Self(BenchDir::open(reach, path).await?))
    }

    async fn lane(&self, name: &str) -> Result<Lane> {
        Ok(Lane {
            raw: self.0.lane(name).await?,
            waiting: Mutex::default(),
        })
    }

    async fn tickets(&self, name: &str) -> Result<usize> {
        self.0.tickets(name).await
    }

    async fn clear(self) -> Result<()> {
        self.0.clear().await
    }
}

pub(super) struct Lane {
    raw: zookeeper_lane::Lane,
    /// Who is told of the release of a number.
    waiting: Mutex<HashMap<i64, oneshot::Sender<()>>>,
}

impl Lane {
    fn waiting(&self) -> MutexGuard<'_, HashMap<i64, oneshot::Sender<()>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RawLane for Lane {
    type Ticket = (i64, String);

    async fn pass(&self) -> Result<()> {
        let (client, directory) = (&self.raw.client, &self.raw.directory);
        let look = async { client.get_data(directory).await };
        // What is polled first is sent first.
        let (mine, seen) = tokio::join!(biased; self.raw.join(), look);
        seen.map_err(raw("read", directory))?;
        self.leave(&mine?).await
    }

    async fn join(&self) -> Result<(i64, String)> {
        self.raw.join().await
    }

    async fn wait(&self, armed: mpsc::UnboundedSender<()>) -> Result<Instant> {
        let mine = self.join().await?;
        let (tell, told) = oneshot::channel();
        self.waiting().insert(mine.0 - 1, tell);
        // It is kept until its event is there: to give it up would cost a request.
        let mut gone = pin!(self.raw.watch(mine.0 - 1).await?.changed());
        armed.send(()).unwrap_or_default();
        tokio::select! {
            _ = &mut gone => {}
            _ = told => {}
        }
        self.raw.look(&mine.1).await?;
        let granted = Instant::now();
        self.leave(&mine).await?;
        Ok(granted)
    }

    async fn leave(&self, mine: &(i64, String)) -> Result<()> {
        let mut leaving = pin!(self.raw.leave(mine));
        // The first poll sends it.
        let sent = futures_util::poll!(leaving.as_mut());
        let next = self.waiting().remove(&mine.0);
        if let Some(next) = next {
            // It may have failed meanwhile.
            next.send(()).unwrap_or_default();
        }
        match sent {
            Poll::Ready(left) => left,
            Poll::Pending => leaving.await,
        }
    }
}
