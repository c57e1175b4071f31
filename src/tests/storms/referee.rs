//! The referee: reads the log of a simulated run and names the first rule that was broken. (pure)
//!
//! The rules are those of docs/failures.md, "Invariants". It knows tickets by their `czxid` only,
//! and the turn of a ticket as the prefixes of the history at which it is there and nothing older
//! is: a grant is right if the read that led to it was served at one of those, however old that
//! prefix was by then.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use super::DIRECTORY;
use crate::tests::simulated::tree::{Change, parent};
use crate::tests::simulated::{Author, Entry, Step};

#[derive(Debug, Default)]
struct Ticket {
    path: String,
    owner: i64,
    call: Option<u32>,
    turn_began: Option<i64>,
    gone: Option<(i64, Author)>,
}

#[derive(Debug, Default)]
struct Call {
    is_steady: bool,
    has_let_go: bool,
    ticket: Option<i64>,
    /// Where it read tickets, by their paths.
    verified: HashMap<String, Vec<i64>>,
}

#[derive(Debug, Default)]
pub(crate) struct Referee {
    tickets: BTreeMap<i64, Ticket>,
    queues: HashMap<String, BTreeSet<i64>>,
    calls: HashMap<u32, Call>,
    /// Where each session read the directory alone, for all of its calls that had asked for a
    /// speculative read.
    speculated: HashMap<i64, Vec<i64>>,
    data: HashMap<String, Vec<u8>>,
    /// The version of the directory from each change on.
    versions: BTreeMap<i64, i32>,
    deleting: HashMap<(i64, String), usize>,
    /// Where in the history a janitor read a ticket before it removed it.
    seen: HashMap<(i64, String), Vec<i64>>,
    /// The prefix of the read that granted, and the ticket.
    grants: Vec<(i64, i64)>,
}

