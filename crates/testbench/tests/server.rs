//! What Lockkeeper takes for granted of every server, asked with a plain client.
//!
//! No lock is used here: when one of these fails, look at the server or at the harness first.

use std::time::Duration;

use tokio::time::timeout;
use zookeeper_client::{
    Acls, Client, CreateMode, Error, EventType, MultiWriteError, MultiWriteResult, OneshotWatcher,
};

use testbench::{World, case, eventually, words};

#[case]
async fn tickets_are_numbered_in_the_order_of_their_creation(world: World) {
    let (first, second) = (world.zookeeper().await, world.zookeeper().await);
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

#[case]
async fn a_delete_wakes_the_watcher_of_the_data(world: World) {
    let (holder, waiter) = (world.zookeeper().await, world.zookeeper().await);
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

/// Makes ephemeral nodes together, numbered ones where the path ends with a dash. Their paths, or
/// which was refused.
async fn place(client: &Client, paths: &[&str]) -> Result<Vec<String>, (usize, Error)> {
    let mut writer = client.new_multi_writer();
    for path in paths {
        let mode = if path.ends_with('-') {
            CreateMode::EphemeralSequential
        } else {
            CreateMode::Ephemeral
        };
        writer
            .add_create(path, b"", &mode.with_acls(Acls::anyone_all()))
            .unwrap();
    }
    match writer.commit().await {
        Ok(results) => Ok(results
            .into_iter()
            .map(|result| match result {
                MultiWriteResult::Create { path, .. } => path,
                other => panic!("a create has another answer: {other:?}"),
            })
            .collect()),
        Err(MultiWriteError::OperationFailed { index, source }) => Err((index, source)),
        Err(other) => panic!("{other}"),
    }
}

async fn make_directories(client: &Client) {
    let directory = CreateMode::Persistent.with_acls(Acls::anyone_all());
    for path in ["/a", "/b"] {
        client.create(path, b"", &directory).await.unwrap();
    }
}

#[case]
async fn ephemerals_are_made_together_in_several_directories(world: World) {
    let (client, other) = (world.zookeeper().await, world.zookeeper().await);
    make_directories(&client).await;

    let made = place(&client, &["/a/p-", "/b/p-", "/a/p-", "/b/plain", "/a/q-"]).await;

    let made = made.unwrap();
    let expected = [
        "/a/p-0000000000",
        "/b/p-0000000000",
        "/a/p-0000000001",
        "/b/plain",
        "/a/q-0000000002",
    ];
    assert_eq!(made, expected);
    let mut tokens = Vec::new();
    for path in &made {
        let (_, stat) = client.get_data(path).await.unwrap();
        assert_eq!(stat.ephemeral_owner, client.session_id().0, "{path}");
        tokens.push(stat.czxid);
    }
    tokens.dedup();
    assert_eq!(tokens.len(), 1, "one transaction: {tokens:?}");

    drop(client);
    eventually(
        "they end with their session",
        Duration::from_secs(5),
        async || {
            other.sync("/a").await.unwrap();
            let lists = (
                other.list_children("/a").await,
                other.list_children("/b").await,
            );
            lists.0.unwrap().is_empty() && lists.1.unwrap().is_empty()
        },
    )
    .await;
}

#[case]
async fn a_refused_write_takes_the_others_back_and_their_numbers(world: World) {
    let client = world.zookeeper().await;
    make_directories(&client).await;
    place(&client, &["/b/taken"]).await.unwrap();

    for (last, expected) in [
        ("/b/taken", Error::NodeExists),
        ("/missing/p-", Error::NoNode),
        ("/b/taken/p-", Error::NoChildrenForEphemerals),
    ] {
        let refused = place(&client, &["/a/p-", "/b/p-", "/a/p-", last]).await;
        assert_eq!(refused, Err((3, expected)), "{last}");
    }

    assert!(client.list_children("/a").await.unwrap().is_empty());
    assert_eq!(client.list_children("/b").await.unwrap(), ["taken"]);
    let made = place(&client, &["/a/p-", "/b/p-"]).await.unwrap();
    assert_eq!(made, ["/a/p-0000000000", "/b/p-0000000001"]);
}

#[case]
async fn the_watcher_of_the_children_is_told_of_whatever_comes_or_goes(world: World) {
    let (client, watching) = (world.zookeeper().await, world.zookeeper().await);
    make_directories(&client).await;
    let watch = async || {
        watching.sync("/a").await.unwrap();
        watching.list_and_watch_children("/a").await.unwrap()
    };

    let (names, watcher) = watch().await;
    assert!(names.is_empty());
    // If this woke it, the watch would be spent before the child comes.
    client.set_data("/a", b"its own data", None).await.unwrap();
    place(&client, &["/b/elsewhere"]).await.unwrap();
    place(&client, &["/a/one"]).await.unwrap();
    assert_eq!(told(watcher).await, EventType::NodeChildrenChanged);
    let (names, watcher) = watch().await;
    assert_eq!(names, ["one"]);

    client.set_data("/a/one", b"data", None).await.unwrap();
    client.delete("/a/one", None).await.unwrap();
    assert_eq!(told(watcher).await, EventType::NodeChildrenChanged);
    let (names, watcher) = watch().await;
    assert!(names.is_empty(), "{names:?}");

    client.delete("/a", None).await.unwrap();
    assert_eq!(told(watcher).await, EventType::NodeDeleted);
    watching.sync("/").await.unwrap();
    let missing = watching.list_and_watch_children("/a").await;
    assert_eq!(missing.unwrap_err(), Error::NoNode);
}

async fn told(watcher: OneshotWatcher) -> EventType {
    let event = timeout(Duration::from_secs(5), watcher.changed()).await;
    event.expect("the watcher is told").event_type
}

#[case]
async fn a_transaction_wakes_the_watchers_of_all_its_directories(world: World) {
    let (client, watching) = (world.zookeeper().await, world.zookeeper().await);
    make_directories(&client).await;
    watching.sync("/").await.unwrap();
    let (_, on_a) = watching.list_and_watch_children("/a").await.unwrap();
    let (_, on_b) = watching.list_and_watch_children("/b").await.unwrap();
    let (_, _, on_data) = watching.get_and_watch_data("/a").await.unwrap();

    let refused = place(&client, &["/a/p-", "/b/p-", "/missing/p-"]).await;
    assert_eq!(refused, Err((2, Error::NoNode)));
    place(&client, &["/a/p-", "/a/p-", "/b/p-"]).await.unwrap();

    assert_eq!(told(on_a).await, EventType::NodeChildrenChanged);
    assert_eq!(told(on_b).await, EventType::NodeChildrenChanged);
    // Told of its first node, one sees all of the transaction.
    assert_eq!(watching.list_children("/a").await.unwrap().len(), 2);
    client.set_data("/a", b"", None).await.unwrap();
    assert_eq!(told(on_data).await, EventType::NodeDataChanged);
}

#[case(embedded)]
async fn a_list_of_a_missing_directory_leaves_no_watch(world: World) {
    let client = world.zookeeper().await;
    // The other word, "wchs", counts no watch on children.
    let watches = async || {
        let counts = words::mntr(&world.word("mntr").await);
        counts["zk_watch_count"].parse::<u64>().unwrap()
    };
    make_directories(&client).await;

    let missing = client.list_and_watch_children("/missing").await;
    assert_eq!(missing.unwrap_err(), Error::NoNode);
    assert_eq!(watches().await, 0);
    let (_, watcher) = client.list_and_watch_children("/a").await.unwrap();
    assert_eq!(watches().await, 1);
    drop(watcher);
    client.sync("/").await.unwrap();
    assert_eq!(watches().await, 0, "a dropped one is taken back");
}

#[case]
async fn four_letter_words_are_answered(world: World) {
    let client = world.zookeeper().await;
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

#[case(real)]
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
