//! The walk of a ticket to its turn: what to ask next, and what each answer means. (pure)
//!
//! Invariants: every snapshot that can give the turn also shows our own ticket, with our `czxid`
//! (docs/failures.md rows 72 and 73), or a directory whose last change was its creation; a ticket
//! waits for one other, the nearest that conflicts; a list of the children is the fallback of the
//! exclusive way, never the way itself. It sends nothing and waits for nothing: the waiter does,
//! and so does the exhaustive search of the tests.
//!
//! The way: speculative read, which is asked for with the create: alone? (1 request); otherwise
//! watch the number before mine (1). When the watched ticket goes, look (1): a mark with its
//! `czxid` proves that it held and released, so everything before it was gone already. A shared
//! ticket lists once instead of guessing. A ticket with an owner also lists, and asks whose the
//! first ticket is: the same owner's lets it in as a guest.

use std::borrow::Cow;

use super::mark::{DirectoryData, Mark, ReleasePlan};
use super::rule;
use super::rule::Verdict;
use super::ticket::{Mode, Recipe, Ticket, TicketData};

pub(crate) const REMOVED: &str = "the ticket was removed";
pub(crate) const REPLACED: &str = "another ticket stands under its name";

/// Whether the identity found under a ticket's name is the ticket's own; otherwise why it is lost.
pub(crate) fn verify(czxid: i64, found: Option<i64>) -> Result<(), &'static str> {
    match found {
        Some(found) if found == czxid => Ok(()),
        Some(_) => Err(REPLACED),
        None => Err(REMOVED),
    }
}

/// One ticket's way through the queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Walk {
    ticket: Ticket,
    czxid: i64,
    recipe: Recipe,
    owner: Option<Box<str>>,
    /// Directories are removed when they are empty, and with them what was in them before.
    directories_forget: bool,
    phase: Phase,
}

/// Where a ticket is on its way. A phase is left only by an answer, so whoever stops asking can go
/// on later.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    /// Just created.
    Joined,
    /// Not alone: probably the number before mine is there. So many of its possible names were not.
    Guessing { tried: usize },
    /// The arithmetic or the mark did not help.
    Listing,
    /// Somebody is before mine; perhaps the first of all has my owner. (Boxed, as the next: a crowd
    /// has many walks, and few owners.)
    Asking(Box<Asking>),
    /// The first has my owner: in as its guest.
    EnteringAsGuest(Box<GuestEntry>),
    /// This ticket is the nearest before mine, by the list or, with its identity, by a watch that
    /// was spent on a change of its data.
    Following { ahead: Ticket, czxid: Option<i64> },
    /// The ticket with this identity is before mine, and watched.
    Watching { ahead: Ticket, czxid: i64 },
    /// The ticket with this identity, the nearest before mine, is gone.
    Woken { czxid: i64 },
    /// Nobody who conflicts was before mine.
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
    /// moment.
    Read {
        with_children: bool,
        tickets: &'a [Ticket],
    },
    /// Read and watch the ticket with this name in my directory; it may not be there.
    Watch(Cow<'a, str>),
    /// Wait for the watch.
    Wait,
    /// Exchange my ticket for a guest's.
    GuestEntry(&'a GuestEntry),
    Turn(&'a Turn),
}

/// What a look saw.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot<'a> {
    pub(crate) data: &'a [u8],
    pub(crate) version: i32,
    pub(crate) num_children: i32,
    /// The identity that stands under my name.
    pub(crate) mine: Option<i64>,
    pub(crate) children: &'a [String],
    /// Identity and data of the tickets that were asked for, as far as they are there.
    pub(crate) tickets: Vec<Option<(i64, &'a [u8])>>,
}

/// What the directory alone looked like, at some moment after the create.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpeculativeRead<'a> {
    pub(crate) data: &'a [u8],
    pub(crate) version: i32,
    pub(crate) num_children: i32,
    /// The last create or delete of a child.
    pub(crate) pzxid: i64,
}

/// Nobody who conflicts is before my ticket.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Turn {
    /// How the ticket leaves.
    pub(crate) plan: ReleasePlan,
    /// Whether whoever was before released, or nobody ever was.
    pub(crate) ended_well: bool,
    /// The directory's version when that was seen.
    pub(crate) version: i32,
    /// Whether nobody was behind it either.
    pub(crate) is_alone: bool,
}

