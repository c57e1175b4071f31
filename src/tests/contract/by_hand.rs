//! What a store answers to requests that are sent one at a time: late ones, and those of sessions
//! that are late, ended or somebody else's.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::stores::{Server, leaves, on_store};
use super::{children, node, ticket, until};
use crate::link::stored::ByHand;
use crate::link::{Create, Link, Node, Write};

/// These sessions send no heartbeats, so it is longer than a case takes on a busy machine.
const SESSION_TIMEOUT: Duration = Duration::from_secs(6);
const SHORT: Duration = Duration::from_secs(1);
const OURS: i64 = 7;
const THEIRS: i64 = 8;

/// A connection of a session, which is opened by the first one.
async fn session(server: &Server, id: i64, connection: u64) -> ByHand {
    let session = server
        .by_hand(SESSION_TIMEOUT, id, "secret", connection)
        .await;
    if connection == 1 {
        let opened = session.open().await;
        assert!(opened.contains("Granted"), "{opened}");
    }
    session
}

/// Whether a request to bury a session left it alive, to be asked again.
fn is_left(answer: &str) -> bool {
    assert!(answer.contains("Buried("), "{answer}");
    !answer.contains("Buried(0ns")
}

/// A directory and a ticket in it.
struct Queue {
    path: String,
    directory: Node,
    ticket: Node,
}

impl Queue {
    async fn new(link: &dyn Link) -> Self {
        link.create("/a", b"", Create::Persistent).await.unwrap();
        let path = ticket(link, "/a/t-").await;
        let directory = node(link, "/a").await.unwrap();
        let ticket = node(link, &path).await.unwrap();
        Self {
            path,
            directory,
            ticket,
        }
    }

    /// Each kind of write is answered like this, and changes nothing.
    async fn stays_under(self, session: &ByHand, link: &dyn Link, answer: &str) {
        let leaves = [
            Write::set("/a", b"left", self.directory.version),
            Write::DeleteTicket {
                path: &self.path,
                czxid: self.ticket.czxid,
            },
        ];
        for answered in [
            session.create("/a/b", Create::Persistent).await,
            session.create("/a/t-", Create::EphemeralSequential).await,
            session.multi(&leaves).await,
        ] {
            assert!(answered.contains(answer), "{answered}");
        }
        assert_eq!(node(link, "/a").await, Some(self.directory));
        assert_eq!(node(link, &self.path).await, Some(self.ticket));
    }
}

/// A request that was under way when its session moved does nothing any more.
#[test]
fn what_an_earlier_connection_brings_late_is_refused() {
    on_store(async |server| {
        let first = session(&server, OURS, 1).await;
        let link = server.open().await;
        let queue = Queue::new(&*link).await;
        session(&server, OURS, 2).await.touch().await;
        queue.stays_under(&first, &*link, "Moved").await;
    });
}

/// A proxy has sent it again.
#[test]
fn an_open_that_comes_twice_leaves_the_session_what_it_has() {
    on_store(async |server| {
        let (ours, link) = (session(&server, OURS, 1).await, server.open().await);
        let made = ours.create("/t-", Create::EphemeralSequential).await;
        assert!(made.contains("Made"), "{made}");

        let again = ours.open().await;

        assert!(!again.contains("Granted"), "{again}");
        server.end(OURS).await;
        until("what it had is gone", async || {
            children(&*link, "/").await.is_empty()
        })
        .await;
    });
}

/// More than are told of at once.
#[test]
fn a_crowd_of_dead_sessions_holds_up_the_end_of_no_other() {
    on_store(async |server| {
        let link = server.open().await;
        let long = Duration::from_secs(30);
        for id in 100..160 {
            let slow = server.by_hand(long, id, "secret", 1).await;
            assert!(slow.open().await.contains("Granted"));
            server.step(id, 31).await;
        }
        let quick = server.by_hand(SHORT, THEIRS, "secret", 1).await;
        assert!(quick.open().await.contains("Granted"));
        let made = quick.create("/t-", Create::EphemeralSequential).await;
        assert!(made.contains("Made"), "{made}");

        let since = Instant::now();
        until("its node is gone", async || {
            children(&*link, "/").await.is_empty()
        })
        .await;

        let waited = since.elapsed();
        assert!(waited < long / 5, "{waited:?}");
    });
}

