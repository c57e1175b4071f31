//! Cells and rows in Markdown.
//!
//! A cell holds a figure, or says why there is none.

use crate::driver::Outcome;
use crate::peer::Peer;
use crate::results::{Results, Row};
use crate::text::{spread, three, whole};

pub(super) fn by_crowd(
    results: &Results,
    peers: &[Peer],
    cell: impl Fn(Row, Peer) -> String,
) -> String {
    let mut text = String::from("| waiters |");
    header(&mut text, peers.iter().map(|peer| peer.title()));
    for waiters in results.crowds.iter().copied() {
        let cells = peers
            .iter()
            .map(|peer| cell(Row::HandOver { waiters }, *peer));
        add(
            &mut text,
            &[vec![whole(waiters as f64)], cells.collect()].concat(),
        );
    }
    text
}

/// A figure, or why there is none.
pub(super) fn cell(results: &Results, row: Row, peer: Peer) -> String {
    if let Row::HandOver { waiters } = row {
        if let Some(why) = peer.refuses(waiters) {
            return why.into();
        }
        let failures = results.failures(row, peer);
        if let (Some(least), Some(most)) = (failures.iter().min(), failures.iter().max()) {
            let (least, most) = (whole(*least as f64), whole(*most as f64));
            let some = if least == most {
                least
            } else {
                format!("{least} to {most}")
            };
            let rounds = results.outcomes(row, peer).count();
            return format!(
                "{some} of {} failed, in {} of {rounds} rounds",
                whole(waiters as f64),
                failures.len()
            );
        }
    }
    let unmeasured = results
        .outcomes(row, peer)
        .find_map(|entry| match &entry.outcome {
            Outcome::Over(seconds) => Some(format!("over {seconds} s")),
            Outcome::Failed(why) => Some(format!(
                "failed: {}",
                why.lines().next().unwrap_or_default()
            )),
            Outcome::Measured(_) => None,
        });
    match (results.spread(row, peer), unmeasured) {
        (_, Some(why)) => why,
        (Some(found), None) if found.rounds < results.rounds && found.rounds > 1 => {
            format!("{}, {} rounds", spread(found, whole), found.rounds)
        }
        (Some(found), None) => spread(found, whole),
        (None, None) => "not run".into(),
    }
}

pub(super) fn ratio(results: &Results, row: Row, peer: Peer, to: Peer) -> String {
    let ratio = results.ratio(row, peer, to);
    ratio.map_or_else(String::new, |ratio| spread(ratio, three))
}

pub(super) fn header<'a>(text: &mut String, columns: impl Iterator<Item = &'a str>) {
    let mut line = String::from("\n|---|");
    for column in columns {
        *text += &format!(" {column} |");
        line += "---|";
    }
    *text += &line;
    text.push('\n');
}

pub(super) fn add(text: &mut String, cells: &[impl AsRef<str>]) {
    text.push('|');
    for cell in cells {
        *text += &format!(" {} |", cell.as_ref());
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Answer;

    #[test]
    fn every_cell_says_why_it_has_no_figure() {
        let row = |waiters| Row::HandOver { waiters };
        let mut results = Results::empty();
        let failed = |failed| Answer {
            mean_us: Some(1.0),
            failed,
            ..Answer::default()
        };
        results.add(row(5_000), Peer::ClientLock, 0, failed(1_139));
        results.add(row(5_000), Peer::ClientLock, 1, failed(1_220));
        results.add(row(5_000), Peer::ClientLock, 2, failed(0));
        results.add(
            row(5_000),
            Peer::Kazoo,
            0,
            Answer {
                mean_us: Some(4_071.4),
                ..Answer::default()
            },
        );

        assert_eq!(
            cell(&results, row(5_000), Peer::ClientLock),
            "1 139 to 1 220 of 5 000 failed, in 2 of 3 rounds"
        );
        assert_eq!(cell(&results, row(5_000), Peer::Kazoo), "4 071");
        assert_eq!(
            cell(&results, row(20_000), Peer::Curator),
            "cannot: its client refuses a list that long"
        );
        assert_eq!(cell(&results, row(1), Peer::Etcd), "not run");
    }
}
