//! What is special to memcached's `add`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper::Error;
use lockkeeper::compat::{StoreProblem, connect};
use testbench::daemon;
use testbench::relay::{Relay, Way};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::bed::{Bed, TTL, ask};
use crate::cut::CutWay;
use crate::redis_servers::says;

crate::cases![
    ["memcached+add"]
    a_name_that_memcached_cannot_hold_is_refused,
    a_key_of_another_program_is_a_held_lock,
    a_ttl_is_never_shorter_than_asked,
    what_is_no_memcached_is_told_so,
    a_wrong_password_is_denied,
    a_server_without_versions_is_refused,
    a_stopped_server_does_not_shift_the_answers,
    a_strangers_lock_of_a_server_that_started_again_is_not_touched,
    a_connection_that_falls_silent_is_replaced,
    waiters_that_ask_all_the_time_end_no_hold,
];

async fn a_name_that_memcached_cannot_hold_is_refused(bed: Arc<Bed>, _name: String) {
    let keeper = bed.keeper().await;
    for name in ["a b", "a\r\nflush_all", "a\0", "a\u{a0}b", &"a".repeat(251)] {
        let error = keeper.mutex(name).unwrap_err();
        assert!(matches!(error, Error::InvalidName { .. }), "{error}");
    }
    let longest = format!("{:-<250}", uuid::Uuid::new_v4());
    for name in [&*longest, "käse/été"] {
        let guard = keeper.mutex(name).unwrap().lock().await.unwrap();
        guard.release().await.unwrap();
    }
    let lock = keeper.mutex("a").unwrap();
    let error = lock.with_ttl(Duration::from_millis(999)).unwrap_err();
    assert!(error.is_invalid(), "{error}");
}

/// As `add` of Django and pymemcache writes it, with any value.
async fn a_key_of_another_program_is_a_held_lock(bed: Arc<Bed>, name: String) {
    let lock = bed.lock(&name).await;
    for value in ["1".to_owned(), "x".repeat(100_000)] {
        bed.memcached(&format!("add {name} 0 0 {}\r\n{value}\r\n", value.len()));
        assert!(lock.try_lock().await.unwrap().is_none());
        bed.remove(&name).await;

        let guard = lock.try_lock().await.unwrap().expect("it is free");
        let answer = bed.memcached(&format!("add {name} 0 9 1\r\n1\r\n"));
        assert_eq!(answer, "NOT_STORED\r\n");
        let answer = bed.memcached(&format!("set {name} 0 9 {}\r\n{value}\r\n", value.len()));
        assert_eq!(answer, "STORED\r\n");
        assert!(guard.check().await.unwrap_err().is_lost());
        assert!(guard.release().await.unwrap_err().is_lost());
        assert!(lock.try_lock().await.unwrap().is_none());
        bed.remove(&name).await;
    }
}

/// memcached's clock steps once a second, so an item lives less than it was given.
async fn a_ttl_is_never_shorter_than_asked(bed: Arc<Bed>, name: String) {
    let ttl = Duration::from_secs(1);
    for part in 0..4 {
        let name = format!("{name}/{part}");
        let lock = bed.keeper().await.mutex(&name).unwrap();
        let store = bed.keeper().await;
        let attempt = lockkeeper::compat::Attempt {
            name: name.as_str().into(),
            secret: "secret".into(),
            ttl,
            owner: None,
            seen: Default::default(),
            turn: Default::default(),
        };
        // At another part of the server's second.
        sleep(Duration::from_millis(250)).await;
        let begun = Instant::now();
        store.store().acquire(&attempt).await.unwrap();
        while lock.try_lock().await.unwrap().is_none() {
            assert!(begun.elapsed() < ttl * 4, "it is never free");
            sleep(Duration::from_millis(5)).await;
        }
        assert!(begun.elapsed() >= ttl, "{:?}", begun.elapsed());
    }
}

async fn what_is_no_memcached_is_told_so(_bed: Arc<Bed>, _name: String) {
    let begun = Instant::now();
    for words in [
        &b"-ERR unknown command 'mn'\r\n"[..],
        b"HTTP/1.1 400 no\r\n\r\n",
        b"ERROR\r\n",
        &[0; 5000],
    ] {
        let error = connect(&format!("memcached+add://{}", says(words)))
            .await
            .unwrap_err();
        assert!(
            matches!(problem(&error), StoreProblem::WrongServer(_)),
            "{error}"
        );
    }
    let redis = daemon::redis(&[]).unwrap();
    let error = connect(&format!("memcached+add://{}", redis.address()))
        .await
        .unwrap_err();
    assert!(
        matches!(problem(&error), StoreProblem::WrongServer(_)),
        "{error}"
    );
    // One that says nothing.
    let error = connect(&format!("memcached+add://{}", says(b"")))
        .await
        .unwrap_err();
    assert!(
        matches!(problem(&error), StoreProblem::Unreachable(_)),
        "{error}"
    );
    assert!(begun.elapsed() < Duration::from_secs(10));
}

