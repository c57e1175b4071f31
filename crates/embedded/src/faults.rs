//! Hooks for tests: faults to inject, and events to cause now.
//!
//! Invariant: no hook lets a reply overtake an event, since a real server never does. The hooks
//! only set switches and rules; the server reads them where it does its work.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::outbox::Latch;
use super::proto::{Code, Write};
use super::rules::{Action, Match, Rules};
use super::shared::Shared;

/// A rule without an action yet. Every method but `times` sets the action and arms it.
#[must_use = "a rule does nothing until one of its actions is chosen"]
pub struct Rule {
    shared: Arc<Shared>,
    what: Match,
    times: usize,
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("what", &self.what)
            .field("times", &self.times)
            .finish_non_exhaustive()
    }
}

impl Rule {
    /// Sets how many requests the rule applies to; 1 unless set.
    pub fn times(self, times: usize) -> Self {
        Self { times, ..self }
    }

    /// Applies the request, then closes the connection without the reply.
    pub fn drop_reply(self) {
        self.arm(Action::DropReply);
    }

    /// Applies the request, but holds back its reply and everything behind it on this connection.
    #[must_use = "dropping a hold releases it"]
    pub fn hold_reply(self) -> Hold {
        let latch = Latch::new();
        self.arm(Action::HoldReply(latch.clone()));
        Hold(latch)
    }

    /// Reads the request, but applies it only after the release. Other connections go on.
    #[must_use = "dropping a hold releases it"]
    pub fn stop_before(self) -> Hold {
        let latch = Latch::new();
        self.arm(Action::StopBefore(latch.clone()));
        Hold(latch)
    }

    /// Answers with this error and applies nothing.
    pub fn fail(self, code: Code) {
        self.arm(Action::Fail(code));
    }

    fn arm(self, action: Action) {
        self.shared.lock().rules.arm(self.what, self.times, action);
    }
}

/// A request or reply that the server holds back until [`Hold::release`] or drop. With
/// [`Rule::times`] above 1, one hold covers all the requests of its rule.
pub struct Hold(Arc<Latch>);

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").finish_non_exhaustive()
    }
}

impl Hold {
    /// Waits until the server holds something back. If that is a reply, its request is already
    /// applied.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub async fn reached(&self) {
        self.0.until_reached().await;
    }

    /// Stops holding it back.
    pub fn release(self) {}
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// A session as the server knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionInfo {
    /// Its id.
    pub id: i64,
    /// The timeout that was granted to its newest connection.
    pub timeout: Duration,
    /// Whether it has an open connection.
    pub connected: bool,
}

/// The hooks of one server; see [`EmbeddedServer::faults`](super::EmbeddedServer::faults).
#[derive(Clone)]
pub struct Faults {
    pub(super) shared: Arc<Shared>,
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults").finish_non_exhaustive()
    }
}

impl Faults {
    /// Starts a rule for the next matching request.
    pub fn on(&self, what: Match) -> Rule {
        Rule {
            shared: self.shared.clone(),
            what,
            times: 1,
        }
    }

    /// Forgets all rules that are armed.
    pub fn clear_rules(&self) {
        self.shared.lock().rules = Rules::default();
    }

    /// The number of rules that wait for a request.
    #[must_use]
    pub fn armed_rules(&self) -> usize {
        self.shared.lock().rules.len()
    }

