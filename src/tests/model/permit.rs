//! The head of a semaphore's queue: takes its permits, or waits for some. (pure)
//!
//! The real `permits` say whether they fit, and what must commit with them. That watches are armed
//! one after the other, and that a look follows, is the order of requests, as `queue/head/mod.rs`
//! has it: there is no rule to share.
//!
//! Invariants: only the head takes permits; it reads its ticket, the permits and the limit at one
//! moment, and takes in one request that is refused if the limit or the queue has changed; it reads
//! again after its watches are armed.

use std::rc::Rc;

use super::client::{Client, Job, Stage, Then};
use super::exchange::{Back, Exchange, unchanged};
use super::held_ticket::{Held, WalkingTicket};
use super::store::{Create, Tree};
use crate::protocol::answer::Answer;
use crate::protocol::mark::{Mark, ReleasePlan};
use crate::protocol::permits::{self, PermitVerdict};
use crate::protocol::ticket::Ticket;

pub(super) const QUEUE: usize = 0;
pub(super) const HELD: usize = 1;
pub(super) const LIMIT: usize = 2;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Head {
    pub(super) ticket: WalkingTicket,
    armed: Armed,
}

/// How far its watches are armed, and what stood there then. That is all a watch needs: sets of
/// identities do not come again, and a watch that fired although everything is as it was would only
/// make it look once more.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Armed {
    /// It looks.
    Not,
    /// They do not fit: it arms both.
    Arming,
    Permits(Vec<i64>),
    /// It looks again.
    Both(Vec<i64>, i32),
    /// It waits.
    Waiting(Vec<i64>, i32),
}

impl Head {
    pub(super) fn new(ticket: WalkingTicket) -> Self {
        let armed = Armed::Not;
        Self { ticket, armed }
    }

    pub(super) fn is_ready(&self, view: &Tree) -> bool {
        match &self.armed {
            Armed::Waiting(permits, version) => {
                permits_held(view) != *permits || limit(view).1 != *version
            }
            _ => true,
        }
    }
}

fn permits_held(view: &Tree) -> Vec<i64> {
    let held = view.directory(HELD).into_iter();
    held.flat_map(|held| held.nodes.iter().map(|node| node.czxid))
        .collect()
}

/// The limit and its version.
fn limit(view: &Tree) -> (u32, i32) {
    let there = view.directory(LIMIT).unwrap();
    (permits::parse_limit(&there.data).unwrap(), there.version)
}

fn names(view: &Tree) -> impl Iterator<Item = &str> {
    let held = view.directory(HELD).into_iter();
    held.flat_map(|held| held.nodes.iter().map(|node| &*node.name))
}

/// Whether no more permits are out than there are.
pub(super) fn is_within_limit(tree: &Tree) -> bool {
    permits::held(names(tree)) <= u64::from(limit(tree).0)
}

impl Client {
    pub(super) fn head_read(&mut self, mut head: Head, view: &Tree) -> Stage {
        match &head.armed {
            Armed::Arming => {
                head.armed = Armed::Permits(permits_held(view));
                return Stage::Head(head);
            }
            Armed::Permits(permits) => {
                head.armed = Armed::Both(permits.clone(), limit(view).1);
                return Stage::Head(head);
            }
            Armed::Not | Armed::Both(..) | Armed::Waiting(..) => {}
        }
        let old = head.ticket.held();
        if !old.is_there(view) {
            return Stage::Leaving(Then::Again);
        }
        let Job::Permits(wanted) = self.plan.job else {
            unreachable!("only a semaphore has a head")
        };
        match permits::judge(names(view), wanted, limit(view).0) {
            PermitVerdict::Fits => return take(head, old, wanted, view, &self.plan.line),
            // A resize has made it fewer than are wanted.
            PermitVerdict::Never => {
                self.left(vec![old], Answer::Refused);
                return Stage::Leaving(Then::Again);
            }
            PermitVerdict::Full => {}
        }
        head.armed = match head.armed {
            Armed::Both(permits, version) => Armed::Waiting(permits, version),
            _ => Armed::Arming,
        };
        Stage::Head(head)
    }
}

/// The ticket for a permit, all in one request, while the limit and the queue are as they were
/// seen.
fn take(head: Head, old: Held, wanted: u32, view: &Tree, line: &Rc<[u8]>) -> Stage {
    let Some(held) = view.directory(HELD) else {
        return Stage::MakingHeld(head);
    };
    let queue = view.directory(QUEUE).unwrap();
    let (seq, czxid) = (Ticket::parse(&old.name).unwrap().seq, old.czxid);
    let (mark, read) = (Mark { czxid, seq }, (&*queue.data, queue.version));
    let (value, version) = limit(view);
    let [mark, limit] = permits::writes(Some(mark), read, value);
    let as_seen = unchanged(QUEUE, queue.version, mark.as_deref());
    let within_limit = unchanged(LIMIT, version, limit.as_deref());
    let version = held.version;
    let create = Create {
        directory: HELD,
        name: permits::start_of(wanted),
        is_sequential: true,
        is_shared: true,
        order: None,
        data: Rc::clone(line),
    };
    let with = vec![within_limit, as_seen];
    Exchange::begin(
        Back::Head(head),
        old,
        create,
        with,
        ReleasePlan::Unmarked { version },
    )
}
