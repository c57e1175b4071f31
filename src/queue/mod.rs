//! The queue: joining it. With the waiter it is the only algorithm; every recipe rides on it.
//!
//! Invariants: whatever a create made, something of ours answers for it; nothing on the usual path
//! depends on the length of the queue; `try_join` writes nothing while somebody is there. It grants
//! nothing: that is the waiter's. Recipes see no node name, no watch and no child list.

pub(crate) mod acl;
mod busy;
pub(crate) mod census;
pub(crate) mod directory;
mod doubts;
pub(crate) mod entry;
pub(crate) mod evict;
mod head;
mod join;
pub(crate) mod journal;
mod leader;
pub(crate) mod observe;
pub(crate) mod permits;
pub(crate) mod place;
pub(crate) mod revoke;
pub(crate) mod several;
mod sharing;
mod take_permits;
pub(crate) mod verified_read;
mod view;
mod waiter;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tracing::Span;
use tracing::field::Empty;

use crate::error::{Error, Result};
use crate::link::Create;
use crate::metrics::LockMetrics;
use crate::name::LockName;
use crate::protocol::journal_page::ms;
use crate::protocol::kind::LockKind;
use crate::protocol::ticket::{self, Mode, Recipe, TicketData};
use crate::session::heartbeat::LeaseEntry;
use crate::session::pool::{Need, Pool};
use crate::session::watching::WatchSlot;
use crate::session::{Failure, Session, failed};
use directory::Directory;
use join::Joining;
use journal::{Draft, JournalWriter};
pub(crate) use waiter::Waiter;

/// What a call was doing, for errors.
const WAITING: &str = "wait for";
/// The longest label, trace id or owner, in bytes.
const MOST_LABEL: usize = 1024;
/// The longest value of a candidate, in bytes.
pub(crate) const MOST_VALUE: usize = 64 * 1024;
/// Bytes of a slash and the longest name of a ticket of ours.
const TICKET_LEN: usize = "/__rlock__-2147483648".len();
/// Bytes that a guest's ticket has more.
const GUEST_LEN: usize = "_c_01234567-89ab-cdef-0123-456789abcdef-".len();

/// One lock's queue. Holds no state of its own: that is in the tickets.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    pool: Arc<Pool>,
    name: LockName,
    directory: Directory,
    /// What its tickets stand for.
    pub(crate) recipe: Recipe,
    line: Arc<TicketData>,
    /// How long to wait for the resource of a holder that may not have ended well.
    delay: Duration,
    /// Bytes of what the first in the queue watches; none if it watches nothing.
    head_watches: usize,
    /// Bytes of the longest path that its ticket may be exchanged for.
    becomes: usize,
    /// The writer of the journal, if there is one.
    pub(crate) journal: Option<Arc<JournalWriter>>,
    /// What is counted of it.
    pub(crate) metrics: LockMetrics,
}

impl Queue {
    pub(crate) fn new(
        pool: Arc<Pool>,
        root: &str,
        name: LockName,
        kind: Create,
        recipe: Recipe,
        line: Arc<TicketData>,
        delay: Duration,
    ) -> Self {
        let directory = Directory::new(root, &name, kind);
        Self {
            pool,
            name,
            directory,
            recipe,
            line,
            delay,
            head_watches: 0,
            becomes: 0,
            journal: None,
            metrics: LockMetrics::default(),
        }
    }

    /// What will be written down of a hold, if anything is.
    pub(crate) fn draft(&self, kind: LockKind) -> Option<Draft> {
        let (journal, line) = (self.journal.clone()?, Arc::clone(&self.line));
        Some(Draft {
            journal,
            line,
            kind,
        })
    }

    pub(crate) fn name(&self) -> &LockName {
        &self.name
    }

    /// The span of one acquire; the ticket and the session are filled in when they are known.
    pub(crate) fn span(&self) -> Span {
        acquire_span(self.path(), self.recipe.lock_kind().as_str())
    }

    /// Whether its tickets exclude each other.
    pub(crate) fn kind(&self) -> Mode {
        self.recipe.kind()
    }

    /// The lock's directory.
    pub(crate) fn path(&self) -> &Arc<str> {
        &self.directory.path
    }

    /// What its tickets say.
    pub(crate) fn line(&mut self) -> &mut TicketData {
        Arc::make_mut(&mut self.line)
    }

