//! The results of a run: every round of every row, and the figures from them. (pure)
//!
//! A figure is the median of its rounds. A ratio is the median of the rounds' ratios, because the
//! two sides of a round ran one after the other and saw the same machine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::driver::Outcome;
use crate::machine::Machine;
use crate::order::{Answer, Order};
use crate::peer::{Peer, Store};
use crate::relay::Traffic;

/// A row of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "workload", rename_all = "snake_case")]
pub(crate) enum Row {
    Uncontended,
    Independent,
    /// Of Lockkeeper alone.
    Linger,
    HandOver {
        waiters: usize,
    },
    /// Hand-over to a hundred waiters, right after that to so many. Of Lockkeeper alone.
    Few {
        after: usize,
    },
}

/// One measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    #[serde(flatten)]
    pub(crate) row: Row,
    pub(crate) peer: Peer,
    pub(crate) round: usize,
    /// Short rows have several turns in a round.
    pub(crate) turn: usize,
    /// The whole order, with what is not in its figure.
    pub(crate) took_ms: u64,
    pub(crate) outcome: Outcome,
}

/// The memory that a crowd took in a fresh process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Memory {
    pub(crate) peer: Peer,
    pub(crate) waiters: usize,
    pub(crate) outcome: Outcome,
}

/// The traffic of one order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Crossing {
    pub(crate) peer: Peer,
    pub(crate) order: Order,
    pub(crate) outcome: Outcome,
    pub(crate) traffic: Traffic,
}

/// A whole run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) at: String,
    /// The older ones are all on ZooKeeper.
    #[serde(default)]
    pub(crate) on: Store,
    pub(crate) took_s: u64,
    pub(crate) quick: bool,
    pub(crate) rounds: usize,
    pub(crate) limit_s: u64,
    pub(crate) peers: Vec<Peer>,
    pub(crate) crowds: Vec<usize>,
    pub(crate) machine: Machine,
    pub(crate) versions: BTreeMap<String, String>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) memory: Vec<Memory>,
    pub(crate) crossings: Vec<Crossing>,
}

/// A figure over its rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) rounds: usize,
}

impl Spread {
    /// None of nothing.
    pub(crate) fn of(mut figures: Vec<f64>) -> Option<Self> {
        figures.sort_by(f64::total_cmp);
        let (min, max) = (*figures.first()?, *figures.last()?);
        let middle = figures.len() / 2;
        let median = match figures.len() % 2 {
            0 => f64::midpoint(figures[middle - 1], figures[middle]),
            _ => figures[middle],
        };
        Some(Self {
            median,
            min,
            max,
            rounds: figures.len(),
        })
    }
}

impl Row {
    /// The compared value: the mean time, or the rate.
    pub(crate) fn figure(self, answer: &Answer) -> Option<f64> {
        match self {
            _ if answer.failed > 0 => None,
            Self::Independent | Self::Linger => answer.locks_per_s,
            Self::Uncontended | Self::HandOver { .. } | Self::Few { .. } => answer.mean_us,
        }
    }
}

impl Results {
    pub(crate) fn outcomes(&self, row: Row, peer: Peer) -> impl Iterator<Item = &Entry> {
        let entries = self.entries.iter();
        entries.filter(move |entry| (entry.row, entry.peer) == (row, peer))
    }

    /// A figure over the rounds in which it was measured without a failure.
    pub(crate) fn spread_of(
        &self,
        row: Row,
        peer: Peer,
        figure: impl Fn(&Answer) -> Option<f64>,
    ) -> Option<Spread> {
        let figures = self.outcomes(row, peer).filter_map(|entry| {
            let answer = entry.outcome.measured()?;
            row.figure(answer).and_then(|_| figure(answer))
        });
        Spread::of(figures.collect())
    }

    pub(crate) fn spread(&self, row: Row, peer: Peer) -> Option<Spread> {
        self.spread_of(row, peer, |answer| row.figure(answer))
    }

    /// One peer's figure as a multiple of another's.
    pub(crate) fn ratio(&self, row: Row, peer: Peer, to: Peer) -> Option<Spread> {
        self.multiple((row, peer), (row, to))
    }

    /// Lockkeeper's hand-over to so many waiters as a multiple of its own to a hundred, right after
    /// it.
    pub(crate) fn growth(&self, waiters: usize) -> Option<Spread> {
        let (many, few) = (Row::HandOver { waiters }, Row::Few { after: waiters });
        self.multiple((many, Peer::Lockkeeper), (few, Peer::Lockkeeper))
    }

