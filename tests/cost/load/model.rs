//! The load that processes put on an ensemble, by arithmetic: `docs/scale.md` has the same in
//! words. (pure)
//!
//! It knows no server; the cases of `load` compare it with the servers' counts.

use std::iter::Sum;
use std::ops::Add;
use std::time::Duration;

use lockkeeper::LeaseStrength;

/// Beats in a session timeout, of a session that holds nothing and of one that does.
pub(crate) const BEATS: f64 = 6.0;
pub(crate) const HELD_BEATS: f64 = 10.0;
/// Tickets that one beat looks at.
const BATCH: usize = 100;
/// Bytes of paths that a session watches, and of which it has tickets, at most.
const WATCHED: usize = 96 * 1024;
const TICKETS: usize = 512 * 1024;
/// Bytes that are set aside for a ticket's name beside its directory, with its slash and its
/// length.
const NAME: usize = 4 + "/__rlock__-2147483648".len();
/// The same for the ticket that is watched, which may be a stranger's.
const ANY_NAME: usize = NAME + "_c_urn:uuid:01234567-89ab-cdef-0123-456789abcdef-".len();
/// Bytes of the name that a ticket of a mutex or an election really has, with its slash.
const MUTEX: usize = "/lock-0000000000".len();

/// Processes that are alike, each with one keeper.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fleet {
    pub(crate) processes: usize,
    /// Locks that each of them holds, all different.
    pub(crate) held: usize,
    /// Tickets of each of them that wait for exclusive locks.
    pub(crate) waiting: usize,
    /// Bytes of the path of a lock's directory, with the chroot.
    pub(crate) directory: usize,
    /// Bytes of what stands in a ticket.
    pub(crate) line: usize,
    pub(crate) timeout: Duration,
    pub(crate) strength: LeaseStrength,
}

/// The state of an ensemble while no session opens or closes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub(crate) sessions: usize,
    /// Ephemeral nodes.
    pub(crate) tickets: usize,
    pub(crate) watches: usize,
    /// Paths and data of the tickets, in bytes.
    pub(crate) bytes: usize,
    /// All of these are for each second.
    pub(crate) commits: f64,
    pub(crate) syncs: f64,
    pub(crate) reads: f64,
    /// Of the client crate; fewer where other requests are made.
    pub(crate) pings: f64,
}

impl Fleet {
    /// Sessions of one process.
    fn sessions(&self) -> usize {
        let ticket = self.directory + NAME;
        let tickets = self.held + self.waiting;
        let watched = self.waiting.div_ceil(WATCHED / (self.directory + ANY_NAME));
        watched.max(tickets.div_ceil(TICKETS / ticket)).max(1)
    }

    pub(crate) fn load(&self) -> Load {
        let (all, sessions) = (self.processes, self.sessions());
        let tickets = self.held + self.waiting;
        let each_second = |beats: f64| (all as f64) * beats / self.timeout.as_secs_f64();
        // The held ones are in the first session, or in as few as will do.
        let holding = self
            .held
            .div_ceil(TICKETS / (self.directory + NAME))
            .min(sessions);
        let beating = holding as f64 * each_second(HELD_BEATS)
            + (sessions - holding) as f64 * each_second(BEATS);
        let is_sync = tickets == 0 || self.strength == LeaseStrength::Sync;
        let reads = match self.strength {
            // With every beat, because a sync looks at no ticket.
            LeaseStrength::Sync if self.held > 0 => 1.0,
            LeaseStrength::Sync => 0.0,
            _ => reads_of_a_beat(self.held),
        };
        Load {
            sessions: all * sessions,
            tickets: all * tickets,
            watches: all * self.waiting,
            bytes: all * tickets * (self.directory + MUTEX + self.line),
            commits: if is_sync { 0.0 } else { beating },
            syncs: if is_sync { beating } else { 0.0 },
            reads: reads * each_second(HELD_BEATS),
            pings: beating,
        }
    }
}

/// What is held is read with the first beat that looks at it ten beats later or more.
pub(crate) fn reads_of_a_beat(held: usize) -> f64 {
    match held.div_ceil(BATCH) {
        0 => 0.0,
        round => 1.0 / (HELD_BEATS / round as f64).ceil(),
    }
}

impl Load {
    /// Requests of every kind, for each second.
    pub(crate) fn requests(&self) -> f64 {
        self.commits + self.syncs + self.reads + self.pings
    }
}

