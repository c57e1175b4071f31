//! The judge of histories: it finds nothing in a good one, and what is wrong in each that was
//! broken by hand. Time limits are in `clock.rs`.
//!
//! No server is asked anything here.

use std::time::Duration;

use testbench::checker::{Accepted, Bounds, History, Violation, recovery, stays_alive, violations};
use testbench::events::{Event, Outcome, What};
use testbench::{World, case};

pub(super) const MS: u64 = 1_000_000;

/// A history of one lock, `x`, with times in milliseconds.
pub(super) fn history(lines: &[(u64, &str, What)]) -> History {
    let event = |(ms, client, what): &(u64, &str, What)| Event {
        t_ns: ms * MS,
        client: (*client).to_owned(),
        lock: "x".to_owned(),
        what: what.clone(),
    };
    History {
        events: lines.iter().map(event).collect(),
        accepted: Vec::new(),
    }
}

pub(super) fn asked(attempt: u64) -> What {
    What::Asked {
        attempt,
        within_ns: None,
    }
}

pub(super) fn asked_for(attempt: u64, ms: u64) -> What {
    What::Asked {
        attempt,
        within_ns: Some(ms * MS),
    }
}

fn queued(attempt: u64) -> What {
    What::Queued { attempt }
}

pub(super) fn granted(attempt: u64, token: u64) -> What {
    What::Granted {
        attempt,
        token,
        held: true,
    }
}

pub(super) fn failed(attempt: u64) -> What {
    What::Failed {
        attempt,
        why: "said so".to_owned(),
    }
}

pub(super) fn held(token: u64, held: bool) -> What {
    What::HeldSeen {
        token,
        held,
        until_ns: None,
    }
}

pub(super) fn held_until(token: u64, ms: u64) -> What {
    What::HeldSeen {
        token,
        held: true,
        until_ns: Some(ms * MS),
    }
}

pub(super) fn lost(token: u64) -> What {
    What::Lost { token }
}

pub(super) fn releasing(token: u64) -> What {
    What::Releasing { token }
}

pub(super) fn released(token: u64, outcome: Outcome) -> What {
    What::Released { token, outcome }
}

pub(super) fn fault() -> What {
    What::Fault {
        kind: "cut".to_owned(),
    }
}

pub(super) const BOUNDS: Bounds = Bounds {
    grant: Duration::from_secs(2),
    release: Duration::from_secs(2),
    call: Duration::from_millis(100),
    notice: Duration::from_millis(50),
};

/// The ids of what is found, each once.
pub(super) fn ids(found: &[Violation]) -> Vec<&'static str> {
    let mut ids: Vec<_> = found.iter().map(|one| one.id).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

#[track_caller]
fn breaks(id: &str, lines: &[(u64, &str, What)]) {
    assert_eq!(ids(&violations(&history(lines))), [id]);
}

/// Two turns, the second of which is lost and told in time.
fn good() -> History {
    let mut history = history(&[
        (0, "a", asked_for(1, 1000)),
        (1, "a", queued(1)),
        (2, "b", asked(1)),
        (3, "b", queued(1)),
        (10, "a", granted(1, 7)),
        (20, "a", held_until(7, 900)),
        (30, "a", releasing(7)),
        (32, "b", granted(1, 8)),
        (33, "a", released(7, Outcome::Done)),
        (40, "b", held_until(8, 700)),
        (50, "b", fault()),
        (700, "b", lost(8)),
        (710, "b", held(8, false)),
        (720, "b", releasing(8)),
        (730, "b", released(8, Outcome::Lost)),
        (740, "x", What::Healed),
        (750, "c", asked(1)),
        (1500, "c", granted(1, 9)),
        (1510, "c", releasing(9)),
        (1520, "c", released(9, Outcome::Done)),
        (
            1600,
            "x",
            What::Rest {
                tickets: 0,
                live: 0,
            },
        ),
        (
            1600,
            "x",
            What::Watches {
                before: 3,
                after: 3,
            },
        ),
    ]);
    history.accepted = writes(&[7, 7, 8, 9]);
    history
}

fn writes(tokens: &[u64]) -> Vec<Accepted> {
    let write = |token: &u64| Accepted {
        lock: "x".to_owned(),
        client: "a".to_owned(),
        token: *token,
    };
    tokens.iter().map(write).collect()
}

#[case(embedded)]
async fn a_good_history_is_found_good(_world: World) {
    let history = good();

    assert_eq!(violations(&history), []);
    assert_eq!(stays_alive(&history, &BOUNDS), []);
    assert_eq!(recovery(&history, Some(Duration::from_secs(1))), []);
    for event in &history.events {
        let line = serde_json::to_string(event).unwrap();
        assert_eq!(
            &serde_json::from_str::<Event>(&line).unwrap(),
            event,
            "{line}"
        );
    }
}

