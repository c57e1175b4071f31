//! The writer of the journal: pending lines, and the task that writes them.
//!
//! Invariants: at most 10 000 pages are pending, and one task writes. It keeps no session alive.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::Instrument;
use uuid::Uuid;

use super::read_page;
use crate::error::{Error, Result};
use crate::latch::{self, Latch, Latched};
use crate::link::{Code, Create, Fault, Write};
use crate::name::LockName;
use crate::protocol::journal_page::{self, HoldOutcome, Page, PageLine};
use crate::queue::directory::Directory;
use crate::session::heartbeat::{Loss, LossWatch};
use crate::session::pool::Pool;
use crate::session::{End, Session, refused};

const WRITING: &str = "write the journal of";
/// Other processes write the same page at the same moment only if many share a lock, or if it
/// changes hands very fast.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(10);
/// The pause before a keeper without a session is asked for one again.
const OUTAGE_PAUSE: Duration = Duration::from_secs(1);
/// Pages that are written at the same time. Later lines wait for the slowest of them.
const AT_ONCE: usize = 16;
/// The most pages that wait to be written.
const MOST_PAGES: usize = 10_000;

/// Writes the lines of one keeper's holds, a page for each lock, in the background.
#[derive(Debug)]
pub(crate) struct JournalWriter {
    /// A hold may outlive its keeper, and must not keep its sessions.
    pool: Weak<Pool>,
    /// The keeper's own. A guard may be dropped in another runtime, or outside of any.
    runtime: Handle,
    /// The node below which the pages are.
    base: String,
    /// The number of holds on a page.
    most: usize,
    pub(super) pending: Latch<PendingLines>,
    /// Whether all is written, and no hold is being released.
    is_idle: watch::Sender<bool>,
}

/// A hold that has begun and not ended, with the line that its end completes.
#[derive(Debug, Clone)]
pub(super) struct OpenHold {
    pub(super) name: LockName,
    pub(super) line: PageLine,
    pub(super) began: Instant,
    pub(super) loss_watch: LossWatch,
}

impl OpenHold {
    /// Its line with this outcome, unless it was lost before.
    pub(super) fn ended(&self, held: Duration, outcome: HoldOutcome) -> PageLine {
        let loss = self.loss_watch.loss();
        let outcome = loss.map_or(outcome, |loss| HoldOutcome::Lost(why(loss)));
        self.line.clone().ended(held, outcome)
    }
}

/// The lines that are not yet written.
#[derive(Debug, Default)]
pub(super) struct PendingLines {
    pages: HashMap<LockName, Page>,
    is_writing: bool,
    /// Holds that have begun, by the identity of their lines. Taking a hold out gives the duty to
    /// write its end.
    pub(super) open: HashMap<Uuid, OpenHold>,
    /// The number of holds that were taken out and are being released.
    pub(super) releasing: usize,
    /// The keeper is closed: the ends of all holds are written, and no hold begins.
    pub(super) is_closed: bool,
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

    /// Writes the ends of all holds that are not being released, because the keeper is about to be
    /// closed. Waits until all is written, for at most `limit`.
    pub(crate) async fn close(self: &Arc<Self>, limit: Duration) {
        let open = {
            let mut pending = self.pending.lock();
            pending.is_closed = true;
            std::mem::take(&mut pending.open)
        };
        for hold in open.into_values() {
            let outcome = HoldOutcome::Lost(why(Loss::Ended(End::Closed)));
            let line = hold.ended(hold.began.elapsed(), outcome);
            self.note(self.pending.lock(), &hold.name, line);
        }
        let mut is_idle = self.is_idle.subscribe();
        let written = is_idle.wait_for(|is_idle| *is_idle);
        if timeout(limit, written).await.is_err() {
            tracing::warn!("the journal was not written in time");
        }
    }

    /// Unlocks the pending lines. `close` is woken after that, if all is written now.
    pub(super) fn put_down(&self, pending: Latched<'_, PendingLines>) {
        latch::set(&self.is_idle, pending.is_idle());
        drop(pending);
        latch::tell(&self.is_idle);
    }

    pub(super) fn note(
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
        let task = WritingTask {
            journal: Arc::clone(self),
            is_over: false,
        };
        // It ends when there is nothing left to write, and with the keeper's sessions.
        let span = tracing::debug_span!("journal");
        self.runtime.spawn(task.write_all().instrument(span));
    }

    /// Keeps a page that could not be written, below the lines that came since.
    fn put_back(&self, name: LockName, mut page: Page) {
        let mut pending = self.pending.lock();
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

    /// Adds lines to a page. It may be repeated, because a line has an identity.
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
            doing: "the write of the journal",
            why: format!(
                "it was not confirmed in {TRIES} tries, {:.1?} long",
                began.elapsed()
            ),
        })
    }

    /// `false` if it must be done again.
    async fn write_once(
        &self,
        session: &Session,
        name: &LockName,
        directory: &Directory,
        added: &Page,
    ) -> Result<bool> {
        let path = &*directory.path;
        let Some((mut page, version)) = read_page(session, WRITING, name, path).await? else {
            directory.make(session, name).await?;
            return Ok(false);
        };
        page.put_all(added);
        page.cut(self.most);
        page.fit();
        let data = page.to_bytes();
        let ended = |end: End| end.while_trying(WRITING, name);
        let link = session.link().map_err(ended)?;
        let writes = [Write::set(path, &data, version)];
        let answer = tokio::select! {
            answer = link.multi(&writes) => answer,
            end = session.ended() => return Err(ended(end)),
        };
        match answer {
            Ok(_) => Ok(true),
            Err(Fault::Refused(_, Code::BadVersion | Code::NoNode))
            | Err(Fault::Unknown(_) | Fault::Answered(Code::NotNow(_))) => Ok(false),
            Err(Fault::Refused(_, code) | Fault::Answered(code)) => {
                Err(refused(session, WRITING, path, &code))
            }
        }
    }
}

/// The task that writes, until no lines are pending. If it is dropped with its runtime, the next
/// line starts another one.
struct WritingTask {
    journal: Arc<JournalWriter>,
    is_over: bool,
}

impl WritingTask {
    async fn write_all(mut self) {
        while let Some(pages) = self.take() {
            let journal = &*self.journal;
            let write = |(name, page): (LockName, Page)| async move {
                match journal.write(&name, &page).await {
                    Ok(()) => {}
                    // The holds that end in an outage matter most.
                    Err(error) if error.is_unreachable() => {
                        tracing::debug!(%error, "the journal waits");
                        journal.put_back(name, page);
                        sleep(OUTAGE_PAUSE).await;
                    }
                    // Guards may outlive their keeper.
                    Err(error) if error.is_closed() => {
                        tracing::debug!(%error, "not in the journal")
                    }
                    Err(error) => {
                        tracing::warn!(target: "lockkeeper::journal", %error, "a part of the journal is lost")
                    }
                }
            };
            let writing = stream::iter(pages).for_each_concurrent(AT_ONCE, write);
            writing.await;
        }
    }

    /// All pending lines. `None` ends the task.
    fn take(&mut self) -> Option<HashMap<LockName, Page>> {
        let mut pending = self.journal.pending.lock();
        if pending.pages.is_empty() {
            self.is_over = true;
            pending.is_writing = false;
            self.journal.put_down(pending);
            return None;
        }
        Some(std::mem::take(&mut pending.pages))
    }
}

impl Drop for WritingTask {
    fn drop(&mut self) {
        if !self.is_over {
            self.journal.pending.lock().is_writing = false;
            self.journal.is_idle.send_replace(true);
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