    /// The live sessions, in the order of their ids.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionInfo> {
        let state = self.shared.lock();
        let mut sessions: Vec<_> = state
            .core
            .sessions()
            .map(|(id, session)| SessionInfo {
                id,
                timeout: session.timeout,
                connected: session.conn.is_some(),
            })
            .collect();
        sessions.sort_unstable_by_key(|session| session.id);
        sessions
    }

    /// Expires a session now. False if there is no such session.
    pub fn expire_session(&self, session: impl Into<i64>) -> bool {
        let session = session.into();
        let mut state = self.shared.lock();
        let expired = state.core.expire(session);
        state.deliver_effects();
        expired
    }

    /// Expires a session now, but leaves its ephemerals, as a server does that is slow to remove
    /// them. They stay until [`Faults::remove_ephemerals_of`]. False if there is no such session.
    pub fn expire_session_but_keep_its_nodes(&self, session: impl Into<i64>) -> bool {
        let session = session.into();
        let mut state = self.shared.lock();
        let expired = state.core.expire_without_its_nodes(session);
        state.deliver_effects();
        expired
    }

    /// The ephemerals that a session has, or had when it expired: the path of each, and the zxid of
    /// its creation.
    #[must_use]
    pub fn ephemerals_of(&self, session: i64) -> Vec<(String, i64)> {
        self.shared.lock().core.ephemerals_of(session)
    }

    /// Deletes the ephemerals that a session has, or had when it expired. Returns their number.
    pub fn remove_ephemerals_of(&self, session: i64) -> usize {
        let now = self.shared.now();
        let mut state = self.shared.lock();
        let removed = state.core.remove_ephemerals_of(session, now);
        state.deliver_effects();
        removed
    }

    /// Gives the next connection of this session a new session, as a server with a protocol fault
    /// might. The old session lives on without a connection. False if there is no such session.
    pub fn replace_session_at_next_connection(&self, session: i64) -> bool {
        self.shared.lock().core.replace_at_next_connection(session)
    }

    /// Connects this session next to a server that has seen no change since now. That server
    /// refuses a client that has seen more. It answers reads as of now, until a sync, a write or a
    /// watch makes it catch up. False if there is no such session.
    pub fn lag_at_next_connection(&self, session: i64) -> bool {
        self.shared.lock().core.lag_at_next_connection(session)
    }

    /// Closes the connection of a session; the session lives on. False if it has no connection.
    pub fn cut(&self, session: i64) -> bool {
        self.shared.lock().cut(session)
    }

    /// Closes every connection. Returns their number.
    pub fn cut_all(&self) -> usize {
        let mut state = self.shared.lock();
        let sessions: Vec<i64> = state.core.sessions().map(|(id, _)| id).collect();
        sessions
            .into_iter()
            .filter(|session| state.cut(*session))
            .count()
    }

    /// Stops reading from and writing to the session's current connection, as if the network lost
    /// every packet. If the session expires, the client does not see the connection end. A new
    /// connection of the session is not frozen. False if the session has no connection.
    pub fn freeze(&self, session: i64) -> bool {
        self.shared.lock().freeze(session)
    }

    /// Ends every freeze of this session's connections. False if there was none.
    pub fn thaw(&self, session: i64) -> bool {
        self.shared.lock().thaw(session)
    }

    /// Delays every watch event by this time. Replies behind it on the same connection wait too.
    pub fn delay_watches(&self, delay: Duration) {
        self.shared.lock().event_delay = (!delay.is_zero()).then_some(delay);
    }

    /// Holds every watch event, and the replies behind it, until [`Faults::release_watches`].
    pub fn hold_watches(&self) {
        self.shared.lock().events_held.send_replace(true);
    }

    /// Sends the events that were held.
    pub fn release_watches(&self) {
        self.shared.lock().events_held.send_replace(false);
    }

    /// Makes the next change happen at this zxid.
    pub fn set_next_zxid(&self, zxid: i64) {
        self.shared.lock().core.set_next_zxid(zxid);
    }

    /// Makes `next` the number of the next sequential child of `path`.
    ///
    /// # Errors
    /// `NoNode`.
    pub fn set_sequence(&self, path: &str, next: i32) -> Result<(), Code> {
        self.shared.lock().core.set_sequence(path, next)
    }

    /// Deletes the containers and TTL nodes that are due. Returns their number.
    pub fn reap_containers(&self) -> usize {
        let now = self.shared.now();
        let mut state = self.shared.lock();
        let reaped = state.core.reap(now);
        state.deliver_effects();
        reaped
    }

    /// Deletes a node as another client with every permission would.
    ///
    /// # Errors
    /// `NoNode`, `NotEmpty`, `BadArguments`.
    pub fn remove(&self, path: &str) -> Result<(), Code> {
        self.write(&Write::Delete {
            path: path.to_owned(),
            version: -1,
        })
    }

    /// Writes a node's data as another client with every permission would.
    ///
    /// # Errors
    /// `NoNode`, `BadArguments`.
    pub fn set_data(&self, path: &str, data: &[u8]) -> Result<(), Code> {
        let data = Some(bytes::Bytes::copy_from_slice(data));
        self.write(&Write::SetData {
            path: path.to_owned(),
            data,
            version: -1,
        })
    }

    fn write(&self, write: &Write) -> Result<(), Code> {
        let now = self.shared.now();
        let mut state = self.shared.lock();
        let outcome = state.core.write_from_outside(write, now);
        state.deliver_effects();
        outcome
    }
}