impl Add for Load {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            sessions: self.sessions + other.sessions,
            tickets: self.tickets + other.tickets,
            watches: self.watches + other.watches,
            bytes: self.bytes + other.bytes,
            commits: self.commits + other.commits,
            syncs: self.syncs + other.syncs,
            reads: self.reads + other.reads,
            pings: self.pings + other.pings,
        }
    }
}

impl Sum for Load {
    fn sum<I: Iterator<Item = Self>>(loads: I) -> Self {
        loads.fold(Self::default(), Add::add)
    }
}

/// What was done with locks, each as often as this says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turnover {
    /// Directories that had to be made first, of locks so many segments below `/` (the root
    /// counts).
    pub(crate) new_directories: usize,
    pub(crate) segments: usize,
    /// Locks that were free.
    pub(crate) taken: usize,
    /// Tickets that had to wait.
    pub(crate) queued: usize,
    /// Releases, by any client.
    pub(crate) released: usize,
    /// Those that came more than a second after the grant.
    pub(crate) released_late: usize,
    /// Releases of locks with a waiter.
    pub(crate) handed_over: usize,
}

/// The servers' work for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Transactions, those that are refused too: the ensemble agrees on a refusal as on anything
    /// else.
    pub(crate) commits: usize,
    pub(crate) reads: usize,
    pub(crate) syncs: usize,
    /// Watches that fire.
    pub(crate) events: usize,
}

impl Turnover {
    pub(crate) fn work(&self) -> Work {
        // A ticket is created in vain, with its speculative read, and then every step of the way.
        let making = self.new_directories * (1 + self.segments);
        Work {
            commits: making + self.taken + self.queued + self.released,
            reads: self.new_directories
                + self.taken
                + 2 * self.queued
                + self.handed_over
                + self.released_late,
            syncs: self.released_late,
            events: self.handed_over,
        }
    }
}

impl Work {
    pub(crate) fn requests(&self) -> usize {
        self.commits + self.reads + self.syncs
    }
}

/// Bytes of one operation, to the server and back, frames whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes {
    pub(crate) there: usize,
    pub(crate) back: usize,
}

impl Add for Bytes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            there: self.there + other.there,
            back: self.back + other.back,
        }
    }
}

/// What requests are made of: the directory's path with its chroot, the line in a ticket, and the
/// mark in the directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    pub(crate) directory: usize,
    pub(crate) line: usize,
    pub(crate) mark: usize,
}

impl Wire {
    fn ticket(self) -> usize {
        self.directory + MUTEX
    }

    fn create(self) -> Bytes {
        Bytes {
            there: 57 + self.directory + self.line,
            back: 92 + self.ticket(),
        }
    }

    /// The directory alone, read with the create.
    fn speculative_read(self) -> Bytes {
        Bytes {
            there: 35 + self.directory,
            back: 110 + self.mark,
        }
    }

    /// The directory and our ticket in one read.
    fn look(self) -> Bytes {
        Bytes {
            there: 49 + self.directory + self.ticket(),
            back: 191 + self.mark + self.line,
        }
    }

    /// A ticket that was free is created, and its directory read.
    pub(crate) fn lock(self) -> Bytes {
        self.create() + self.speculative_read()
    }

    /// The same, and the ticket before it is watched.
    pub(crate) fn queue(self) -> Bytes {
        let watch = Bytes {
            there: 17 + self.ticket(),
            back: 92 + self.line,
        };
        self.lock() + watch
    }

    pub(crate) fn release(self) -> Bytes {
        Bytes {
            there: 59 + self.directory + self.mark + self.ticket(),
            back: 115,
        }
    }

    /// A release, the event, and the look of the one that was woken.
    pub(crate) fn hand_over(self) -> Bytes {
        let event = Bytes {
            there: 0,
            back: 32 + self.ticket(),
        };
        self.release() + event + self.look()
    }

    /// What a read of so many held tickets asks with.
    pub(crate) fn read(self, tickets: usize) -> usize {
        21 + tickets * (14 + self.ticket())
    }

    /// A beat that looks at so many tickets.
    pub(crate) fn beat(self, tickets: usize) -> Bytes {
        Bytes {
            there: 21 + tickets * (17 + self.ticket()),
            back: 29 + 9 * tickets,
        }
    }
}

/// A ping of the client crate.
pub(crate) const PING: Bytes = Bytes {
    there: 12,
    back: 20,
};
