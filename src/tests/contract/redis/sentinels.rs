//! Sentinels: which server they name, what is told of those that name none, and a fail-over.

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use testbench::daemon::{self, Daemon};
use testbench::sentinel::sentinel;
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::super::bed::is_on;
use super::super::{SOON, until};
use super::{SESSION_TIMEOUT, ask, run};
use crate::error::UnreachableReason;
use crate::{Error, Keeper, KeeperBuilder};

/// Nobody is given a session for so long after a fail-over.
const GRACE: Duration = Duration::from_secs(35);

/// The primary `main` that these sentinels know.
fn known_by(sentinels: &[SocketAddr], more: &str) -> String {
    let sentinels: Vec<String> = sentinels.iter().map(ToString::to_string).collect();
    format!("redis-sentinel://{}/main{more}", sentinels.join(","))
}

fn at(url: String) -> KeeperBuilder {
    Keeper::builder(url).session_timeout(SESSION_TIMEOUT)
}

/// Why there is no keeper, after one try.
async fn refusal(url: String) -> Error {
    let once = at(url).connect_timeout(Duration::ZERO);
    once.connect().await.unwrap_err()
}

/// The same, with an answer of both sentinels; this one answers after the other, and is waited for.
/// If a busy machine keeps it silent for more than a second, it is not. So a keeper that comes late
/// says nothing of what both have named.
async fn refused_by_both(url: String, slower: &Daemon) -> Error {
    let deadline = Instant::now() + SOON;
    loop {
        let began = Instant::now();
        slower.freeze();
        let once = at(url.clone()).connect_timeout(Duration::ZERO);
        let (tried, ()) = tokio::join!(once.connect(), async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            slower.thaw();
        });
        match tried {
            Err(error) => return error,
            Ok(keeper) => {
                let waited = began.elapsed();
                let late = Duration::from_millis(700);
                assert!(waited > late, "{keeper:?} after {waited:?}");
                assert!(Instant::now() < deadline, "a sentinel is silent");
                keeper.close().await;
            }
        }
    }
}

fn replica_of(primary: &Daemon) -> Daemon {
    let port = primary.address().port().to_string();
    daemon::redis(&["--replicaof", "127.0.0.1", &port]).unwrap()
}

async fn replication(server: &Daemon) -> String {
    let told = ask(server, &["INFO", "replication"]).await;
    redis::from_redis_value(told).unwrap()
}

