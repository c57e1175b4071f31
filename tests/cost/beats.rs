//! The cost of a session's beats, counted. At most one commit each sixth of the session timeout,
//! each tenth while a lock is held, and one read in ten beats.
//!
//! Each size has a server to itself. A busy machine makes beats late, so nothing here is counted
//! against the clock but the most that may be sent.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockkeeper::embedded::{Counters, EmbeddedServer, Op};
use lockkeeper::{Guard, Keeper, LeaseStrength};
use tokio::task::JoinSet;
use zookeeper_client::Client;

use crate::cost::load::model::{BEATS as IDLE, HELD_BEATS, PING, Wire, reads_of_a_beat};
use testbench::{Make, World, case, eventually};

const T: Duration = Duration::from_millis(1500);
/// Beats that are counted: three session timeouts of a holder, and three rounds of a thousand
/// locks.
const BEATS: u64 = 30;

/// One session at a server of its own.
struct Bench {
    server: EmbeddedServer,
    keeper: Keeper,
}

/// The requests sent during so many beats.
#[derive(Debug)]
struct Sent {
    beats: u64,
    reads: u64,
    cost: Counters,
    took: Duration,
}

impl Bench {
    async fn new(strength: LeaseStrength) -> Self {
        let server = EmbeddedServer::start().await.unwrap();
        let builder = Keeper::builder(server.connect_string()).session_timeout(T);
        let keeper = builder.lease_strength(strength).connect().await.unwrap();
        Self { server, keeper }
    }

    /// Takes so many locks. One after the other, because those that are on their way would not all
    /// fit into one session.
    async fn hold(&self, count: usize) -> Vec<Guard> {
        let mut guards = Vec::new();
        for number in 0..count {
            let lock = self.keeper.mutex(format!("held/{number:04}")).unwrap();
            guards.push(lock.lock().await.unwrap());
        }
        assert_eq!(self.server.counters().sessions, 1);
        guards
    }

    /// Holds so many locks, and counts from one beat to another. A client that was stalled until it
    /// reconnected sends other requests too, and may have lost what it held: then both start again.
    async fn count(&self, holding: usize, beat: Op) -> (Vec<Guard>, Sent) {
        let connects = || self.server.counters().connects;
        for _ in 0..5 {
            let before = connects();
            let guards = match holding {
                0 => Vec::new(),
                _ => self.hold(holding).await,
            };
            let sent = self.count_once(beat).await;
            if connects() == before {
                return (guards, sent);
            }
            for guard in guards {
                // It may be lost.
                guard.release().await.ok();
            }
        }
        panic!("the client connects again and again");
    }

    async fn count_once(&self, beat: Op) -> Sent {
        let beats = || self.server.counters().get(beat);
        let first = beats() + 1;
        let arrives = async |number: u64| {
            let is_there = || async { beats() >= number };
            eventually("the beat arrives", Duration::from_secs(40), is_there).await;
        };
        arrives(first).await;
        let (before, began) = (self.server.counters(), Instant::now());
        arrives(first + BEATS).await;
        let cost = self.server.counters().since(&before);
        Sent {
            beats: cost.get(beat),
            reads: cost.get(Op::MultiRead),
            took: began.elapsed(),
            cost,
        }
    }

    async fn close(self) {
        self.keeper.close().await;
        self.server.stop().await;
    }
}

impl Sent {
    /// Nothing but beats, reads and the client's pings, and no more beats than there is time for.
    fn check(&self, beats: f64) {
        let others = self.cost.requests() - self.cost.get(Op::Ping) - self.beats - self.reads;
        assert_eq!(others, 0, "{self:?}");
        let most = self.took.as_secs_f64() / (T.as_secs_f64() / beats);
        assert!(self.beats as f64 <= most + 1.0, "{most}: {self:?}");
    }
}

