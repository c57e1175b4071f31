//! Facts of ZooKeeper's servers and protocol that a lock must live with.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use lockkeeper::embedded::{Code, EmbeddedServer, Match, Op};
use lockkeeper::{Error, Keeper, LockName};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{SOON, T, own_session, session_of};
use testbench::frames::{Matching, Operation};
use testbench::proxy::{End, Proxy, Way};
use testbench::zookeeper::Servers;
use testbench::{Change, Make, World, case, eventually};
use testbench::{children, keeper};

#[case(zookeeper, why = "a connect string of two addresses")]
async fn row_63_a_create_that_is_late_on_its_old_connection_makes_no_second_ticket(world: World) {
    let stranger = world.raw().await;
    let mut old = world.proxy();
    let mut new = Proxy::before(*world.servers().last().unwrap());
    let both = format!("{},{}{}", old.address(), new.address(), world.chroot());
    for (round, is_late) in [true, false, true].into_iter().enumerate() {
        let name = format!("moved-{round}");
        new.refuse().await;
        old.accept().await;
        let builder = Keeper::builder(&both).session_timeout(T);
        let keeper = builder.connect().await.unwrap();
        let lock = keeper.mutex(&name).unwrap();
        lock.lock().await.unwrap().release().await.unwrap();

        // The create is on its way; its client goes over to the other server before it has an
        // answer.
        old.black_hole(Way::ToServer);
        old.drop_reply(Matching::op(Operation::CREATE).path(&name));
        let locking = tokio::spawn(async move { lock.lock().await });
        eventually("the create is under way", SOON, || async {
            old.armed() == 0
        })
        .await;
        old.refuse().await;
        new.accept().await;
        if !is_late {
            old.heal();
            eventually("it is applied", SOON, || async {
                children(&stranger, &name).await.len() == 1
            })
            .await;
            old.cut(End::Rst).await;
        }
        let guard = timeout(SOON, locking).await;
        old.heal();

        let guard = guard.expect("it is granted").unwrap().unwrap();
        assert!(new.connections() > 0, "the session has moved");
        eventually("the old connection has said all", SOON, || async {
            old.connections() == 0
        })
        .await;
        assert_eq!(children(&stranger, &name).await, [guard.node()]);
        guard.release().await.unwrap();
        assert!(children(&stranger, &name).await.is_empty());
        keeper.close().await;
    }
}

#[case(embedded)]
async fn row_64_a_ticket_that_the_next_server_has_not_seen_is_found(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let faults = world.embedded().faults();
    let session = own_session(&keeper).await;
    let lock = keeper.mutex("behind").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    for _ in 0..5 {
        let create = Match::op(Op::Create)
            .session(session)
            .path_contains("behind");
        faults.on(create).drop_reply();
        assert!(faults.lag_at_next_connection(session));

        let guard = timeout(SOON, lock.lock()).await.unwrap().unwrap();

        assert_eq!(faults.armed_rules(), 0, "the answer was lost");
        assert_eq!(children(&stranger, "behind").await, [guard.node()]);
        guard.release().await.unwrap();
        assert!(children(&stranger, "behind").await.is_empty());
    }
}

#[case]
async fn row_67_a_list_of_more_than_a_mebibyte_is_no_obstacle(world: World) {
    const OTHERS: usize = 20_000;
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let lock = keeper.mutex("crowded").unwrap();
    let held = lock.lock().await.unwrap();
    assert!(
        held.node().len() <= 64,
        "a ticket is short: {}",
        held.node()
    );
    let options = Make::Persistent;
    let names: Vec<String> = (0..OTHERS)
        .map(|other| format!("/locks/crowded/{other:0>60}"))
        .collect();
    for names in names.chunks(1000) {
        let made: Vec<Change<'_>> = names
            .iter()
            .map(|name| Change::Create(name, options))
            .collect();
        stranger.commit(&made).await.unwrap();
    }

    // No ticket is alone here, so every path lists the queue.
    let mut second = lock.enqueue().await.unwrap();
    assert_eq!(second.position().await.unwrap(), 1);
    held.release().await.unwrap();
    let second = timeout(SOON, second.granted()).await.unwrap().unwrap();
    let queue = keeper.queue("crowded").await.unwrap();
    assert_eq!(queue.len(), 1);
    second.release().await.unwrap();
    assert!(lock.try_lock().await.unwrap().is_some());
}

