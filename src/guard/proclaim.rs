//! What a leader tells everybody while it holds: the value in the lock's directory.
//!
//! Invariants: it commits only while our ticket is there and nobody else has written into the
//! directory since it was read; it writes over nothing of another program's; and the ticket itself
//! is never rewritten, which would wake the next candidate and break Curator's `LeaderLatch`
//! (FEATURES 4.6).

use crate::error::Result;
use crate::guard::held_ticket::HeldTicket;
use crate::guard::hold::Hold;
use crate::link::{Code, Write};
use crate::protocol::mark::DirectoryData;
use crate::queue::{MOST_VALUE, check_len};
use crate::session::setbacks::Setbacks;
use crate::session::{Failure, failed};

const PROCLAIMING: &str = "publish a value in";

/// Publishes a value for as long as the hold lasts, or until the next one.
///
/// # Cancel safety
///
/// Dropped at any await, the value may be published or not. The release then may find the directory
/// at a version that it does not know, and leave no mark, which costs the next candidate a list.
pub(crate) async fn proclaim(hold: &Hold, value: &str) -> Result<()> {
    check_len("value", value, MOST_VALUE)?;
    // On the heap: a leader's task has room for it from the beginning otherwise.
    let speaking = Box::pin(speak(hold.held(), value));
    tokio::select! {
        biased;
        error = hold.lost() => Err(error),
        done = speaking => done,
    }
}

async fn speak(held: &HeldTicket, value: &str) -> Result<()> {
    let session = held.session();
    let (directory, ticket) = (&**held.place.directory(), held.path());
    let data = &DirectoryData::proclamation(held.czxid(), value)[..];
    // One at a time, so a call that waits here writes last.
    let mut version = held.place.version().await;
    let mut setbacks = Setbacks::default();
    let mut known = *version;
    loop {
        let at = match known.take() {
            Some(at) => at,
            None => match version_seen(held, data).await? {
                (at, true) => {
                    *version = Some(at);
                    return Ok(());
                }
                (at, false) => at,
            },
        };
        let writes = [Write::check(&ticket), Write::set(directory, data, at)];
        let unclear = "whether a value was published is unknown";
        let written = session.write(&writes, &mut setbacks, unclear).await;
        let failed = |failure| failed(session, PROCLAIMING, &held.name, directory, failure);
        // Otherwise the outcome is unknown, or somebody has written there, or the ticket is gone:
        // the next read tells.
        if written.map_err(failed)? {
            *version = Some(at.wrapping_add(1));
            tracing::debug!("proclaimed");
            return Ok(());
        }
    }
}

/// The directory's version, and whether it says what it is to say. Reads it and our ticket, behind
/// all that was committed before.
async fn version_seen(held: &HeldTicket, data: &[u8]) -> Result<(i32, bool)> {
    let session = held.session();
    let directory = &**held.place.directory();
    let read = held.place.verified_read(&[], true).await;
    let there = read
        .map_err(|error| held.failed(PROCLAIMING, directory, error))?
        .directory;
    let is_said = there.data == data;
    if is_said || DirectoryData::parse(&there.data).is_ours() {
        return Ok((there.version, is_said));
    }
    let why = Failure::Answered(Code::Other("it holds another program's data".into()));
    Err(failed(session, PROCLAIMING, &held.name, directory, why))
}
