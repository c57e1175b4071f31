//! The cost of locking in bytes, counted: it grows with the path and with a ticket's data, and with
//! nothing else.

use std::time::Duration;

use lockkeeper::Keeper;
use lockkeeper::embedded::{Counters, EmbeddedServer, Op};
use zookeeper_client::Client;

use super::spawn_waiter;
use crate::cost::load::model::{Bytes, PING, Wire};
use testbench::{World, case, eventually};

const SOON: Duration = Duration::from_secs(5);

/// The bytes on the wire, without pings.
fn bytes(counters: &Counters) -> Bytes {
    let pings = counters.get(Op::Ping);
    let of = |all: u64, ping: usize| usize::try_from(all - pings * ping as u64).unwrap();
    Bytes {
        there: of(counters.bytes_in, PING.there),
        back: of(counters.bytes_out, PING.back),
    }
}

/// What a stranger reads of the lengths, with the lock held for a moment.
async fn wire(server: &EmbeddedServer, keeper: &Keeper, name: &str) -> Wire {
    let stranger = Client::connect(&server.connect_string()).await.unwrap();
    let directory = format!("/locks/{name}");
    let (mark, _) = stranger.get_data(&directory).await.unwrap();
    let guard = keeper.mutex(name).unwrap().lock().await.unwrap();
    let (line, _) = stranger
        .get_data(&format!("{directory}/{}", guard.node()))
        .await
        .unwrap();
    guard.release().await.unwrap();
    let mut state = stranger.state_watcher();
    drop(stranger);
    while !state.changed().await.is_terminated() {}
    Wire {
        directory: directory.len(),
        line: line.len(),
        mark: mark.len(),
    }
}

#[case(embedded)]
async fn an_operation_is_as_many_bytes_as_its_path_and_its_line_make_it(_world: World) {
    for name in ["a", "orders/42", "a/much/longer/name/of/a/lock/0123456789"] {
        let server = EmbeddedServer::start().await.unwrap();
        let builder = Keeper::builder(server.connect_string());
        let builder = builder.session_timeout(Duration::from_secs(60));
        let keeper = builder.connect().await.unwrap();
        let lock = keeper.mutex(name).unwrap();
        // A mark holds a transaction number, as long in all of them from here on.
        server.faults().set_next_zxid(1_000_000);
        // The directory is there, and a mark in it.
        lock.lock().await.unwrap().release().await.unwrap();
        let wire = wire(&server, &keeper, name).await;

        let before = at_rest(&server).await;
        let guard = lock.lock().await.unwrap();
        let locked = at_rest(&server).await;
        guard.release().await.unwrap();
        let released = at_rest(&server).await;
        let guard = lock.lock().await.unwrap();
        let held = at_rest(&server).await;
        let waiter = spawn_waiter(&keeper, name);
        let watch = || async { server.counters().watches == 1 };
        eventually("it watches", SOON, watch).await;
        let queued = at_rest(&server).await;
        guard.release().await.unwrap();
        let next = waiter.await.unwrap().unwrap();
        let handed_over = at_rest(&server).await;

        assert_eq!(bytes(&locked.since(&before)), wire.lock(), "{wire:?}");
        assert_eq!(bytes(&released.since(&locked)), wire.release(), "{wire:?}");
        assert_eq!(bytes(&queued.since(&held)), wire.queue(), "{wire:?}");
        let cost = handed_over.since(&queued);
        assert_eq!(bytes(&cost), wire.hand_over(), "{wire:?}");
        println!(
            "bytes: {name}: {wire:?}, lock {:?}, release {:?}, queue up {:?}, hand over {:?}",
            wire.lock(),
            wire.release(),
            wire.queue(),
            wire.hand_over()
        );
        next.release().await.unwrap();
        keeper.close().await;
        server.stop().await;
    }
}

/// The counters, when what was answered has been counted too: the bytes of a reply are, once it was
/// written.
async fn at_rest(server: &EmbeddedServer) -> Counters {
    let mut last = None;
    eventually("nothing is on its way", SOON, || {
        let now = server.counters();
        let is_at_rest = last.replace(now.clone()) == Some(now.clone());
        async move { is_at_rest.then_some(now) }
    })
    .await
}
