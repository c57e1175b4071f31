//! How many beats servers commit in a second, as fast as they can, with their log on a disk that is
//! waited for.
//!
//! It is a figure of the machine that it runs on, client and servers together; the long form takes
//! more time for it.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use zookeeper_client::Client;

use super::site::Site;
use testbench::zookeeper::SYNCS;
use testbench::{Make, World, case};

/// Sessions, and how many beats of each are under way.
const SESSIONS: usize = 16;
const UNDER_WAY: usize = 16;
const ON_DISK: &[&str] = &["-Xmx1g", SYNCS];

#[case(real, alone, within = 120)]
async fn servers_commit_every_beat_that_they_answer(world: World) {
    let site = Site::like(&world, ON_DISK).await;
    let time = Duration::from_secs(World::times(2, 20) as u64);
    let sizes: &[usize] = if World::soak() { &[1, 10, 100] } else { &[1] };
    for tickets in sizes.iter().copied() {
        let clients = join_all((0..SESSIONS).map(|session| holder(&site, session, tickets))).await;
        let before = site.told().await;
        let began = Instant::now();
        let beats = join_all(
            clients
                .iter()
                .map(|(client, paths)| beat(client, paths, time)),
        )
        .await;
        let took = began.elapsed().as_secs_f64();
        let commits = site.told().await.since(&before).commits;

        let beats: u64 = beats.iter().sum();
        let each_second = beats as f64 / took;
        println!("capacity: {each_second:.0} beats with {tickets} tickets each in a second");
        assert!(
            commits >= i64::try_from(beats).unwrap(),
            "{commits} {beats}"
        );
        // How fast that is, is a matter of the machine.
        assert!(beats > 0);
    }
    site.stop().await;
}

/// A session with so many tickets.
async fn holder(site: &Site, session: usize, tickets: usize) -> (Client, Vec<String>) {
    // A disk that is busy keeps it waiting for seconds.
    let connector = Client::connector().with_session_timeout(Duration::from_secs(60));
    let client = connector.connect(&site.connect_string()).await.unwrap();
    let options = Make::Ephemeral.into();
    let mut paths = Vec::new();
    for number in 0..tickets {
        let path = format!("/{tickets:03}-{session:04}-lock-{number:010}");
        client.create(&path, &[b'x'; 93], &options).await.unwrap();
        paths.push(path);
    }
    (client, paths)
}

/// Sends beats for so long, and counts those that were answered.
async fn beat(client: &Client, paths: &[String], time: Duration) -> u64 {
    let began = Instant::now();
    let send = || {
        let mut writer = client.new_multi_writer();
        for path in paths {
            writer.add_check_version(path, -1).unwrap();
        }
        async move { writer.commit().await.map(drop) }
    };
    let mut under_way = FuturesUnordered::new();
    (0..UNDER_WAY).for_each(|_| under_way.push(send()));
    let mut answered = 0;
    while let Some(answer) = under_way.next().await {
        answer.unwrap();
        answered += 1;
        if began.elapsed() < time {
            under_way.push(send());
        }
    }
    answered
}
