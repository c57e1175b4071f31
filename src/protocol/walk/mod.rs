//! The walk of a ticket to its turn: what to ask next, and what each answer means. (pure)
//!
//! Invariants: every snapshot that can give the turn also shows our own ticket, with our `czxid`
//! (docs/failures.md rows 72 and 73), or a directory whose last change was its creation; a ticket
//! waits for one other, the nearest that conflicts; a list of the children is the fallback of the
//! exclusive way, never the way itself. It sends nothing and waits for nothing: the waiter does,
//! and so does the exhaustive search of the tests.
//!
//! The way: speculative read, which is asked for with the create: alone? (1 request); otherwise
//! watch the number before mine (1). When the watched ticket goes, read (1): a mark with its
//! `czxid` proves that it held and released, so everything before it was gone already. Where that
//! is a ticket of the same session, the read is sent right behind its release, and its answer says
//! whether it has gone. A shared ticket lists once instead of guessing. A ticket with an owner
//! also lists, and asks whose the first ticket is: the same owner's lets it in as a guest.
//!
//! A speculative read is sent right behind the create, on the same session, which answers in
//! order. The ticket's name is not known then, so that read cannot show the ticket. It grants
//! only if the directory's `pzxid` is the `czxid` of our create: nobody has removed the ticket
//! since, and with one child the ticket is alone. Without that comparison the exhaustive search
//! finds two holders within a few steps (mutant `search-speculative-read-of-a-stranger`).
//!
//! Shared tickets would have to list the queue, and an upgrade knows that a ticket is before
//! it. Both are created without a speculative read.

mod judge;
mod snapshot;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use super::ticket::{Mode, Recipe, Ticket};
pub(crate) use snapshot::{GuestEntry, REMOVED, Snapshot, SpeculativeRead, Turn, verify};

/// One ticket's way through the queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Walk {
    ticket: Ticket,
    czxid: i64,
    recipe: Recipe,
    owner: Option<Box<str>>,
    /// Directories are removed when they are empty, and with them what was in them before.
    directories_forget: bool,
    /// The next list must show what another session of this process has seen.
    is_nudged: bool,
    phase: Phase,
}

/// Where a ticket is on its way. A phase is left only by an answer, so a waiter that stops
/// asking can go on later.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    /// Just created.
    Joined,
    /// Not alone: probably the number before mine is there. So many of its possible names were not.
    Guessing { tried: usize },
    /// The arithmetic or the mark did not help.
    Listing,
    /// A ticket is before mine; perhaps the first of all has my owner. (Boxed, as the next: a crowd
    /// has many walks, and few owners.)
    Asking(Box<Asking>),
    /// The first has my owner: in as its guest.
    EnteringAsGuest(Box<GuestEntry>),
    /// This ticket is the nearest before mine, by the list or, with its identity, by a watch that
    /// was spent on a change of its data.
    Following { ahead: Ticket, czxid: Option<i64> },
    /// The ticket with this identity is before mine, and watched.
    Watching { ahead: Ticket, czxid: i64 },
    /// The same, and its release is on its way.
    Departing { ahead: Ticket, czxid: i64 },
    /// The ticket with this identity, the nearest before mine, is gone.
    Woken { czxid: i64 },
    /// No ticket that conflicts was before mine.
    Turn(Turn),
}

/// The first tickets of the queue, and the nearest one that conflicts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Asking {
    first: Vec<Ticket>,
    ahead: Ticket,
}

