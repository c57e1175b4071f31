//! The journal: who had a lock, for how long, and how that ended; the last few holds of each lock,
//! if a keeper is asked for it.
//!
//! Invariants: no call waits for it, it keeps a bounded number of lines, and no session alive; what
//! is not its own is left as it is. It decides nothing: a hold whose process died without a word
//! has no end in it, and one that was lost has none while its guard is there.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::Instrument;
use uuid::Uuid;

use super::acl;
use super::directory::Directory;
use super::now_ms;
use crate::error::{Error, Result};
use crate::latch;
use crate::latch::{Latch, Latched};
use crate::link::{Code, Create, Fault, Found, Read, Write};
use crate::name::LockName;
use crate::protocol::journal_page;
use crate::protocol::journal_page::{Ending, JournalEntry, Page, PageLine};
use crate::protocol::ticket::TicketData;
use crate::session::heartbeat::{Loss, LossWatch};
use crate::session::pool::Pool;
use crate::session::{End, Failure, Session, failed, refused};

const READING: &str = "read the journal of";
const WRITING: &str = "write the journal of";
/// Others write the same page at the same moment only where many share a lock, or it changes hands
/// very fast.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(10);
/// Until servers that gave no session are asked again.
const OUTAGE_PAUSE: Duration = Duration::from_secs(1);
/// So many pages are written at the same time. What is noted meanwhile waits for the slowest of
/// them.
const AT_ONCE: usize = 16;
/// So many pages wait to be written at most.
const MOST_PAGES: usize = 10_000;

/// Writes what the holds of one keeper say, a page for each lock, behind their backs.
#[derive(Debug)]
pub(crate) struct JournalWriter {
    /// A hold may outlive its keeper, and must not keep its sessions.
    pool: Weak<Pool>,
    /// The keeper's own: whoever drops a guard may be in another one, or in none.
    runtime: Handle,
    /// The node below which the pages are.
    base: String,
    /// So many holds stay on a page.
    most: usize,
    pending: Latch<PendingLines>,
    /// Whether everything is written, and nothing is about to be.
    is_idle: watch::Sender<bool>,
}

/// What is to be written.
#[derive(Debug, Default)]
struct PendingLines {
    pages: HashMap<LockName, Page>,
    is_writing: bool,
    /// Holds that have begun, by the identity of their lines. Whoever takes one out of here tells
    /// its end.
    open: HashMap<Uuid, OpenHold>,
    /// So many of those that were taken out are being released.
    releasing: usize,
    /// The keeper is closed: it has told the ends of all holds, and tells of no new ones.
    is_closed: bool,
}

impl PendingLines {
    fn is_idle(&self) -> bool {
        !self.is_writing && self.pages.is_empty() && self.releasing == 0
    }
}

impl JournalWriter {
    pub(crate) fn new(pool: &Arc<Pool>, root: &str, most: usize) -> Arc<Self> {
        Arc::new(Self {
            pool: Arc::downgrade(pool),
            runtime: pool.runtime(),
            base: journal_page::base(root),
            most,
            pending: Latch::default(),
            is_idle: watch::Sender::new(true),
        })
    }

    /// The keeper is about to be closed, and with it all holds end that are not being released.
    /// Waits until everything is written, for so long at most.
    pub(crate) async fn close(self: &Arc<Self>, limit: Duration) {
        let open = {
            let mut pending = self.pending();
            pending.is_closed = true;
            std::mem::take(&mut pending.open)
        };
        for hold in open.into_values() {
            let ending = Ending::Lost(why(Loss::Ended(End::Closed)));
            let line = hold.ended(hold.began.elapsed(), ending);
            self.note(self.pending(), &hold.name, line);
        }
        let mut is_idle = self.is_idle.subscribe();
        let written = is_idle.wait_for(|is_idle| *is_idle);
        if timeout(limit, written).await.is_err() {
            tracing::warn!("the journal was not written in time");
        }
    }

