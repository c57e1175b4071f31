//! The charts of a run, as SVG.
//!
//! They have no background, and colours of middle brightness, so that they can be read on a light
//! page and on a dark one. They show what the tables say and compute nothing of their own.

mod bars;
mod lines;

use std::path::Path;

use plotters::prelude::RGBColor;

use crate::Result;
use crate::peer::{Peer, Store};
use crate::results::{Results, Row, Spread};
use crate::text::whole;
use bars::{Bar, Bars};
use lines::{Line, Lines};

/// Of words and axes.
const INK: RGBColor = RGBColor(0x76, 0x7e, 0x89);
/// Of what should not be seen first.
const FAINT: RGBColor = RGBColor(0x8b, 0x94, 0x9e);
const FONT: &str = "sans-serif";

/// Writes all of them into the folder, but those of which the run measured nothing.
pub(crate) fn all(results: &Results, folder: &Path) -> Result<()> {
    hand_over(results).draw(&folder.join("hand-over.svg"))?;
    memory(results).draw(&folder.join("memory.svg"))?;
    uncontended(results).draw(&folder.join("uncontended.svg"))?;
    independent(results).draw(&folder.join("independent.svg"))
}

fn colour(peer: Peer) -> RGBColor {
    match peer {
        Peer::Lockkeeper => RGBColor(0xe8, 0x6a, 0x10),
        Peer::Baseline => FAINT,
        Peer::Pipelined => RGBColor(0x64, 0x74, 0x8b),
        Peer::ClientLock | Peer::SetNx | Peer::Advisory => RGBColor(0x3b, 0x82, 0xf6),
        Peer::Curator | Peer::Redisson | Peer::UniqueRow => RGBColor(0xa8, 0x5c, 0xf0),
        Peer::Kazoo | Peer::RedisPy | Peer::ForUpdate => RGBColor(0x16, 0xa3, 0x6a),
        Peer::Etcd | Peer::NodeRedlock => RGBColor(0xb5, 0x8a, 0x0c),
        Peer::PythonRedisLock => RGBColor(0x0e, 0x9a, 0xa7),
    }
}

fn hand_over(results: &Results) -> Lines {
    let lines = results.peers.iter().map(|peer| {
        let points = results.crowds.iter().filter_map(|waiters| {
            let row = Row::HandOver { waiters: *waiters };
            Some((*waiters as f64, results.spread(row, *peer)?))
        });
        Line::of(*peer, points.collect())
    });
    Lines {
        title: "Hand-over: from one grant to the next, by the number of waiters".into(),
        below: "microseconds, the mean of a round: median, least and most of the rounds; both scales are logarithmic".into(),
        lines: lines.collect(),
        number: whole,
        steps: [3.0, 10.0 / 3.0],
    }
}

fn memory(results: &Results) -> Lines {
    let lines = results.peers.iter().map(|peer| {
        let points = results.crowds.iter().filter_map(|waiters| {
            let found = results.memory_of(*peer, *waiters)?;
            (found.median > 0.0).then_some((*waiters as f64, found))
        });
        Line::of(*peer, points.collect())
    });
    Lines {
        title: "Memory of the client for each waiter, by the number of waiters".into(),
        below: "growth of a fresh process's resident anonymous memory while they queue up; both scales are logarithmic".into(),
        lines: lines.collect(),
        number: round_bytes,
        steps: [4.0, 4.0],
    }
}

/// Powers of four, as the scale has them.
fn round_bytes(number: f64) -> String {
    match number {
        small if small < 1024.0 => format!("{} B", whole(small)),
        some => format!("{} KiB", whole(some / 1024.0)),
    }
}

fn uncontended(results: &Results) -> Bars {
    Bars {
        title: "Lock and release a lock that nobody else wants".into(),
        below: format!(
            "microseconds for both, less is better; {}",
            promises(results.on)
        ),
        bars: bars_of(results, Row::Uncontended, &results.peers),
    }
}

fn independent(results: &Results) -> Bars {
    Bars {
        title: "64 locks at once".into(),
        below: "locks taken and released in a second, more is better".into(),
        bars: bars_of(results, Row::Independent, &results.peers),
    }
}

fn promises(on: Store) -> &'static str {
    match on {
        Store::Redis => "only Lockkeeper keeps an order",
        Store::Postgres => "the advisory lock commits nothing to disk",
        Store::ZooKeeper | Store::Etcd => "all of them sync to disk",
    }
}

fn bars_of(results: &Results, row: Row, peers: &[Peer]) -> Vec<Bar> {
    let found = peers.iter().filter_map(|peer| {
        let spread: Spread = results.spread(row, *peer)?;
        Some(Bar {
            name: peer.title().into(),
            colour: colour(*peer),
            spread,
        })
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Answer;

    #[test]
    fn charts_are_drawn_of_whatever_was_measured() {
        let folder = tempfile::tempdir().unwrap();
        let mut results = Results::empty();
        all(&results, folder.path()).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);

        for (round, mean_us) in [(0, 600.0), (1, 650.0)] {
            let answer = Answer {
                mean_us: Some(mean_us),
                ..Answer::default()
            };
            results.add(
                Row::HandOver { waiters: 5_000 },
                Peer::Lockkeeper,
                round,
                answer.clone(),
            );
            results.add(Row::Uncontended, Peer::Lockkeeper, round, answer);
        }
        all(&results, folder.path()).unwrap();

        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(read("hand-over.svg").contains("5 000"));
        assert!(read("uncontended.svg").contains("625"));
        assert!(!folder.path().join("memory.svg").exists());
    }
}