/// Holds so many locks and counts; checks how often they are read.
async fn held(count: usize) -> Sent {
    let bench = Bench::new(LeaseStrength::Quorum).await;

    let (guards, sent) = bench.count(count, Op::Multi).await;

    sent.check(HELD_BEATS);
    let reads = sent.beats as f64 * reads_of_a_beat(count);
    // A round that is read may be cut by either end of what was counted.
    let round = count.div_ceil(100).min(10) as f64;
    assert!(
        (sent.reads as f64 - reads).abs() <= round,
        "{reads}: {sent:?}"
    );
    drop(guards);
    bench.close().await;
    sent
}

#[case(embedded, alone)]
async fn a_beat_is_one_commit_for_up_to_a_hundred_held_locks_and_one_read_in_ten(_world: World) {
    for (count, sent) in [1, 10, 100]
        .into_iter()
        .zip(join_all([1, 10, 100].map(held)).await)
    {
        assert!(sent.reads <= BEATS / 10 + 1, "{sent:?}");
        check_bytes(count, &sent);
    }
}

#[case(embedded, alone)]
async fn more_than_a_hundred_held_locks_go_round_and_a_beat_stays_as_small(_world: World) {
    let [few, many] = [101, 1000].map(held);
    let (few, many) = tokio::join!(few, many);

    assert!(few.reads <= BEATS / 5 + 2, "{few:?}");
    assert!(many.reads <= BEATS + 1, "{many:?}");
    check_bytes(100, &many);
}

/// Each beat, and each read, names so many tickets.
fn check_bytes(tickets: usize, sent: &Sent) {
    let wire = Wire {
        directory: "/locks/held/0000".len(),
        line: 0,
        mark: 0,
    };
    let (beat, read) = (wire.beat(tickets).there, wire.read(tickets));
    let pings = PING.there as u64 * sent.cost.get(Op::Ping);
    let expected = pings + sent.beats * beat as u64 + sent.reads * read as u64;
    let apart = sent.cost.bytes_in.abs_diff(expected);
    // One request may be taken in half at either end.
    assert!(apart <= (beat + read) as u64, "{expected}: {sent:?}");
}

#[case(embedded, alone)]
async fn those_who_wait_share_one_commit_and_nothing_is_read(_world: World) {
    const WAITERS: usize = 1000;
    let bench = Bench::new(LeaseStrength::Quorum).await;
    // A stranger's ticket is before theirs; a plain client sends no beats.
    let stranger = Client::connect(&bench.server.connect_string())
        .await
        .unwrap();
    let options = Make::Persistent.into();
    for directory in ["/locks", "/locks/crowd"] {
        stranger.create(directory, b"", &options).await.unwrap();
    }
    let options = Make::EphemeralSequential.into();
    let path = "/locks/crowd/lock-";
    stranger.create(path, b"", &options).await.unwrap();
    let mut crowd = JoinSet::new();
    for _ in 0..WAITERS {
        let lock = bench.keeper.mutex("crowd").unwrap();
        crowd.spawn(async move { lock.lock().await });
    }
    let watch = || async { bench.server.counters().watches == WAITERS as u64 };
    eventually("all watch", Duration::from_secs(20), watch).await;

    let (_, sent) = bench.count(0, Op::Multi).await;

    sent.check(IDLE);
    assert_eq!(sent.reads, 0, "{sent:?}");
    crowd.shutdown().await;
    bench.close().await;
}

#[case(embedded, alone)]
async fn a_session_without_a_ticket_only_syncs(_world: World) {
    let bench = Bench::new(LeaseStrength::Quorum).await;

    let (_, sent) = bench.count(0, Op::Sync).await;

    sent.check(IDLE);
    assert_eq!(sent.reads, 0);
    bench.close().await;
}

#[case(embedded, alone)]
async fn a_sync_lease_commits_nothing_and_reads_with_every_beat(_world: World) {
    let bench = Bench::new(LeaseStrength::Sync).await;

    let (guards, sent) = bench.count(10, Op::Sync).await;

    sent.check(HELD_BEATS);
    assert!(sent.reads.abs_diff(sent.beats) <= 1, "{sent:?}");
    drop(guards);
    bench.close().await;
}