    fn multiple(&self, one: (Row, Peer), other: (Row, Peer)) -> Option<Spread> {
        let others: BTreeMap<_, f64> = self.figures(other.0, other.1).collect();
        let ratios = self
            .figures(one.0, one.1)
            .filter_map(|(when, figure)| Some(figure / others.get(&when)?));
        Spread::of(ratios.collect())
    }

    /// How many waiters were handed over in a round of so many, in the rounds in which not all
    /// were.
    pub(crate) fn failures(&self, row: Row, peer: Peer) -> Vec<usize> {
        let measured = self
            .outcomes(row, peer)
            .filter_map(|e| e.outcome.measured());
        let failures = measured.map(|answer| answer.failed);
        failures.filter(|failed| *failed > 0).collect()
    }

    pub(crate) fn memory_of(&self, peer: Peer, waiters: usize) -> Option<Spread> {
        let found = self
            .memory
            .iter()
            .filter(|memory| (memory.peer, memory.waiters) == (peer, waiters));
        let figures = found.filter_map(|memory| memory.outcome.measured()?.bytes_per_waiter);
        Spread::of(figures.collect())
    }

    /// Each figure with its round and turn.
    fn figures(&self, row: Row, peer: Peer) -> impl Iterator<Item = ((usize, usize), f64)> {
        self.outcomes(row, peer).filter_map(move |entry| {
            let figure = row.figure(entry.outcome.measured()?)?;
            Some(((entry.round, entry.turn), figure))
        })
    }
}

#[cfg(test)]
impl Results {
    pub(crate) fn empty() -> Self {
        Self {
            at: String::new(),
            on: Store::ZooKeeper,
            took_s: 0,
            quick: false,
            rounds: 5,
            limit_s: 120,
            peers: Store::ZooKeeper.peers().to_vec(),
            crowds: vec![1, 5_000],
            machine: Machine::default(),
            versions: BTreeMap::new(),
            entries: Vec::new(),
            memory: Vec::new(),
            crossings: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, row: Row, peer: Peer, round: usize, answer: Answer) {
        let outcome = Outcome::Measured(answer);
        self.entries.push(Entry {
            row,
            peer,
            round,
            turn: 0,
            took_ms: 0,
            outcome,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_median_with_its_bounds() {
        let spread = Spread::of(vec![5.0, 1.0, 3.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (3.0, 1.0, 5.0));
        assert_eq!(Spread::of(vec![4.0, 2.0]).unwrap().median, 3.0);
        assert_eq!(Spread::of(Vec::new()), None);
    }

    #[test]
    fn a_ratio_pairs_the_rounds_that_both_have() {
        let mut results = Results::empty();
        for (peer, round, mean_us) in [
            (Peer::Lockkeeper, 0, 10.0),
            (Peer::Baseline, 0, 5.0),
            (Peer::Lockkeeper, 1, 60.0),
            (Peer::Baseline, 1, 20.0),
            (Peer::Lockkeeper, 2, 44.0),
            (Peer::Baseline, 2, 11.0),
            (Peer::Lockkeeper, 3, 900.0),
        ] {
            results.add(
                Row::Uncontended,
                peer,
                round,
                Answer {
                    mean_us: Some(mean_us),
                    ..Answer::default()
                },
            );
        }

        let ratio = results.ratio(Row::Uncontended, Peer::Lockkeeper, Peer::Baseline);

        let ratio = ratio.unwrap();
        assert_eq!((ratio.median, ratio.min, ratio.max), (3.0, 2.0, 4.0));
        assert_eq!(
            results.ratio(Row::Uncontended, Peer::Baseline, Peer::Etcd),
            None
        );
    }

    #[test]
    fn a_round_with_failures_gives_no_figure() {
        let row = Row::HandOver { waiters: 5_000 };
        let mut results = Results::empty();
        results.add(
            row,
            Peer::Etcd,
            0,
            Answer {
                mean_us: Some(9.0),
                failed: 1_139,
                ..Answer::default()
            },
        );

        assert_eq!(results.spread(row, Peer::Etcd), None);
        assert_eq!(results.failures(row, Peer::Etcd), [1_139]);
    }
}