impl Referee {
    /// Reads the whole log; the number of grants, or the rule that was broken.
    pub(crate) fn judge<'a>(log: impl IntoIterator<Item = &'a Entry>) -> Result<usize, String> {
        let mut referee = Self::default();
        for entry in log {
            referee.read(entry)?;
        }
        referee.grants.sort_unstable();
        if referee.grants.windows(2).any(|pair| pair[0].1 >= pair[1].1) {
            return Err(format!("S4: tokens do not grow: {:?}", referee.grants));
        }
        Ok(referee.grants.len())
    }

    fn read(&mut self, entry: &Entry) -> Result<(), String> {
        match entry {
            Entry::Commit {
                zxid,
                author,
                call,
                changes,
            } => {
                let author = match author {
                    Author::Session(session) if self.is_mistaken(*session, changes) => {
                        Author::Other("a broken holder")
                    }
                    author => *author,
                };
                changes
                    .iter()
                    .try_for_each(|change| self.commit(*zxid, author, *call, change))
            }
            Entry::VerifiedRead {
                session,
                call,
                paths,
                prefix,
            } => {
                match (call, &paths[..]) {
                    (Some(call), [_, mine, ..]) => {
                        let verified = &mut self.calls.entry(*call).or_default().verified;
                        verified.entry(mine.clone()).or_default().push(*prefix);
                    }
                    (None, [directory]) if directory == DIRECTORY => {
                        self.speculated.entry(*session).or_default().push(*prefix);
                    }
                    (None, read) => {
                        for path in read {
                            let seen = self.seen.entry((*session, path.clone()));
                            seen.or_default().push(*prefix);
                        }
                    }
                    _ => {}
                }
                Ok(())
            }
            Entry::Deleting {
                session,
                path,
                is_over,
            } => self.deleting(*session, path, *is_over),
            Entry::Step { call, step } => self.step(*call, step),
            Entry::Fault { .. } => Ok(()),
        }
    }

    /// Whether a delete hits another ticket by one of the two holes of row 71 that the server's
    /// operations leave open, since it can check a version but no identity. Both need an operator:
    /// the ticket was broken, its directory was removed and made again, another ticket stands under
    /// its name, and either the release checks the version and the new directory is at the same one
    /// by chance, or all that happened between the janitor's look and its delete.
    fn is_mistaken(&self, session: i64, changes: &[Change]) -> bool {
        let (path, is_marked) = match changes {
            [Change::Deleted { path, .. }] => (path, false),
            [Change::Set { .. }, Change::Deleted { path, .. }] => (path, true),
            _ => return false,
        };
        let seen = self.seen.get(&(session, path.clone()));
        self.tickets.iter().any(|(czxid, ticket)| {
            let is_own = ticket.owner == session && ticket.path == *path;
            let Some((gone, Author::Other(_))) = ticket.gone else {
                return false;
            };
            let mut seen = seen.into_iter().flatten();
            let was_seen = seen.any(|seen| (*czxid..gone).contains(seen));
            is_own && (is_marked || was_seen || self.is_same_version(ticket, *czxid..gone))
        })
    }

    /// Whether the directory is now at a version at which the ticket was seen.
    fn is_same_version(&self, ticket: &Ticket, there: Range<i64>) -> bool {
        let call = ticket.call.and_then(|call| self.calls.get(&call));
        let verified = call.and_then(|call| call.verified.get(&ticket.path));
        let mut snapshots = verified
            .into_iter()
            .flatten()
            .chain(self.speculates(ticket))
            .copied();
        let version = |at| self.versions.range(..=at).next_back().map(|(_, it)| *it);
        snapshots.any(|at| there.contains(&at) && version(at) == version(i64::MAX))
    }

    fn speculates(&self, ticket: &Ticket) -> &[i64] {
        self.speculated
            .get(&ticket.owner)
            .map_or(&[], Vec::as_slice)
    }

    fn commit(
        &mut self,
        zxid: i64,
        author: Author,
        call: Option<u32>,
        change: &Change,
    ) -> Result<(), String> {
        match change {
            Change::Created { path, node } if node.owner != 0 => {
                let ticket = Ticket {
                    path: path.clone(),
                    owner: node.owner,
                    call,
                    ..Ticket::default()
                };
                self.tickets.insert(zxid, ticket);
                let queue = parent(path).to_owned();
                self.queues.entry(queue).or_default().insert(zxid);
            }
            Change::Created { path, .. } => {
                self.data.insert(path.clone(), Vec::new());
                self.note_version(path, zxid, 0);
            }
            Change::Set {
                path,
                data,
                version,
            } => {
                self.note_version(path, zxid, *version);
                let before = self.data.insert(path.clone(), data.clone());
                if matches!(author, Author::Session(_)) && before.is_some_and(is_foreign) {
                    return Err(format!("row 85: the foreign data of {path} is overwritten"));
                }
            }
            Change::Deleted { path, czxid, .. } => self.deletion(zxid, author, path, *czxid)?,
        }
        let first = self.queues.get(parent(change.path()));
        if let Some(ticket) = first.and_then(|queue| self.tickets.get_mut(queue.first()?)) {
            ticket.turn_began.get_or_insert(zxid);
        }
        Ok(())
    }

    fn note_version(&mut self, path: &str, zxid: i64, version: i32) {
        if path == DIRECTORY {
            self.versions.insert(zxid, version);
        }
    }

    fn deletion(
        &mut self,
        zxid: i64,
        author: Author,
        path: &str,
        czxid: i64,
    ) -> Result<(), String> {
        let Some(ticket) = self.tickets.get_mut(&czxid) else {
            self.data.remove(path);
            if matches!(author, Author::Session(_)) && path.ends_with("junk") {
                return Err(format!("row 45: a session removes {path}"));
            }
            return Ok(());
        };
        ticket.gone = Some((zxid, author));
        if let Some(queue) = self.queues.get_mut(parent(path)) {
            queue.remove(&czxid);
        }
        let Author::Session(session) = author else {
            return Ok(());
        };
        if session != ticket.owner {
            return Err(format!(
                "row 71: session {session} removes the ticket {czxid} of another"
            ));
        }
        let call = ticket.call.and_then(|call| self.calls.get(&call));
        if call.is_some_and(|call| call.is_steady && !call.has_let_go) {
            return Err(format!(
                "row 71: the ticket {czxid} is removed while it is in use"
            ));
        }
        Ok(())
    }

    fn deleting(&mut self, session: i64, path: &str, is_over: bool) -> Result<(), String> {
        let count = self.deleting.entry((session, path.to_owned())).or_default();
        if is_over {
            *count -= 1;
        } else {
            *count += 1;
            // A directory may be removed by many at once; a ticket by one delete at a time. Two
            // tickets of one session can have had the same name only if the first was broken; each
            // may then have its delete.
            let own = |ticket: &&Ticket| ticket.owner == session && ticket.path == path;
            let was_broken = |ticket: &Ticket| matches!(ticket.gone, Some((_, Author::Other(_))));
            let allowed = match self.tickets.values().filter(own).count() {
                several @ 2.. if self.tickets.values().filter(own).any(was_broken) => several,
                _ => 1,
            };
            if *count > allowed && path.contains("lock-") {
                return Err(format!("two deletes of {path} are under way"));
            }
        }
        Ok(())
    }

    fn step(&mut self, number: u32, step: &Step) -> Result<(), String> {
        let call = self.calls.entry(number).or_default();
        match step {
            Step::DeleteProgress { is_steady } => call.is_steady = *is_steady,
            Step::LetGo => call.has_let_go = true,
            Step::Granted { czxid } => {
                call.ticket = Some(*czxid);
                return self.granted(number, *czxid);
            }
            Step::Released => {
                let ticket = call.ticket.and_then(|czxid| self.tickets.get(&czxid));
                if ticket.is_none_or(|ticket| ticket.gone.is_none()) {
                    return Err(format!(
                        "S9: call {number} has released a ticket that is there"
                    ));
                }
            }
            Step::PlaceLost => {
                let taken = |ticket: &Ticket| {
                    ticket.call == Some(number)
                        && matches!(ticket.gone, Some((_, Author::Other(_) | Author::End(_))))
                };
                if !self.tickets.values().any(taken) {
                    return Err(format!("call {number} lost a place that nobody took"));
                }
            }
        }
        Ok(())
    }

    fn granted(&mut self, number: u32, czxid: i64) -> Result<(), String> {
        let Some(ticket) = self
            .tickets
            .get(&czxid)
            .filter(|it| it.call == Some(number))
        else {
            return Err(format!("S1: call {number} is granted {czxid}, not its own"));
        };
        // It rests on the last look since it is there, because names come again in a directory that
        // was made again. Without one it rests on a speculative read of its session; on which,
        // nobody knows.
        let verified = self.calls[&number].verified.get(&ticket.path);
        let verified = verified.and_then(|all| all.iter().filter(|at| **at >= czxid).max());
        let snapshots = verified.map_or_else(|| self.speculates(ticket), std::slice::from_ref);
        let is_its_turn = |prefix: &&i64| {
            let began = ticket.turn_began.is_some_and(|began| began <= **prefix);
            began && ticket.gone.is_none_or(|(gone, _)| **prefix < gone)
        };
        let Some(&prefix) = snapshots.iter().find(is_its_turn) else {
            return Err(format!(
                "S1: {czxid} is granted by one of {snapshots:?}, but {ticket:?}"
            ));
        };
        let holds = |call: &Call| {
            let other = call.ticket.filter(|it| *it != czxid && !call.has_let_go);
            other.is_some_and(|it| self.tickets[&it].gone.is_none())
        };
        if ticket.gone.is_none() && self.calls.values().any(holds) {
            return Err(format!("S1: {czxid} is granted beside a live holder"));
        }
        self.grants.push((prefix, czxid));
        Ok(())
    }
}

fn is_foreign(data: Vec<u8>) -> bool {
    !data.is_empty() && !data.starts_with(b"{\"lockkeeper_released\"")
}