/// The port of the server that a sentinel names.
async fn named_by(sentinel: &Daemon) -> u16 {
    let named = ask(sentinel, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"]).await;
    let (_, port): (String, u16) = redis::from_redis_value(named).unwrap();
    port
}

/// Waits until the replica has all, and the sentinels know it and each other.
async fn ready(replica: &Daemon, sentinels: &[Daemon]) {
    until("the replica follows", async || {
        replication(replica).await.contains("master_link_status:up")
    })
    .await;
    for sentinel in sentinels {
        until("the sentinel knows all", async || {
            let known = ask(sentinel, &["SENTINEL", "MASTER", "main"]).await;
            let known: std::collections::HashMap<String, String> =
                redis::from_redis_value(known).unwrap();
            let others = (sentinels.len() - 1).to_string();
            known["num-slaves"] == "1" && known["num-other-sentinels"] == others
        })
        .await;
    }
}

#[test]
fn each_sentinel_that_names_no_primary_is_told_with_its_reason() {
    if !is_on("redis") {
        return;
    }
    let primary = daemon::redis(&[]).unwrap();
    let knows = sentinel(primary.address(), 1, "").unwrap();
    let locked = sentinel(primary.address(), 1, "requirepass behind").unwrap();
    let replica = replica_of(&primary);
    let of_replica = sentinel(replica.address(), 1, "").unwrap();
    let (knows, locked) = (knows.address(), locked.address());
    run(async {
        ready(&replica, &[]).await;
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let silent = silent.local_addr().unwrap();
        let (_socket, nobody) = testbench::ports::refusing().unwrap();

        let none = [nobody, silent, primary.address(), locked];
        let error = refusal(known_by(&none, "?sentinel_password=secret")).await;
        let Error::Unreachable { addresses, .. } = &error else {
            panic!("{error}");
        };
        for (address, word) in [
            (nobody, "Refused("),
            (silent, "Silent"),
            (primary.address(), "it is no sentinel"),
            (locked, "WRONGPASS"),
        ] {
            let name = format!("sentinel {address}");
            let mut named = addresses.iter().filter(|failure| failure.address == name);
            let reason = format!("{:?}", named.next().expect(&name).reason);
            assert!(reason.contains(word), "{name}: {reason}");
        }
        let text = format!("{error} {error:?}");
        assert!(!text.contains("secret"), "{text}");

        let other = known_by(&[knows], "").replace("/main", "/other");
        for (url, word) in [
            (other, "it watches no primary of the name other"),
            (known_by(&[primary.address()], ""), "it is no sentinel"),
            (known_by(&[locked], ""), "NOAUTH"),
            (known_by(&[of_replica.address()], ""), "it is a replica"),
        ] {
            let error = refusal(url).await;
            assert!(matches!(error, Error::Unreachable { .. }), "{error}");
            assert!(error.to_string().contains(word), "{word}: {error}");
        }
        // One that answers is enough, with a password of its own.
        let some = known_by(&[nobody, silent, locked], "?sentinel_password=behind");
        let keeper = at(some).new_store(true).connect().await.unwrap();
        let guard = keeper.mutex("safe").unwrap().lock().await.unwrap();
        guard.release().await.unwrap();
        keeper.close().await;
    });
}

/// The first primary cannot be told that it is none any more, and one of the sentinels does not
/// learn of the other.
#[test]
fn a_primary_that_still_answers_is_left_and_not_taken_again() {
    if !is_on("redis") {
        return;
    }
    let first = daemon::redis(&[]).unwrap();
    let second = replica_of(&first);
    run(async {
        for server in [&first, &second] {
            let user = ["ACL", "SETUSER", "us", "on", ">in", "~*", "&*", "+@all"];
            ask(server, &user).await;
            // The sentinels' user.
            ask(server, &["ACL", "SETUSER", "default", "-publish"]).await;
        }
        let denied = ["ACL", "SETUSER", "default", "-replicaof", "-slaveof"];
        ask(&first, &denied).await;
        let start =
            |address| tokio::task::spawn_blocking(move || sentinel(address, 1, "").unwrap());
        let late = start(first.address()).await.unwrap();
        let knows = start(first.address()).await.unwrap();
        ready(&second, std::slice::from_ref(&knows)).await;
        let both = known_by(&[late.address(), knows.address()], "");
        let both = both.replace("://", "://us:in@");
        let keeper = at(both.clone()).new_store(true).connect().await.unwrap();
        let guard = keeper.mutex("safe").unwrap().lock().await.unwrap();

        ask(&knows, &["SENTINEL", "FAILOVER", "main"]).await;

        let lost = timeout(SOON, guard.lost()).await;
        assert!(lost.expect("it is told").is_lost());
        assert!(replication(&first).await.contains("role:master"));
        until("the one names the second server", async || {
            named_by(&knows).await == second.address().port()
        })
        .await;
        let error = refused_by_both(both, &knows).await;
        let Error::Unreachable { addresses, .. } = &error else {
            panic!("{error}");
        };
        assert!(
            matches!(addresses[0].reason, UnreachableReason::Recovering(_)),
            "it is on the second server: {error}"
        );
        let still = named_by(&late).await;
        assert_eq!(still, first.address().port(), "it has not learnt of it");
    });
}

#[test]
fn after_a_fail_over_nobody_holds_a_lock_before_the_grace_has_passed() {
    if !is_on("redis") {
        return;
    }
    let mut primary = daemon::redis(&[]).unwrap();
    let replica = replica_of(&primary);
    let sentinels: Vec<Daemon> = (0..3)
        .map(|_| sentinel(primary.address(), 2, "").unwrap())
        .collect();
    run(async {
        ready(&replica, &sentinels).await;
        let addresses: Vec<SocketAddr> = sentinels.iter().map(Daemon::address).collect();
        let url = known_by(&addresses, "");
        let holds = at(url.clone()).new_store(true).connect().await.unwrap();
        let waits = at(url.clone()).connect_timeout(SOON * 3);
        let waits = waits.connect().await.unwrap();
        let guard = holds.mutex("safe").unwrap().lock().await.unwrap();
        let token = guard.token();
        let lock = waits.mutex("safe").unwrap();
        let waiting = tokio::spawn(async move { lock.lock().await });
        until("the waiter is in the queue", async || {
            holds.queue("safe").await.unwrap().len() == 2
        })
        .await;
        until("the replica has it all", async || {
            let offset = async |server: &Daemon, name: &str| {
                let told = replication(server).await;
                let mut lines = told.lines();
                lines
                    .find_map(|line| line.strip_prefix(name))
                    .map(str::to_owned)
            };
            let ours = offset(&primary, "master_repl_offset:").await;
            ours == offset(&replica, "slave_repl_offset:").await
        })
        .await;

        primary.kill();
        let still = Cell::new(Instant::now());
        let lost = timeout(SESSION_TIMEOUT * 2, guard.lost()).await;
        assert!(lost.expect("its lease ends").is_lost());
        until("the replica is the primary", async || {
            let seen = Instant::now();
            let is_primary = replication(&replica).await.contains("role:master");
            if !is_primary {
                still.set(seen);
            }
            is_primary
        })
        .await;
        // Most sentinels may learn of it later.
        until("nobody is given a session", async || {
            let error = refusal(url.clone()).await;
            error.to_string().contains("gives no session for")
        })
        .await;

        let next = timeout(GRACE * 2, waiting).await.unwrap().unwrap().unwrap();

        let waited = still.get().elapsed();
        assert!(waited >= GRACE, "{waited:?}");
        assert!(token < next.token(), "tokens rise");
        next.release().await.unwrap();
        holds.close().await;
        waits.close().await;
    });
}
