//! The watch of an observer, which follows the leaders of a queue without standing in it: what to
//! ask next, and what each answer means. (pure)
//!
//! Invariants: nothing is shown but what one read of the directory and the first ticket said
//! together, after both were watched, so that whatever comes later is told; a ticket is followed by
//! its identity, never by its name; each leader and each value is shown once. It sends nothing and
//! waits for nothing: the observer does.
//!
//! The way: watch the directory's data; list; nobody: watch which children there are, and wait;
//! otherwise watch the first ticket, read both once more, and wait. A new value costs a watch and a
//! read, a new leader a list, a watch and a read more.
//!
//! The list names a ticket, and a name is no identity. So the read compares both `czxid`s with
//! those that are watched. Each new session first has its server catch up (`sync`), so leaders
//! are shown in order.

#[cfg(test)]
mod tests;

use super::mark::DirectoryData;
use super::rule;
use super::ticket::{Ticket, TicketData};
use crate::brief::{Brief, shows};
use crate::session_id::SessionId;
use crate::token::Token;

/// The leader of an [`Election`](crate::Election), and its value.
///
/// Leaders are told apart by their [`token`](Self::token): it grows from leader to leader.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The fencing token of the leadership.
    pub token: Token,
    /// The value that the leader stood with or has proclaimed since; of a leader by another
    /// program, what it wrote into its node (the id of Curator's `LeaderLatch`).
    pub value: String,
    /// The name of its node in the election's directory.
    pub node: String,
    /// The session that owns the node.
    pub session: SessionId,
    /// The label, if one was given.
    pub label: Option<String>,
    /// The host that it runs on; `None` for another program's.
    pub host: Option<String>,
    /// Its process; `None` for another program's.
    pub pid: Option<u32>,
}

shows!(|leader| Leader {
    token: leader.token,
    value: Brief(&leader.value),
    node: Brief(&leader.node),
    host: leader.host.as_deref().map(Brief),
    pid: leader.pid,
});

impl Leader {
    /// The owner of the first ticket, by the ticket and the directory as they were at one moment.
    pub(crate) fn of(ticket: &Ticket, first: FirstSeen<'_>, directory_data: &[u8]) -> Self {
        let (czxid, session, data) = first;
        let line = TicketData::parse(data);
        let proclaimed = match DirectoryData::parse(directory_data) {
            // Another one's is of the past.
            DirectoryData::Proclaimed(proclaimed) if proclaimed.czxid == czxid => {
                Some(proclaimed.value)
            }
            _ => None,
        };
        let stood_with = || match &line {
            Some(line) => line.value.clone().unwrap_or_default(),
            None => String::from_utf8_lossy(data).into_owned(),
        };
        Self {
            token: Token::new(czxid),
            value: proclaimed.unwrap_or_else(stood_with),
            node: ticket.name.clone(),
            session: session.into(),
            host: line.as_ref().map(|line| line.host.clone()),
            pid: line.as_ref().map(|line| line.pid),
            label: line.and_then(|line| line.label),
        }
    }
}

/// The first ticket of a queue, as a read saw it: its identity, its session and its data.
pub(crate) type FirstSeen<'a> = (i64, i64, &'a [u8]);

/// The ticket that leads, by the children of the directory.
pub(crate) fn candidate<'a>(children: impl IntoIterator<Item = &'a str>) -> Option<Ticket> {
    rule::first(children).into_iter().next()
}

