//! However the host ends, its guest stays, and no other owner gets in before the guest has gone;
//! and the other way round.

use std::time::Duration;

use lockkeeper::{Guard, Keeper, Mutex};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{SOON, at_once, comes_in, goes_on_waiting, is_empty, owned, session_of, waiter};
use testbench::{World, case, eventually};
use testbench::{children, keeper};

/// A host, its guest in another keeper, and two waiters behind both.
struct Party {
    world: World,
    keepers: [Keeper; 3],
    host: Guard,
    guest: Guard,
    waiting: [JoinHandle<Guard>; 2],
}

const LOCK: &str = "party";

fn job(keeper: &Keeper) -> Mutex {
    owned(keeper, LOCK, "job")
}

impl Party {
    async fn new(world: World) -> Self {
        Self::with(world, 2).await
    }

    /// The waiters are in this one of its keepers. The host's is the first.
    async fn with(world: World, waiters: usize) -> Self {
        let keepers = [
            keeper(&world).await,
            keeper(&world).await,
            keeper(&world).await,
        ];
        let host = at_once(&job(&keepers[0])).await;
        let first = waiter(keepers[waiters].mutex(LOCK).unwrap()).await;
        let guest = at_once(&job(&keepers[1])).await;
        let second = waiter(owned(&keepers[waiters], LOCK, "another")).await;
        assert_eq!(guest.token(), host.token());
        Self {
            world,
            keepers,
            host,
            guest,
            waiting: [first, second],
        }
    }
}

/// The guard that is left holds as if nothing had happened, and keeps the others out; then they
/// come in, one after the other.
async fn is_undisturbed(world: &World, left: Guard, waiting: [JoinHandle<Guard>; 2]) {
    let stranger = world.raw().await;
    goes_on_waiting(&waiting[0]).await;
    assert!(!waiting[1].is_finished(), "it was let in");
    assert!(left.is_held());
    left.check().await.unwrap();
    let token = left.token();
    left.fenced()
        .create(format!("/written-{token}"), "by who is left")
        .commit()
        .await
        .unwrap();

    left.release().await.unwrap();

    let [first, second] = waiting;
    let first = comes_in(first).await;
    assert!(first.token() > token);
    goes_on_waiting(&second).await;
    first.release().await.unwrap();
    comes_in(second).await.release().await.unwrap();
    is_empty(&stranger, LOCK).await;
}

#[case]
async fn a_host_that_is_released_leaves_its_guest_undisturbed(world: World) {
    // A waiter of its own session asks right behind its release, whose mark the guest has refused.
    for waiters in [2, 0] {
        let party = Party::with(world.clone(), waiters).await;
        party.host.release().await.unwrap();
        is_undisturbed(&party.world, party.guest, party.waiting).await;
    }
}

#[case]
async fn a_host_that_is_dropped_leaves_its_guest_undisturbed(world: World) {
    for waiters in [2, 0] {
        let party = Party::with(world.clone(), waiters).await;
        let (stranger, node) = (party.world.raw().await, party.host.node().to_owned());
        drop(party.host);
        let gone = || async { !children(&stranger, LOCK).await.contains(&node) };
        eventually("the host's ticket is gone", SOON, gone).await;
        is_undisturbed(&party.world, party.guest, party.waiting).await;
    }
}

#[case]
async fn a_host_whose_keeper_is_closed_leaves_its_guest_undisturbed(world: World) {
    let party = Party::new(world).await;
    party.keepers[0].close().await;
    assert!(!party.host.is_held());
    is_undisturbed(&party.world, party.guest, party.waiting).await;
}

#[case]
async fn a_host_whose_ticket_is_removed_leaves_its_guest_undisturbed(world: World) {
    let party = Party::new(world).await;
    let stranger = party.world.raw().await;
    let path = format!("/locks/{LOCK}/{}", party.host.node());
    stranger.delete(&path, None).await.unwrap();
    assert!(party.host.check().await.unwrap_err().is_lost());
    is_undisturbed(&party.world, party.guest, party.waiting).await;
}

#[case(embedded)]
async fn a_host_whose_session_ends_leaves_its_guest_undisturbed(world: World) {
    let party = Party::new(world).await;
    let queue = party.keepers[2].queue(LOCK).await.unwrap();
    let entry = queue.iter().find(|entry| entry.node == party.host.node());
    let lost = party.host.lost();
    assert!(
        party
            .world
            .embedded()
            .faults()
            .expire_session(entry.unwrap().session)
    );
    timeout(SOON, lost).await.unwrap();
    is_undisturbed(&party.world, party.guest, party.waiting).await;
}

#[case]
async fn a_guest_that_goes_leaves_its_host_undisturbed(world: World) {
    let party = Party::new(world).await;
    party.guest.release().await.unwrap();
    is_undisturbed(&party.world, party.host, party.waiting).await;
}

#[case(embedded)]
async fn a_guest_whose_session_ends_leaves_its_host_undisturbed(world: World) {
    let party = Party::new(world).await;
    let queue = party.keepers[2].queue(LOCK).await.unwrap();
    let entry = queue.iter().find(|entry| entry.node == party.guest.node());
    let lost = party.guest.lost();
    assert!(
        party
            .world
            .embedded()
            .faults()
            .expire_session(entry.unwrap().session)
    );
    timeout(SOON, lost).await.unwrap();
    is_undisturbed(&party.world, party.host, party.waiting).await;
}

#[case]
async fn a_host_and_its_guest_that_go_together_let_one_in(world: World) {
    for round in 0..20 {
        let party = Party::new(world.clone()).await;
        let (host, guest) = (party.host, party.guest);
        let (host, guest) = if round % 2 == 0 {
            tokio::join!(host.release(), guest.release())
        } else {
            tokio::join!(guest.release(), host.release())
        };
        host.unwrap();
        guest.unwrap();
        let [first, second] = party.waiting;
        let first = comes_in(first).await;
        assert!(!second.is_finished(), "one at a time");
        first.release().await.unwrap();
        comes_in(second).await.release().await.unwrap();
    }
}

#[case]
async fn a_host_that_comes_back_after_its_end_is_its_guests_guest(world: World) {
    let party = Party::new(world).await;
    let token = party.host.token();
    party.host.release().await.unwrap();

    let back = at_once(&job(&party.keepers[0])).await;

    assert_eq!(back.token(), token, "the hold never ended");
    party.guest.release().await.unwrap();
    is_undisturbed(&party.world, back, party.waiting).await;
}

#[case(embedded)]
async fn a_host_whose_session_ends_alone_takes_a_new_hold(world: World) {
    let [a, b] = [keeper(&world).await, keeper(&world).await];
    let host = at_once(&job(&a)).await;
    let waiting = waiter(b.mutex(LOCK).unwrap()).await;
    let lost = host.lost();
    assert!(
        world
            .embedded()
            .faults()
            .expire_session(session_of(&b, LOCK).await)
    );
    timeout(SOON, lost).await.unwrap();

    // The next in line is in, so the owner queues up again, with another session.
    let next = comes_in(waiting).await;
    let again = tokio::spawn({
        let lock = job(&a);
        async move { lock.lock().await.unwrap() }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!again.is_finished());
    let token = next.token();
    next.release().await.unwrap();
    let again = comes_in(again).await;

    assert!(again.token() > token && token > host.token());
    drop(host);
    again.check().await.unwrap();
    again.release().await.unwrap();
}
