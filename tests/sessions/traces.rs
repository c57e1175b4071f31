//! The measurements behind the lease, on a real ensemble and on a standalone server. The sessions
//! send only what a case says; the client crate would send pings of its own.
//!
//! `LOCKKEEPER_TRACES=write` keeps what was measured in `tests/sessions/recorded`, which the tests
//! of the lease replay.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;
use serde::Serialize;
use tokio::time::{sleep, timeout};
use zookeeper_client::{AddWatchMode, Client, EventType};

use testbench::dice::Dice;
use testbench::ensemble::Ensemble;
use testbench::events::now;
use testbench::plan;
use testbench::wire::{Arrival, In, Out, Wire};
use testbench::zookeeper::Servers;
use testbench::{World, case};

/// Ticks of the servers are 200 ms: a session timeout of two, three and five of them.
const TIMEOUTS: [Duration; 3] = [
    Duration::from_millis(400),
    Duration::from_millis(600),
    Duration::from_millis(1000),
];
const SYNC: i32 = 9;
const MULTI: i32 = 14;
const SESSION_EXPIRED: i32 = -112;

/// One session from its handshake to its end, in microseconds since the handshake was sent.
#[derive(Debug, Serialize)]
struct Trace {
    timeout_us: u64,
    is_commit: bool,
    /// When each request was sent and answered, the handshake first.
    answered: Vec<(u64, u64)>,
    /// When another client, at the leader or the only server, saw that the session's ticket was
    /// gone.
    over_us: u64,
}

#[case(real, within = 120)]
async fn a_request_that_was_answered_keeps_its_session_once_another_one_is(_world: World) {
    // No member is to be given up, however long a busy machine stops it.
    let ensemble = Ensemble::start(100).await;
    let leader = ensemble.leader().await;
    let addresses = ensemble.addresses();
    let follower = addresses[(leader + 1) % addresses.len()];

    let traces = record(follower, addresses[leader]).await;

    for trace in &traces {
        let (timeout, over) = (trace.timeout_us, trace.over_us);
        for (at, (sent, answered)) in trace.answered.iter().enumerate() {
            let later = trace.answered[at + 1..].iter();
            let mut later = later.filter(|(later, _)| answered + timeout / 4 <= *later);
            if later.next().is_some() {
                assert!(sent + timeout * 9 / 10 <= over, "request {at} of {trace:?}");
            }
        }
    }
    keep(&traces, "lease.jsonl");
}

#[case(real, within = 120)]
async fn a_request_that_a_server_alone_has_answered_keeps_its_session(_world: World) {
    let start = || Servers::start(1).unwrap_or_else(|why| panic!("{why}"));
    let servers = tokio::task::spawn_blocking(start).await.unwrap();
    let server = servers.addresses()[0];

    let traces = record(server, server).await;

    for trace in &traces {
        // One after the other, each before the one before it is over.
        let mut until = u64::MAX;
        for (sent, answered) in &trace.answered {
            if *answered >= until {
                break;
            }
            until = sent + trace.timeout_us * 9 / 10;
            assert!(until <= trace.over_us, "until {until} in {trace:?}");
        }
    }
    keep(&traces, "standalone.jsonl");
}

/// Lets sessions live at a server, and looks at their end at another one, or the same.
async fn record(server: SocketAddr, observed: SocketAddr) -> Vec<Trace> {
    let seed = plan::seed();
    println!("traces: LOCKKEEPER_SEED={seed}");
    let observer = Client::connect(&observed.to_string()).await.unwrap();
    let mut traces = Vec::new();
    for round in 0..World::times(1, 15) {
        let sessions = (0..40).map(|number| {
            let mut dice = Dice(seed ^ (round as u64 * 1000 + number));
            let (observer, path) = (&observer, format!("/trace-{round}-{number}"));
            async move {
                loop {
                    if let Some(trace) = live(server, observer, &mut dice, &path).await {
                        return trace;
                    }
                }
            }
        });
        traces.extend(join_all(sessions).await);
    }
    traces
}