/// How to go in as a guest: all of it commits together, or nothing does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct GuestEntry {
    /// The ticket of my owner that must still be there.
    pub(crate) host: Ticket,
    /// The hold's token.
    pub(crate) token: i64,
    /// The directory's version before.
    pub(crate) version: i32,
    /// What is written into the directory, so that the host leaves without a mark; nothing over
    /// another program's data, beside which nobody leaves a mark.
    pub(crate) note: Option<Vec<u8>>,
    /// Whether whoever was before the host released, or nobody ever was.
    pub(crate) ended_well: bool,
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
        };
        match &self.phase {
            Phase::Joined => read(!self.guesses()),
            Phase::Guessing { tried } => match self.guess(*tried) {
                Some(ahead) => Step::Watch(ahead.name.into()),
                None => read(true),
            },
            Phase::Listing => read(true),
            Phase::Woken { .. } => read(false),
            Phase::Asking(asking) => Step::Read {
                with_children: false,
                tickets: &asking.first,
            },
            Phase::EnteringAsGuest(guest_entry) => Step::GuestEntry(guest_entry),
            Phase::Following { ahead, .. } => Step::Watch(ahead.name.as_str().into()),
            Phase::Watching { .. } => Step::Wait,
            Phase::Turn(turn) => Step::Turn(turn),
        }
    }

    /// Takes in a speculative read, if nothing else was seen before. Where our create was the last
    /// change of the children, our ticket is there; and if there is one child only, we are alone.
    /// Anything else gives no turn, and is a hint: who is wrong about others being there finds
    /// nobody to wait for, and looks.
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

    /// Takes in what a look saw; `Err` with the reason when the ticket is no longer ours.
    pub(crate) fn take_in(&mut self, snapshot: &Snapshot<'_>) -> Result<(), &'static str> {
        verify(self.czxid, snapshot.mine)?;
        self.phase = match &self.phase {
            Phase::Joined if self.guesses() => {
                if snapshot.num_children == 1 {
                    self.turn(snapshot, None)
                } else {
                    self.behind()
                }
            }
            Phase::Woken { czxid } => {
                let proved = DirectoryData::parse(snapshot.data).proves_release_of(*czxid);
                if proved || snapshot.num_children == 1 {
                    self.turn(snapshot, Some(*czxid))
                } else {
                    Phase::Listing
                }
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

    /// Whatever was seen may be otherwise by now: looks at the whole queue again.
    pub(crate) fn start_over(&mut self) {
        self.phase = Phase::Listing;
    }

    /// The owner may have come to hold since the queue was looked at: looks at it again, unless
    /// that comes next anyway.
    pub(crate) fn nudged(&mut self) {
        if matches!(
            self.phase,
            Phase::Asking(_) | Phase::Following { .. } | Phase::Watching { .. }
        ) {
            self.phase = Phase::Listing;
        }
    }

    /// Whether the walk stands behind a ticket whose identity it knows: it waits for it, or is
    /// about to again.
    pub(crate) fn is_behind_known(&self) -> bool {
        matches!(
            self.phase,
            Phase::Watching { .. } | Phase::Following { czxid: Some(_), .. }
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

    fn judge(&self, snapshot: &Snapshot<'_>) -> Phase {
        let children = snapshot.children.iter().map(String::as_str);
        match rule::judge(&self.ticket, children.clone()) {
            Verdict::Granted => self.turn(snapshot, None),
            Verdict::Wait(ahead) if self.owner.is_some() => {
                let first = rule::first(children);
                Phase::Asking(Box::new(Asking { first, ahead }))
            }
            Verdict::Wait(ahead) => Phase::Following { ahead, czxid: None },
        }
    }

    /// Whether the first ticket, or a guest of it, has my owner.
    fn asked(&self, snapshot: &Snapshot<'_>, asking: &Asking) -> Phase {
        let Asking { first, ahead } = asking;
        let hosts = first
            .iter()
            .zip(&snapshot.tickets)
            .find_map(|(host, found)| {
                let (czxid, data) = (*found)?;
                let line = TicketData::parse(data)?;
                let is_mine = host.kind == Mode::Exclusive && line.is_of(self.owner.as_deref()?);
                is_mine.then(|| (host.clone(), line.guest_of.unwrap_or(czxid)))
            });
        let data = DirectoryData::parse(snapshot.data);
        match hosts {
            Some((host, token)) => Phase::EnteringAsGuest(Box::new(GuestEntry {
                token,
                version: snapshot.version,
                note: data.is_ours().then(|| DirectoryData::note(token)),
                // The host may still be waiting for the end of the delay itself; but where a guest
                // was let in, it is over.
                ended_well: data == DirectoryData::Noted(token)
                    || data.ended_well(None, host.seq, self.directories_forget),
                host,
            })),
            None => Phase::Following {
                ahead: ahead.clone(),
                czxid: None,
            },
        }
    }

    /// Decides how the ticket will leave, from the directory as it was when the turn was seen;
    /// `ahead` was before it, if that is known.
    fn turn(&self, snapshot: &Snapshot<'_>, ahead: Option<i64>) -> Phase {
        let data = DirectoryData::parse(snapshot.data);
        let version = snapshot.version;
        let plan = if self.marks(snapshot) && data.is_ours() {
            let mark = Mark {
                czxid: self.czxid,
                seq: self.ticket.seq,
            };
            ReleasePlan::Marked {
                mark: mark.to_bytes(),
                version,
            }
        } else {
            ReleasePlan::Unmarked { version }
        };
        Phase::Turn(Turn {
            // Another program's data is not removed with the directory.
            plan: if self.ticket.is_near_end() && data.is_ours() {
                ReleasePlan::LastOut(Box::new(plan))
            } else {
                plan
            },
            ended_well: data.ended_well(ahead, self.ticket.seq, self.directories_forget),
            version,
            is_alone: snapshot.num_children == 1,
        })
    }

    /// Whether our release proves anything: not beside others who share, nor when guests came
    /// before we knew of our turn.
    fn marks(&self, snapshot: &Snapshot<'_>) -> bool {
        let is_beside = |child: &String| {
            Ticket::parse(child)
                .is_some_and(|other| other.seq == self.ticket.seq && other.name != self.ticket.name)
        };
        self.recipe.kind() == Mode::Exclusive && !snapshot.children.iter().any(is_beside)
    }
}