/// What has to be done for the watch to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LeaderStep<'a> {
    /// Make the directory: what is missing cannot be watched.
    Make,
    /// Read and watch the directory's data.
    WatchDirectory,
    /// Read the directory and its children at one moment.
    List,
    /// Read and watch this ticket.
    WatchTicket(&'a Ticket),
    /// Read and watch which children there are.
    WatchChildren,
    /// Read the directory and this ticket at one moment.
    Read(&'a Ticket),
    /// Wait for any of the watches.
    Wait,
}

/// Where a watch stands.
#[derive(Debug, Default)]
pub(crate) struct LeaderWatch {
    directory: LeaderDirectory,
    first: First,
    shown: Option<Leader>,
    /// Nobody was told of what is shown yet.
    is_news: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum LeaderDirectory {
    Missing,
    #[default]
    Unwatched,
    /// The data of the directory with this identity is watched.
    Watched(i64),
}

/// What is known of the first ticket.
#[derive(Debug, Default, PartialEq, Eq)]
enum First {
    #[default]
    Unknown,
    /// A list has named it.
    Named(Ticket),
    /// It is watched by its identity, and was read since anything has changed, or not.
    Watched {
        ticket: Ticket,
        czxid: i64,
        is_read: bool,
    },
    /// Nobody stands. The children are watched, or not.
    Nobody { is_watched: bool },
}

impl LeaderWatch {
    /// What has to be done next.
    pub(crate) fn step(&self) -> LeaderStep<'_> {
        match (self.directory, &self.first) {
            (LeaderDirectory::Missing, _) => LeaderStep::Make,
            (LeaderDirectory::Unwatched, _) => LeaderStep::WatchDirectory,
            (LeaderDirectory::Watched(_), first) => match first {
                First::Unknown => LeaderStep::List,
                First::Named(ticket) => LeaderStep::WatchTicket(ticket),
                First::Nobody { is_watched: false } => LeaderStep::WatchChildren,
                First::Watched {
                    ticket,
                    is_read: false,
                    ..
                } => LeaderStep::Read(ticket),
                First::Watched { .. } | First::Nobody { .. } => LeaderStep::Wait,
            },
        }
    }

    /// The leader as it was last shown.
    pub(crate) fn leader(&self) -> Option<&Leader> {
        self.shown.as_ref()
    }

    /// Whether somebody is to be told of the leader; once for each change.
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.is_news)
    }

    /// Nothing is watched any more: the session is over, or the directory is not the one that was
    /// watched.
    pub(crate) fn start_over(&mut self) {
        self.directory = LeaderDirectory::Unwatched;
        self.first = First::Unknown;
    }

    /// There is no directory, and so no leader.
    pub(crate) fn directory_missing(&mut self) {
        self.directory = LeaderDirectory::Missing;
        self.first = First::Unknown;
        self.show(None);
    }

    pub(crate) fn directory_watched(&mut self, czxid: i64) {
        self.directory = LeaderDirectory::Watched(czxid);
        // A list before this watch may be of another directory. What is followed by its identity
        // need not be.
        if matches!(self.first, First::Named(_)) {
            self.first = First::Unknown;
        }
    }

    /// The list of a directory with this identity.
    pub(crate) fn listed<'a>(
        &mut self,
        directory: i64,
        children: impl IntoIterator<Item = &'a str>,
    ) {
        if self.directory != LeaderDirectory::Watched(directory) {
            return self.start_over();
        }
        self.first = match candidate(children) {
            Some(ticket) => First::Named(ticket),
            None => First::Nobody { is_watched: false },
        };
    }

    /// The children are watched, and were these by then. Whether the watch is of use.
    pub(crate) fn children_watched<'a>(
        &mut self,
        children: impl IntoIterator<Item = &'a str>,
    ) -> bool {
        match candidate(children) {
            Some(ticket) => {
                self.first = First::Named(ticket);
                false
            }
            None => {
                self.first = First::Nobody { is_watched: true };
                self.show(None);
                true
            }
        }
    }

    /// The ticket that was to be watched is, under this identity.
    pub(crate) fn ticket_watched(&mut self, czxid: i64) {
        if let First::Named(ticket) = std::mem::take(&mut self.first) {
            self.first = First::Watched {
                ticket,
                czxid,
                is_read: false,
            };
        }
    }

    /// What a read of the directory and the first ticket saw: the directory's identity and data,
    /// and the ticket, if it is there. Whether that was what is watched.
    pub(crate) fn read(
        &mut self,
        directory: i64,
        directory_data: &[u8],
        found: Option<FirstSeen<'_>>,
    ) -> bool {
        if self.directory != LeaderDirectory::Watched(directory) {
            self.start_over();
            return false;
        }
        let First::Watched {
            ticket,
            czxid: watched,
            is_read,
        } = &mut self.first
        else {
            return false;
        };
        match found {
            Some(first) if first.0 == *watched => {
                *is_read = true;
                let leader = Leader::of(ticket, first, directory_data);
                self.show(Some(leader));
                true
            }
            // Another one's turn, or nobody's.
            _ => {
                self.first = First::Unknown;
                false
            }
        }
    }

    /// The watch of the directory's data is spent on a change of it.
    pub(crate) fn directory_changed(&mut self) {
        self.directory = LeaderDirectory::Unwatched;
        if let First::Watched { is_read, .. } = &mut self.first {
            *is_read = false;
        }
    }

    /// The first ticket is gone, or is not what it was; or the children have changed.
    pub(crate) fn first_changed(&mut self) {
        self.first = First::Unknown;
    }

    fn show(&mut self, leader: Option<Leader>) {
        if self.shown != leader {
            self.shown = leader;
            self.is_news = true;
        }
    }
}
