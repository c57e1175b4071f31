use super::*;
use crate::protocol::mark::Mark;

#[test]
fn a_read_behind_a_release_takes_the_turn_by_its_mark_alone() {
    let ticket = Ticket::parse("lock-0000000005").unwrap();
    let mut walk = Walk::new(Recipe::Lock, ticket, 50, None, true);
    let read = |walk: &mut Walk, data: &[u8], num_children| {
        walk.departs();
        let asked = Step::Read {
            with_children: false,
            tickets: &[],
            behind_sync: false,
        };
        assert_eq!(walk.step(), asked);
        assert!(walk.is_behind_known());
        let snapshot = Snapshot {
            data,
            version: 3,
            num_children,
            mine: Some(50),
            children: &[],
            tickets: Vec::new(),
        };
        walk.take_in(&snapshot).unwrap();
    };
    let mark = |czxid, seq| Mark { czxid, seq }.to_bytes();
    walk.speculated(&SpeculativeRead {
        data: b"",
        version: 2,
        num_children: 3,
        pzxid: 50,
    });
    assert!(walk.watched(40));

    for data in [Vec::new(), mark(30, 3), mark(41, 4)] {
        read(&mut walk, &data, 3);
        assert_eq!(walk.step(), Step::Wait);
    }
    let waiting = walk.clone();

    read(&mut walk, &mark(40, 4), 3);
    assert!(matches!(walk.step(), Step::Turn(turn) if turn.ended_well));
    let mut walk = waiting;
    read(&mut walk, b"", 1);
    assert!(matches!(walk.step(), Step::Turn(turn) if turn.is_alone && !turn.ended_well));
}

#[test]
fn a_nudge_has_the_next_list_synced_and_no_other() {
    let ticket = Ticket::parse("lock-0000000005").unwrap();
    let children = ["lock-0000000003", "lock-0000000005"].map(String::from);
    let snapshot = || Snapshot {
        data: b"",
        version: 3,
        num_children: 2,
        mine: Some(50),
        children: &children,
        tickets: Vec::new(),
    };
    let syncs = |walk: &Walk| match walk.step() {
        Step::Read {
            with_children,
            behind_sync,
            ..
        } => Some((with_children, behind_sync)),
        _ => None,
    };
    let mut walk = Walk::new(Recipe::Lock, ticket, 50, Some("job"), true);
    for is_nudged in [false, true, false] {
        walk.start_over();
        if is_nudged {
            walk.nudged();
        }
        assert_eq!(syncs(&walk), Some((true, is_nudged)));
        walk.take_in(&snapshot()).unwrap();
        assert_eq!(syncs(&walk), Some((false, false)), "the first ticket");
        walk.take_in(&snapshot()).unwrap();
        assert!(walk.watched(30));
        assert_eq!(walk.step(), Step::Wait);
    }
}
