//! The book of a crowd: its members write down their turns, each line with one write, and here is
//! judged whether they kept to them.
//!
//! A turn reads how many `=` lines there are, writes `+ who mode token`, works, writes
//! `= who count` with one more if it is a writer's, and at last `- who mode`. The case itself
//! writes `! who` when it has killed a process, whose name is the start of its members'. Nothing
//! but the lock keeps two turns apart, so a count that comes twice is a breach. It starts nobody.

use std::collections::{BTreeMap, BTreeSet};

use testbench::{World, case};

/// What a whole book says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    /// The last count.
    pub(super) count: u64,
    /// Turns that were ended, by who had them.
    pub(super) turns: BTreeMap<String, u64>,
    /// Turns that a kill cut short.
    pub(super) cut_short: usize,
    /// The most readers at once.
    pub(super) readers: usize,
    /// Whose turn began after whose, by their languages.
    pub(super) hand_overs: BTreeSet<(String, String)>,
}

impl Summary {
    /// Whether turns went from one language to the other one, and back.
    pub(super) fn handed_over(&self, one: &str, other: &str) -> bool {
        let has = |from: &str, to: &str| self.hand_overs.contains(&(from.into(), to.into()));
        has(one, other) && has(other, one)
    }

    /// Turns of the members whose names begin so.
    pub(super) fn turns_of(&self, start: &str) -> u64 {
        let all = self.turns.iter();
        all.filter(|(who, _)| who.starts_with(start))
            .map(|(_, turns)| turns)
            .sum()
    }
}

/// Reads a book; the first line that breaks a rule, and why. Whoever keeps to the lock writes no
/// such book.
pub(super) fn judge(book: &str) -> Result<Summary, String> {
    let (mut summary, mut inside) = (Summary::default(), BTreeMap::<&str, &str>::new());
    let (mut last_token, mut last) = (0, None);
    for (at, line) in book.lines().enumerate() {
        let breach = |why: &str| {
            Err(format!(
                "line {}, {line:?}: {why}; inside: {inside:?}",
                at + 1
            ))
        };
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["+", who, mode, token] => {
                if inside.values().any(|other| *other == "w" || mode == "w") {
                    return breach("somebody else is inside");
                }
                let Ok(token) = token.parse::<i64>() else {
                    return breach("no token");
                };
                if token != 0 && token <= last_token {
                    return breach("the token does not grow");
                }
                last_token = last_token.max(token);
                if inside.contains_key(who) {
                    return breach("is inside already");
                }
                inside.insert(who, mode);
                summary.readers = summary.readers.max(inside.len());
                let before = last.replace(language(who));
                let pair = before.map(|before: String| (before, language(who)));
                summary.hand_overs.extend(pair);
            }
            ["=", who, count] => {
                if inside.get(who) != Some(&"w") {
                    return breach("counts from outside");
                }
                if count.parse() != Ok(summary.count + 1) {
                    return breach("an update was lost");
                }
                summary.count += 1;
            }
            ["-", who, _] => {
                if !inside.contains_key(who) {
                    return breach("was not inside");
                }
                inside.remove(who);
                *summary.turns.entry(who.to_owned()).or_default() += 1;
            }
            ["!", process] => {
                let before = inside.len();
                inside.retain(|who, _| !is_of(who, process));
                summary.cut_short += before - inside.len();
            }
            _ => return breach("makes no sense"),
        }
    }
    Ok(summary)
}

fn language(who: &str) -> String {
    who.split('-').next().unwrap_or(who).to_owned()
}

/// Whether a member is a thread of this process.
fn is_of(who: &str, process: &str) -> bool {
    who.strip_prefix(process)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

#[case(embedded)]
async fn a_book_of_turns_is_read(_world: World) {
    let book = "+ java-7-0 w 3\n= java-7-0 1\n- java-7-0 w\n+ rust-1 w 5\n! rust-1\n\
                + py-9-1 r 0\n+ java-7-1 r 0\n- py-9-1 r\n- java-7-1 r\n+ py-9-0 w 8\n= py-9-0 2\n! py-9\n+ java-7-0 w 9\n";

    let summary = judge(book).unwrap();

    assert_eq!(
        (summary.count, summary.cut_short, summary.readers),
        (2, 2, 2)
    );
    assert_eq!((summary.turns_of("java"), summary.turns_of("py")), (2, 1));
}

#[case(embedded)]
async fn a_book_with_a_breach_is_refused(_world: World) {
    for (book, why) in [
        ("+ a w 1\n+ b w 2\n", "somebody else"),
        ("+ a r 0\n+ b w 0\n", "somebody else"),
        ("+ a w 0\n+ b r 0\n", "somebody else"),
        ("+ a-1 w 1\n! a-11\n+ b w 2\n", "somebody else"),
        ("+ a w 1\n= a 1\n- a w\n+ b w 2\n= b 1\n", "lost"),
        ("+ a w 1\n= a 1\n- a w\n+ b w 2\n= b 3\n", "lost"),
        ("+ a w 2\n- a w\n+ b w 1\n", "token"),
        ("+ a w 2\n- a w\n= a 1\n", "outside"),
        ("- a w\n", "not inside"),
        ("+ a w\n", "makes no sense"),
    ] {
        let error = judge(book).unwrap_err();

        assert!(error.contains(why), "{book:?}: {error}");
    }
}