/// A proxy has sent it again, after the directory was made anew.
#[test]
fn a_delete_that_comes_twice_removes_no_later_ticket_of_its_name() {
    on_store(async |server| {
        let (ours, link) = (session(&server, OURS, 1).await, server.open().await);
        link.create("/a", b"", Create::Persistent).await.unwrap();
        ours.create("/a/t-", Create::EphemeralSequential).await;
        let path = "/a/t-0000000000";
        let czxid = node(&*link, path).await.unwrap().czxid;
        let first = ours.delete_ticket(path, czxid).await;
        assert!(first.contains("Done"), "{first}");
        link.delete("/a").await.unwrap();
        link.create("/a", b"", Create::Persistent).await.unwrap();
        assert_eq!(ticket(&*link, "/a/t-").await, path);

        for again in [
            ours.delete_ticket(path, czxid).await,
            ours.multi(&leaves(path, czxid)).await,
        ] {
            assert!(again.contains("NoNode"), "{again}");
        }
        let there = node(&*link, path).await.unwrap();
        assert_eq!(there.owner, link.session_id());
    });
}

#[test]
fn a_session_that_is_late_is_ended_by_a_second_request_only() {
    on_store(async |server| {
        let ours = session(&server, OURS, 1).await;
        let theirs = session(&server, THEIRS, 1).await;
        server.step(THEIRS, 10).await;

        for request in ["first", "second, at once"] {
            let answer = ours.bury(THEIRS).await;
            assert!(is_left(&answer), "{request}: {answer}");
        }
        // A fifth of its timeout.
        sleep(SESSION_TIMEOUT / 5 + Duration::from_millis(20)).await;
        let answer = ours.bury(THEIRS).await;

        assert!(!is_left(&answer), "{answer}");
        let answered = theirs.touch().await;
        assert!(answered.contains("Over"), "{answered}");
    });
}

#[test]
fn a_mark_from_before_a_heartbeat_ends_nobody_when_the_clock_steps_again() {
    on_store(async |server| {
        let ours = session(&server, OURS, 1).await;
        let theirs = session(&server, THEIRS, 1).await;
        server.step(THEIRS, 10).await;
        assert!(is_left(&ours.bury(THEIRS).await));
        server.step(THEIRS, -10).await;
        theirs.touch().await;

        // By more than the pause after the first request.
        server.step(THEIRS, 13).await;
        let answer = ours.bury(THEIRS).await;

        assert!(is_left(&answer), "{answer}");
        let answered = theirs.touch().await;
        assert!(answered.contains("Done"), "{answered}");
    });
}

#[test]
fn a_session_that_was_ended_does_nothing_any_more() {
    on_store(async |server| {
        let ours = session(&server, OURS, 1).await;
        let link = server.open().await;
        let queue = Queue::new(&*link).await;
        // Before the session beside it looks at it.
        server.end(OURS).await;
        queue.stays_under(&ours, &*link, "Over").await;
    });
}

#[test]
fn a_session_is_nobodys_without_its_secret() {
    on_store(async |server| {
        session(&server, OURS, 1).await;
        let link = server.open().await;
        let queue = Queue::new(&*link).await;

        let stranger = server.by_hand(SESSION_TIMEOUT, OURS, "guessed", 2).await;

        queue.stays_under(&stranger, &*link, "Over").await;
    });
}

#[test]
fn what_is_left_of_a_dead_session_is_removed_by_name_and_owner() {
    on_store(async |server| {
        let (ours, link) = (session(&server, OURS, 1).await, server.open().await);
        session(&server, THEIRS, 1).await;
        let path = ticket(&*link, "/t-").await;
        server.end(THEIRS).await;

        ours.reap(THEIRS, &path).await;

        assert!(node(&*link, &path).await.is_some());
    });
}

