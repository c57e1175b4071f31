//! The waiter: a ticket's walk to the grant. Look, judge, watch, wait.
//!
//! Invariants: every read that can grant also reads our own ticket in the same `multi_read` and compares its `czxid`
//! (FAILURES.md rows 72 and 73); a waiter watches one ticket, the nearest one before it; a list of the children is the
//! fallback, never the way. It creates and deletes nothing.
//!
//! The walk: look: alone? (1 request); otherwise watch the number before mine (1). When the watched ticket goes, look (1): a
//! mark with its `czxid` proves that it held and released, so everything before it was gone already.

use std::time::{Duration, Instant};

use super::mark::{DirectoryData, Mark};
use super::place::Place;
use super::rule::{self, Verdict};
use super::ticket::Ticket;
use crate::error::{Error, Result};
use crate::link::{Change, Code, Found, Node, Read, Watch};
use crate::name::LockName;
use crate::session::janitor::Exit;
use crate::session::lease::Moment;
use crate::session::pulse::Hold;
use crate::session::{Failure, failed};

const WAITING: &str = "wait for";

/// A ticket on its way to the grant.
#[derive(Debug)]
pub(crate) struct Waiter {
    place: Place,
    name: LockName,
    phase: Phase,
    since: Instant,
    /// None once it is over.
    delay: Option<LockDelay>,
}

/// How long to wait for the resource of a holder that may not have ended well.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LockDelay {
    pub(crate) length: Duration,
    /// Directories are removed when they are empty, and with them what was in them before.
    pub(crate) directories_forget: bool,
}

/// Where a ticket is on its way. A phase is left only when its await has an answer, so a waiter whose future was dropped
/// goes on from the same phase.
#[derive(Debug)]
enum Phase {
    /// Just created.
    Joined,
    /// Not alone: probably the number before mine is there.
    Guessing,
    /// The arithmetic or the mark did not help.
    Listing,
    /// This ticket is the nearest before mine, by the list or, with its identity, by a watch that was spent on a change of
    /// its data.
    Following { ahead: Ticket, czxid: Option<i64> },
    /// The ticket with this identity is before mine, and watched.
    Watching {
        ahead: Ticket,
        czxid: i64,
        watch: Watch,
    },
    /// The ticket with this identity, the nearest before mine, is gone.
    Woken { czxid: i64 },
    /// Nobody is before mine, but whoever was may not have ended well: not before that moment.
    Delaying { until: Moment },
    /// Nobody was before mine at that moment.
    Granted { seen: Moment },
}

impl Waiter {
    pub(crate) fn name(&self) -> &LockName {
        &self.name
    }

    /// The ticket's number and identity.
    pub(crate) fn ticket(&self) -> Result<(Ticket, i64)> {
        let ticket = self
            .place
            .ticket()
            .map(|(ticket, czxid)| (ticket.clone(), czxid));
        ticket.ok_or_else(|| self.lost("the place was given up"))
    }

    pub(super) fn new(place: Place, name: LockName, delay: LockDelay) -> Self {
        Self {
            place,
            name,
            phase: Phase::Joined,
            since: Instant::now(),
            delay: Some(delay).filter(|delay| !delay.length.is_zero()),
        }
    }

    /// How long this ticket has been in the queue.
    pub(crate) fn waited(&self) -> Duration {
        self.since.elapsed()
    }

    /// Waits until nobody is before this ticket and the session has a lease.
    ///
    /// # Cancel safety
    ///
    /// The ticket keeps its place; call again to go on.
    pub(crate) async fn granted(&mut self) -> Result<Hold> {
        loop {
            match self.phase {
                Phase::Granted { seen } if self.place.session().pulse.is_recent(seen) => {
                    // On the heap, as every step but the wait.
                    if let Some(hold) = Box::pin(self.hold()).await? {
                        return Ok(hold);
                    }
                }
                // A held ticket is looked at with each beat, and somebody may have removed this one meanwhile.
                Phase::Granted { .. } => self.phase = Phase::Listing,
                _ => self.advance().await?,
            }
        }
    }

    /// Begins the hold. Being the first is not enough: the session must surely be alive, and the ticket its own. `None` if that
    /// took a wait.
    async fn hold(&mut self) -> Result<Option<Hold>> {
        let (ticket, czxid) = self.ticket()?;
        let session = std::sync::Arc::clone(self.place.session());
        let path = format!("{}/{}", self.place.directory(), ticket.name);
        let recognised = session.recognise_again(&path).await;
        recognised.map_err(|failure| failed(&session, WAITING, &self.name, &path, failure))?;
        let ended = match session.pulse.try_hold(path.as_str().into(), czxid) {
            Ok(Some(hold)) => return Ok(Some(hold)),
            Ok(None) => {
                tracing::debug!("first, but without a lease");
                tokio::select! {
                    () = session.pulse.leased() => return Ok(None),
                    end = session.ended() => end,
                }
            }
            Err(end) => end,
        };
        Err(ended.while_trying(WAITING, &self.name))
    }