#[case]
async fn row_67_no_session_has_more_tickets_than_its_end_can_name(world: World) {
    let keeper = keeper(&world).await;
    let deep = vec!["d".repeat(250); 15].join("/");
    let mut guards = Vec::new();
    let mut bytes = BTreeMap::new();
    for number in 0..160 {
        let name = format!("{deep}/{number}");
        let guard = keeper.mutex(&name).unwrap().lock().await.unwrap();
        let session = session_of(&keeper, &name).await;
        let path = format!("{}/locks/{name}/{}", world.chroot(), guard.node());
        *bytes.entry(session).or_insert(0) += path.len();
        guards.push(guard);
    }

    let most = *bytes.values().max().unwrap();
    assert!(most < 512 << 10, "one session has {most} bytes of paths");
    assert!(bytes.len() > 1, "there is more than one session");
    // What is given back is room again.
    let before = bytes.len();
    join_all(guards.drain(..).map(lockkeeper::Guard::release)).await;
    for number in 0..160 {
        let name = format!("{deep}/{number}");
        let guard = keeper.mutex(&name).unwrap().lock().await.unwrap();
        bytes.insert(session_of(&keeper, &name).await, 0);
        guard.release().await.unwrap();
    }
    assert!(bytes.len() <= before, "{bytes:?}");
}

#[case(real, within = 120)]
async fn row_67_the_end_of_a_keeper_with_very_many_locks_hurts_no_server(_world: World) {
    const LOCKS: usize = 800;
    let servers = tokio::task::spawn_blocking(|| Servers::start(3)).await;
    let servers = servers.unwrap().unwrap();
    let all: Vec<String> = servers
        .addresses()
        .iter()
        .map(ToString::to_string)
        .collect();
    let keeper = Keeper::connect(all.join(",")).await.unwrap();
    // Paths of about 4 KiB: the end of one session with all of them would be a transaction of 3
    // MiB.
    let deep = vec!["d".repeat(250); 15].join("/");
    let lock = async |number| {
        let lock = keeper.mutex(format!("{deep}/{number}")).unwrap();
        lock.lock().await
    };
    let mut guards = vec![lock(0).await.unwrap()];
    // One after the other they take most of the case's time.
    for first in (1..LOCKS).step_by(32) {
        let some = join_all((first..LOCKS.min(first + 32)).map(lock)).await;
        guards.extend(some.into_iter().map(Result::unwrap));
    }

    timeout(Duration::from_secs(20), keeper.close())
        .await
        .expect("it closes");

    drop(guards);
    for member in &all {
        let keeper = Keeper::connect(member).await.unwrap();
        let guard = keeper
            .mutex(format!("{deep}/0"))
            .unwrap()
            .lock()
            .await
            .unwrap();
        guard.release().await.unwrap();
        keeper.close().await;
    }
    tokio::task::spawn_blocking(move || drop(servers))
        .await
        .unwrap();
}

/// What a server answers that no retry of the same request changes, and what it answers when it is
/// busy.
const CODES: [Code; 14] = [
    Code::NoAuth,
    Code::InvalidAcl,
    Code::QuotaExceeded,
    Code::Throttled,
    Code::NoChildrenForEphemerals,
    Code::AuthFailed,
    Code::SessionExpired,
    Code::SessionMoved,
    Code::OperationTimeout,
    Code::NotReadOnly,
    Code::MarshallingError,
    Code::Unimplemented,
    Code::RuntimeInconsistency,
    Code::BadArguments,
];

#[case(embedded)]
async fn row_69_each_refusal_at_each_step_is_typed_or_tried_again_and_leaves_nothing(
    _world: World,
) {
    let steps = [
        Op::CreateContainer,
        Op::Create,
        Op::MultiRead,
        Op::GetData,
        Op::Multi,
        Op::Delete,
        Op::Sync,
        Op::GetEphemerals,
    ];
    let walks = steps.map(|step| {
        tokio::spawn(async move {
            // A server for each step: what is armed there is for this step alone.
            let server = EmbeddedServer::start().await.unwrap();
            let servers = server.connect_string();
            let other = Keeper::connect(&servers).await.unwrap();
            for code in CODES {
                refused_at(&server, &other, step, code).await;
            }
            other.close().await;
        })
    });
    for walked in join_all(walks).await {
        walked.unwrap();
    }
}

/// Eight of these go on at the same time.
const PATIENCE: Duration = Duration::from_secs(10);