    /// Whether a holder watches for others that come.
    pub(crate) fn set_watchful(&mut self, is_watchful: bool) {
        let watched = self.pool.sent_len(self.directory.path.len());
        self.head_watches = if is_watchful { watched } else { 0 };
    }

    /// A watch on others that come, if only our ticket with this name is there.
    pub(crate) async fn watch_alone(&self, mut slot: WatchSlot, ticket: &str) -> Option<WatchSlot> {
        let children = slot.watch_children(&self.directory.path).await.ok()?;
        // Somebody else may be alone there by now, if ours was removed.
        (children == [ticket]).then_some(slot)
    }

    /// Puts a ticket at the end of the queue.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, whatever was created is removed by the janitor.
    pub(crate) async fn join(&self) -> Result<Waiter> {
        self.walk_in(Joining::of(std::slice::from_ref(self))).await
    }

    /// As [`join`](Self::join), where somebody is known to be before it.
    pub(crate) async fn join_behind(&self) -> Result<Waiter> {
        let joining = Joining::of(std::slice::from_ref(self));
        self.walk_in(joining.map(Joining::blind)).await
    }

    async fn walk_in(&self, joining: Option<Joining<'_>>) -> Result<Waiter> {
        // On the heap: it is over long before the wait, and would otherwise make every waiter's
        // future as large.
        let joined = match joining {
            Some(joining) => Box::pin(joining.walk_in()).await?.pop(),
            None => None,
        };
        joined.ok_or_else(|| self.lost("it was not joined"))
    }

    /// What one of its tickets needs of a session.
    pub(crate) fn needs(&self) -> Need {
        let guest = self.line.owner.as_ref().map_or(0, |_| GUEST_LEN);
        let directory = self.directory.path.len();
        Need {
            // The ticket before it, under the longest name of any client, and then the node that
            // the first in the queue watches.
            watched: self.watched_len().max(self.head_watches),
            ticket: self
                .pool
                .sent_len((directory + TICKET_LEN + guest).max(self.becomes)),
        }
    }

    /// Bytes of the longest ticket that can be watched in it.
    fn watched_len(&self) -> usize {
        let slash = 1;
        self.pool
            .sent_len(self.directory.path.len() + slash + ticket::LONGEST)
    }

    /// What the user gives is in every ticket, and servers refuse large nodes by dropping the
    /// connection.
    fn check_line(&self) -> Result<()> {
        let line = &*self.line;
        for (what, given, most) in [
            ("owner", &line.owner, MOST_LABEL),
            ("label", &line.label, MOST_LABEL),
            ("trace id", &line.trace, MOST_LABEL),
            ("value", &line.value, MOST_VALUE),
        ] {
            check_len(what, given.as_deref().unwrap_or_default(), most)?;
        }
        Ok(())
    }

    /// Joins only if a look says that nobody is there, and stays only if that was true. Writes
    /// nothing on a held lock.
    pub(crate) async fn try_join(&self) -> Result<Option<(Waiter, LeaseEntry)>> {
        if self.is_busy().await? {
            return Ok(None);
        }
        let mut waiter = self.join().await?;
        if waiter.try_granted().await? {
            let entry = waiter.granted().await?;
            return Ok(Some((waiter, entry)));
        }
        waiter.into_place().leave().await.ok();
        Ok(None)
    }

    fn failed_to(&self, doing: &'static str, session: &Session, failure: Failure) -> Error {
        failed(session, doing, &self.name, &self.directory.path, failure)
    }

    pub(crate) fn lost(&self, why: &'static str) -> Error {
        Error::place_lost(&self.name, why)
    }
}

pub(crate) fn acquire_span(path: &str, kind: &str) -> Span {
    tracing::debug_span!(
        "acquire",
        path,
        kind,
        ticket = Empty,
        session = Empty,
        holder_trace = Empty
    )
}

/// Refuses what is longer than so many bytes.
pub(crate) fn check_len(what: &'static str, given: &str, most: usize) -> Result<()> {
    if given.len() <= most {
        return Ok(());
    }
    // Every client that says an owner's name is let in.
    let shown = if what == "owner" { 0 } else { 40 };
    let given = format!("{}...", given.chars().take(shown).collect::<String>());
    let why = format!("it must not be longer than {most} bytes");
    Err(Error::invalid(what, given, why))
}

/// For people who read the queue; no decision rests on it.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    ms(since.unwrap_or_default())
}
