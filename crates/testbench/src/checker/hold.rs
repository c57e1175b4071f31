//! The guards of a history, assembled from their log lines. (pure)
//!
//! It judges nothing.

use std::collections::BTreeMap;

use crate::events::{Event, Nanos, Outcome, What};

/// A guard, as its client recorded it.
#[derive(Clone, Debug)]
pub(crate) struct Hold<'a> {
    pub(crate) client: &'a str,
    pub(crate) attempt: u64,
    pub(crate) token: u64,
    pub(crate) granted: Nanos,
    /// Whether it was still held when its client recorded it.
    pub(crate) held: bool,
    /// The last moment at which the servers confirmed the hold: the begin of a release that
    /// succeeded.
    pub(crate) surely_until: Nanos,
    /// The last moment at which the guard said that it is held.
    pub(crate) said_until: Nanos,
    /// How many parts of the lock it takes, of how many.
    pub(crate) takes: u64,
    pub(crate) of: u64,
}

impl Hold<'_> {
    /// Whether nobody else may hold any of the lock, whatever it takes. Others have no token.
    pub(crate) fn is_of_an_exclusive_lock(&self) -> bool {
        self.of == 1
    }
}

/// The guards of a lock, in the order in which they were granted.
pub(crate) fn holds<'a>(events: &[&'a Event]) -> Vec<Hold<'a>> {
    let mut holds: Vec<Hold<'a>> = Vec::new();
    let mut releasing: BTreeMap<u64, Nanos> = BTreeMap::new();
    let mut shares: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for event in events {
        match &event.what {
            What::Granted {
                attempt,
                token,
                held,
            } => {
                let (takes, of) = shares.get(token).copied().unwrap_or((1, 1));
                holds.push(Hold {
                    client: &event.client,
                    attempt: *attempt,
                    token: *token,
                    granted: event.t_ns,
                    held: *held,
                    surely_until: event.t_ns,
                    said_until: event.t_ns,
                    takes,
                    of,
                });
            }
            What::Shares { token, takes, of } => drop(shares.insert(*token, (*takes, *of))),
            What::HeldSeen {
                token, held: true, ..
            } => {
                let theirs = holds.iter_mut().filter(|hold| hold.token == *token);
                theirs.for_each(|hold| hold.said_until = hold.said_until.max(event.t_ns));
            }
            What::Releasing { token } => {
                releasing.insert(*token, event.t_ns);
            }
            What::Released {
                token,
                outcome: Outcome::Done,
            } => {
                let began = releasing.get(token).copied().unwrap_or(event.t_ns);
                let theirs = holds.iter_mut().filter(|hold| hold.token == *token);
                theirs.for_each(|hold| hold.surely_until = hold.surely_until.max(began));
            }
            _ => {}
        }
    }
    holds
}
