//! What every link must do, on the simulated one and on servers: the contract of `trait Link`.
//!
//! `LOCKKEEPER_TEST_ON` chooses the servers, as for the suite, or `postgres` or `redis`. Without it
//! the embedded server serves.
//! Cases know of no engine, and no lock is used here. Each case has a part of the tree of its own.

mod bed;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod by_hand;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod keepers;
mod links;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
mod sessions;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod stores;
mod tree;
mod watches;
mod writes;

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::timeout;

use crate::link::{Change, Create, Found, Link, Node, Read, Watch, Write};
use bed::Bed;

/// Longer than any answer or event may take. On the simulated link it is virtual.
const SOON: Duration = Duration::from_secs(20);
/// Without an event for so long there is none.
const QUIET: Duration = Duration::from_millis(300);

struct Case {
    name: &'static str,
    run: fn(Arc<Bed>) -> BoxFuture<'static, ()>,
}

/// Lists the cases of a file.
macro_rules! cases {
    ($($name:ident),+ $(,)?) => {
        &[$(super::Case { name: stringify!($name), run: |bed| Box::pin($name(bed)) }),+]
    };
}
use cases;

/// Runs each case, one after the other, and says which have failed.
#[expect(clippy::print_stdout, reason = "how many cases ran is its result")]
async fn keeps_contract(bed: Bed) {
    let bed = Arc::new(bed);
    let mut cases = vec![
        tree::CASES,
        writes::CASES,
        watches::CASES,
        links::CASES,
        sessions::CASES,
    ];
    if bed.has_ways() {
        cases.push(sessions::ON_SERVERS);
    }
    let (mut ran, mut failed) = (0, Vec::new());
    for case in cases.into_iter().flatten() {
        let run = (case.run)(Arc::clone(&bed));
        let ended = timeout(SOON * 3, AssertUnwindSafe(run).catch_unwind()).await;
        ran += 1;
        if !matches!(ended, Ok(Ok(()))) {
            failed.push(case.name);
        }
    }
    println!("contract: {ran} cases on {}", bed.engine());
    assert!(failed.is_empty(), "on {}: {failed:?}", bed.engine());
}

#[test]
fn the_simulated_link_keeps_the_contract() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async { keeps_contract(Bed::simulated()).await });
}

#[test]
fn the_link_to_servers_keeps_the_contract() {
    // On this thread, because real servers are started by calls that block.
    let servers = bed::Servers::of_run();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    for servers in servers {
        runtime.block_on(async { keeps_contract(Bed::on(servers).await).await });
    }
}

async fn directory(link: &dyn Link, path: &str) {
    link.create(path, b"", Create::Persistent).await.unwrap();
}

async fn ticket(link: &dyn Link, path: &str) -> String {
    let made = link.multi(&[numbered(path)]).await.unwrap();
    let [made] = <[String; 1]>::try_from(made).unwrap();
    made
}

fn numbered(path: &str) -> Write<'_> {
    ephemeral(path, true)
}

fn ephemeral(path: &str, is_sequential: bool) -> Write<'_> {
    let data = b"mine";
    Write::Ephemeral {
        path,
        data,
        is_sequential,
    }
}

async fn node(link: &dyn Link, path: &str) -> Option<Node> {
    let found = link.read_behind_sync(path, &[Read::Data(path)]);
    match found.await.unwrap().pop() {
        Some(Found::Node(node)) => Some(node),
        Some(Found::Failed(crate::link::Code::NoNode)) => None,
        other => panic!("{other:?}"),
    }
}

async fn children(link: &dyn Link, path: &str) -> Vec<String> {
    let found = link.read_behind_sync(path, &[Read::Children(path)]);
    match found.await.unwrap().pop() {
        Some(Found::Children(mut names)) => {
            names.sort_unstable();
            names
        }
        other => panic!("{other:?}"),
    }
}

async fn told(watch: &mut Watch) -> Change {
    timeout(SOON, watch.changed()).await.expect("an event")
}

async fn is_quiet(watch: &mut Watch) -> bool {
    timeout(QUIET, watch.changed()).await.is_err()
}

/// Waits until it is so.
async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let waited = timeout(SOON, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("never: {what}"));
}