#[case(embedded)]
async fn two_holders_break_s1(_world: World) {
    breaks(
        "S1",
        &[
            (10, "a", granted(1, 7)),
            (20, "b", granted(1, 8)),
            (30, "a", releasing(7)),
            (40, "a", released(7, Outcome::Done)),
        ],
    );
}

#[case(embedded)]
async fn a_stale_write_breaks_s2(_world: World) {
    let mut history = good();

    history.accepted = writes(&[7, 8, 7]);

    assert_eq!(ids(&violations(&history)), ["S2"]);
}

#[case(embedded)]
async fn a_guard_that_says_held_after_the_next_grant_breaks_s2b(_world: World) {
    breaks(
        "S2b",
        &[
            (10, "a", granted(1, 7)),
            (20, "b", granted(1, 8)),
            (21, "a", held(7, true)),
        ],
    );
}

#[case(embedded)]
async fn a_stopped_process_may_find_a_dead_guard(_world: World) {
    let (attempt, token) = (1, 7);
    let late = |held| What::Granted {
        attempt,
        token,
        held,
    };
    let lines = |held| [(20, "b", granted(1, 8)), (30, "a", late(held))];

    assert_eq!(violations(&history(&lines(false))), []);
    assert_eq!(ids(&violations(&history(&lines(true)))), ["S2b", "S3"]);
}

#[case(embedded)]
async fn grants_out_of_order_break_s3(_world: World) {
    let lines = [
        (1, "a", asked(1)),
        (2, "b", asked(1)),
        (10, "b", granted(1, 8)),
        (11, "b", releasing(8)),
        (12, "b", released(8, Outcome::Done)),
        (20, "a", granted(1, 7)),
    ];
    // A guard that is given when a later ticket has had its turn is a lie, too.
    assert_eq!(ids(&violations(&history(&lines))), ["S2b", "S3"]);
}

#[case(embedded)]
async fn a_newcomer_who_passes_the_queue_breaks_s3(_world: World) {
    breaks(
        "S3",
        &[
            (1, "a", asked(1)),
            (2, "a", queued(1)),
            (3, "b", asked(1)),
            (10, "b", granted(1, 7)),
            (20, "a", granted(1, 8)),
        ],
    );
}

#[case(embedded)]
async fn a_token_that_comes_again_or_shrinks_breaks_s4(_world: World) {
    breaks("S4", &[(10, "a", granted(1, 7)), (20, "b", granted(1, 7))]);
    let shrinks = [
        (10, "a", granted(1, 7)),
        (11, "a", releasing(7)),
        (12, "a", released(7, Outcome::Done)),
        (15, "b", asked(1)),
        (20, "b", granted(1, 6)),
    ];
    assert!(ids(&violations(&history(&shrinks))).contains(&"S4"));
}

#[case(embedded)]
async fn an_orphan_breaks_s5(_world: World) {
    breaks(
        "S5",
        &[(
            10,
            "x",
            What::Rest {
                tickets: 1,
                live: 0,
            },
        )],
    );
}

#[case(embedded)]
async fn a_watch_left_behind_breaks_s7(_world: World) {
    let (before, after) = (0, 1);
    breaks("S7", &[(10, "x", What::Watches { before, after })]);
}

#[case(embedded)]
async fn a_release_by_another_or_again_breaks_s9(_world: World) {
    breaks(
        "S9",
        &[
            (10, "a", granted(1, 7)),
            (20, "b", released(7, Outcome::Done)),
        ],
    );
    breaks(
        "S9",
        &[
            (10, "a", granted(1, 7)),
            (20, "a", released(7, Outcome::Done)),
            (30, "a", released(7, Outcome::Done)),
        ],
    );
}

#[case(embedded)]
async fn a_grant_to_who_gave_up_breaks_s10(_world: World) {
    for given_up in [What::Cancelled { attempt: 1 }, failed(1)] {
        breaks(
            "S10",
            &[
                (10, "a", asked(1)),
                (20, "a", given_up),
                (30, "a", granted(1, 7)),
            ],
        );
    }
}

#[case(embedded)]
async fn a_hold_that_comes_back_breaks_s12(_world: World) {
    for over in [lost(7), held(7, false), released(7, Outcome::Done)] {
        breaks(
            "S12",
            &[
                (10, "a", granted(1, 7)),
                (20, "a", over),
                (30, "a", held(7, true)),
            ],
        );
    }
}