    /// Waits until the ticket before this one is another, or none.
    pub(crate) async fn changed(&mut self) -> Result<()> {
        loop {
            let was_watching = matches!(self.phase, Phase::Watching { .. });
            if matches!(self.phase, Phase::Granted { .. }) {
                return Ok(());
            }
            self.advance().await?;
            let is_the_same = matches!(self.phase, Phase::Following { czxid: Some(_), .. });
            if was_watching && !is_the_same {
                return Ok(());
            }
        }
    }

    /// Whether nobody is before this ticket, without waiting.
    pub(super) async fn try_granted(&mut self) -> Result<bool> {
        loop {
            match self.phase {
                Phase::Granted { .. } => return Ok(true),
                Phase::Joined | Phase::Listing | Phase::Woken { .. } => self.advance().await?,
                Phase::Guessing => self.phase = Phase::Listing,
                // Sat out, because leaving would begin it anew for whoever comes next.
                Phase::Delaying { .. } => self.advance().await?,
                Phase::Following { .. } | Phase::Watching { .. } => return Ok(false),
            }
        }
    }

    /// How many tickets are before this one. Lists the queue.
    pub(crate) async fn position(&self) -> Result<usize> {
        let (mine, _) = self.ticket()?;
        let looked = self.look(true).await?;
        let tickets = looked
            .children
            .iter()
            .filter_map(|child| Ticket::parse(child));
        Ok(tickets.filter(|other| other.is_before(&mine)).count())
    }

    /// Hands the place over to a guard.
    pub(crate) fn into_place(self) -> Place {
        self.place
    }

    /// One step of the walk.
    async fn advance(&mut self) -> Result<()> {
        self.phase = match self.phase {
            Phase::Watching { .. } => self.wait().await?,
            // On the heap, so that a waiter's future is no larger than its wait, in which it spends its life.
            _ => Box::pin(self.ask()).await?,
        };
        Ok(())
    }

    /// Waits for the watch to tell.
    async fn wait(&mut self) -> Result<Phase> {
        let Phase::Watching {
            ahead,
            czxid,
            watch,
        } = &mut self.phase
        else {
            return Ok(Phase::Listing);
        };
        let session = self.place.session();
        let change = tokio::select! {
            biased;
            _ = session.ended() => Change::SessionOver,
            change = watch.changed() => change,
        };
        match change {
            Change::Deleted => Ok(Phase::Woken { czxid: *czxid }),
            // The watch is spent, and the node may be there: arm again, by identity.
            Change::DataChanged => Ok(Phase::Following {
                ahead: ahead.clone(),
                czxid: Some(*czxid),
            }),
            Change::SessionOver => Err(session.ended().await.while_trying(WAITING, &self.name)),
        }
    }

    /// Asks the server what the phase needs to know.
    async fn ask(&mut self) -> Result<Phase> {
        match &self.phase {
            Phase::Joined => self.look_alone().await,
            Phase::Guessing => self.watch_predecessor().await,
            Phase::Listing | Phase::Watching { .. } => self.judge().await,
            Phase::Following { ahead, czxid } => {
                let (ahead, expect) = (
                    ahead.clone(),
                    czxid.map_or(Expect::Anybody, Expect::Identity),
                );
                self.watch(ahead, expect).await
            }
            Phase::Woken { czxid } => {
                let czxid = *czxid;
                self.look_for_mark(czxid).await
            }
            Phase::Delaying { until } => self.sit_out(*until).await,
            Phase::Granted { seen } => Ok(Phase::Granted { seen: *seen }),
        }
    }

    /// Waits for the end of the lock delay, and looks again: the ticket must still be there.
    async fn sit_out(&mut self, until: Moment) -> Result<Phase> {
        let session = self.place.session();
        tokio::select! {
            () = session.pulse.until(until) => {}
            end = session.ended() => return Err(end.while_trying(WAITING, &self.name)),
        }
        self.delay = None;
        Ok(Phase::Listing)
    }

    async fn look_alone(&mut self) -> Result<Phase> {
        let looked = self.look(false).await?;
        if looked.directory.num_children == 1 {
            return self.grant(&looked.directory, None);
        }
        Ok(Phase::Guessing)
    }

    /// The number before mine, if it is there and older, is the immediate predecessor: numbers are unique in a directory
    /// and given in order. (A younger one is possible only where the counter has stuck at its end.)
    async fn watch_predecessor(&mut self) -> Result<Phase> {
        match self.ticket()?.0.predecessor() {
            Some(ahead) => self.watch(ahead, Expect::Older).await,
            None => Ok(Phase::Listing),
        }
    }

    /// Arms a watch on a ticket before mine.
    async fn watch(&mut self, ahead: Ticket, expect: Expect) -> Result<Phase> {
        let (_, mine) = self.ticket()?;
        let path = format!("{}/{}", self.place.directory(), ahead.name);
        let session = self.place.session();
        let is_expected = |czxid| match expect {
            Expect::Anybody => true,
            Expect::Older => czxid < mine,
            Expect::Identity(identity) => czxid == identity,
        };
        match session.read(|link| link.watch(&path)).await {
            Ok((node, watch)) if is_expected(node.czxid) => {
                tracing::trace!(ahead = ahead.name, "watching");
                Ok(Phase::Watching {
                    ahead,
                    czxid: node.czxid,
                    watch,
                })
            }
            Ok(_) | Err(Failure::Answered(Code::NoNode)) => Ok(match expect {
                Expect::Identity(czxid) => Phase::Woken { czxid },
                Expect::Anybody | Expect::Older => Phase::Listing,
            }),
            Err(failure) => Err(failed(session, WAITING, &self.name, &path, failure)),
        }
    }

