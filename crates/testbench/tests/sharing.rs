//! The judge of histories of locks that several may hold at once.

use testbench::checker::violations;
use testbench::events::{Outcome, What};
use testbench::{World, case};

use super::judge::{granted, held, history, ids, lost, released, releasing};

fn shares(token: u64, takes: u64, of: u64) -> What {
    What::Shares { token, takes, of }
}

#[case(embedded)]
async fn those_who_share_a_lock_are_found_good(_world: World) {
    let readers_then_a_writer = history(&[
        (9, "a", shares(1, 1, 9)),
        (10, "a", granted(1, 1)),
        (19, "b", shares(2, 1, 9)),
        (20, "b", granted(1, 2)),
        (25, "a", held(1, true)),
        (26, "b", held(2, true)),
        (30, "b", releasing(2)),
        (31, "b", released(2, Outcome::Done)),
        (40, "a", lost(1)),
        (41, "c", shares(7, 9, 9)),
        (42, "c", granted(1, 7)),
        (43, "a", released(1, Outcome::Lost)),
    ]);
    assert_eq!(violations(&readers_then_a_writer), []);
}

#[case(embedded)]
async fn more_than_there_is_breaks_s1(_world: World) {
    let writer_beside_a_reader = [
        (9, "a", shares(1, 1, 9)),
        (10, "a", granted(1, 1)),
        (19, "b", shares(7, 9, 9)),
        (20, "b", granted(1, 7)),
        (25, "a", held(1, true)),
    ];
    let a_permit_too_many = [
        (9, "a", shares(1, 1, 2)),
        (10, "a", granted(1, 1)),
        (19, "b", shares(2, 1, 2)),
        (20, "b", granted(1, 2)),
        (24, "c", shares(3, 1, 2)),
        (25, "c", granted(1, 3)),
        (29, "a", releasing(1)),
        (30, "a", released(1, Outcome::Done)),
        (31, "b", held(2, true)),
    ];
    assert_eq!(ids(&violations(&history(&writer_beside_a_reader))), ["S1"]);
    assert_eq!(ids(&violations(&history(&a_permit_too_many))), ["S1"]);
}