/// If that is asked for.
fn keep(traces: &[Trace], file: &str) {
    if std::env::var("LOCKKEEPER_TRACES").is_ok_and(|word| word == "write") {
        let mut lines = String::new();
        for trace in traces {
            writeln!(lines, "{}", serde_json::to_string(trace).unwrap()).unwrap();
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sessions/recorded");
        std::fs::write(folder.join(file), lines).unwrap();
    }
}

/// Opens a session, asks in a rhythm with gaps, falls silent and waits for its end. None: a busy
/// machine let it end before its node was there.
async fn live(server: SocketAddr, observer: &Client, dice: &mut Dice, path: &str) -> Option<Trace> {
    let length = dice.pick(&TIMEOUTS);
    let is_commit = dice.below(2) == 0;
    // Before the node is there, which may be gone soon after.
    let mut watch = observer.watch(path, AddWatchMode::Persistent).await;
    let watch = watch.as_mut().unwrap();
    let mut wire = Wire::dial(server).await;
    let zero = now();
    let since = || (now() - zero) / 1000;

    let timeout_ms = i32::try_from(length.as_millis()).unwrap();
    let mut connect = Out::default();
    connect.int(0).long(0).int(timeout_ms).long(0);
    connect.buffer(Some(&[0; 16])).flag(false);
    wire.send(&connect.framed()).await;
    let Arrival::Frame(reply) = wire.next().await else {
        panic!("no session");
    };
    let mut reply = In(&reply);
    reply.int().unwrap();
    assert_eq!(reply.int(), Some(timeout_ms), "granted as asked");
    let mut answered = vec![(0, since())];

    // An ephemeral node that every client may read.
    let mut create = Out::default();
    create
        .int(1)
        .int(1)
        .buffer(Some(path.as_bytes()))
        .buffer(Some(b""))
        .count(1);
    create
        .int(31)
        .buffer(Some(b"world"))
        .buffer(Some(b"anyone"))
        .int(1);
    let sent = since();
    wire.send(&create.framed()).await;
    let reply = match wire.next().await {
        Arrival::Frame(reply) => reply,
        Arrival::Closed => return None,
        Arrival::Silence => panic!("the server does not create"),
    };
    let mut reply = In(&reply);
    match (reply.int(), reply.long(), reply.int()) {
        (_, _, Some(0)) => answered.push((sent, since())),
        (_, _, Some(SESSION_EXPIRED)) => return None,
        other => panic!("not created: {other:?}"),
    }
    let over = async {
        while watch.changed().await.event_type != EventType::NodeDeleted {}
        since()
    };

    let asking = async {
        for xid in 2..2 + dice.below(14) as i32 {
            // Regular beats, pauses, and silences that end just before or after the session does:
            // the server rounds its end up to a tick.
            let gap = match dice.below(8) {
                0 => length.mul_f64(dice.below(110) as f64 / 100.0),
                1 => length + Duration::from_millis(dice.below(260)),
                _ => length / 6,
            };
            sleep(gap).await;
            let mut request = Out::default();
            request.int(xid);
            if is_commit {
                // A transaction of one check.
                request.int(MULTI).int(13).flag(false).int(-1);
                request
                    .buffer(Some(path.as_bytes()))
                    .int(-1)
                    .int(-1)
                    .flag(true)
                    .int(-1);
            } else {
                request.int(SYNC).buffer(Some(b"/"));
            }
            let sent = since();
            wire.send(&request.framed()).await;
            match timeout(length, wire.next()).await {
                Ok(Arrival::Frame(reply)) => {
                    let mut reply = In(&reply);
                    let (_, _, error) = (reply.int(), reply.long(), reply.int());
                    if error != Some(0) {
                        break;
                    }
                    answered.push((sent, since()));
                }
                _ => break,
            }
        }
    };
    // The connection stays open, and silent, until the end.
    let ((), over_us) = tokio::join!(asking, over);
    Some(Trace {
        timeout_us: u64::try_from(length.as_micros()).unwrap(),
        is_commit,
        answered,
        over_us,
    })
}
