//! What a leader tells everybody while it holds: the value in the lock's directory.
//!
//! Invariants: it commits only while our ticket is there and nobody else has written into the
//! directory since it was read; it writes over nothing of another program's; and the ticket itself
//! is never rewritten, which would wake the next candidate and break Curator's `LeaderLatch`
//! (FEATURES 4.6).

use std::time::Duration;

use crate::error::Result;
use crate::guard::held_ticket::HeldTicket;
use crate::guard::hold::Hold;
use crate::link::{Code, Fault, Write};
use crate::protocol::mark::DirectoryData;
use crate::queue::{MOST_VALUE, check_len};
use crate::session::setbacks::Setbacks;
use crate::session::{Failure, failed, refused};

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
    let (mut setbacks, mut pause) = (Setbacks::default(), None);
    let mut known = *version;
    loop {
        let at = match known.take() {
            Some(at) => at,
            None => match value_seen(held, data, pause.take()).await? {
                ValueSeen::Said(at) => {
                    *version = Some(at);
                    return Ok(());
                }
                ValueSeen::Unsaid(at) => at,
            },
        };
        let writes = [Write::check(&ticket), Write::set(directory, data, at)];
        let link = session.link();
        let link = link.map_err(|end| end.while_trying(PROCLAIMING, &held.name))?;
        match link.attempt(&writes).await {
            Ok(Ok(_)) => {
                *version = Some(at.wrapping_add(1));
                tracing::debug!("proclaimed");
                return Ok(());
            }
            // Somebody has written there, or the ticket is gone: the next read tells.
            Ok(Err((_, Code::NoNode | Code::BadVersion))) => {
                pause = Some(setbacks.pause_after_a_race());
            }
            Ok(Err((_, code))) => return Err(refused(&*link, PROCLAIMING, directory, &code)),
            Err(Fault::Answered(Code::NotNow(why)) | Fault::Unknown(why)) => {
                tracing::debug!(why, "whether a value was published is unknown");
                pause = Some(setbacks.pause());
            }
            Err(Fault::Answered(code)) => {
                return Err(refused(&*link, PROCLAIMING, directory, &code));
            }
        }
    }
}

/// The directory's version, and whether it says what it is to say.
enum ValueSeen {
    Said(i32),
    Unsaid(i32),
}

/// Reads the directory and our ticket, behind all that was committed before.
async fn value_seen(held: &HeldTicket, data: &[u8], pause: Option<Duration>) -> Result<ValueSeen> {
    let session = held.session();
    let directory = &**held.place.directory();
    if let Some(pause) = pause {
        let back = session.reconnected(pause).await;
        back.map_err(|end| end.while_trying(PROCLAIMING, &held.name))?;
    }
    let read = held.place.verified_read(&[], true).await;
    let there = read
        .map_err(|error| held.unverified(PROCLAIMING, directory, error))?
        .directory;
    if there.data == data {
        return Ok(ValueSeen::Said(there.version));
    }
    if DirectoryData::parse(&there.data).is_ours() {
        return Ok(ValueSeen::Unsaid(there.version));
    }
    let why = Failure::Answered(Code::Other("it holds another program's data".into()));
    Err(failed(session, PROCLAIMING, &held.name, directory, why))
}
