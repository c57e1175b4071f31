//! A storm as a plan: which fault comes when and for how long, all from one seed. (pure)
//!
//! The same seed gives the same plan. The plan's effect depends on the machine.

use std::time::Duration;

use super::dice::Dice;
use super::ensemble::Cut;
use super::frames::Operation;
use super::proxy::{End, Way};

/// One fault, from its begin to its end, and the pause after it.
#[derive(Clone, Debug)]
pub struct Step<F> {
    pub fault: F,
    pub lasts: Duration,
    pub rest: Duration,
}

/// What happens to one client and to its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientFault {
    Stop,
    Kill,
    Cut(End),
    Refuse,
    BlackHole(Way),
    Delay(Way),
    ByteByByte,
    LoseReply(Operation),
    HoldReply(Operation),
    DuplicateReply(Operation),
    SwapSession,
}

/// What happens to the servers of an ensemble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerFault {
    KillLeader,
    KillFollower,
    FreezeLeader,
    FreezeFollower,
    CutOffLeader(Cut),
    CutOffFollower(Cut),
}

/// What happens to the servers of a store beside ZooKeeper, a primary and its replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFault {
    /// The primary is killed, and starts again with its data.
    Kill,
    Freeze,
    /// The replica, which hears nothing any more for that long, takes over.
    Promote,
    /// The replica hears nothing for that long, and then all.
    Part,
}

/// What happens to an embedded server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbeddedFault {
    Outage,
    ExpireSession,
    CutAll,
}

const OPERATIONS: [Operation; 4] = [
    Operation::CREATE,
    Operation::MULTI,
    Operation::MULTI_READ,
    Operation::GET_DATA,
];

/// Faults of clients, each with the number of its client, one after the other for that long.
pub fn of_clients(
    dice: &mut Dice,
    clients: usize,
    length: Duration,
) -> Vec<Step<(usize, ClientFault)>> {
    let way = |dice: &mut Dice| dice.pick(&[Way::Both, Way::ToServer, Way::ToClient]);
    let fault = |dice: &mut Dice| match dice.below(12) {
        0 | 1 => ClientFault::Stop,
        2 => ClientFault::Kill,
        3 => ClientFault::Cut(dice.pick(&[End::Fin, End::Rst])),
        4 => ClientFault::Refuse,
        5 | 6 => ClientFault::BlackHole(way(dice)),
        7 => ClientFault::Delay(way(dice)),
        8 => match dice.below(4) {
            0 => ClientFault::ByteByByte,
            _ => ClientFault::DuplicateReply(dice.pick(&OPERATIONS)),
        },
        9 => ClientFault::LoseReply(dice.pick(&OPERATIONS)),
        10 => ClientFault::HoldReply(dice.pick(&OPERATIONS)),
        _ => ClientFault::SwapSession,
    };
    steps(dice, length, (200, 1800), (50, 300), |dice| {
        let client = usize::try_from(dice.below(clients as u64)).expect("a small number");
        (client, fault(dice))
    })
}

/// Faults of an ensemble.
pub fn of_servers(dice: &mut Dice, length: Duration) -> Vec<Step<ServerFault>> {
    let cut = |dice: &mut Dice| dice.pick(&[Cut::Silent, Cut::OthersSeeIt]);
    steps(dice, length, (300, 3000), (500, 2000), |dice| {
        match dice.below(6) {
            0 => ServerFault::KillLeader,
            1 => ServerFault::KillFollower,
            2 => ServerFault::FreezeLeader,
            3 => ServerFault::FreezeFollower,
            4 => ServerFault::CutOffLeader(cut(dice)),
            _ => ServerFault::CutOffFollower(cut(dice)),
        }
    })
}

/// Faults of a store. They take turns, and the first one is by chance.
pub fn of_store(dice: &mut Dice, length: Duration) -> Vec<Step<StoreFault>> {
    use StoreFault::{Freeze, Kill, Part, Promote};
    let first = dice.below(4) as usize;
    let mut steps = steps(dice, length, (300, 2500), (1500, 3000), |_| Kill);
    for (at, step) in steps.iter_mut().enumerate() {
        step.fault = [Promote, Freeze, Kill, Part][(first + at) % 4];
    }
    steps
}

/// Faults of an embedded server.
pub fn of_embedded(dice: &mut Dice, length: Duration) -> Vec<Step<EmbeddedFault>> {
    steps(dice, length, (10, 600), (300, 1200), |dice| {
        dice.pick(&[
            EmbeddedFault::Outage,
            EmbeddedFault::ExpireSession,
            EmbeddedFault::CutAll,
        ])
    })
}

/// Steps until their times fill the length. Both times are in milliseconds.
fn steps<F>(
    dice: &mut Dice,
    length: Duration,
    lasts: (u64, u64),
    rest: (u64, u64),
    fault: impl Fn(&mut Dice) -> F,
) -> Vec<Step<F>> {
    let between = |dice: &mut Dice, (least, most): (u64, u64)| {
        Duration::from_millis(least + dice.below(most - least))
    };
    let mut steps = Vec::new();
    let mut filled = Duration::ZERO;
    while filled < length {
        let step = Step {
            fault: fault(dice),
            lasts: between(dice, lasts),
            rest: between(dice, rest),
        };
        filled += step.lasts + step.rest;
        steps.push(step);
    }
    steps
}

/// The seed of this run: `LOCKKEEPER_SEED`, or chance.
pub fn seed() -> u64 {
    match std::env::var("LOCKKEEPER_SEED") {
        Ok(word) => word.parse().expect("LOCKKEEPER_SEED is a number"),
        Err(_) => uuid::Uuid::new_v4().as_u64_pair().0,
    }
}
