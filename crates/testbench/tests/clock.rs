//! The judge of histories, as to time: whatever takes too long in a history that was made by hand
//! is found.
//!
//! No server is asked anything here.

use std::time::Duration;

use crate::judge::{
    BOUNDS, MS, asked, asked_for, failed, fault, granted, held, held_until, history, ids, lost,
    released, releasing,
};
use testbench::checker::{recovery, stays_alive, violations};
use testbench::events::{Outcome, What};
use testbench::{World, case};

#[track_caller]
fn breaks_in_time(id: &str, lines: &[(u64, &str, What)]) {
    let found = stays_alive(&history(lines), &BOUNDS);
    assert_eq!(ids(&found), [id], "{found:?}");
    assert!(violations(&history(lines)).is_empty());
}

#[case(embedded)]
async fn a_hold_that_was_revoked_has_its_time(_world: World) {
    let lines = |tokens: &[u64], revoked, seen| {
        let tokens = tokens.to_vec();
        let within_ns = 100 * MS;
        [
            (10, "a", granted(1, 7)),
            (revoked, "x", What::Revoked { tokens, within_ns }),
            (20, "b", granted(1, 8)),
            (seen, "a", held(7, true)),
        ]
    };

    assert_eq!(violations(&history(&lines(&[6, 7], 15, 115))), []);
    for (tokens, seen) in [([6, 7], 116), ([6, 8], 21)] {
        let found = violations(&history(&lines(&tokens, 15, seen)));
        assert_eq!(ids(&found), ["S2b"]);
    }
}

#[case(embedded)]
async fn a_ticket_that_was_revoked_may_be_granted_late(_world: World) {
    let lines = |token, at| {
        let within_ns = 100 * MS;
        let tokens = vec![token];
        [
            (10, "x", What::Revoked { tokens, within_ns }),
            (20, "b", granted(1, 8)),
            (at, "a", granted(1, 7)),
            (at + 1, "b", releasing(8)),
            (at + 2, "b", released(8, Outcome::Done)),
        ]
    };

    assert_eq!(violations(&history(&lines(7, 30))), []);
    for (token, at) in [(6, 30), (7, 111)] {
        let found = violations(&history(&lines(token, at)));
        assert_eq!(ids(&found), ["S1", "S2b", "S3"]);
    }
}

#[case(embedded)]
async fn a_free_lock_that_nobody_gets_breaks_l1(_world: World) {
    breaks_in_time("L1", &[(0, "a", asked(1)), (2001, "a", granted(1, 7))]);
    let end = What::Rest {
        tickets: 1,
        live: 1,
    };
    breaks_in_time("L1", &[(0, "a", asked(1)), (2001, "x", end)]);
    breaks_in_time(
        "L1",
        &[
            (0, "a", asked(1)),
            (5, "x", fault()),
            (5000, "x", What::Healed),
            (7001, "a", granted(1, 7)),
        ],
    );
}

#[case(embedded)]
async fn a_release_that_takes_long_breaks_l2(_world: World) {
    let begin = [(0, "a", granted(1, 7)), (10, "a", releasing(7))];
    for (ms, end) in [
        (2011, released(7, Outcome::Done)),
        (
            2011,
            What::Rest {
                tickets: 0,
                live: 0,
            },
        ),
    ] {
        let mut lines = begin.to_vec();
        lines.push((ms, "a", end));
        breaks_in_time("L2", &lines);
    }
}

#[case(embedded)]
async fn a_call_beyond_its_limit_breaks_l3(_world: World) {
    for end in [granted(1, 7), failed(1), What::Cancelled { attempt: 1 }] {
        breaks_in_time(
            "L3",
            &[
                (0, "x", fault()),
                (0, "a", asked_for(1, 300)),
                (401, "a", end),
            ],
        );
    }
    breaks_in_time(
        "L3",
        &[
            (0, "x", fault()),
            (0, "a", asked_for(1, 300)),
            (
                401,
                "x",
                What::Rest {
                    tickets: 1,
                    live: 1,
                },
            ),
        ],
    );
}

#[case(embedded)]
async fn a_late_notice_breaks_l4(_world: World) {
    let begin = [
        (0, "a", asked(1)),
        (1, "a", granted(1, 7)),
        (10, "a", held_until(7, 100)),
    ];
    for (ms, end) in [
        (151, lost(7)),
        (
            151,
            What::Rest {
                tickets: 1,
                live: 1,
            },
        ),
    ] {
        let mut lines = begin.to_vec();
        lines.push((ms, "a", end));
        breaks_in_time("L4", &lines);
    }
    // A stopped process is told when it goes on.
    let mut lines = begin.to_vec();
    lines.extend([(20, "a", What::Stopped), (500, "a", What::Continued)]);
    lines.push((540, "a", lost(7)));
    assert_eq!(stays_alive(&history(&lines), &BOUNDS), []);
    lines.pop();
    lines.push((560, "a", lost(7)));
    breaks_in_time("L4", &lines);
}

#[case(embedded)]
async fn a_stall_excuses_what_is_late_by_as_much(_world: World) {
    let stalled = |ms| What::Stalled { for_ns: ms * MS };
    let notice = |until, ms, client, told| {
        [
            (0, "a", asked(1)),
            (1, "a", granted(1, 7)),
            (10, "a", held_until(7, 100)),
            (until, client, stalled(ms)),
            (told, "a", lost(7)),
        ]
    };
    assert_eq!(
        stays_alive(&history(&notice(130, 30, "a", 180)), &BOUNDS),
        []
    );
    breaks_in_time("L4", &notice(130, 30, "a", 181));
    // Written after what it delayed, by another thread.
    assert_eq!(
        stays_alive(&history(&notice(181, 100, "a", 180)), &BOUNDS),
        []
    );
    // Before the end of the lease, after the notice, and of another client.
    breaks_in_time("L4", &notice(110, 39, "a", 161));
    breaks_in_time("L4", &notice(300, 100, "a", 160));
    breaks_in_time("L4", &notice(130, 100, "b", 160));

    let call = |ended| {
        [
            (0, "x", fault()),
            (0, "a", asked_for(1, 300)),
            (350, "a", stalled(20)),
            (ended, "a", failed(1)),
        ]
    };
    assert_eq!(stays_alive(&history(&call(420)), &BOUNDS), []);
    breaks_in_time("L3", &call(421));
}

#[case(embedded)]
async fn a_loss_in_a_healthy_world_breaks_l5(_world: World) {
    for end in [lost(7), held(7, false)] {
        let history = history(&[(0, "a", granted(1, 7)), (10, "a", end)]);
        assert_eq!(ids(&recovery(&history, None)), ["L5"]);
    }
}

#[case(embedded)]
async fn a_late_first_answer_breaks_l6(_world: World) {
    let history = history(&[
        (0, "x", fault()),
        (10, "x", What::Healed),
        (511, "a", granted(1, 7)),
    ]);
    assert_eq!(
        ids(&recovery(&history, Some(Duration::from_millis(500)))),
        ["L6"]
    );
    assert_eq!(recovery(&history, Some(Duration::from_millis(501))), []);
}
