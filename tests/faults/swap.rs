//! A server that silently opens another session when a client resumes its own.
//!
//! The client crate takes it for the old one. Every answer in the new session then looks like proof
//! that the old one lives.

use futures_util::future::join_all;
use tokio::time::timeout;

use super::{SOON, T, granted, keeper, released, released_well, watched};
use testbench::checker::{assert_clean, violations};
use testbench::client::Fleet;
use testbench::events::Outcome;
use testbench::proxy::{End, Proxies, Proxy};
use testbench::stall::Stall;
use testbench::store::Fence;
use testbench::{World, case};

const TRIES: usize = 10;

#[case(
    zookeeper,
    why = "a handshake that gives another session instead of the old one",
    within = 120
)]
async fn a_holder_whose_session_was_swapped_knows_before_the_next_one_is_let_in(world: World) {
    let world = &world;
    for round in 0..World::times(1, 20) {
        let runs = [End::Fin, End::Rst].map(|end| async move {
            // On a busy machine a lease may end before its client is back, or the client may give
            // up the connection with the other session: it holds on then, and it says nothing.
            for try_again in 0..TRIES {
                if one_swap(world, end, &format!("{round}-{try_again}")).await {
                    return;
                }
            }
            panic!("no session was swapped in {TRIES} rounds");
        });
        join_all(runs).await;
    }
}

/// Whether a session was swapped.
async fn one_swap(world: &World, end: End, round: &str) -> bool {
    let lock = format!("swap-{end:?}-{round}");
    let stall = Stall::watch();
    let fleet = Fleet::new(world.connect_string(), &lock, T, Fence::Refuses).await;
    let (log_a, log_b) = (fleet.log().of("a"), fleet.log().of("b"));
    let proxies = Proxies::before(world);
    let (a, b) = (
        keeper(&proxies.connect_string()).await,
        keeper(&world.connect_string()).await,
    );
    let guard = granted(&a, &lock, &log_a).await;

    proxies.each.iter().for_each(Proxy::swap_next_session);
    proxies.cut(end).await;
    let watched = watched(guard, &log_a);
    let Ok(next) = timeout(SOON, granted(&b, &lock, &log_b)).await else {
        watched.abort();
        return false;
    };
    let guard = timeout(SOON, watched).await.unwrap().unwrap();

    let swapped: usize = proxies.each.iter().map(Proxy::swapped).sum();
    assert_eq!(released(guard, &log_a).await, Outcome::Lost);
    released_well(next, &log_b, &stall).await;
    assert_clean(&violations(&fleet.history()));
    a.close().await;
    b.close().await;
    swapped > 0
}