async fn refused_at(server: &EmbeddedServer, other: &Keeper, step: Op, code: Code) {
    let here = format!("{code:?} at {step:?}");
    let name = format!("{code:?}/{step:?}");
    let faults = server.faults();
    // Long enough for a busy machine, and short enough to wait for its end.
    let builder = Keeper::builder(server.connect_string()).session_timeout(T * 2);
    let keeper = builder.connect().await.unwrap();
    let session = own_session(&keeper).await;
    let ours = |op| Match::op(op).session(session).path_contains(&name);
    let tickets = async || other.queue(&name).await.unwrap().len();

    // Without a ticket before ours nothing is watched; with one no directory is made.
    let held = match step {
        Op::CreateContainer => None,
        _ => Some(other.mutex(&name).unwrap().lock().await.unwrap()),
    };
    if matches!(step, Op::Sync | Op::GetEphemerals) {
        // Sent only by a search for the ticket of a lost answer.
        faults.on(ours(Op::Create)).drop_reply();
    }
    faults
        .on(match step {
            // It is for all directories at once.
            Op::Sync => Match::op(step).session(session),
            _ => ours(step),
        })
        .fail(code);
    let lock = keeper.mutex(&name).unwrap();
    let outcome = if step == Op::Delete {
        // A caller that gives up deletes.
        lock.enqueue().await.map(|place| {
            drop(place);
            None
        })
    } else {
        let locking = tokio::spawn(async move { lock.lock().await });
        eventually("it has come as far as it can", PATIENCE, || async {
            locking.is_finished() || step == Op::Multi || faults.armed_rules() == 0
        })
        .await;
        if let Some(held) = held {
            held.release().await.unwrap();
        }
        let locked = timeout(PATIENCE, locking).await;
        let locked = locked
            .unwrap_or_else(|_| panic!("{here}: it hangs"))
            .unwrap();
        match locked {
            Ok(guard) => {
                let released = timeout(PATIENCE, guard.release()).await;
                released
                    .unwrap_or_else(|_| panic!("{here}: its release hangs"))
                    .map(|()| None)
            }
            Err(error) => Ok(Some(error)),
        }
    };

    eventually(&format!("{here}: it was met"), PATIENCE, || async {
        faults.armed_rules() == 0
    })
    .await;
    let error = match outcome {
        Ok(None) => None,
        Ok(Some(error)) | Err(error) => Some(error),
    };
    match (code, &error) {
        (_, None) => {}
        (Code::NoAuth, Some(error)) => assert!(error.is_denied(), "{here}: {error}"),
        (Code::AuthFailed | Code::SessionExpired, Some(error)) => {
            assert!(error.is_session_over(), "{here}: {error}");
        }
        (_, Some(error)) => assert!(matches!(error, Error::Refused { .. }), "{here}: {error}"),
    }
    let is_busy = matches!(
        code,
        Code::Throttled | Code::SessionMoved | Code::OperationTimeout
    );
    assert!(
        !is_busy || error.is_none(),
        "{here}: asked again, not {error:?}"
    );
    if (step, code) == (Op::Delete, Code::NoAuth) {
        // A client without the permission cannot delete its ticket; it goes with the session.
        keeper.close().await;
    }
    let left = usize::from(step == Op::Delete);
    eventually(&format!("{here}: nothing is left"), PATIENCE, || async {
        tickets().await == left
    })
    .await;
    timeout(PATIENCE, keeper.close()).await.expect("it closes");
}

/// Pieces of names, at and around every border of what ZooKeeper takes.
const PIECES: [&str; 36] = [
    "a",
    "b",
    "orders",
    "/",
    "//",
    ".",
    "..",
    "...",
    " ",
    "\t",
    "\n",
    "%",
    ":",
    "-",
    "é",
    "\0",
    "\u{1}",
    "\u{1f}",
    "\u{20}",
    "\u{7e}",
    "\u{7f}",
    "\u{80}",
    "\u{9f}",
    "\u{a0}",
    "\u{660}",
    "\u{d7ff}",
    "\u{e000}",
    "\u{f8fe}",
    "\u{f8ff}",
    "\u{f900}",
    "\u{ffef}",
    "\u{fff0}",
    "\u{fffd}",
    "\u{ffff}",
    "\u{10000}",
    "😀",
];

