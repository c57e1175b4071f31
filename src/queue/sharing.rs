//! A ticket that excluded others comes to share, and keeps its number: how a writer becomes a
//! reader.
//!
//! Invariant: at each transaction of the ensemble one of the two tickets is there, and no other one
//! between them; so the rule alone lets a waiter behind them in. It begins no hold.

use uuid::Uuid;

use super::now_ms;
use super::place::{Exchange, Exchanged, TicketPlace};
use crate::error::{Error, Result};
use crate::link::{Code, Write};
use crate::name::LockName;
use crate::protocol::mark::ReleasePlan;
use crate::protocol::ticket::TicketData;
use crate::protocol::walk::REMOVED;
use crate::session::setbacks::Setbacks;
use crate::session::{Failure, failed};

const DOWNGRADING: &str = "downgrade";

impl TicketPlace {
    /// Exchanges our ticket for one that shares, with the same number. From then on the old one's
    /// hold is told of nothing but the end of its lease and its session.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, this place answers for both tickets, and its drop removes whichever is
    /// there.
    pub(crate) async fn share(&mut self, name: &LockName) -> Result<()> {
        let mut setbacks = Setbacks::default();
        loop {
            // By name alone it could be a stranger's ticket in a directory that was made again.
            let read = self.verified_read(&[], false).await;
            let read = read.map_err(|failure| self.failed(DOWNGRADING, name, failure))?;
            let seated = self.seated();
            let seated = seated.map_err(|lost| self.failed(DOWNGRADING, name, lost))?;
            let ticket = seated.0.shared();
            let (attempt, version) = (Uuid::new_v4(), read.directory.version);
            let line = TicketData {
                attempt,
                at: now_ms(),
                ..TicketData::of_ours(&read.mine.data)
            };
            let directory = std::sync::Arc::clone(self.directory());
            let path = &*directory;
            let exchange = Exchange {
                directory: &directory,
                ticket,
                is_sequential: false,
                data: &line.to_bytes(),
                attempt,
                with: &[Write::Check { path, version }],
                plan: ReleasePlan::Unmarked { version },
            };
            self.ignore_loss();
            let exchanged = self.exchange(exchange).await;
            let session = self.session();
            let pause = match exchanged {
                Ok(Exchanged::Done) => return Ok(()),
                Ok(Exchanged::Refused(_, Code::NoNode)) => {
                    return Err(Error::place_lost(name, REMOVED));
                }
                // A guest has come, say.
                Ok(Exchanged::Refused(_, Code::BadVersion)) => setbacks.pause_after_a_race(),
                Ok(Exchanged::Nothing) => setbacks.pause(),
                Ok(Exchanged::Refused(_, code)) => {
                    let failure = Failure::Answered(code);
                    return Err(failed(session, DOWNGRADING, name, path, failure));
                }
                Err(failure) => return Err(failed(session, DOWNGRADING, name, path, failure)),
            };
            let back = session.reconnected(pause).await;
            back.map_err(|end| end.while_trying(DOWNGRADING, name))?;
            self.heed_loss();
        }
    }
}
