//! An owner's calls, dropped after each number of polls: nothing is left, no call is blocked, and a
//! kept place stays.

use std::future::Future;
use std::time::Duration;

use lockkeeper::{Guard, Keeper};
use tokio::time::timeout;

use super::{SOON, at_once, is_empty, owned};
use crate::recipes::cancel::cancelled_after;
use testbench::{World, case, eventually};
use testbench::{children, keeper};

/// Far more polls than any of the calls needs.
const MOST_POLLS: usize = 200;

/// An owner's hold, and another keeper to cancel with.
struct Stay {
    stranger: testbench::Stranger,
    a: Keeper,
    b: Keeper,
    host: Guard,
}

impl Stay {
    async fn new(world: &World) -> Self {
        let (a, b) = (keeper(world).await, keeper(world).await);
        let host = at_once(&owned(&a, "cut", "job")).await;
        Self {
            stranger: world.raw().await,
            a,
            b,
            host,
        }
    }

    /// Only the host is left, which holds as if nothing had happened.
    async fn is_back(&self) {
        let alone = || async { children(&self.stranger, "cut").await == [self.host.node()] };
        eventually("nobody but the host is left", SOON, alone).await;
        self.host.check().await.unwrap();
    }

    /// The hold ends, and the lock is free for others.
    async fn ends(self) {
        self.host.release().await.unwrap();
        let next = at_once(&self.b.mutex("cut").unwrap()).await;
        next.release().await.unwrap();
        is_empty(&self.stranger, "cut").await;
    }

    /// Cancels a call after 0, 1, 2.. polls until one ends by itself.
    async fn cancel<T, F: Future<Output = Option<T>>>(&self, call: impl Fn(usize) -> F) {
        for polls in 0..MOST_POLLS {
            let ended = call(polls).await;
            let is_done = ended.is_some();
            drop(ended);
            self.is_back().await;
            if is_done {
                assert!(polls > 0, "it ended without a poll");
                return;
            }
        }
        panic!("it never ended");
    }
}

#[case(within = 120)]
async fn a_cancelled_call_of_an_owner_that_holds_changes_nothing(world: World) {
    let stay = Stay::new(&world).await;
    let lock = owned(&stay.a, "cut", "job");
    stay.cancel(|polls| cancelled_after(polls, lock.lock()))
        .await;
    stay.cancel(|polls| cancelled_after(polls, lock.try_lock()))
        .await;
    stay.ends().await;
}

#[case(within = 120)]
async fn a_cancelled_call_of_a_guest_leaves_nothing(world: World) {
    let stay = Stay::new(&world).await;
    let (lock, here) = (&owned(&stay.b, "cut", "job"), &stay);
    stay.cancel(|polls| async move {
        let guest = cancelled_after(polls, lock.lock()).await?.unwrap();
        assert_eq!(guest.token(), here.host.token());
        Some(guest)
    })
    .await;
    stay.ends().await;
}

#[case(within = 120)]
async fn a_cancelled_try_of_a_guest_leaves_nothing(world: World) {
    let stay = Stay::new(&world).await;
    let (lock, here) = (&owned(&stay.b, "cut", "job"), &stay);
    stay.cancel(|polls| async move {
        let guest = cancelled_after(polls, lock.try_lock()).await?.unwrap();
        let guest = guest.expect("its owner holds");
        assert_eq!(guest.token(), here.host.token());
        Some(guest)
    })
    .await;
    stay.ends().await;
}

#[case(within = 120)]
async fn a_cancelled_call_of_an_owner_leaves_nothing(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let lock = owned(&keeper, "cut", "job");
    for polls in 0..MOST_POLLS {
        let ended = cancelled_after(polls, lock.lock()).await;
        let is_done = ended.is_some();
        drop(ended);
        is_empty(&stranger, "cut").await;
        // The gate of the owner is open as well.
        at_once(&lock).await.release().await.unwrap();
        if is_done {
            return;
        }
    }
    panic!("it never ended");
}

#[case(within = 120)]
async fn a_cancelled_release_of_a_guest_releases_it(world: World) {
    let stay = Stay::new(&world).await;
    let lock = &owned(&stay.b, "cut", "job");
    stay.cancel(|polls| async move {
        let guest = at_once(lock).await;
        cancelled_after(polls, guest.release()).await
    })
    .await;
    stay.ends().await;
}

#[case(within = 120)]
async fn a_cancelled_grant_of_a_guest_keeps_its_place(world: World) {
    let stay = Stay::new(&world).await;
    let lock = owned(&stay.b, "cut", "job");
    for polls in 0..MOST_POLLS {
        let mut place = lock.enqueue().await.unwrap();
        let cancelled = cancelled_after(polls, place.granted()).await;
        let is_done = cancelled.is_some();
        let guest = match cancelled {
            Some(granted) => granted.unwrap(),
            None => {
                assert!(place.position().await.unwrap() <= 1, "{polls} polls");
                // Taken up where it was, also when its ticket was just exchanged.
                let granted = timeout(SOON, place.granted()).await;
                granted.expect("its owner holds").unwrap()
            }
        };
        assert_eq!(guest.token(), stay.host.token());
        assert_eq!(
            children(&stay.stranger, "cut").await.len(),
            2,
            "{polls} polls"
        );
        guest.check().await.unwrap();
        guest.release().await.unwrap();
        stay.is_back().await;
        if is_done {
            break;
        }
    }
    for polls in 0..12 {
        let mut place = lock.enqueue().await.unwrap();
        let waiting = timeout(
            Duration::from_millis(100),
            cancelled_after(polls, place.granted()),
        );
        if let Ok(Some(granted)) = waiting.await {
            drop(granted.unwrap());
        }
        drop(place);
        stay.is_back().await;
    }
    stay.ends().await;
}
