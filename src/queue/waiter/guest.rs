//! Entering as a guest: our ticket in exchange for one with the host's number.
//!
//! Invariant: the exchange commits only while the host's ticket is there. Its note in the directory
//! makes the host leave without a mark, which would call the next ticket in beside the guest.

use std::sync::Arc;

use uuid::Uuid;

use super::super::place::{Exchange, Exchanged, unchanged};
use super::super::{WAITING, now_ms};
use super::Waiter;
use crate::error::Result;
use crate::link::{Code, Write};
use crate::protocol::ticket::TicketData;
use crate::protocol::walk::GuestEntry;
use crate::session::{Failure, failed};

impl Waiter {
    pub(super) async fn enter_as_guest(&mut self, entry: GuestEntry) -> Result<()> {
        let attempt = Uuid::new_v4();
        let line = self.guest.as_ref().map(|guest| (*guest.line).clone());
        let data = TicketData {
            attempt,
            at: now_ms(),
            guest_of: Some(entry.token),
            ..line.unwrap_or_default()
        };
        let directory = Arc::clone(self.place.directory());
        let host = entry.host.path(&directory);
        let noted = unchanged(&directory, entry.version, entry.note.as_deref());
        let exchange = Exchange {
            directory: &directory,
            ticket: entry.host.guest(attempt),
            is_sequential: false,
            data: &data.to_bytes(),
            attempt,
            with: &[Write::check(&host), noted],
            plan: entry.plan(),
        };
        let session = Arc::clone(self.place.session());
        let exchanging = self.place.exchange(exchange);
        let (at, exchanged) = session.heartbeat.stamped(exchanging).await;
        if matches!(exchanged, Ok(Exchanged::Done)) {
            tracing::debug!(host = entry.host.name, "in as a guest");
            (self.seen, self.is_taken) = (at, true);
            return Ok(());
        }
        if !self.place.is_unsettled() {
            // Names decide here, so what the exchange rests on must have been seen a moment ago.
            self.start_over();
        }
        self.not_in(exchanged, &host).await
    }

    /// Pauses before the next try, if there can be one.
    async fn not_in(&mut self, exchanged: Result<Exchanged, Failure>, host: &str) -> Result<()> {
        let (path, failure) = match exchanged {
            Ok(Exchanged::Refused(_, Code::NoNode | Code::BadVersion)) => {
                let pause = self.setbacks.pause_after_a_race();
                return self.pause(pause).await;
            }
            Ok(Exchanged::Nothing | Exchanged::Done) => {
                let pause = self.setbacks.pause();
                return self.pause(pause).await;
            }
            Ok(Exchanged::Refused(0, code)) => (host, Failure::Answered(code)),
            Ok(Exchanged::Refused(_, code)) => (&**self.place.directory(), Failure::Answered(code)),
            Err(failure) => (&**self.place.directory(), failure),
        };
        let session = self.place.session();
        Err(failed(session, WAITING, &self.name, path, failure))
    }

    async fn pause(&self, pause: std::time::Duration) -> Result<()> {
        let back = self.place.session().reconnected(pause).await;
        back.map_err(|end| end.while_trying(WAITING, &self.name))
    }
}
