//! The journal: who had a lock, for how long, and how that ended; the last few holds of each lock, if a keeper is asked for it.
//!
//! Invariants: it never delays a lock, and nothing that it cannot write is kept for ever; what is not its own is left as it is. It
//! decides nothing: a hold whose process died without a word has no end in it.

mod entry;

pub use entry::{Ending, JournalEntry};

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::Instrument;

use self::entry::{Line, Page};
use super::directory::Directory;
use super::now_ms;
use super::ticket::DataLine;
use crate::error::{Error, Result};
use crate::link::{Code, Create, Fault, Found, Read, Write};
use crate::name::LockName;
use crate::session::pool::Pool;
use crate::session::pulse::{Loss, Witness};
use crate::session::{End, Failure, Session, failed, refused};

const READING: &str = "read the journal of";
const WRITING: &str = "write the journal of";
/// Somebody else writes the same page only when holds of a lock follow each other faster than a page is written.
const TRIES: u32 = 30;
const PAUSE: Duration = Duration::from_millis(10);

/// Writes what the holds of one keeper say, a page for each lock, behind their backs.
#[derive(Debug)]
pub(crate) struct Scribe {
    pool: Arc<Pool>,
    /// The node below which the pages are.
    base: String,
    /// So many holds stay on a page.
    most: usize,
    desk: Mutex<Desk>,
    /// Whether everything is written.
    is_idle: watch::Sender<bool>,
}

/// What is to be written.
#[derive(Debug, Default)]
struct Desk {
    pages: HashMap<LockName, Page>,
    is_writing: bool,
}

/// Where the journal of the locks below a root is.
pub(crate) fn base(root: &str) -> String {
    match root {
        "/" => "/lockkeeper-journal".into(),
        root => format!("{root}-journal"),
    }
}

impl Scribe {
    pub(crate) fn new(pool: Arc<Pool>, root: &str, most: usize) -> Arc<Self> {
        Arc::new(Self {
            pool,
            base: base(root),
            most,
            desk: Mutex::default(),
            is_idle: watch::Sender::new(true),
        })
    }

    /// Waits until everything is written, for so long at most.
    pub(crate) async fn settle(&self, limit: Duration) {
        let mut is_idle = self.is_idle.subscribe();
        let written = is_idle.wait_for(|is_idle| *is_idle);
        if timeout(limit, written).await.is_err() {
            tracing::warn!("the journal was not written in time");
        }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(self: &Arc<Self>, name: &LockName, line: Line) {
        let mut desk = self.desk();
        let page = desk.pages.entry(name.clone()).or_default();
        page.put(line);
        page.cut(self.most);
        if desk.is_writing {
            return;
        }
        // Without a runtime nothing can be written any more.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        desk.is_writing = true;
        self.is_idle.send_replace(false);
        let scribe = Arc::clone(self);
        // It ends by itself: when there is nothing to write, and with the keeper's sessions.
        let write = async move { scribe.write_all().await };
        runtime.spawn(write.instrument(tracing::debug_span!("journal")));
    }

    async fn write_all(&self) {
        loop {
            let pages = {
                let mut desk = self.desk();
                desk.is_writing = !desk.pages.is_empty();
                if !desk.is_writing {
                    self.is_idle.send_replace(true);
                    return;
                }
                std::mem::take(&mut desk.pages)
            };
            for (name, page) in pages {
                match self.write(&name, &page).await {
                    Ok(()) => {}
                    // Guards may outlive their keeper.
                    Err(error) if error.is_closed() => {
                        tracing::debug!(%error, "not in the journal")
                    }
                    Err(error) => tracing::warn!(%error, "a part of the journal is lost"),
                }
            }
        }
    }

    /// Adds to what is on the page. It may be repeated: a line is known by its ticket.
    async fn write(&self, name: &LockName, added: &Page) -> Result<()> {
        let directory = Directory::new(&self.base, name, Create::Persistent);
        let path = &*directory.path;
        for _ in 0..TRIES {
            let session = self.pool.home(WRITING).await?;
            let Some((mut page, version)) = look(&session, WRITING, name, path).await? else {
                directory.make(&session, name).await?;
                continue;
            };
            page.put_all(added);
            page.cut(self.most);
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
                Ok(Ok(_)) => return Ok(()),
                Ok(Err((_, Code::BadVersion | Code::NoNode)))
                | Err(Fault::Unknown(_) | Fault::Answered(Code::NotNow(_))) => {}
                Ok(Err((_, code))) | Err(Fault::Answered(code)) => {
                    return Err(refused(&*link, WRITING, path, &code));
                }
            }
            drop(link);
            session.reconnected(PAUSE).await.map_err(ended)?;
        }
        Err(Error::TimedOut {
            name: name.to_string(),
            waited: PAUSE.saturating_mul(TRIES),
        })
    }
}

/// The page of a lock, the oldest hold first; nothing if there is none.
pub(crate) async fn read(
    pool: &Arc<Pool>,
    root: &str,
    name: &LockName,
) -> Result<Vec<JournalEntry>> {
    let session = pool.home(READING).await?;
    let directory = Directory::new(&base(root), name, Create::Persistent);
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
    let found = session
        .read(|link| link.multi_read(&[Read::Data(path)]))
        .await;
    let code = match found.map_err(failed)?.into_iter().next() {
        Some(Found::Node(node)) => match Page::parse(&node.data) {
            Some(page) => return Ok(Some((page, node.version))),
            None => Code::Other("it holds another program's data".into()),
        },
        Some(Found::Failed(Code::NoNode)) => return Ok(None),
        Some(Found::Failed(code)) => code,
        other => Code::Other(format!("unexpected answer {other:?}")),
    };
    Err(failed(Failure::Answered(code)))
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
        node: &str,
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
            token,
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
        };
        self.scribe.note(name, line.clone());
        Record {
            scribe: self.scribe,
            name: name.clone(),
            line,
            began: Instant::now(),
            witness,
            released: None,
        }
    }
}

/// A hold that is written down. Dropped, it says how it ended.
#[derive(Debug)]
pub(crate) struct Record {
    scribe: Arc<Scribe>,
    name: LockName,
    line: Line,
    began: Instant,
    witness: Witness,
    /// How long it was held when somebody began to release it.
    released: Option<Duration>,
}

impl Record {
    pub(crate) fn is_released(&mut self) {
        self.released.get_or_insert_with(|| self.began.elapsed());
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let ending = match (self.witness.loss(), self.released) {
            (Some(loss), _) => Ending::Lost(why(loss)),
            (None, Some(_)) => Ending::Released,
            (None, None) => Ending::Dropped,
        };
        let held = self.released.unwrap_or_else(|| self.began.elapsed());
        let mut line = self.line.clone();
        line.held_ms = Some(ms(held));
        line.ending = Some(ending);
        self.scribe.note(&self.name, line);
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
