//! What Lockkeeper takes for granted of every server, asked with a plain client.
//!
//! No lock is used here: when one of these fails, look at the server or at the harness first.

use std::time::Duration;

use zookeeper_client::{Acls, CreateMode, EventType};

use crate::support::{World, eventually, words};

cases! {
    both:
        tickets_are_numbered_in_the_order_of_their_creation,
        a_delete_wakes_the_watcher_of_the_data,
        four_letter_words_are_answered;
    real:
        every_member_serves;
}

async fn tickets_are_numbered_in_the_order_of_their_creation(world: World) {
    let (first, second) = (world.raw().await, world.raw().await);
    let ticket = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());

    let (one, number_one) = first.create("/lock-", b"", &ticket).await.unwrap();
    let (two, number_two) = second.create("/lock-", b"", &ticket).await.unwrap();
    let (three, number_three) = first.create("/lock-", b"", &ticket).await.unwrap();

    assert_eq!(
        [number_one, number_two, number_three].map(|number| number.into_i64()),
        [0, 1, 2]
    );
    assert!(
        one.czxid < two.czxid && two.czxid < three.czxid,
        "tokens grow: {one:?} {two:?} {three:?}"
    );
    assert_eq!(two.ephemeral_owner, second.session_id().0);
}

async fn a_delete_wakes_the_watcher_of_the_data(world: World) {
    let (holder, waiter) = (world.raw().await, world.raw().await);
    let ticket = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    holder.create("/ticket", b"", &ticket).await.unwrap();
    waiter.sync("/ticket").await.unwrap();
    let (_, _, watcher) = waiter.get_and_watch_data("/ticket").await.unwrap();

    holder.delete("/ticket", None).await.unwrap();
    let event = watcher.changed().await;

    assert_eq!(
        (event.event_type, event.path.as_str()),
        (EventType::NodeDeleted, "/ticket")
    );
}

async fn four_letter_words_are_answered(world: World) {
    let client = world.raw().await;
    let (_, _, watcher) = client.get_and_watch_data("/").await.unwrap();

    let srvr = world.word("srvr").await;
    let mntr = words::mntr(&world.word("mntr").await);
    let watches = || async { words::wchs(&world.words_of_all("wchs").await).watches > 0 };
    eventually("the watch is counted", Duration::from_secs(5), watches).await;
    drop(watcher);

    assert_eq!(world.word("ruok").await, "imok");
    assert!(
        words::mode(&srvr).is_some() && words::zxid(&srvr).is_some(),
        "{srvr}"
    );
    assert!(
        mntr["zk_znode_count"].parse::<u64>().unwrap() >= 1,
        "{mntr:?}"
    );
}

async fn every_member_serves(world: World) {
    let answers = world.words_of_all("srvr").await;
    let mut modes: Vec<&str> = answers
        .lines()
        .filter_map(|line| line.strip_prefix("Mode: "))
        .collect();
    modes.sort_unstable();

    match world.servers().len() {
        1 => assert_eq!(modes, ["standalone"]),
        _ => assert_eq!(modes, ["follower", "follower", "leader"]),
    }
}
