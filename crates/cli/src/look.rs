//! A look at the servers that ends in time, whatever they do: silence, answers byte by byte, a
//! timeout that never ends.

use std::pin::pin;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use lockkeeper::{Error, Keeper, QueueEntry};
use tokio::time::{Instant, timeout, timeout_at};

use crate::args::Server;
use crate::failure::Failure;

/// So many queues are read at the same time.
pub(crate) const AT_ONCE: usize = 16;

/// Looks with a session of its own, and ends it.
pub(crate) async fn once<T>(
    server: &Server,
    look: impl AsyncFnOnce(&Keeper) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let access = server.access().await?;
    let limit = server.connect_timeout.saturating_add(server.read_timeout);
    let began = Instant::now();
    let looking = async {
        let keeper = server.connect_as(&access, 0).await?;
        let seen = look(&keeper).await;
        Ok((keeper, seen))
    };
    let (keeper, seen) = within(limit, looking).await?;
    // A session without nodes harms no client: if there is no time to end it, the servers do so.
    if let Some(deadline) = began.checked_add(limit) {
        timeout_at(deadline, keeper.close())
            .await
            .unwrap_or_default();
    }
    seen
}

/// What to say where nothing was seen: a root that does not exist is more likely a typing error
/// than a root without locks. The default root is there when the first lock is.
pub(crate) async fn nothing(
    server: &Server,
    keeper: &Keeper,
    otherwise: String,
) -> Result<String, Failure> {
    if server.is_root_given && !keeper.has_root().await? {
        return Ok(missing_root(server));
    }
    Ok(otherwise)
}

pub(crate) fn missing_root(server: &Server) -> String {
    let (root, servers) = (&server.root, server.place.shown());
    format!("{root} does not exist on {servers}: is --root right? (the first lock makes it)")
}

/// One of many looks.
pub(crate) async fn within<T>(
    limit: Duration,
    look: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let silent = |_| Failure::Silent { limit };
    // On the heap: every order waits for it.
    timeout(limit, Box::pin(look)).await.map_err(silent)?
}

/// The queues of these locks, in their order. One that we may not read has an access list of its
/// own; any other failure is one of all.
pub(crate) async fn queues(
    keeper: &Keeper,
    names: Vec<String>,
) -> Result<Vec<(String, Result<Vec<QueueEntry>, Error>)>, Failure> {
    let reads = stream::iter(names).map(|name| async move {
        let queue = keeper.queue(&*name).await;
        (name, queue)
    });
    let mut reads = pin!(reads.buffered(AT_ONCE));
    let mut queues = Vec::new();
    while let Some((name, queue)) = reads.next().await {
        match queue {
            Err(error) if !error.is_denied() => return Err(error.into()),
            queue => queues.push((name, queue)),
        }
    }
    Ok(queues)
}
