//! The rows to measure, their order and their repetitions. (pure)
//!
//! A round goes through all rows, and a row through all peers, so a drift of the machine affects
//! all of them. Every second round goes through the peers backwards, so no peer always follows the
//! same neighbour.

use std::time::Duration;

use crate::args::RunArgs;
use crate::order::Order;
use crate::peer::{Peer, Store};
use crate::results::Row;

const CROWDS: [usize; 7] = [1, 10, 100, 1_000, 5_000, 10_000, 20_000];
const QUICK_CROWDS: [usize; 4] = [1, 10, 100, 1_000];
/// Rounds of a crowd that takes a minute each.
const SLOW_ROUNDS: usize = 3;
/// A row of a second meets whatever the machine does in that second: it is measured so often in
/// each round.
const TURNS: usize = 3;
const LOCKS: usize = 64;
/// What a larger crowd is compared with, to see whether it costs more.
pub(crate) const FEW: usize = 100;

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) on: Store,
    pub(crate) peers: Vec<Peer>,
    pub(crate) crowds: Vec<usize>,
    pub(crate) rounds: usize,
    pub(crate) quick: bool,
    pub(crate) limit: Duration,
}

impl Plan {
    /// Nobody may take part in it.
    pub(crate) fn new(args: &RunArgs, on: Store) -> Self {
        let mut peers = on.peers().to_vec();
        peers.retain(|peer| args.peers.is_empty() || args.peers.contains(peer));
        let defaults = if args.quick {
            &QUICK_CROWDS[..]
        } else {
            &CROWDS
        };
        let mut crowds = match args.waiters.as_slice() {
            [] => defaults.to_vec(),
            some => some.iter().map(|waiters| *waiters as usize).collect(),
        };
        crowds.sort_unstable();
        crowds.dedup();
        let rounds = args.rounds.unwrap_or(if args.quick { 2 } else { 5 });
        Self {
            on,
            peers,
            crowds,
            rounds: rounds as usize,
            quick: args.quick,
            limit: Duration::from_secs(args.limit),
        }
    }

    pub(crate) fn stores(&self) -> Vec<Store> {
        let mut stores: Vec<Store> = self.peers.iter().map(|peer| peer.server(self.on)).collect();
        stores.sort_unstable();
        stores.dedup();
        stores
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        let crowds = self.crowds.iter();
        let crowds = crowds.map(|waiters| Row::HandOver { waiters: *waiters });
        [Row::Uncontended, Row::Independent, Row::Linger]
            .into_iter()
            .chain(crowds)
            .collect()
    }

    pub(crate) fn order(&self, row: Row, peer: Peer) -> Order {
        match row {
            Row::Uncontended => Order::Uncontended {
                rounds: match self.on {
                    _ if self.quick => 300,
                    // For about as long as elsewhere: its times depend on which core the server
                    // has at the moment.
                    Store::Redis => 5_000,
                    _ => 1_000,
                },
            },
            Row::Independent => {
                let seconds = if self.quick { 1 } else { 2 };
                Order::independent(LOCKS, Duration::from_secs(seconds))
            }
            Row::Linger => Order::Linger {
                milliseconds: if self.quick { 200 } else { 1_000 },
            },
            // Each of etcd's queues takes a tenth of a second to be ready.
            Row::HandOver { waiters: 1 } if peer == Peer::Etcd => Order::HandOver {
                waiters: 1,
                repeats: if self.quick { 20 } else { 60 },
            },
            Row::HandOver { waiters } => Order::hand_over(waiters),
            Row::Few { .. } => Order::hand_over(FEW),
        }
    }

    /// The peers in the order of this round.
    pub(crate) fn peers_in(&self, round: usize) -> Vec<Peer> {
        let mut peers = self.peers.clone();
        if round % 2 == 1 {
            peers.reverse();
        }
        peers
    }

    /// What is measured right after this: rows that are compared must see the same machine, and
    /// whoever comes next in this one may take minutes.
    pub(crate) fn follower(row: Row, peer: Peer) -> Option<Row> {
        match row {
            Row::HandOver { waiters } if waiters > FEW && peer == Peer::Lockkeeper => {
                Some(Row::Few { after: waiters })
            }
            _ => None,
        }
    }

    /// How often a row is measured in each round.
    pub(crate) fn turns(&self, row: Row) -> usize {
        match row {
            _ if self.quick => 1,
            Row::HandOver { waiters } if waiters > FEW => 1,
            _ => TURNS,
        }
    }

    pub(crate) fn rounds_of(&self, row: Row, peer: Peer) -> usize {
        match row {
            Row::Linger if peer != Peer::Lockkeeper => 0,
            Row::HandOver { waiters } if peer.refuses(waiters).is_some() => 0,
            Row::HandOver { waiters } if peer.is_slow_at(waiters) => self.rounds.min(SLOW_ROUNDS),
            _ => self.rounds,
        }
    }

    /// The orders that warm a driver up before measuring.
    pub(crate) fn warm_up(&self, peer: Peer) -> Vec<Order> {
        let (rounds, milliseconds) = if self.quick {
            (400, 500)
        } else {
            (2_000, 2_000)
        };
        let most = self
            .crowds
            .iter()
            .copied()
            .filter(|waiters| *waiters <= FEW && peer.refuses(*waiters).is_none())
            .max();
        let crowd = most.map(|waiters| Order::HandOver {
            waiters,
            repeats: 5,
        });
        let alone = [
            Order::Uncontended { rounds },
            Order::independent(LOCKS, Duration::from_millis(milliseconds)),
        ];
        alone.into_iter().chain(crowd).collect()
    }

    /// How many fresh processes of this peer queue up such a crowd, only for the memory that it
    /// takes.
    pub(crate) fn memory_rounds(&self, peer: Peer, waiters: usize) -> usize {
        let most = match peer {
            Peer::Lockkeeper => usize::MAX,
            Peer::ClientLock | Peer::SetNx => 5_000,
            _ => 1_000,
        };
        match waiters {
            _ if !peer.shows_memory() || waiters < 1_000 || waiters > most => 0,
            1_000 if !self.quick => 3,
            _ => 1,
        }
    }

    /// The orders that run through the counting relay.
    pub(crate) fn counted(&self, peer: Peer) -> Vec<Order> {
        let crowds = self.crowds.iter().copied();
        let most = if self.quick { 100 } else { 1_000 };
        let crowds = crowds
            .filter(|waiters| (100..=most).contains(waiters) && peer.refuses(*waiters).is_none());
        [Order::Uncontended { rounds: 200 }]
            .into_iter()
            .chain(crowds.map(Order::hand_over))
            .collect()
    }
}
