//! The link on real ZooKeeper, through the `zookeeper-client` crate: the only folder that names it.
//!
//! It uses the crate's plain operations only: not its lock recipe, nor its persistent watches
//! across reconnects, nor its session state as proof (docs/failures.md section G says why).
//! Invariant: each request has a deadline of ours, and no panic of the crate reaches a caller.

mod answer;
mod nodelay;
mod opener;
mod standalone;
mod states;

use std::convert::identity;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use zookeeper_client as zk;

use super::size::Envelope;
use super::{
    ANY_VERSION, AccessList, Create, Created, Fault, Found, Link, Node, Opener, Read, Reply, Right,
    SessionState, Watch, Write, size,
};
use answer::{acl, all, change, created, creates, entry, fault, found, node, refusal};
use opener::try_all;
use standalone::Standalone;

pub(crate) use opener::Target;
#[cfg(feature = "tls")]
pub(crate) use opener::check_tls;

/// The client crate panics on some replies that no server sends, such as an empty path.
pub(crate) const BROKEN: &str = "the server's answer is not one that the client can read";

/// One session of the client crate.
#[derive(Debug)]
struct ZooKeeper {
    client: zk::Client,
    /// Of all nodes that are made.
    acl: Vec<zk::Acl>,
    envelope: Envelope,
    states: watch::Receiver<SessionState>,
    standalone: Arc<Standalone>,
    /// The client panicked: its state of the session no longer counts.
    broken: Arc<Notify>,
    /// Ours, not the crate's: without it, a request made while disconnected would hang until the
    /// session expires.
    deadline: Duration,
}

impl ZooKeeper {
    async fn connect(target: Target, limit: Duration) -> Result<Arc<dyn Link>, Fault> {
        let (mut client, mut pacer) = try_all(&target, limit).await?;
        // The granted timeout is not known before the first session, and the crate keeps the
        // patience that it begins with. If that is too long, it tries another server too late. If
        // it is too short, it leaves a server without a reason.
        if target.has_learnt(client.session_timeout()) {
            // The session ends by itself, and a silent server does not hold this call up.
            drop(client);
            (client, pacer) = try_all(&target, limit).await?;
        }
        let timeout = client.session_timeout();
        let broken = Arc::<Notify>::default();
        let signs = (client.state_watcher(), Arc::clone(&broken));
        let standalone = Arc::new(Standalone::new(client.state_watcher()));
        let states = states::follow(signs, pacer, timeout, &target, Arc::clone(&standalone));
        let deadline = timeout.max(Duration::from_millis(100));
        Ok(Arc::new(Self {
            client,
            envelope: target.envelope(),
            acl: target.acl.entries().iter().map(acl).collect(),
            states,
            standalone,
            broken,
            deadline,
        }))
    }