    fn pending(&self) -> Latched<'_, PendingLines> {
        self.pending.lock()
    }

    /// Says whether all is written, with the pending as it is now, and wakes who waits for it when
    /// nobody has the pending.
    fn put_down(&self, pending: Latched<'_, PendingLines>) {
        latch::set(&self.is_idle, pending.is_idle());
        drop(pending);
        latch::tell(&self.is_idle);
    }

    fn note(
        self: &Arc<Self>,
        mut pending: Latched<'_, PendingLines>,
        name: &LockName,
        line: PageLine,
    ) {
        if pending.pages.len() >= MOST_PAGES && !pending.pages.contains_key(name) {
            drop(pending);
            tracing::warn!(%name, "not in the journal: too much is still to be written");
            return;
        }
        let page = pending.pages.entry(name.clone()).or_default();
        page.put(line);
        page.cut(self.most);
        if pending.is_writing {
            return;
        }
        pending.is_writing = true;
        self.put_down(pending);
        let shift = Shift {
            journal: Arc::clone(self),
            is_over: false,
        };
        // It ends by itself: when there is nothing to write, and with the keeper's sessions.
        let span = tracing::debug_span!("journal");
        self.runtime.spawn(shift.write_all().instrument(span));
    }

    /// A page could not be written now: it goes under what has been noted since.
    fn put_back(&self, name: LockName, mut page: Page) {
        let mut pending = self.pending();
        if let Some(since) = pending.pages.remove(&name) {
            page.put_all(&since);
        } else if pending.pages.len() >= MOST_PAGES {
            drop(pending);
            tracing::warn!(%name, "not in the journal: too much is still to be written");
            return;
        }
        page.cut(self.most);
        pending.pages.insert(name, page);
    }

    /// Adds to what is on the page. It may be repeated: a line has an identity.
    async fn write(&self, name: &LockName, added: &Page) -> Result<()> {
        let directory = Directory::new(&self.base, name, Create::Persistent);
        let closed = || End::Closed.while_trying(WRITING, name);
        let began = Instant::now();
        for _ in 0..TRIES {
            let pool = self.pool.upgrade().ok_or_else(closed)?;
            let session = pool.home(WRITING, name).await?;
            match self.write_once(&session, name, &directory, added).await {
                Ok(true) => return Ok(()),
                Ok(false) => {
                    let shift = u32::from(Uuid::new_v4().as_bytes()[0] % 8);
                    let back = session.reconnected(PAUSE * (1 + shift)).await;
                    // The next session writes it.
                    if matches!(back, Err(End::Closed)) {
                        return Err(closed());
                    }
                }
                Err(error) if error.is_session_over() => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::OutcomeUnknown {
            name: name.to_string(),
            doing: "write the journal",
            why: format!(
                "it was not confirmed in {TRIES} tries, {:.1?} long",
                began.elapsed()
            ),
        })
    }

    /// False if it must be done again.
    async fn write_once(
        &self,
        session: &Session,
        name: &LockName,
        directory: &Directory,
        added: &Page,
    ) -> Result<bool> {
        let path = &*directory.path;
        let Some((mut page, version)) = look(session, WRITING, name, path).await? else {
            directory.make(session, name).await?;
            return Ok(false);
        };
        page.put_all(added);
        page.cut(self.most);
        page.fit();
        let data = page.to_bytes();
        let ended = |end: End| end.while_trying(WRITING, name);
        let link = session.link().map_err(ended)?;
        let asked = link.attempt(&[Write::Set {
            path,
            data: &data,
            version,
        }]);
        let answer = tokio::select! {
            answer = asked => answer,
            end = session.ended() => return Err(ended(end)),
        };
        match answer {
            Ok(Ok(_)) => Ok(true),
            Ok(Err((_, Code::BadVersion | Code::NoNode)))
            | Err(Fault::Unknown(_) | Fault::Answered(Code::NotNow(_))) => Ok(false),
            Ok(Err((_, code))) | Err(Fault::Answered(code)) => {
                Err(refused(&*link, WRITING, path, &code))
            }
        }
    }
}

/// Somebody is writing, until the pending is empty. Dropped before, with its runtime, it does not
/// keep others from it.
struct Shift {
    journal: Arc<JournalWriter>,
    is_over: bool,
}

impl Shift {
    async fn write_all(mut self) {
        while let Some(pages) = self.take() {
            let journal = &*self.journal;
            let write = |(name, page): (LockName, Page)| async move {
                match journal.write(&name, &page).await {
                    Ok(()) => {}
                    // The ends of an outage are what somebody will ask for.
                    Err(error) if error.is_unreachable() => {
                        tracing::debug!(%error, "the journal waits");
                        journal.put_back(name, page);
                        sleep(OUTAGE_PAUSE).await;
                    }
                    // Guards may outlive their keeper.
                    Err(error) if error.is_closed() => {
                        tracing::debug!(%error, "not in the journal")
                    }
                    Err(error) => tracing::warn!(%error, "a part of the journal is lost"),
                }
            };
            let writing = stream::iter(pages).for_each_concurrent(AT_ONCE, write);
            writing.await;
        }
    }

    /// All that is to be written; nothing ends the shift.
    fn take(&mut self) -> Option<HashMap<LockName, Page>> {
        let mut pending = self.journal.pending();
        if pending.pages.is_empty() {
            self.is_over = true;
            pending.is_writing = false;
            self.journal.put_down(pending);
            return None;
        }
        Some(std::mem::take(&mut pending.pages))
    }
}

impl Drop for Shift {
    fn drop(&mut self) {
        if !self.is_over {
            self.journal.pending().is_writing = false;
            self.journal.is_idle.send_replace(true);
        }
    }
}

/// The page of a lock, the oldest hold first; nothing if there is none.
pub(crate) async fn read(
    pool: &Arc<Pool>,
    root: &str,
    name: &LockName,
) -> Result<Vec<JournalEntry>> {
    let session = pool.home(READING, name).await?;
    let directory = Directory::new(&journal_page::base(root), name, Create::Persistent);
    let page = look(&session, READING, name, &directory.path).await?;
    Ok(page.map_or_else(Vec::new, |(page, _)| page.entries()))
}

