//! The clients in processes of their own, their store and their log.

use std::time::Duration;

use testbench::checker::{assert_clean, violations};
use testbench::client::Fleet;
use testbench::events::{Event, What};
use testbench::store::{Fence, Store, Writer};
use testbench::{World, case, eventually};

const SOON: Duration = Duration::from_secs(10);
const SESSION: Duration = Duration::from_secs(1);

async fn fleet(world: &World) -> Fleet {
    Fleet::new(world.connect_string(), "turns", SESSION, Fence::Refuses).await
}

/// Those that the store accepted: it refuses those of a client that has lost the lock meanwhile.
fn writes_of(events: &[Event], client: &str) -> usize {
    let theirs = events.iter().filter(|event| event.client == client);
    theirs
        .filter(|event| matches!(event.what, What::Write { accepted: true, .. }))
        .count()
}

#[case]
async fn two_processes_take_turns_and_write_down_what_they_see(world: World) {
    let fleet = fleet(&world).await;
    let clients = ["a", "b"].map(|name| fleet.start(&fleet.order(name)));

    let both_wrote = || async {
        let events = fleet.events();
        writes_of(&events, "a") >= 9 && writes_of(&events, "b") >= 9
    };
    eventually("both have had three turns", SOON, both_wrote).await;
    for client in clients {
        client.ends(SOON).await;
    }

    let history = fleet.history();
    assert_clean(&violations(&history));
    let written = writes_of(&history.events, "a") + writes_of(&history.events, "b");
    assert_eq!(history.accepted.len(), written);
}

#[case]
async fn a_stopped_process_does_nothing_until_it_goes_on(world: World) {
    let fleet = fleet(&world).await;
    let client = fleet.start(&fleet.order("a"));
    let wrote = |event: &Event| matches!(event.what, What::Write { .. });
    fleet.sees("it writes", SOON, wrote).await;

    client.stop();
    let stopped = fleet.events().len();
    // The silence itself is looked at.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let silent = fleet.events();
    client.go_on();
    let goes_on = || async { fleet.events().len() > silent.len() + 2 };
    eventually("it goes on", SOON, goes_on).await;

    // A line may have been on its way when the signal came.
    assert!(silent.len() <= stopped + 1, "{silent:?}");
    client.ends(SOON).await;
}

#[case]
async fn a_killed_process_leaves_whole_lines_and_its_turn_to_others(world: World) {
    let fleet = fleet(&world).await;
    let mut order = fleet.order("a");
    order.writes = None;
    let first = fleet.start(&order);
    let granted = |event: &Event| matches!(event.what, What::Granted { .. });
    fleet.sees("it holds", SOON, granted).await;
    let second = fleet.start(&fleet.order("b"));

    first.kill().await;

    let next = |event: &Event| event.client == "b" && granted(event);
    fleet.sees("the next one holds", SOON, next).await;
    second.ends(SOON).await;
    assert_clean(&violations(&fleet.history()));
}

#[case(embedded)]
async fn a_store_refuses_stale_tokens_and_its_control_does_not(_world: World) {
    for (fence, stale_is_accepted) in [(Fence::Refuses, false), (Fence::Missing, true)] {
        let store = Store::start(fence).await;
        let mut writer = Writer::connect(store.address(), "x", "a").await;

        let answers = [
            writer.write(5).await,
            writer.write(7).await,
            writer.write(7).await,
            writer.write(6).await,
        ];

        assert_eq!(answers, [true, true, true, stale_is_accepted]);
        assert_eq!(store.stale(), 1);
        let tokens: Vec<u64> = store.accepted().iter().map(|write| write.token).collect();
        let expected: &[u64] = if stale_is_accepted {
            &[5, 7, 7, 6]
        } else {
            &[5, 7, 7]
        };
        assert_eq!(tokens, expected);
    }
}