/// What has to be done for the walk to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step<'a> {
    /// Read the directory, my ticket and, if asked for, the children and these tickets, all at one
    /// moment; or all that was committed before, too.
    Read {
        with_children: bool,
        tickets: &'a [Ticket],
        behind_sync: bool,
    },
    /// Read and watch the ticket with this name in my directory; it may not be there.
    Watch(Cow<'a, str>),
    /// Wait for the watch, or for a release of the watched ticket that is on its way.
    Wait,
    /// Exchange my ticket for a guest's.
    GuestEntry(&'a GuestEntry),
    Turn(&'a Turn),
}

impl Walk {
    /// The walk of a ticket that was just created.
    pub(crate) fn new(
        recipe: Recipe,
        ticket: Ticket,
        czxid: i64,
        owner: Option<&str>,
        directories_forget: bool,
    ) -> Self {
        Self {
            ticket,
            czxid,
            recipe,
            owner: owner.map(Box::from),
            directories_forget,
            is_nudged: false,
            phase: Phase::Joined,
        }
    }

    pub(crate) fn czxid(&self) -> i64 {
        self.czxid
    }

    pub(crate) fn recipe(&self) -> Recipe {
        self.recipe
    }

    /// What has to be done next.
    pub(crate) fn step(&self) -> Step<'_> {
        let read = |with_children| Step::Read {
            with_children,
            tickets: &[],
            behind_sync: with_children && self.is_nudged,
        };
        match &self.phase {
            Phase::Joined => read(!self.guesses()),
            Phase::Guessing { tried } => match self.guess(*tried) {
                Some(ahead) => Step::Watch(ahead.name.into()),
                None => read(true),
            },
            Phase::Listing => read(true),
            Phase::Departing { .. } | Phase::Woken { .. } => read(false),
            Phase::Asking(asking) => Step::Read {
                with_children: false,
                tickets: &asking.first,
                behind_sync: false,
            },
            Phase::EnteringAsGuest(guest_entry) => Step::GuestEntry(guest_entry),
            Phase::Following { ahead, .. } => Step::Watch(ahead.name.as_str().into()),
            Phase::Watching { .. } => Step::Wait,
            Phase::Turn(turn) => Step::Turn(turn),
        }
    }

    /// Takes in a speculative read, if nothing else was seen before. Where our create was the last
    /// change of the children, our ticket is there; and if there is one child only, we are alone.
    /// Anything else gives no turn, and is a hint: a waiter that expects others wrongly finds none
    /// to wait for, and looks.
    pub(crate) fn speculated(&mut self, speculative_read: &SpeculativeRead<'_>) {
        if self.phase != Phase::Joined {
            return;
        }
        let is_alone = speculative_read.num_children == 1;
        if is_alone && speculative_read.pzxid == self.czxid {
            let snapshot = Snapshot {
                data: speculative_read.data,
                version: speculative_read.version,
                num_children: speculative_read.num_children,
                mine: Some(self.czxid),
                children: &[],
                tickets: Vec::new(),
            };
            self.phase = self.turn(&snapshot, None);
        } else if !is_alone && self.guesses() {
            self.phase = self.behind();
        }
    }

    /// Takes in what a verified read saw; `Err` with the reason when the ticket is no longer ours.
    pub(crate) fn take_in(&mut self, snapshot: &Snapshot<'_>) -> Result<(), &'static str> {
        verify(self.czxid, snapshot.mine)?;
        if let Step::Read {
            with_children: true,
            ..
        } = self.step()
        {
            self.is_nudged = false;
        }
        self.phase = match &self.phase {
            Phase::Joined if self.guesses() => {
                if snapshot.num_children == 1 {
                    self.turn(snapshot, None)
                } else {
                    self.behind()
                }
            }
            Phase::Woken { czxid } => {
                let turn = self.turn_after(*czxid, snapshot);
                turn.unwrap_or(Phase::Listing)
            }
            // It may still be there, and is still watched.
            Phase::Departing { ahead, czxid } => {
                let turn = self.turn_after(*czxid, snapshot);
                turn.unwrap_or_else(|| Phase::Watching {
                    ahead: ahead.clone(),
                    czxid: *czxid,
                })
            }
            Phase::Asking(asking) => self.asked(snapshot, asking),
            _ => self.judge(snapshot),
        };
        Ok(())
    }

    /// The ticket that was to be watched is there, under this identity, and is watched now. Whether
    /// it is the right one.
    pub(crate) fn watched(&mut self, czxid: i64) -> bool {
        let (ahead, is_expected) = match &self.phase {
            // The number before mine, if it is there and older, is the immediate predecessor:
            // numbers are unique in a directory and given in order. A younger one has taken its
            // place by a downgrade, or where the counter has stuck at its end.
            Phase::Guessing { tried } => match self.guess(*tried) {
                Some(ahead) => (ahead, czxid < self.czxid),
                None => return false,
            },
            // A list has just named it as a blocker, whatever its age; or it was watched before.
            Phase::Following {
                ahead,
                czxid: known,
            } => (ahead.clone(), known.is_none_or(|known| known == czxid)),
            _ => return false,
        };
        if is_expected {
            self.phase = Phase::Watching { ahead, czxid };
        } else {
            self.not_there();
        }
        is_expected
    }

    /// The ticket that was to be watched is not there.
    pub(crate) fn not_there(&mut self) {
        self.phase = match &self.phase {
            Phase::Guessing { tried } => Phase::Guessing { tried: tried + 1 },
            Phase::Following {
                czxid: Some(czxid), ..
            } => Phase::Woken { czxid: *czxid },
            _ => Phase::Listing,
        };
    }

    /// A release of the watched ticket is on its way: a read may be answered behind that.
    pub(crate) fn departs(&mut self) {
        if let Phase::Watching { ahead, czxid } = &self.phase {
            self.phase = Phase::Departing {
                ahead: ahead.clone(),
                czxid: *czxid,
            };
        }
    }

    /// The watched ticket was removed.
    pub(crate) fn woken(&mut self) {
        if let Phase::Watching { czxid, .. } = self.phase {
            self.phase = Phase::Woken { czxid };
        }
    }

    /// The watch was spent on something else, and the ticket may be there: it is watched again, by
    /// identity.
    pub(crate) fn watch_again(&mut self) {
        if let Phase::Watching { ahead, czxid } = &self.phase {
            self.phase = Phase::Following {
                ahead: ahead.clone(),
                czxid: Some(*czxid),
            };
        }
    }

    /// Whether it has its turn, and its plan to leave is right for this version of the directory.
    pub(crate) fn has_turn_at(&self, version: i32) -> bool {
        matches!(&self.phase, Phase::Turn(turn) if turn.version == version)
    }

    /// Whatever was seen may be otherwise by now: looks at the whole queue again.
    pub(crate) fn start_over(&mut self) {
        self.phase = Phase::Listing;
    }

    /// The owner may have come to hold since the queue was looked at: looks at it again, unless
    /// that comes next anyway. Another session has seen the hold, and its server may be ahead of
    /// ours: so the list comes behind a sync. Otherwise a holder that asks again could wait for
    /// this walk, which waits for those behind the holder.
    pub(crate) fn nudged(&mut self) {
        self.is_nudged = true;
        if matches!(
            self.phase,
            Phase::Asking(_)
                | Phase::Following { .. }
                | Phase::Watching { .. }
                | Phase::Departing { .. }
        ) {
            self.phase = Phase::Listing;
        }
    }

    /// Whether the walk stands behind a ticket whose identity it knows: it waits for it, or is
    /// about to again.
    pub(crate) fn is_behind_known(&self) -> bool {
        matches!(
            self.phase,
            Phase::Watching { .. }
                | Phase::Departing { .. }
                | Phase::Following { czxid: Some(_), .. }
        )
    }

    /// Lists instead of guessing.
    pub(crate) fn skip_guess(&mut self) {
        if matches!(self.phase, Phase::Guessing { .. }) {
            self.phase = Phase::Listing;
        }
    }

    fn guesses(&self) -> bool {
        self.recipe.kind() == Mode::Exclusive
    }

    /// Others are there; of them an owner must know more than that.
    fn behind(&self) -> Phase {
        if self.owner.is_some() {
            Phase::Listing
        } else {
            Phase::Guessing { tried: 0 }
        }
    }

    /// A ticket that may stand right before mine.
    fn guess(&self, tried: usize) -> Option<Ticket> {
        let recipe = self.recipe.neighbours().get(tried)?;
        self.ticket.predecessor(*recipe)
    }
}