async fn a_wrong_password_is_denied(_bed: Arc<Bed>, name: String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users");
    std::fs::write(&file, "me:secret\n").unwrap();
    let server = daemon::memcached(&["-Y", file.to_str().unwrap()]).unwrap();
    for login in ["", "me:wrong@", "you:secret@"] {
        let url = format!("memcached+add://{login}{}", server.address());
        let error = connect(&url).await.unwrap_err();
        assert!(
            matches!(problem(&error), StoreProblem::Denied(_)),
            "{error}"
        );
        assert!(!error.to_string().contains("wrong@"), "{error}");
    }
    let url = format!("memcached+add://me:secret@{}", server.address());
    let lock = connect(&url).await.unwrap().mutex(&name).unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
}

/// A lock there could be taken, and neither renewed nor freed.
async fn a_server_without_versions_is_refused(_bed: Arc<Bed>, _name: String) {
    let server = daemon::memcached(&["-C"]).unwrap();
    let error = connect(&format!("memcached+add://{}", server.address()))
        .await
        .unwrap_err();
    assert!(
        matches!(problem(&error), StoreProblem::WrongServer(_)),
        "{error}"
    );
    assert!(error.to_string().contains("without -C"), "{error}");
}

/// Calls that gave up leave their answers on the connection; each answer is still its request's.
async fn a_stopped_server_does_not_shift_the_answers(_bed: Arc<Bed>, name: String) {
    let server = daemon::memcached(&[]).unwrap();
    let url = format!("memcached+add://{}", server.address());
    let keeper = connect(&url).await.unwrap();
    let lock = keeper.mutex(&name).unwrap();
    let held = lock.lock().await.unwrap();
    let other = keeper.mutex(format!("{name}/other")).unwrap();
    for _ in 0..5 {
        server.signal(daemon::Signal::STOP);
        for _ in 0..10 {
            let late = Duration::from_millis(5);
            // It may be answered before the signal arrives.
            drop(timeout(late, other.lock()).await);
        }
        server.signal(daemon::Signal::CONT);
        assert!(lock.try_lock().await.unwrap().is_none());
        held.check().await.unwrap();
        let next = other.lock_timeout(Duration::from_secs(5)).await;
        next.expect("nothing is left").release().await.unwrap();
    }
    held.release().await.unwrap();
}

/// Versions begin again with the server, so a stranger's lock can have the version that ours had.
async fn a_strangers_lock_of_a_server_that_started_again_is_not_touched(
    _bed: Arc<Bed>,
    name: String,
) {
    let mut server = daemon::memcached(&[]).unwrap();
    let address = server.address();
    let url = format!("memcached+add://{address}");
    let lock = connect(&url).await.unwrap().mutex(&name).unwrap();
    let guard = lock.lock().await.unwrap();
    let version = ask(address, &format!("mg {name} c\r\n"));
    // The runtime goes on meanwhile, and sees the end of the connection.
    let restarted = tokio::task::spawn_blocking(move || {
        server.kill();
        server.launch().unwrap();
        server
    });
    let _server = restarted.await.unwrap();
    let add = format!("add {name} 0 9 1\r\n1\r\n");
    assert_eq!(ask(address, &add), "STORED\r\n");
    assert_eq!(ask(address, &format!("mg {name} c\r\n")), version);

    let error = guard.release().await.unwrap_err();

    assert!(error.is_lost(), "{error}");
    assert_eq!(ask(address, &add), "NOT_STORED\r\n");
}

/// It is neither closed nor answered, as behind a firewall that has forgotten it.
async fn a_connection_that_falls_silent_is_replaced(bed: Arc<Bed>, name: String) {
    let way = Relay::to(bed.addresses()[0]).await;
    let keeper = connect(&bed.url_at(&way.address().to_string())).await;
    let lock = keeper.unwrap().mutex(&name).unwrap();
    let guard = lock.with_ttl(TTL * 2).unwrap().lock().await.unwrap();

    way.set(Way::Silent);
    sleep(TTL / 4).await;
    way.set(Way::Open);

    sleep(TTL * 3).await;
    assert!(guard.is_held(), "renewed on another connection");
    guard.release().await.unwrap();
}

/// There is one connection, and each try is two requests on it.
async fn waiters_that_ask_all_the_time_end_no_hold(bed: Arc<Bed>, name: String) {
    let way = CutWay::to(bed.addresses()[0]).await;
    let keeper = connect(&bed.url_at(&way.address().to_string())).await;
    let keeper = keeper.unwrap();
    let lock = keeper.mutex(&name).unwrap();
    let guard = lock.clone().with_ttl(TTL * 2).unwrap();
    let guard = guard.lock().await.unwrap();
    way.answer_after(Duration::from_millis(5));
    let mut waiters = JoinSet::new();
    for _ in 0..500 {
        let lock = lock.clone();
        waiters.spawn(async move { lock.lock().await.map(drop) });
    }

    sleep(TTL * 5).await;

    assert!(guard.is_held(), "its renewals wait for no tries");
    guard.release().await.unwrap();
    waiters.shutdown().await;
}

fn problem(error: &Error) -> &StoreProblem {
    match error {
        Error::Store { problem, .. } => problem,
        other => panic!("{other}"),
    }
}
