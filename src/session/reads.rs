//! Batches speculative reads: directories that are asked for at the same time go in one request.
//!
//! With 64 locks at once the server's processor is the limit, and shared reads give it fewer
//! requests. Because no read belongs to one caller, the referee of the storms tells reads apart by
//! their session.
//!
//! Invariants: a speculative read is sent behind all earlier requests of its caller, and so sees
//! them. It waits for no other caller: that may be dropped, kept without being polled, or on a
//! runtime that is not driven. A read may have no answer. Its meaning is decided elsewhere.

use std::future::poll_fn;
use std::iter::Peekable;
use std::sync::Arc;
use std::task::Poll;
use std::vec::IntoIter;

use tokio::runtime::Handle;
use tokio::sync::oneshot::{self, Receiver, Sender};

use super::clock::Clock;
use super::ending::EndListener;
use crate::latch::Latch;
use crate::link::{Found, Link, Node, Read};
use crate::protocol::lease::Moment;

/// The most directories in one request: their data come back in one answer.
const MOST: usize = 64;

/// A directory, and the call that asks for it.
type PendingRead = (Arc<str>, Sender<DirectoryRead>);

/// A directory's node, and the moment of the answer.
type DirectoryRead = (Moment, Node);

/// The speculative reads of one session.
#[derive(Debug, Clone)]
pub(super) struct ReadBatcher {
    ending: EndListener,
    clock: Arc<dyn Clock>,
    /// The session's own: both end together.
    runtime: Handle,
    /// Reads that are not sent yet. While there are any, a task is about to send them.
    asked: Arc<Latch<Vec<PendingRead>>>,
}

impl ReadBatcher {
    /// For a session of this runtime.
    pub(super) fn new(ending: EndListener, clock: Arc<dyn Clock>) -> Self {
        Self {
            ending,
            clock,
            runtime: Handle::current(),
            asked: Arc::default(),
        }
    }

    /// Reads a directory, together with all tasks that are ready to ask now. A read that fails has
    /// no answer, and is not repeated.
    pub(super) fn ask(
        &self,
        link: &Arc<dyn Link>,
        directory: &Arc<str>,
    ) -> Receiver<DirectoryRead> {
        let (answer, answered) = oneshot::channel();
        if self.is_first(directory, answer) {
            let (batcher, link) = (self.clone(), Arc::clone(link));
            self.runtime.spawn(async move {
                step_back().await;
                let asked = std::mem::take(&mut *batcher.asked.lock());
                tokio::select! {
                    () = send(&*link, &*batcher.clock, asked) => {}
                    // The link is let go of.
                    _ = batcher.ending.ended() => {}
                }
            });
        }
        answered
    }

    /// Adds a call. Whether it is the first one.
    fn is_first(&self, directory: &Arc<str>, answer: Sender<DirectoryRead>) -> bool {
        let mut asked = self.asked.lock();
        let is_first = asked.is_empty();
        asked.push((Arc::clone(directory), answer));
        is_first
    }
}