/// The server takes these, but the client crate does not send them.
const CRATE_REFUSES: [char; 3] = ['\u{f8ff}', '\u{fff0}', '\u{ffff}'];

/// Refused for reasons of our own, which the server does not share.
const OWN_RULES: [&str; 4] = ["255 bytes", "4096 bytes", "zookeeper", "ticket"];

#[case(zookeeper, why = "which names ZooKeeper takes, on its wire")]
async fn row_70_a_name_is_legal_exactly_if_the_server_takes_it(world: World) {
    let names = names(World::times(700, 10_000));
    let mut judged = [0; 2];
    for names in names.chunks(500) {
        let codes = codes_for(world.servers()[0], world.chroot(), names).await;
        for (name, code) in names.iter().zip(codes) {
            let is_taken = match code {
                // The path is judged before the node is looked for.
                -101 => true,
                -8 => false,
                code => panic!("{name:?}: {code}"),
            };
            match LockName::new(name) {
                Ok(_) => assert!(is_taken, "{name:?} is legal, but the server refuses it"),
                Err(error)
                    if OWN_RULES
                        .iter()
                        .any(|rule| error.to_string().contains(rule)) => {}
                Err(_) if name.contains(CRATE_REFUSES) => {}
                Err(error) => assert!(!is_taken, "the server takes it, but: {error}"),
            }
            judged[usize::from(is_taken)] += 1;
        }
    }
    assert!(judged.iter().all(|count| *count > 100), "{judged:?}");

    // And what is legal reaches the server.
    let keeper = keeper(&world).await;
    let legal: BTreeSet<&String> = names
        .iter()
        .filter(|name| LockName::new(name).is_ok())
        .take(40)
        .collect();
    for name in legal {
        let guard = keeper.mutex(name).unwrap().lock().await;
        let guard = guard.unwrap_or_else(|error| panic!("{name:?}: {error}"));
        guard.release().await.unwrap();
    }
}

fn names(count: usize) -> Vec<String> {
    let pieces = prop::collection::vec(prop::sample::select(&PIECES[..]), 1..5);
    // The short form is the same each time, so that it cannot fail by chance.
    let mut runner = if World::soak() {
        TestRunner::default()
    } else {
        TestRunner::deterministic()
    };
    let mut names: Vec<String> = PIECES.map(|piece| format!("a{piece}b")).into();
    names.extend(PIECES.map(String::from));
    names.resize_with(count, || {
        pieces.new_tree(&mut runner).unwrap().current().concat()
    });
    names
}

/// What a server says to a write on each name, which is nowhere a node: -101 if it takes the name.
async fn codes_for(server: SocketAddr, chroot: &str, names: &[String]) -> Vec<i32> {
    let mut stream = TcpStream::connect(server).await.unwrap();
    let framed = |body: &[u8]| {
        let length = i32::try_from(body.len()).unwrap();
        [&length.to_be_bytes(), body].concat()
    };
    // A connect request: protocol, last zxid, timeout, no session, its password, not read-only.
    let mut bytes = framed(
        &[
            &[0; 12][..],
            &5000_i32.to_be_bytes(),
            &[0; 8],
            &[0, 0, 0, 16],
            &[0; 17],
        ]
        .concat(),
    );
    for (xid, name) in (1_i32..).zip(names) {
        let path = format!("{chroot}/{name}");
        let length = i32::try_from(path.len()).unwrap();
        // A set: xid, type, path, no data, any version.
        let body = [
            &xid.to_be_bytes()[..],
            &5_i32.to_be_bytes(),
            &length.to_be_bytes(),
            path.as_bytes(),
            &0_i32.to_be_bytes(),
            &(-1_i32).to_be_bytes(),
        ];
        bytes.extend(framed(&body.concat()));
    }
    // A farewell, so that no session is left.
    bytes.extend(framed(
        &[i32::MAX.to_be_bytes(), (-11_i32).to_be_bytes()].concat(),
    ));
    stream.write_all(&bytes).await.unwrap();

    let mut frames = Vec::new();
    for _ in 0..=names.len() {
        let length = stream.read_i32().await.unwrap();
        let mut frame = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut frame).await.unwrap();
        frames.push(frame);
    }
    // Behind the xid and the zxid; the first frame is the answer to the connect request.
    let code = |frame: &Vec<u8>| i32::from_be_bytes(frame[12..16].try_into().unwrap());
    frames.iter().skip(1).map(code).collect()
}
