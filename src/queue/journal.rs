//! The journal: who had a lock, for how long, and how that ended; the last few holds of each lock, if a keeper is asked for it.
//!
//! Invariants: no call waits for it, it keeps a bounded number of lines, and no session alive; what is not its own is left as it is. It
//! decides nothing: a hold whose process died without a word has no end in it, and one that was lost has none while its guard is there.

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
use crate::protocol::journal_page::{Ending, JournalEntry, Line, Page};
use crate::protocol::ticket::DataLine;
use crate::session::heartbeat::{Loss, Witness};
use crate::session::pool::Pool;
use crate::session::{End, Failure, Session, failed, refused};

const READING: &str = "read the journal of";
const WRITING: &str = "write the journal of";
/// Others write the same page at the same moment only where many share a lock, or it changes hands very fast.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(10);
/// Until servers that gave no session are asked again.
const OUTAGE_PAUSE: Duration = Duration::from_secs(1);
/// So many pages are written at the same time. What is noted meanwhile waits for the slowest of them.
const AT_ONCE: usize = 16;
/// So many pages wait to be written at most.
const MOST_PAGES: usize = 10_000;

/// Writes what the holds of one keeper say, a page for each lock, behind their backs.
#[derive(Debug)]
pub(crate) struct Scribe {
    /// A hold may outlive its keeper, and must not keep its sessions.
    pool: Weak<Pool>,
    /// The keeper's own: whoever drops a guard may be in another one, or in none.
    runtime: Handle,
    /// The node below which the pages are.
    base: String,
    /// So many holds stay on a page.
    most: usize,
    desk: Latch<Desk>,
    /// Whether everything is written, and nothing is about to be.
    is_idle: watch::Sender<bool>,
}

/// What is to be written.
#[derive(Debug, Default)]
struct Desk {
    pages: HashMap<LockName, Page>,
    is_writing: bool,
    /// Holds that have begun, by the identity of their lines. Whoever takes one out of here tells its end.
    open: HashMap<Uuid, Hold>,
    /// So many of those that were taken out are being released.
    releasing: usize,
    /// The keeper is closed: it has told the ends of all holds, and tells of no new ones.
    is_closed: bool,
}

impl Desk {
    fn is_idle(&self) -> bool {
        !self.is_writing && self.pages.is_empty() && self.releasing == 0
    }
}

impl Scribe {
    pub(crate) fn new(pool: &Arc<Pool>, root: &str, most: usize) -> Arc<Self> {
        Arc::new(Self {
            pool: Arc::downgrade(pool),
            runtime: pool.runtime(),
            base: journal_page::base(root),
            most,
            desk: Latch::default(),
            is_idle: watch::Sender::new(true),
        })
    }

    /// The keeper is about to be closed, and with it all holds end that are not being released. Waits until everything is written, for so
    /// long at most.
    pub(crate) async fn close(self: &Arc<Self>, limit: Duration) {
        let open = {
            let mut desk = self.desk();
            desk.is_closed = true;
            std::mem::take(&mut desk.open)
        };
        for hold in open.into_values() {
            let ending = Ending::Lost(why(Loss::Ended(End::Closed)));
            let line = hold.ended(hold.began.elapsed(), ending);
            self.note(self.desk(), &hold.name, line);
        }
        let mut is_idle = self.is_idle.subscribe();
        let written = is_idle.wait_for(|is_idle| *is_idle);
        if timeout(limit, written).await.is_err() {
            tracing::warn!("the journal was not written in time");
        }
    }

