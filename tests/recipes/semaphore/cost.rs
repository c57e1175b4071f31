//! The cost of a semaphore, counted: requests, watches and wake-ups, none of which may grow with
//! the queue.

use std::time::Duration;

use lockkeeper::embedded::{Counters, Op};
use lockkeeper::{Keeper, Permit, Semaphore};
use tokio::task::JoinSet;

use testbench::{World, case, eventually};

/// A keeper that sends no beat for ten minutes.
async fn keeper(world: &World) -> Keeper {
    let builder = Keeper::builder(world.connect_string());
    let builder = builder.session_timeout(Duration::from_secs(3600));
    builder.connect().await.unwrap()
}

fn requests(counters: &Counters) -> u64 {
    counters.requests() - counters.get(Op::Ping) - counters.get(Op::CloseSession)
}

/// Lets some more wait, until each has its watch.
async fn crowd(
    world: &World,
    semaphore: &Semaphore,
    count: usize,
    permits: u32,
) -> JoinSet<Permit> {
    let watches = || world.embedded().counters().watches;
    // The first of them watches the permits and the limit instead of a ticket.
    let all = watches() + count as u64 + 1;
    let mut crowd = JoinSet::new();
    for _ in 0..count {
        let semaphore = semaphore.clone();
        crowd.spawn(async move { semaphore.acquire_many(permits).await.unwrap() });
    }
    let queued = || async { watches() == all };
    eventually("all watch", Duration::from_secs(20), queued).await;
    // The head looks once more when it has armed its watches.
    let asked = || requests(&world.embedded().counters());
    let at_rest = || async {
        let before = asked();
        tokio::time::sleep(Duration::from_millis(50)).await;
        before == asked()
    };
    eventually("nobody asks any more", Duration::from_secs(20), at_rest).await;
    crowd
}

#[case(embedded)]
async fn an_uncontended_acquire_costs_five_requests_and_its_release_one(world: World) {
    let (keeper, server) = (keeper(&world).await, world.embedded());
    let semaphore = keeper.semaphore("cost", 5).unwrap();
    semaphore.acquire().await.unwrap().release().await.unwrap();
    for permits in [1, 2, 5] {
        let before = server.counters();
        let permit = semaphore.acquire_many(permits).await.unwrap();
        let taken = server.counters();
        permit.release().await.unwrap();
        let released = server.counters();

        let (take, release) = (taken.since(&before), released.since(&taken));
        assert_eq!(requests(&take), 5, "{take:?}");
        assert_eq!(requests(&release), 1, "{release:?}");
        assert_eq!((released.watches, released.since(&before).events), (0, 0));
    }
}

#[case(embedded)]
async fn a_release_wakes_the_first_and_its_grant_the_next_whatever_the_number_of_waiters(
    world: World,
) {
    const LIMIT: u32 = 100;
    const ROUNDS: u64 = 30;
    let (keeper, server) = (keeper(&world).await, world.embedded());
    let mut costs = Vec::new();
    for count in [100, 1000] {
        let semaphore = keeper.semaphore(format!("crowd/{count}"), LIMIT).unwrap();
        let mut held = Vec::new();
        for _ in 0..LIMIT {
            held.push(semaphore.acquire().await.unwrap());
        }
        let mut waiting = crowd(&world, &semaphore, count, 1).await;
        let mut before = server.counters();
        assert_eq!(
            before.watches,
            count as u64 + 1,
            "one each, and two of the first"
        );
        for round in 0..=ROUNDS {
            // The last one that was taken: who holds for more than a second reads its permit again
            // before it gives it back.
            held.pop().unwrap().release().await.unwrap();
            held.push(waiting.join_next().await.unwrap().unwrap());
            // The next one is woken, becomes the first, and watches.
            let watches = count as u64 - round;
            let handed_over = || async {
                let now = server.counters();
                assert!(now.watches <= watches + 3, "{now:?}");
                now.watches == watches
            };
            eventually("the next is the first", Duration::from_secs(5), handed_over).await;
            if round == 0 {
                before = server.counters();
            }
        }

        let cost = server.counters().since(&before);
        assert_eq!(
            cost.events,
            2 * ROUNDS,
            "one for each release and one for each grant"
        );
        costs.push(requests(&cost));
        // All are released at once: no waiter is forgotten.
        held.clear();
        while let Some(permit) = waiting.join_next().await {
            permit.unwrap().release().await.unwrap();
        }
        assert_eq!(semaphore.available_permits().await.unwrap(), LIMIT);
        eventually("no watch is left", Duration::from_secs(5), || async {
            server.counters().watches == 0
        })
        .await;
    }
    // Ten, and two more when the machine is so busy that a permit is no longer fresh when it is
    // given back.
    for cost in costs {
        assert!(cost <= 12 * ROUNDS, "{cost} requests in {ROUNDS} rounds");
    }
}

#[case(embedded)]
async fn a_try_on_a_busy_semaphore_costs_at_most_three_reads_whatever_the_number_of_waiters(
    world: World,
) {
    let (keeper, server) = (keeper(&world).await, world.embedded());
    let semaphore = keeper.semaphore("busy", 2).unwrap();
    let held = semaphore.acquire().await.unwrap();
    let cost = async |permits| {
        let before = server.counters();
        assert!(semaphore.try_acquire_many(permits).await.unwrap().is_none());
        let cost = server.counters().since(&before);
        assert_eq!(
            requests(&cost),
            cost.get(Op::MultiRead),
            "it only reads: {cost:?}"
        );
        assert!(cost.bytes_out < 1000, "{cost:?}");
        requests(&cost)
    };
    assert_eq!(cost(2).await, 1, "no room");

    let mut waiting = crowd(&world, &semaphore, 200, 2).await;
    assert_eq!(cost(2).await, 1, "no room");
    assert_eq!(cost(1).await, 3, "room, but somebody waits");

    drop(held);
    while let Some(permit) = waiting.join_next().await {
        permit.unwrap().release().await.unwrap();
    }
}

#[case(embedded)]
async fn the_heads_of_many_semaphores_watch_no_more_than_a_session_may(world: World) {
    const COUNT: usize = 250;
    let keeper = keeper(&world).await;
    let name = |at: usize| format!("{}/{at}", ["long"; 40].join("-"));
    let mut heads = JoinSet::new();
    let mut held = Vec::new();
    for at in 0..COUNT {
        let semaphore = keeper.semaphore(name(at), 1).unwrap();
        held.push(semaphore.acquire().await.unwrap());
        heads.spawn(async move { semaphore.acquire().await.unwrap() });
    }
    eventually("all are heads", Duration::from_secs(20), || async {
        world.embedded().counters().watches == 2 * COUNT as u64
    })
    .await;

    let watched = world.watched_by_session().await;

    let most = watched.values().map(|(_, bytes)| *bytes).max();
    assert!(most.is_some_and(|bytes| bytes <= 96 * 1024), "{most:?}");
    assert!(watched.len() > 1, "one session would have to watch more");
    held.clear();
    while let Some(permit) = heads.join_next().await {
        permit.unwrap().release().await.unwrap();
    }
}
