//! Every interleaving of a few clients, with a few faults, on a small model of the servers.
//!
//! The clients join, judge their turns, exchange tickets and leave by the real machines of
//! `protocol/`. A search sees every state that they can reach, and the referee judges each. Where
//! the storms try many things, this leaves nothing out, within its bounds: three or four clients
//! that go in once or twice, and each fault at most once.
//!
//! `LOCKKEEPER_SOAK=1` searches with more faults together.

mod action;
mod answers;
mod chore;
mod client;
mod exchange;
mod held_ticket;
mod known;
mod permit;
mod referee;
mod steps;
mod store;
mod upgrade;
mod words;
mod world;

use std::rc::Rc;

use action::Faults;
use client::{Job, Plan};
use uuid::Uuid;
use world::World;

use crate::protocol::ticket::TicketData;
use crate::tests::search::{Seen, search};

/// Each fault once; so many of them together.
fn faults(all: u8) -> Faults {
    Faults {
        lost: 1,
        expired: 1,
        cancelled: 1,
        broken: 1,
        reaped: 1,
        lags: 1,
        resized: 0,
        all,
    }
}

fn plan(job: Job, directories: &[usize], owner: Option<&'static str>) -> Rc<Plan> {
    let line = TicketData {
        owner: owner.map(String::from),
        attempt: Uuid::from_u128(1),
        ..TicketData::default()
    };
    Rc::new(Plan {
        job,
        directories: directories.to_vec(),
        owner,
        line: match owner {
            Some(_) => line.to_bytes().into(),
            None => Rc::from([]),
        },
    })
}

/// Clients that each go in once, with the directories of the scenario.
fn clients(jobs: &[Job]) -> Vec<(Rc<Plan>, u8)> {
    let each = jobs.iter();
    each.map(|job| (plan(*job, &[0], None), 1)).collect()
}

/// A name, so many faults together, and where it begins.
type Scenario = (&'static str, u8, Box<dyn Fn(Faults) -> World>);

/// Searches every scenario and prints what was seen, which must be at least so many states.
#[expect(clippy::print_stdout, reason = "how far a search went is its result")]
fn exhaust(what: &str, least: usize, scenarios: Vec<Scenario>) {
    let is_long = std::env::var("LOCKKEEPER_SOAK").is_ok_and(|word| word == "1");
    let most = if is_long { 50_000_000 } else { 5_000_000 };
    let (mut states, mut transitions) = (0, 0);
    for (scenario, all, start) in scenarios {
        let faults = faults(all + u8::from(is_long));
        match search(|| start(faults), most) {
            Ok(Seen {
                states: seen,
                transitions: gone,
                depth,
            }) => {
                let all = faults.all;
                println!(
                    "{what}: {scenario}, {all} faults: {seen} states, {gone} transitions, max depth {depth}"
                );
                states += seen;
                transitions += gone;
            }
            Err(why) => panic!("{what}: {scenario}\n{why}"),
        }
    }
    println!("{what}: {states} states, {transitions} transitions in all");
    assert!(states >= least, "{what}: only {states} states");
}

#[test]
fn every_interleaving_of_a_mutex() {
    let lock = plan(Job::Lock, &[0], None);
    let of = |count, times| {
        let lock = Rc::clone(&lock);
        Box::new(move |faults| World::new(&vec![(Rc::clone(&lock), times); count], 1, faults))
    };

    exhaust(
        "a mutex",
        300_000,
        vec![
            ("2 clients twice", 3, of(2, 2)),
            ("3 clients", 3, of(3, 1)),
            ("4 clients", 2, of(4, 1)),
        ],
    );
}

#[test]
fn every_interleaving_of_readers_and_writers() {
    use Job::{Downgrade, Read, Upgrade, Write};
    let of = |jobs: &'static [Job]| Box::new(move |faults| World::new(&clients(jobs), 1, faults));

    exhaust(
        "readers and writers",
        150_000,
        vec![
            ("reader, reader, writer", 2, of(&[Read, Read, Write])),
            ("2 readers, 2 writers", 1, of(&[Read, Write, Read, Write])),
            (
                "downgrade, reader, writer",
                1,
                of(&[Downgrade, Read, Write]),
            ),
            ("upgrade, reader, writer", 1, of(&[Upgrade, Read, Write])),
            ("2 upgrades", 2, of(&[Upgrade, Upgrade])),
            ("upgrade, downgrade", 2, of(&[Upgrade, Downgrade])),
        ],
    );
}

#[test]
fn every_interleaving_of_a_semaphore() {
    use Job::Permits;
    // The limit is 2, and may become another once.
    let of = |jobs: &'static [Job], resize_to| {
        Box::new(move |faults| {
            let faults = Faults {
                resized: 1,
                ..faults
            };
            World::new(&clients(jobs), 3, faults).with_limit(2, resize_to)
        })
    };

    exhaust(
        "a semaphore",
        150_000,
        vec![
            (
                "1, 1 and 2, one more",
                1,
                of(&[Permits(1), Permits(1), Permits(2)], 3),
            ),
            (
                "1, 2 and 2, one less",
                1,
                of(&[Permits(1), Permits(2), Permits(2)], 1),
            ),
            ("1 and 1, one less", 3, of(&[Permits(1), Permits(1)], 1)),
            (
                "1, 1 and 1",
                1,
                of(&[Permits(1), Permits(1), Permits(1)], 1),
            ),
        ],
    );
}

#[test]
fn every_interleaving_of_several_locks() {
    let of = |sets: &'static [&'static [usize]]| {
        let each = sets.iter();
        let plans: Vec<_> = each.map(|set| (plan(Job::Lock, set, None), 1)).collect();
        Box::new(move |faults| World::new(&plans, 3, faults))
    };

    exhaust(
        "several locks",
        100_000,
        vec![
            ("two both ways", 2, of(&[&[0, 1], &[1, 0]])),
            ("two, and each of them", 1, of(&[&[0, 1], &[0], &[1]])),
            ("in a circle", 1, of(&[&[0, 1], &[1, 2], &[2, 0]])),
        ],
    );
}

#[test]
fn every_interleaving_of_guests() {
    let of = |owners: Vec<Option<&'static str>>| {
        let each = owners.iter();
        let plans: Vec<_> = each
            .map(|owner| (plan(Job::Lock, &[0], *owner), 1))
            .collect();
        Box::new(move |faults| World::new(&plans, 1, faults))
    };
    let (mine, other) = (Some("me"), Some("you"));

    exhaust(
        "guests",
        900_000,
        vec![
            (
                "2 of an owner, and a stranger",
                2,
                of(vec![mine, mine, None]),
            ),
            (
                "2 of an owner, and 2 strangers",
                1,
                of(vec![mine, mine, None, None]),
            ),
            (
                "2 of each of two owners",
                1,
                of(vec![mine, mine, other, other]),
            ),
            (
                "3 of an owner, and a stranger",
                0,
                of(vec![mine, mine, mine, None]),
            ),
        ],
    );
}