/// Redis before 7.2 sends a message before the answer.
#[test]
fn a_session_is_told_once_and_in_the_answer_of_what_it_does_itself() {
    on_store(async |server| {
        let ours = session(&server, OURS, 1).await;
        let told = [
            (&[3][..], &["events: [\"c3\"]"][..]),
            // Several are not in any order.
            (
                &[4, 5],
                &["events: [\"c4\", \"c5\"]", "events: [\"c5\", \"c4\"]"],
            ),
        ];
        for (watches, told) in told {
            ours.create("/a", Create::Persistent).await;
            for &number in watches {
                ours.watch("/a", number).await;
            }

            let writes = [Write::set("/a", b"new", 0), Write::delete("/a")];
            let answered = ours.multi(&writes).await;

            assert!(
                told.iter().any(|told| answered.contains(told)),
                "{answered}"
            );
        }
    });
}

#[test]
fn a_request_that_comes_to_another_history_does_nothing() {
    on_store(async |server| {
        let ours = session(&server, OURS, 1).await;
        let link = server.open().await;
        link.create("/a", b"", Create::Persistent).await.unwrap();
        let path = ticket(&*link, "/a/t-").await;
        let czxid = node(&*link, &path).await.unwrap().czxid;
        let gone = Write::DeleteTicket { path: &path, czxid };
        let leaves = [Write::set("/a", b"left", 0), gone];

        server.begin_another_history().await;

        // The next connection knows of the new history, and the session is of the old one.
        let next = session(&server, OURS, 2).await;
        for ours in [ours, next] {
            for answered in [
                ours.touch().await,
                ours.create("/a/b", Create::Persistent).await,
                ours.create("/a/t-", Create::EphemeralSequential).await,
                ours.multi(&leaves).await,
            ] {
                // Who has opened a session since has ended all of before.
                let is_refused = ["OtherIncarnation", "Over"].contains(&&*answered);
                assert!(is_refused, "{answered}");
            }
        }
    });
}

#[test]
fn ids_rise_when_the_clock_has_gone_back() {
    on_store(async |server| {
        let link = server.open().await;
        server.set_last(4_000_000_000_000_000).await;

        let made = link.create("/a", b"", Create::Persistent).await.unwrap();

        assert_eq!(made.czxid, 4_000_000_000_000_001);
        // Also where the directory was removed meanwhile, and what was in it is forgotten.
        let first = ticket(&*link, "/a/t-").await;
        let before = node(&*link, &first).await.unwrap().czxid;
        assert!(before > made.czxid);
        for path in [&*first, "/a"] {
            link.delete(path).await.unwrap();
        }
        link.create("/a", b"", Create::Persistent).await.unwrap();
        let again = ticket(&*link, "/a/t-").await;
        assert_eq!(again, first);
        assert!(node(&*link, &again).await.unwrap().czxid > before);
    });
}

/// One looks at the first for the second time when the other must be gone.
#[test]
fn a_session_with_a_long_timeout_holds_up_the_end_of_no_other() {
    on_store(async |server| {
        let link = server.open().await;
        let long = Duration::from_secs(30);
        let slow = server.by_hand(long, OURS, "secret", 1).await;
        assert!(slow.open().await.contains("Granted"));
        server.step(OURS, 31).await;
        sleep(SHORT).await;
        let quick = server.by_hand(SHORT, THEIRS, "secret", 1).await;
        assert!(quick.open().await.contains("Granted"));
        let made = quick.create("/t-", Create::EphemeralSequential).await;
        assert!(made.contains("Made"), "{made}");

        let since = Instant::now();
        until("its node is gone", async || {
            children(&*link, "/").await.is_empty()
        })
        .await;

        let waited = since.elapsed();
        assert!(waited < long / 5, "{waited:?}");
        assert!(!slow.touch().await.contains("Over"), "it is not over yet");
    });
}