    /// Boxes a request that was sent already, with our deadline on its answer, and the answer's
    /// translation.
    fn bounded<'a, T: 'a, U: 'a>(
        &self,
        needs: Right,
        sent: impl Future<Output = T> + Send + 'a,
        translate: impl FnOnce(T) -> Result<U, zk::Error> + Send + 'a,
    ) -> Reply<'a, U> {
        let deadline = self.deadline;
        // Mapped, because the future of an `async` block would be twice as large.
        let answered = timeout(deadline, sent).map(move |answer| match answer {
            Ok(answer) => translate(answer).map_err(|error| fault(error, needs)),
            Err(_) => Err(Fault::Unknown(format!("no answer within {deadline:?}"))),
        });
        // Some replies make the client panic. That ends the session, and not its caller.
        let broken = Arc::clone(&self.broken);
        let survived = AssertUnwindSafe(answered)
            .catch_unwind()
            .map(move |answer| {
                answer.unwrap_or_else(|_| {
                    broken.notify_one();
                    Err(Fault::Unknown(BROKEN.into()))
                })
            });
        Box::pin(survived)
    }

    fn options(&self, mode: zk::CreateMode) -> zk::CreateOptions<'_> {
        mode.with_acls(zk::Acls::new(&self.acl))
    }

    fn writer(&self, writes: &[Write<'_>]) -> Result<zk::MultiWriter<'_>, Fault> {
        size::check(self.envelope.writes(writes))?;
        let built = self.built(writes);
        built.map_err(|error| fault(error, Right::Read))
    }

    fn built(&self, writes: &[Write<'_>]) -> Result<zk::MultiWriter<'_>, zk::Error> {
        let mut writer = self.client.new_multi_writer();
        for write in writes {
            match *write {
                Write::Check { path, version } => writer.add_check_version(path, version)?,
                Write::Create { path, data } => {
                    let options = self.options(zk::CreateMode::Persistent);
                    writer.add_create(path, data, &options)?;
                }
                Write::Ephemeral {
                    path,
                    data,
                    is_sequential,
                } => {
                    let mode = if is_sequential {
                        zk::CreateMode::EphemeralSequential
                    } else {
                        zk::CreateMode::Ephemeral
                    };
                    writer.add_create(path, data, &self.options(mode))?;
                }
                Write::Set {
                    path,
                    data,
                    version,
                } => writer.add_set_data(path, data, Some(version))?,
                Write::Delete { path, version } => writer.add_delete(path, Some(version))?,
                Write::DeleteTicket { path, .. } => writer.add_delete(path, Some(ANY_VERSION))?,
            }
        }
        Ok(writer)
    }

    /// The answer to a request that was not sent: it is too large, or the crate did not build it.
    fn refused<'a, T: Send + 'a>(fault: impl Into<Fault>) -> Reply<'a, T> {
        Box::pin(std::future::ready(Err(fault.into())))
    }
}

impl Link for ZooKeeper {
    fn session_id(&self) -> i64 {
        self.client.session_id().0
    }

    fn session_timeout(&self) -> Duration {
        self.client.session_timeout()
    }

    fn create<'a>(&'a self, path: &'a str, data: &[u8], kind: Create) -> Reply<'a, Created> {
        let mode = match kind {
            Create::Container => zk::CreateMode::Container,
            Create::Persistent => zk::CreateMode::Persistent,
            Create::EphemeralSequential => zk::CreateMode::EphemeralSequential,
        };
        if let Err(too_large) = size::check(self.envelope.create(path, data)) {
            return Self::refused(too_large);
        }
        let sent = self.client.create(path, data, &self.options(mode));
        self.bounded(Right::Create, sent, |answer| {
            let (stat, sequence) = answer?;
            // The server prints a 32-bit number; the crate hands it on as 64 bits.
            let seq = i32::try_from(sequence.into_i64())
                .map_err(|_| zk::Error::UnexpectedError("sequence number out of range".into()))?;
            Ok(Created {
                seq,
                czxid: stat.czxid,
                owner: stat.ephemeral_owner,
                directory: None,
            })
        })
    }

    fn delete(&self, path: &str) -> Reply<'_, ()> {
        self.bounded(Right::Delete, self.client.delete(path, None), identity)
    }

    fn watch(&self, path: &str) -> Reply<'_, (Node, Watch)> {
        let sent = self.client.get_and_watch_data(path);
        self.bounded(Right::Read, sent, |answer| {
            let (data, stat, watcher) = answer?;
            let watch = Watch::new(async move { change(&watcher.changed().await) });
            Ok((node(data, &stat), watch))
        })
    }

    fn watch_children(&self, path: &str) -> Reply<'_, (Vec<String>, Watch)> {
        let sent = self.client.list_and_watch_children(path);
        self.bounded(Right::Read, sent, |answer| {
            let (children, watcher) = answer?;
            let watch = Watch::new(async move { change(&watcher.changed().await) });
            Ok((children, watch))
        })
    }

    fn multi_read(&self, reads: &[Read<'_>]) -> Reply<'_, Vec<Found>> {
        if let Err(too_large) = size::check(self.envelope.reads(reads)) {
            return Self::refused(too_large);
        }
        let mut reader = self.client.new_multi_reader();
        for read in reads {
            let added = match *read {
                Read::Data(path) => reader.add_get_data(path),
                Read::Children(path) => reader.add_get_children(path),
            };
            if let Err(error) = added {
                return Self::refused(fault(error, Right::Read));
            }
        }
        let sent = reader.commit();
        let asked = reads.len();
        self.bounded(Right::Read, sent, move |answer| {
            all(answer?.into_iter().map(found), asked)
        })
    }

    fn access_list(&self, path: &str) -> Reply<'_, AccessList> {
        self.bounded(Right::Read, self.client.get_acl(path), |answer| {
            let (list, stat) = answer?;
            Ok(AccessList {
                entries: list.iter().map(entry).collect(),
                czxid: stat.czxid,
                aversion: stat.aversion,
            })
        })
    }

    fn multi(&self, writes: &[Write<'_>]) -> Reply<'_, Vec<String>> {
        let mut writer = match self.writer(writes) {
            Ok(writer) => writer,
            Err(fault) => return Self::refused(fault),
        };
        let sent = writer.commit();
        let asked = creates(writes);
        let needs: Vec<Right> = writes.iter().map(Write::needs).collect();
        let done = self.bounded(Right::Write, sent, move |answer| match answer {
            Ok(results) => created(results, asked).map(Ok),
            Err(zk::MultiWriteError::OperationFailed { index, source }) => {
                let needs = needs.get(index).copied().unwrap_or(Right::Write);
                refusal(index, source, needs).map(Err)
            }
            Err(zk::MultiWriteError::RequestFailed { source }) => Err(source),
        });
        Box::pin(done.map(|done| done?))
    }

    fn ephemerals(&self, prefix: &str) -> Reply<'_, Vec<String>> {
        self.bounded(Right::Read, self.client.list_ephemerals(prefix), identity)
    }

    fn sync(&self, path: &str) -> Reply<'_, ()> {
        self.bounded(Right::Read, self.client.sync(path), identity)
    }

    fn states(&self) -> watch::Receiver<SessionState> {
        self.states.clone()
    }

    fn standalone(&self) -> Option<u64> {
        self.standalone.connection()
    }

    fn proofs(&self) -> watch::Receiver<u64> {
        self.standalone.proofs()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_client_crate_is_the_one_that_was_looked_through() {
        const TESTED: &str = "0.11.2";
        let lock = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.lock");
        let lock = std::fs::read_to_string(lock).unwrap();

        let (_, rest) = lock.split_once("name = \"zookeeper-client\"\n").unwrap();
        let version = rest.lines().next().unwrap();

        assert_eq!(
            version,
            format!("version = {TESTED:?}"),
            "another version of the client crate: look at how it begins and ends sessions, its timeouts and the order of its tries \
             (`link/pacer.rs`), the bytes of its watches after a reconnect (`MOST_WATCHED`), one watch of a kind on a path \
             (`served.rs`), its sockets (`nodelay.rs`) and what it makes of replies (`hostile.rs`); run the suite on an ensemble, \
             and say here what was tested"
        );
    }
}
