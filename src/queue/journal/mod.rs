//! The journal: the last holds of each lock, with their durations and outcomes, if a keeper keeps
//! one.
//!
//! Invariants: no call waits for the journal, it keeps a bounded number of lines and no session,
//! and data of other programs stays as it is. It decides nothing. A hold whose process died has no
//! outcome in it, and a lost hold has none while its guard lives.
//!
//! A hold writes a line when it begins and when it ends. One task in the keeper's runtime writes a
//! page for each lock, so holds in quick succession share their writes, and a line that is written
//! twice is one line. A line cannot be written with the release: a page is another node, and its
//! version would be one more reason to refuse a release.

mod record;
mod writer;

pub(crate) use record::{Draft, Record};
pub(crate) use writer::JournalWriter;

use std::sync::Arc;

use super::acl;
use super::directory::Directory;
use crate::error::Result;
use crate::link::{Code, Create};
use crate::name::LockName;
use crate::protocol::journal_page::{self, JournalEntry, Page};
use crate::session::pool::Pool;
use crate::session::{Failure, Session, failed};

const READING: &str = "read the journal of";

/// The holds on the page of a lock, the oldest first.
pub(crate) async fn read(
    pool: &Arc<Pool>,
    root: &str,
    name: &LockName,
) -> Result<Vec<JournalEntry>> {
    let session = pool.home(READING, name).await?;
    let directory = Directory::new(&journal_page::base(root), name, Create::Persistent);
    let page = read_page(&session, READING, name, &directory.path).await?;
    Ok(page.map_or_else(Vec::new, |(page, _)| page.entries()))
}

/// The page of a lock with its version, if there is one.
async fn read_page(
    session: &Session,
    doing: &'static str,
    name: &LockName,
    path: &str,
) -> Result<Option<(Page, i32)>> {
    let failed = |failure| failed(session, doing, name, path, failure);
    loop {
        let Some(node) = session.node(path).await.map_err(failed)? else {
            return Ok(None);
        };
        if acl::check(session, name, path, &node).await? {
            let why = || Code::Other("it holds another program's data".into());
            let page = Page::parse(&node.data).ok_or_else(|| failed(Failure::Answered(why())));
            return page.map(|page| Some((page, node.version)));
        }
    }
}
