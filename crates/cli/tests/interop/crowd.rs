//! Crowds of Rust, Java and Python under one lock, whose members are killed: nobody is beside
//! another, nothing is lost, all get their turns.

use std::time::{Duration, Instant};

use lockkeeper::Dialect;
use lockkeeper::embedded::EmbeddedServer;
use tokio::time::sleep;

use super::book::Summary;
use super::members::{Crowd, Kind, Member, Recipe};
use testbench::dice::Dice;
use testbench::{World, case};

const WORK: Duration = Duration::from_millis(3);
/// So many turns has each language at least.
const ENOUGH: u64 = 10;
/// In that time each member that is left alone has a turn; a Java one has to start first, beside
/// all others.
const PATIENCE: Duration = Duration::from_secs(40);
const CURATOR: Dialect = Dialect::Curator;
const KAZOO: Dialect = Dialect::Kazoo;

#[case(real, alone, within = 180)]
async fn a_mutex_of_three_languages(world: World) {
    let ours = Kind::Rust(Recipe::Mutex, CURATOR);
    let kinds = [
        Kind::Tool(&[]),
        Kind::Tool(&[]),
        ours,
        ours,
        Kind::Java("mutex", 4),
        Kind::Java("mutex", 4),
        Kind::Python("shared", 2),
        Kind::Python("shared", 2),
    ];
    let summaries = hurt(&world, &kinds).await;
    all_came(&summaries, &["tool", "rust", "java", "python"]);
}

#[case(real, alone, within = 180)]
async fn readers_and_writers_of_two_languages(world: World) {
    let kinds = [
        Kind::Rust(Recipe::Read, CURATOR),
        Kind::Java("write", 2),
        Kind::Rust(Recipe::Write, CURATOR),
        Kind::Java("read", 2),
    ];
    let summaries = hurt(&world, &kinds).await;
    all_came(&summaries, &["rust", "java"]);
    assert!(readers_share(&summaries), "{summaries:?}");
}

#[case(real, alone, within = 180)]
async fn leaders_of_two_languages(world: World) {
    let ours = Kind::Rust(Recipe::Election, CURATOR);
    let kinds = [ours, ours, Kind::Java("latch", 2), Kind::Java("latch", 2)];
    let summaries = hurt(&world, &kinds).await;
    all_came(&summaries, &["rust", "java"]);
    assert!(handed_over(&summaries, "rust", "java"), "{summaries:?}");
}

#[case(real, alone, within = 180)]
async fn curators_selector_and_our_mutex(world: World) {
    let ours = Kind::Rust(Recipe::Mutex, CURATOR);
    let summaries = hurt(&world, &[ours, ours, Kind::Java("selector", 2)]).await;
    all_came(&summaries, &["rust", "java"]);
    assert!(handed_over(&summaries, "rust", "java"), "{summaries:?}");
}

#[case(real, alone, within = 180)]
async fn kazoo_as_it_comes_and_we_in_its_dialect(world: World) {
    let ours = Kind::Rust(Recipe::Mutex, KAZOO);
    let tool = Kind::Tool(&["--dialect", "kazoo"]);
    let theirs = Kind::Python("mutex", 2);
    let summaries = hurt(&world, &[ours, tool, theirs, theirs]).await;
    all_came(&summaries, &["rust", "tool", "python"]);
}

#[case(real, alone, within = 180)]
async fn kazoos_readers_and_writers_and_we_in_its_dialect(world: World) {
    let kinds = [
        Kind::Rust(Recipe::Read, KAZOO),
        Kind::Python("write", 2),
        Kind::Rust(Recipe::Write, KAZOO),
        Kind::Python("read", 2),
    ];
    let summaries = hurt(&world, &kinds).await;
    all_came(&summaries, &["rust", "python"]);
    assert!(readers_share(&summaries), "{summaries:?}");
}

#[case(real, alone, within = 180)]
async fn kazoos_election_and_we_in_its_dialect(world: World) {
    let ours = Kind::Rust(Recipe::Election, KAZOO);
    let theirs = Kind::Python("election", 2);
    let summaries = hurt(&world, &[ours, ours, theirs, theirs]).await;
    all_came(&summaries, &["rust", "python"]);
    assert!(handed_over(&summaries, "rust", "python"), "{summaries:?}");
}

/// Two such crowds at the same time, on this world's servers and on an embedded one. What both say
/// must hold for each.
async fn hurt(world: &World, kinds: &[Kind]) -> [Summary; 2] {
    let embedded = EmbeddedServer::start().await.unwrap();
    let (there, here) = (world.connect_string(), embedded.connect_string());
    let (there, here) = tokio::join!(hurt_on(there, kinds), hurt_on(here, kinds));
    [there, here]
}

/// Lets a crowd take turns while one of them is killed every five seconds, and another one comes in
/// its place.
async fn hurt_on(connect_string: String, kinds: &[Kind]) -> Summary {
    let (length, between) = (World::times(20, 60), Duration::from_secs(5));
    let crowd = Crowd::new(connect_string, "crowd", WORK);
    let mut members = Vec::new();
    for kind in kinds {
        members.push(crowd.start(*kind).await);
    }
    let seed = u64::from(std::process::id());
    let (began, mut dice) = (Instant::now(), Dice(seed));
    // On a busy machine longer, until those of all languages have had some turns.
    let is_over = |summary: &Summary| {
        let all = kinds
            .iter()
            .all(|kind| summary.turns_of(kind.language()) > ENOUGH);
        all || began.elapsed() > 5 * Duration::from_secs(length as u64)
    };
    while began.elapsed() < Duration::from_secs(length as u64) || !is_over(&crowd.summary()) {
        sleep(between).await;
        crowd.summary();
        let victim = members.swap_remove(dice.below(members.len() as u64) as usize);
        let kind = victim.kind;
        crowd.kill(victim).await;
        members.push(crowd.start(kind).await);
    }
    // Nobody starves: whoever is left has had a turn, whoever came last too.
    let starving = || {
        let turns = crowd.summary().turns;
        let mut names = members.iter().flat_map(Member::names);
        names.find(|name| !turns.contains_key(name))
    };
    let begun = Instant::now();
    while let Some(name) = starving() {
        assert!(
            begun.elapsed() < PATIENCE,
            "{name} starves: {:?}",
            crowd.summary()
        );
        sleep(Duration::from_millis(100)).await;
    }
    for member in members {
        crowd.dismiss(member).await;
    }
    let summary = crowd.summary();
    println!("seed {seed}, {kinds:?}: {summary:?}");
    summary
}

fn all_came(summaries: &[Summary], languages: &[&str]) {
    for summary in summaries {
        for language in languages {
            assert!(
                summary.turns_of(language) > ENOUGH,
                "{language}: {summary:?}"
            );
        }
    }
}

fn handed_over(summaries: &[Summary], one: &str, other: &str) -> bool {
    let mut each = summaries.iter();
    each.all(|summary| summary.handed_over(one, other))
}

fn readers_share(summaries: &[Summary]) -> bool {
    summaries.iter().all(|summary| summary.readers > 1)
}