/// A page with its version, if it is there.
async fn look(
    session: &Session,
    doing: &'static str,
    name: &LockName,
    path: &str,
) -> Result<Option<(Page, i32)>> {
    let failed = |failure| failed(session, doing, name, path, failure);
    loop {
        let found = session
            .read(|link| link.multi_read(&[Read::Data(path)]))
            .await;
        let code = match found.map_err(failed)?.into_iter().next() {
            Some(Found::Node(node)) => {
                if !acl::check(session, name, path, &node).await? {
                    continue;
                }
                match Page::parse(&node.data) {
                    Some(page) => return Ok(Some((page, node.version))),
                    None => Code::Other("it holds another program's data".into()),
                }
            }
            Some(Found::Failed(Code::NoNode)) => return Ok(None),
            Some(Found::Failed(code)) => code,
            other => Code::Other(format!("unexpected answer {other:?}")),
        };
        return Err(failed(Failure::Answered(code)));
    }
}

/// What is known of a hold before it begins.
#[derive(Debug)]
pub(crate) struct Draft {
    journal: Arc<JournalWriter>,
    line: Arc<TicketData>,
    kind: &'static str,
}

impl Draft {
    pub(super) fn new(
        journal: &Arc<JournalWriter>,
        line: &Arc<TicketData>,
        kind: &'static str,
    ) -> Self {
        Self {
            journal: Arc::clone(journal),
            line: Arc::clone(line),
            kind,
        }
    }

    /// The hold has begun.
    pub(crate) fn begin(
        self,
        name: &LockName,
        (node, ticket): (&str, i64),
        token: i64,
        waited: Duration,
        loss_watch: LossWatch,
    ) -> Record {
        let TicketData {
            owner,
            label,
            host,
            pid,
            ..
        } = &*self.line;
        let line = PageLine {
            id: Uuid::new_v4(),
            token,
            ticket,
            node: node.to_owned(),
            kind: self.kind.to_owned(),
            owner: owner.clone(),
            label: label.clone(),
            host: host.clone(),
            pid: *pid,
            since_ms: now_ms(),
            waited_ms: ms(waited),
            held_ms: None,
            ending: None,
            why: None,
        };
        let hold = OpenHold {
            name: name.clone(),
            line,
            began: Instant::now(),
            loss_watch,
        };
        let record = Record {
            journal: self.journal,
            hold,
            released: None,
            is_ours: false,
        };
        record.tell();
        record
    }
}

/// A hold that has begun.
#[derive(Debug, Clone)]
struct OpenHold {
    name: LockName,
    line: PageLine,
    began: Instant,
    loss_watch: LossWatch,
}

impl OpenHold {
    /// Its line, if it has ended in this way and was not lost before.
    fn ended(&self, held: Duration, ending: Ending) -> PageLine {
        let loss = self.loss_watch.loss();
        let ending = loss.map_or(ending, |loss| Ending::Lost(why(loss)));
        self.line.clone().ended(held, ending)
    }
}

/// A hold that is written down. Dropped, it says how it ended.
#[derive(Debug)]
pub(crate) struct Record {
    journal: Arc<JournalWriter>,
    hold: OpenHold,
    /// How long it was held when somebody began to release it.
    released: Option<Duration>,
    /// It was taken out of the open ones to be released: its end is ours to tell.
    is_ours: bool,
}

impl Record {
    pub(crate) fn is_released(&mut self) {
        if self.released.is_none() {
            self.released = Some(self.hold.began.elapsed());
            let mut pending = self.journal.pending();
            self.is_ours = pending.open.remove(&self.hold.line.id).is_some();
            pending.releasing += usize::from(self.is_ours);
            self.journal.put_down(pending);
        }
    }

    /// The hold goes on under another ticket.
    pub(crate) fn go_on(&mut self, (node, ticket): (&str, i64), loss_watch: LossWatch) {
        node.clone_into(&mut self.hold.line.node);
        self.hold.line.ticket = ticket;
        self.hold.loss_watch = loss_watch;
        self.tell();
    }

    fn tell(&self) {
        let OpenHold { name, line, .. } = &self.hold;
        let mut pending = self.journal.pending();
        if !pending.is_closed {
            pending.open.insert(line.id, self.hold.clone());
            self.journal.note(pending, name, line.clone());
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let (held, ending) = match self.released {
            Some(held) => (held, Ending::Released),
            None => (self.hold.began.elapsed(), Ending::Dropped),
        };
        let OpenHold { name, line, .. } = &self.hold;
        let ended = self.hold.ended(held, ending);
        let mut pending = self.journal.pending();
        pending.releasing -= usize::from(self.is_ours);
        // Otherwise the keeper that was closed before has told it.
        if pending.open.remove(&line.id).is_some() || self.is_ours {
            self.journal.note(pending, name, ended);
        }
    }
}

fn why(loss: Loss) -> String {
    match loss {
        Loss::Lapsed => "its lease ended".into(),
        Loss::Ended(End::Closed) => "its keeper was closed".into(),
        Loss::Ended(End::Over(reason)) => format!("its session ended: {reason}"),
        Loss::Gone(why) => why.into(),
    }
}

fn ms(long: Duration) -> u64 {
    u64::try_from(long.as_millis()).unwrap_or(u64::MAX)
}
