//! The rule of the queue: which ticket waits for which. (pure)
//!
//! Let *blockers* be the earlier tickets that conflict with mine. Granted when there are none;
//! otherwise wait for the nearest blocker and judge again. Nodes never appear ahead of a ticket, so
//! only removals matter, and while the nearest blocker lives I cannot be granted: one watch is
//! enough and no release wakes a second waiter.
//!
//! Equal numbers are one hold. A guest has its host's number, and a writer that became a reader
//! keeps its own. They never block each other, and every later ticket waits for all of them.

use super::ticket::{Mode, Ticket, in_order};

/// What the rule says about a ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nobody stands before it.
    Granted,
    /// It waits for this ticket, the nearest of its blockers.
    Wait(Ticket),
}

/// Judges one ticket by the children of its directory; what is not a ticket is ignored.
pub(crate) fn judge<'a>(mine: &Ticket, children: impl IntoIterator<Item = &'a str>) -> Verdict {
    children
        .into_iter()
        .filter_map(Ticket::parse)
        .filter(|other| is_blocker(other, mine))
        .reduce(|nearest, other| {
            if nearest.is_before(&other) {
                other
            } else {
                nearest
            }
        })
        .map_or(Verdict::Granted, Verdict::Wait)
}

/// The first of the queue: the tickets with the lowest number, a holder and its guests.
pub(crate) fn first<'a>(children: impl IntoIterator<Item = &'a str>) -> Vec<Ticket> {
    let mut tickets = in_order(children.into_iter().filter_map(Ticket::parse).collect());
    let lowest = tickets.first().map(|first| first.seq);
    tickets.retain(|ticket| Some(ticket.seq) == lowest);
    tickets
}

/// The tickets before the one with this number, whether they conflict or not.
pub(crate) fn ahead<'a>(seq: i32, children: impl Iterator<Item = &'a str>) -> Vec<Ticket> {
    let tickets = children.filter_map(Ticket::parse);
    let before = tickets.filter(|other| other.seq.wrapping_sub(seq) < 0);
    before.collect()
}

/// How many of these tickets are in the way of a reader that becomes a writer: all but its own.
pub(crate) fn others(tickets: impl IntoIterator<Item = Ticket>, own: Option<&Ticket>) -> usize {
    let others = tickets.into_iter().filter(|other| Some(other) != own);
    others.count()
}

