//! What a snapshot means for a ticket: which ticket it waits for, whose guest it can be, and how it
//! will leave. (pure)
//!
//! It takes nothing in: the walk does.

use super::{Asking, GuestEntry, Phase, Snapshot, Turn, Walk};
use crate::protocol::mark::{DirectoryData, Mark, ReleasePlan};
use crate::protocol::rule::{self, Verdict};
use crate::protocol::ticket::{Mode, Ticket, TicketData};

impl Walk {
    pub(super) fn judge(&self, snapshot: &Snapshot<'_>) -> Phase {
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
    pub(super) fn asked(&self, snapshot: &Snapshot<'_>, asking: &Asking) -> Phase {
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

    /// The turn, if nothing is before mine any more; the nearest that was has this identity.
    pub(super) fn turn_after(&self, czxid: i64, snapshot: &Snapshot<'_>) -> Option<Phase> {
        let is_released = DirectoryData::parse(snapshot.data).proves_release_of(czxid);
        let is_next = is_released || snapshot.num_children == 1;
        is_next.then(|| self.turn(snapshot, Some(czxid)))
    }

    /// The turn, once a read has shown it.
    pub(crate) fn shown_turn(&self) -> Option<&Turn> {
        match &self.phase {
            Phase::Turn(turn) => Some(turn),
            _ => None,
        }
    }

    /// Decides how the ticket will leave, from the directory as it was when the turn was seen;
    /// `ahead` was before it, if that is known.
    pub(super) fn turn(&self, snapshot: &Snapshot<'_>, ahead: Option<i64>) -> Phase {
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

    /// Whether our release proves anything: it does not beside other shared holders, nor when
    /// guests came before we knew of our turn.
    fn marks(&self, snapshot: &Snapshot<'_>) -> bool {
        let is_beside = |child: &String| {
            Ticket::parse(child)
                .is_some_and(|other| other.seq == self.ticket.seq && other.name != self.ticket.name)
        };
        self.recipe.kind() == Mode::Exclusive && !snapshot.children.iter().any(is_beside)
    }
}