/// Lets all ready tasks run first. A task that waits in `yield_now` stays with its thread, and
/// would be held up by a task that blocks there. This one is taken over by another thread.
async fn step_back() {
    let mut has_stepped = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_stepped, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Reads each directory once, however many ask for it.
async fn send(link: &dyn Link, clock: &dyn Clock, mut asked: Vec<PendingRead>) {
    asked.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    let directories = asked.iter().map(|(directory, _)| Read::Data(directory));
    let mut reads: Vec<Read<'_>> = directories.collect();
    reads.dedup();
    // All are sent before the first is waited for, and answered in that order.
    let requests = reads.chunks(MOST).map(|those| link.multi_read(those));
    let requests: Vec<_> = requests.collect();
    let mut calls = asked.into_iter().peekable();
    for request in requests {
        let mut found = request.await.unwrap_or_default().into_iter();
        let at = clock.now();
        for _ in 0..MOST {
            answer(&mut calls, at, found.next());
        }
    }
}

/// Answers the calls of the next directory. One without an answer does a verified read.
fn answer(calls: &mut Peekable<IntoIter<PendingRead>>, at: Moment, found: Option<Found>) {
    let Some((directory, last)) = calls.next() else {
        return;
    };
    let more = std::iter::from_fn(|| calls.next_if(|(other, _)| *other == directory));
    match found {
        Some(Found::Node(node)) => {
            for (_, more) in more {
                more.send((at, node.clone())).ok();
            }
            last.send((at, node)).ok();
        }
        _ => more.for_each(drop),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::future::join_all;
    use tokio::sync::watch;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::link::zookeeper::Target;
    use crate::link::{Create, Opener};
    use crate::session::clock::SystemClock;
    use crate::session::ending::EndNotifier;
    use zookeeper_embedded::{EmbeddedServer, Match, Op};

    struct World {
        server: EmbeddedServer,
        link: Arc<dyn Link>,
        batcher: ReadBatcher,
        end_notifier: EndNotifier,
    }

    impl World {
        async fn new() -> Self {
            let server = EmbeddedServer::start().await.unwrap();
            let target = Target {
                servers: server.addr().to_string(),
                chroot: String::new(),
                session_timeout: Duration::from_secs(60),
                ..Target::default()
            };
            let link = target.open(Duration::from_secs(5)).await.unwrap();
            let (_, closing) = watch::channel(false);
            let (ending, end_notifier) = EndListener::new(link.states(), closing);
            Self {
                server,
                link,
                batcher: ReadBatcher::new(ending, Arc::new(SystemClock)),
                end_notifier,
            }
        }

        /// Makes a directory, and reads it before the create is answered.
        fn make_and_ask<'a>(&'a self, path: &'a str) -> impl Future<Output = Option<Node>> + 'a {
            let made = self.link.create(path, path.as_bytes(), Create::Persistent);
            let speculative_read = self.batcher.ask(&self.link, &path.into());
            async move {
                made.await.unwrap();
                speculative_read.await.ok().map(|(_, node)| node)
            }
        }

        fn reads(&self) -> u64 {
            self.server.counters().get(Op::MultiRead)
        }
    }

    async fn soon<T>(answer: impl Future<Output = T>) -> T {
        let answer = timeout(Duration::from_secs(5), answer).await;
        answer.expect("it comes soon")
    }

    #[tokio::test]
    async fn reads_of_one_moment_are_one_request_and_see_earlier_requests() {
        let world = World::new().await;
        let paths: Vec<String> = (0..MOST).map(|number| format!("/{number}")).collect();

        let asked: Vec<_> = paths.iter().map(|path| world.make_and_ask(path)).collect();
        let ask = |path: &str| world.batcher.ask(&world.link, &path.into());
        let again: Vec<_> = paths.iter().map(|_| ask("/7")).collect();
        let missing = [ask("/8/none"), ask("/8/none")];

        for (path, node) in paths.iter().zip(join_all(asked).await) {
            assert_eq!(node.unwrap().data, path.as_bytes());
        }
        for node in join_all(again).await {
            assert_eq!(node.unwrap().1.data, b"/7");
        }
        for missing in missing {
            assert!(missing.await.is_err());
        }
        // There is one directory more than goes in one, however many ask for the others.
        assert_eq!(world.reads(), 2);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn tasks_that_are_ready_at_the_same_time_ask_together() {
        let world = World::new().await;
        let (batcher, link) = (world.batcher.clone(), Arc::clone(&world.link));

        // From a thread of the runtime's own, which would run first what was spawned last.
        let crowd = tokio::spawn(async move {
            let ask = |number: usize| {
                let directory: Arc<str> = format!("/{number}").into();
                let (batcher, link) = (batcher.clone(), Arc::clone(&link));
                tokio::spawn(async move { batcher.ask(&link, &directory).await })
            };
            join_all((0..16).map(ask)).await
        });

        assert_eq!(crowd.await.unwrap().len(), 16);
        assert_eq!(world.reads(), 1);
    }

    #[tokio::test]
    async fn no_read_waits_for_a_runtime_that_is_not_driven() {
        let world = World::new().await;
        let other = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let ask = || {
            let _entered = other.enter();
            world.batcher.ask(&world.link, &Arc::from("/"))
        };
        let (first, beside_it) = (ask(), world.batcher.ask(&world.link, &Arc::from("/")));

        assert!(soon(first).await.is_ok() && soon(beside_it).await.is_ok());
        let later = ask();
        other.shutdown_background();
        assert!(soon(later).await.is_ok());
        assert!(soon(world.make_and_ask("/later")).await.is_some());
    }

    #[test]
    fn a_call_after_the_end_of_its_runtime_has_no_answer_and_does_not_hang() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let world = runtime.block_on(World::new());
        runtime.shutdown_background();

        for _ in 0..2 {
            drop(world.batcher.ask(&world.link, &Arc::from("/")));
        }
    }

    #[tokio::test]
    async fn a_speculative_read_without_an_answer_does_not_keep_the_link_after_the_end() {
        let world = World::new().await;
        let never = world
            .server
            .faults()
            .on(Match::op(Op::MultiRead))
            .hold_reply();
        let speculative_read = world.batcher.ask(&world.link, &Arc::from("/"));
        never.reached().await;

        world.batcher.ending.renounce("for a test");
        world.end_notifier.notify(&world.batcher.ending).await;
        drop(world.link);

        assert!(soon(speculative_read).await.is_err());
        let is_over = async {
            while world.server.counters().sessions > 0 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        soon(is_over).await;
    }
}