/// Whether the other stands before mine and conflicts. Equal numbers belong to one hold: a guest
/// and its host, or a writer that has become a reader.
pub(crate) fn is_blocker(other: &Ticket, mine: &Ticket) -> bool {
    let conflicts = other.kind == Mode::Exclusive || mine.kind == Mode::Exclusive;
    conflicts && other.seq.wrapping_sub(mine.seq) < 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::ticket::Recipe;

    fn names(seqs: &[i32]) -> Vec<String> {
        seqs.iter()
            .map(|&seq| Ticket::ours(Recipe::Lock, seq).name)
            .collect()
    }

    fn judged(mine: i32, seqs: &[i32]) -> Verdict {
        let names = names(seqs);
        judge(
            &Ticket::ours(Recipe::Lock, mine),
            names.iter().map(String::as_str),
        )
    }

    /// Shows each order of the numbers once (Heap's algorithm).
    fn each_order(seqs: &mut [i32], fixed: usize, see: &mut impl FnMut(&[i32])) {
        if fixed <= 1 {
            return see(seqs);
        }
        for at in 0..fixed {
            each_order(seqs, fixed - 1, see);
            seqs.swap(if fixed % 2 == 0 { at } else { 0 }, fixed - 1);
        }
    }

    // docs/failures.md row 44: whatever is missing and however the list is shuffled, also across
    // the end of the counter.
    #[test]
    fn row_44_of_up_to_seven_children_the_nearest_lower_number_is_watched() {
        let mut judgements = 0;
        for start in [0, i32::MAX - 3] {
            for chosen in 1..1_u32 << 7 {
                let places = (0..7).filter(|place| chosen & (1 << place) != 0);
                let ordered: Vec<i32> = places.map(|place| start.wrapping_add(place)).collect();
                each_order(&mut ordered.clone(), ordered.len(), &mut |shuffled| {
                    let names = names(shuffled);
                    for (at, &mine) in ordered.iter().enumerate() {
                        let mine = Ticket::ours(Recipe::Lock, mine);
                        let expected = match at.checked_sub(1) {
                            Some(before) => {
                                Verdict::Wait(Ticket::ours(Recipe::Lock, ordered[before]))
                            }
                            None => Verdict::Granted,
                        };
                        let judged = judge(&mine, names.iter().map(String::as_str));
                        assert_eq!(judged, expected, "{} in {shuffled:?}", mine.name);
                        judgements += 1;
                    }
                });
            }
        }
        assert_eq!(judgements, 2 * 82_201, "every order of every choice");
    }

    // docs/failures.md row 45.
    #[test]
    fn junk_children_are_ignored() {
        let verdict = judge(
            &Ticket::ours(Recipe::Lock, 3),
            ["foo", "lock-abc", "lock-00000000001", "ü"],
        );

        assert_eq!(verdict, Verdict::Granted);
    }

    #[test]
    fn a_foreign_ticket_blocks_by_its_number() {
        let foreign = "_c_01234567-89ab-cdef-0123-456789abcdef-lock-0000000002";

        let verdict = judge(&Ticket::ours(Recipe::Lock, 3), [foreign, "lock-0000000004"]);

        assert!(matches!(verdict, Verdict::Wait(ticket) if ticket.name == foreign));
    }

    #[test]
    fn readers_share_and_wait_for_the_nearest_writer_only() {
        let reader = |seq: i32| Ticket::parse(&format!("__READ__{seq:010}")).unwrap();
        let children = [
            "__WRIT__0000000001",
            "__READ__0000000002",
            "__WRIT__0000000003",
            "__READ__0000000004",
        ];

        let verdict = judge(&reader(5), children);

        assert!(matches!(verdict, Verdict::Wait(ticket) if ticket.seq == 3));
        assert_eq!(judge(&reader(5), ["__READ__0000000002"]), Verdict::Granted);
    }

    proptest! {
        #[test]
        fn at_most_one_exclusive_ticket_is_granted_and_every_other_waits_for_one_before_it(
            start: i32,
            steps in prop::collection::hash_set(0..5000i32, 1..30),
        ) {
            let seqs: Vec<i32> = steps.into_iter().map(|step| start.wrapping_add(step)).collect();
            let mut granted = 0;
            for &mine in &seqs {
                match judged(mine, &seqs) {
                    Verdict::Granted => granted += 1,
                    Verdict::Wait(other) => prop_assert!(other.is_before(&Ticket::ours(Recipe::Lock, mine))),
                }
            }
            prop_assert_eq!(granted, 1);
        }

        #[test]
        fn the_verdict_does_not_depend_on_the_order_of_the_list(seqs in prop::collection::vec(0..40i32, 1..30)) {
            let mut reversed = seqs.clone();
            reversed.reverse();

            prop_assert_eq!(judged(20, &seqs), judged(20, &reversed));
        }

        // Random releases, give-ups and expiries: whoever is first is always told, because its
        // watched blocker goes.
        #[test]
        fn no_wake_up_is_missed(removals in prop::collection::vec(any::<prop::sample::Index>(), 1..30)) {
            let mut queue: Vec<i32> = (0..=i32::try_from(removals.len()).unwrap_or(30)).collect();
            let mut waits: Vec<(i32, Verdict)> = queue.iter().map(|&seq| (seq, judged(seq, &queue))).collect();
            for removal in removals {
                let gone = queue.remove(removal.index(queue.len()));
                waits.retain(|(seq, _)| *seq != gone);
                for (seq, verdict) in &mut waits {
                    // Only a waiter whose watched blocker went looks again.
                    if matches!(verdict, Verdict::Wait(blocker) if blocker.seq == gone) {
                        *verdict = judged(*seq, &queue);
                    }
                }
                let granted: Vec<i32> =
                    waits.iter().filter(|(_, verdict)| *verdict == Verdict::Granted).map(|(seq, _)| *seq).collect();
                prop_assert_eq!(granted, queue.first().copied().into_iter().collect::<Vec<_>>());
            }
        }
    }
}