    async fn look_for_mark(&mut self, czxid: i64) -> Result<Phase> {
        let looked = self.look(false).await?;
        let proved = DirectoryData::parse(&looked.directory.data).proves_release_of(czxid);
        if proved || looked.directory.num_children == 1 {
            return self.grant(&looked.directory, Some(czxid));
        }
        Ok(Phase::Listing)
    }

    async fn judge(&mut self) -> Result<Phase> {
        let looked = self.look(true).await?;
        tracing::trace!(children = looked.children.len(), "listed");
        let (mine, _) = self.ticket()?;
        match rule::judge(&mine, looked.children.iter().map(String::as_str)) {
            Verdict::Granted => self.grant(&looked.directory, None),
            Verdict::Wait(ahead) => Ok(Phase::Following { ahead, czxid: None }),
        }
    }

    /// Decides how the ticket will leave, from the directory as it was when the grant was read; `ahead` was before it, if that is
    /// known. After somebody who may not have ended well the lock delay comes first.
    fn grant(&mut self, directory: &Node, ahead: Option<i64>) -> Result<Phase> {
        let (ticket, czxid) = self.ticket()?;
        let data = DirectoryData::parse(&directory.data);
        let is_due =
            |delay: &LockDelay| !data.ended_well(ahead, ticket.seq, delay.directories_forget);
        if let Some(delay) = self.delay.filter(is_due) {
            tracing::debug!(delay = ?delay.length, "the lock delay begins");
            let until = self.place.session().pulse.now() + delay.length;
            return Ok(Phase::Delaying { until });
        }
        let exit = if data.is_ours() {
            let marked = Exit::Marked {
                mark: Mark {
                    czxid,
                    seq: ticket.seq,
                }
                .to_bytes(),
                version: directory.version,
            };
            if ticket.is_near_end() {
                Exit::LastOut(Box::new(marked))
            } else {
                marked
            }
        } else {
            // Another program's data: neither written over nor removed with the directory.
            Exit::Plain
        };
        self.place.grant(exit);
        // Whoever ended well did so for good: another look begins no delay.
        self.delay = None;
        let seen = self.place.session().pulse.now();
        Ok(Phase::Granted { seen })
    }

    /// The only read that can grant: the directory, our own ticket and, when asked for, the children, all at one moment.
    /// Our ticket must be there with our identity.
    async fn look(&self, with_children: bool) -> Result<Looked> {
        let (ticket, czxid) = self.ticket()?;
        let directory = &**self.place.directory();
        let mine = format!("{directory}/{}", ticket.name);
        let reads = [
            Read::Data(directory),
            Read::Data(&mine),
            Read::Children(directory),
        ];
        let reads = if with_children {
            &reads[..]
        } else {
            &reads[..2]
        };
        let session = self.place.session();
        let found = session.read(|link| link.multi_read(reads)).await;
        let found =
            found.map_err(|failure| failed(session, WAITING, &self.name, directory, failure))?;
        let mut found = found.into_iter();
        match (found.next(), found.next(), found.next()) {
            (Some(Found::Node(directory)), Some(Found::Node(mine)), children)
                if mine.czxid == czxid =>
            {
                let children = match children {
                    Some(Found::Children(children)) => children,
                    Some(Found::Failed(code)) => {
                        let path = self.place.directory();
                        return Err(failed(
                            session,
                            WAITING,
                            &self.name,
                            path,
                            Failure::Answered(code),
                        ));
                    }
                    _ => Vec::new(),
                };
                Ok(Looked {
                    directory,
                    children,
                })
            }
            (_, Some(Found::Node(_)), _) => Err(self.lost("another ticket stands under its name")),
            (_, Some(Found::Failed(Code::NoNode)), _) => Err(self.lost("the ticket was removed")),
            (Some(Found::Failed(code)), _, _) | (_, Some(Found::Failed(code)), _) => Err(failed(
                session,
                WAITING,
                &self.name,
                directory,
                Failure::Answered(code),
            )),
            _ => Err(self.lost("the server's answer makes no sense")),
        }
    }

    fn lost(&self, why: &'static str) -> Error {
        Error::PlaceLost {
            name: self.name.to_string(),
            why,
        }
    }
}

/// Who may stand at the name that is watched; anybody else counts as gone.
#[derive(Clone, Copy)]
enum Expect {
    /// A list has just named it as a blocker, whatever its age: Curator's downgraded readers are younger than their number.
    Anybody,
    /// It was guessed by arithmetic. A younger one is possible where the counter has stuck at its end.
    Older,
    /// It was watched before.
    Identity(i64),
}

/// What a look saw.
struct Looked {
    directory: Node,
    children: Vec<String>,
}
