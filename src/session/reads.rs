//! ReadBatcher: reads of directories that are asked for at the same time, and go in one request.
//!
//! Invariants: a speculative read is sent after whatever its caller had sent before it asked, and
//! so sees that; and no speculative read waits for another caller, who may be dropped, kept without
//! being polled, or on a runtime that nobody drives. It may come to nothing, and says no more than
//! that. What is seen means nothing here.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use futures_util::future::join_all;
use tokio::runtime::Handle;
use tokio::sync::oneshot::{self, Receiver, Sender};

use super::clock::Clock;
use super::ending::EndListener;
use crate::latch::Latch;
use crate::link::{Found, Link, Node, Read};
use crate::protocol::lease::Moment;

/// The most directories in one request: all that stands in them comes back in one answer.
const MOST: usize = 64;

/// Who asks for which directory.
type PendingReads = BTreeMap<Arc<str>, Vec<Sender<DirectoryRead>>>;

/// What stands in a directory, and the moment at which that was answered.
type DirectoryRead = (Moment, Node);

/// The speculative reads of one session.
#[derive(Debug, Clone)]
pub(super) struct ReadBatcher {
    ending: EndListener,
    clock: Arc<dyn Clock>,
    /// The session's own, with which it ends.
    runtime: Handle,
    /// What is asked for and not sent yet; while there is anything, a task is about to send it.
    asked: Arc<Latch<PendingReads>>,
}

impl ReadBatcher {
    /// Those of a session of this runtime.
    pub(super) fn new(ending: EndListener, clock: Arc<dyn Clock>) -> Self {
        Self {
            ending,
            clock,
            runtime: Handle::current(),
            asked: Arc::default(),
        }
    }

    /// Asks for what is in a directory, together with all tasks that are ready to ask now. Nothing
    /// comes if it could not be read, and nothing is repeated.
    pub(super) fn ask(
        &self,
        link: &Arc<dyn Link>,
        directory: &Arc<str>,
    ) -> Receiver<DirectoryRead> {
        let (answer, answered) = oneshot::channel();
        if self.is_first(directory, answer) {
            let (asked, link, ending, clock) = (
                Arc::clone(&self.asked),
                Arc::clone(link),
                self.ending.clone(),
                Arc::clone(&self.clock),
            );
            self.runtime.spawn(async move {
                step_back().await;
                let asked = std::mem::take(&mut *asked.lock());
                tokio::select! {
                    () = send(&*link, &*clock, asked) => {}
                    // The link is let go of.
                    _ = ending.ended() => {}
                }
            });
        }
        answered
    }

    /// Adds one to those who ask; whether nobody had asked before.
    fn is_first(&self, directory: &Arc<str>, answer: Sender<DirectoryRead>) -> bool {
        let mut asked = self.asked.lock();
        let is_first = asked.is_empty();
        asked.entry(Arc::clone(directory)).or_default().push(answer);
        is_first
    }
}

/// Lets all that are ready run first. Unlike `yield_now`, whose task stays with its thread, it
/// holds nobody up if one of them blocks: another thread takes it over.
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
async fn send(link: &dyn Link, clock: &dyn Clock, asked: PendingReads) {
    let mut asked: Vec<_> = asked.into_iter().collect();
    let requests = asked.chunks_mut(MOST).map(|those| {
        let reads = those.iter().map(|(directory, _)| Read::Data(directory));
        // It is sent by this.
        let found = link.multi_read(&reads.collect::<Vec<_>>());
        async move {
            // Whoever hears nothing looks.
            let found = found.await.unwrap_or_default();
            let at = clock.now();
            for ((_, answers), found) in those.iter_mut().zip(found) {
                if let Found::Node(node) = found {
                    for answer in answers.drain(..) {
                        answer.send((at, node.clone())).ok();
                    }
                }
            }
        }
    });
    join_all(requests).await;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        speculates: ReadBatcher,
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
                speculates: ReadBatcher::new(ending, Arc::new(SystemClock)),
                end_notifier,
            }
        }

        /// Makes a directory, and speculative reads it before that is answered.
        fn make_and_ask<'a>(&'a self, path: &'a str) -> impl Future<Output = Option<Node>> + 'a {
            let made = self.link.create(path, path.as_bytes(), Create::Persistent);
            let speculative_read = self.speculates.ask(&self.link, &path.into());
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
    async fn glimpses_of_one_moment_are_one_request_and_see_what_was_sent_before() {
        let world = World::new().await;
        let paths: Vec<String> = (0..MOST).map(|number| format!("/{number}")).collect();

        let asked: Vec<_> = paths.iter().map(|path| world.make_and_ask(path)).collect();
        let ask = |path: &str| world.speculates.ask(&world.link, &path.into());
        let again: Vec<_> = paths.iter().map(|_| ask("/7")).collect();
        let missing = ask("/8/none");

        for (path, node) in paths.iter().zip(join_all(asked).await) {
            assert_eq!(node.unwrap().data, path.as_bytes());
        }
        for node in join_all(again).await {
            assert_eq!(node.unwrap().1.data, b"/7");
        }
        assert!(missing.await.is_err());
        // There is one directory more than goes in one, however many ask for the others.
        assert_eq!(world.reads(), 2);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn tasks_that_are_ready_at_the_same_time_ask_together() {
        let world = World::new().await;
        let (speculates, link) = (world.speculates.clone(), Arc::clone(&world.link));

        // From a thread of the runtime's own, which would run first what was spawned last.
        let crowd = tokio::spawn(async move {
            let ask = |number: usize| {
                let directory: Arc<str> = format!("/{number}").into();
                let (speculates, link) = (speculates.clone(), Arc::clone(&link));
                tokio::spawn(async move { speculates.ask(&link, &directory).await })
            };
            join_all((0..16).map(ask)).await
        });

        assert_eq!(crowd.await.unwrap().len(), 16);
        assert_eq!(world.reads(), 1);
    }

    #[tokio::test]
    async fn nobody_waits_for_a_runtime_that_nobody_drives() {
        let world = World::new().await;
        let other = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let ask = || {
            let _entered = other.enter();
            world.speculates.ask(&world.link, &Arc::from("/"))
        };
        let (first, beside_it) = (ask(), world.speculates.ask(&world.link, &Arc::from("/")));

        assert!(soon(first).await.is_ok() && soon(beside_it).await.is_ok());
        let later = ask();
        other.shutdown_background();
        assert!(soon(later).await.is_ok());
        assert!(soon(world.make_and_ask("/later")).await.is_some());
    }

    #[test]
    fn whoever_asks_after_the_end_of_its_runtime_hears_nothing_and_hangs_nowhere() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let world = runtime.block_on(World::new());
        runtime.shutdown_background();

        for _ in 0..2 {
            drop(world.speculates.ask(&world.link, &Arc::from("/")));
        }
    }

    #[tokio::test]
    async fn a_glimpse_without_an_answer_does_not_keep_the_link_after_the_end() {
        let world = World::new().await;
        let never = world
            .server
            .faults()
            .on(Match::op(Op::MultiRead))
            .hold_reply();
        let speculative_read = world.speculates.ask(&world.link, &Arc::from("/"));
        never.reached().await;

        world.speculates.ending.renounce("for a test");
        world.end_notifier.cry(&world.speculates.ending).await;
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