    fn desk(&self) -> Latched<'_, Desk> {
        self.desk.lock()
    }

    /// Says whether all is written, with the desk as it is now, and wakes who waits for it when nobody has the desk.
    fn put_down(&self, desk: Latched<'_, Desk>) {
        latch::set(&self.is_idle, desk.is_idle());
        drop(desk);
        latch::tell(&self.is_idle);
    }

    fn note(self: &Arc<Self>, mut desk: Latched<'_, Desk>, name: &LockName, line: Line) {
        if desk.pages.len() >= MOST_PAGES && !desk.pages.contains_key(name) {
            drop(desk);
            tracing::warn!(%name, "not in the journal: too much is still to be written");
            return;
        }
        let page = desk.pages.entry(name.clone()).or_default();
        page.put(line);
        page.cut(self.most);
        if desk.is_writing {
            return;
        }
        desk.is_writing = true;
        self.put_down(desk);
        let shift = Shift {
            scribe: Arc::clone(self),
            is_over: false,
        };
        // It ends by itself: when there is nothing to write, and with the keeper's sessions.
        let span = tracing::debug_span!("journal");
        self.runtime.spawn(shift.write_all().instrument(span));
    }

    /// A page could not be written now: it goes under what has been noted since.
    fn put_back(&self, name: LockName, mut page: Page) {
        let mut desk = self.desk();
        if let Some(since) = desk.pages.remove(&name) {
            page.put_all(&since);
        } else if desk.pages.len() >= MOST_PAGES {
            drop(desk);
            tracing::warn!(%name, "not in the journal: too much is still to be written");
            return;
        }
        page.cut(self.most);
        desk.pages.insert(name, page);
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

/// Somebody is writing, until the desk is empty. Dropped before, with its runtime, it does not keep others from it.
struct Shift {
    scribe: Arc<Scribe>,
    is_over: bool,
}

impl Shift {
    async fn write_all(mut self) {
        while let Some(pages) = self.take() {
            let scribe = &*self.scribe;
            let write = |(name, page): (LockName, Page)| async move {
                match scribe.write(&name, &page).await {
                    Ok(()) => {}
                    // The ends of an outage are what somebody will ask for.
                    Err(error) if error.is_unreachable() => {
                        tracing::debug!(%error, "the journal waits");
                        scribe.put_back(name, page);
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
        let mut desk = self.scribe.desk();
        if desk.pages.is_empty() {
            self.is_over = true;
            desk.is_writing = false;
            self.scribe.put_down(desk);
            return None;
        }
        Some(std::mem::take(&mut desk.pages))
    }
}

impl Drop for Shift {
    fn drop(&mut self) {
        if !self.is_over {
            self.scribe.desk().is_writing = false;
            self.scribe.is_idle.send_replace(true);
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
    scribe: Arc<Scribe>,
    line: Arc<DataLine>,
    kind: &'static str,
}

impl Draft {
    pub(super) fn new(scribe: &Arc<Scribe>, line: &Arc<DataLine>, kind: &'static str) -> Self {
        Self {
            scribe: Arc::clone(scribe),
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
        witness: Witness,
    ) -> Record {
        let DataLine {
            owner,
            label,
            host,
            pid,
            ..
        } = &*self.line;
        let line = Line {
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
        let hold = Hold {
            name: name.clone(),
            line,
            began: Instant::now(),
            witness,
        };
        let record = Record {
            scribe: self.scribe,
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
struct Hold {
    name: LockName,
    line: Line,
    began: Instant,
    witness: Witness,
}

impl Hold {
    /// Its line, if it has ended in this way and was not lost before.
    fn ended(&self, held: Duration, ending: Ending) -> Line {
        let loss = self.witness.loss();
        let ending = loss.map_or(ending, |loss| Ending::Lost(why(loss)));
        self.line.clone().ended(held, ending)
    }
}

/// A hold that is written down. Dropped, it says how it ended.
#[derive(Debug)]
pub(crate) struct Record {
    scribe: Arc<Scribe>,
    hold: Hold,
    /// How long it was held when somebody began to release it.
    released: Option<Duration>,
    /// It was taken out of the open ones to be released: its end is ours to tell.
    is_ours: bool,
}

impl Record {
    pub(crate) fn is_released(&mut self) {
        if self.released.is_none() {
            self.released = Some(self.hold.began.elapsed());
            let mut desk = self.scribe.desk();
            self.is_ours = desk.open.remove(&self.hold.line.id).is_some();
            desk.releasing += usize::from(self.is_ours);
            self.scribe.put_down(desk);
        }
    }

    /// The hold goes on under another ticket.
    pub(crate) fn go_on(&mut self, (node, ticket): (&str, i64), witness: Witness) {
        node.clone_into(&mut self.hold.line.node);
        self.hold.line.ticket = ticket;
        self.hold.witness = witness;
        self.tell();
    }

    fn tell(&self) {
        let Hold { name, line, .. } = &self.hold;
        let mut desk = self.scribe.desk();
        if !desk.is_closed {
            desk.open.insert(line.id, self.hold.clone());
            self.scribe.note(desk, name, line.clone());
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let (held, ending) = match self.released {
            Some(held) => (held, Ending::Released),
            None => (self.hold.began.elapsed(), Ending::Dropped),
        };
        let Hold { name, line, .. } = &self.hold;
        let ended = self.hold.ended(held, ending);
        let mut desk = self.scribe.desk();
        desk.releasing -= usize::from(self.is_ours);
        // Otherwise the keeper that was closed before has told it.
        if desk.open.remove(&line.id).is_some() || self.is_ours {
            self.scribe.note(desk, name, ended);
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
