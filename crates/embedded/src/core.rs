//! The server as one value: sessions, tree and watches, and what each request does to them.
//!
//! Invariant: a change and its events are one step. If replies and effects are queued in the order
//! in which they are returned, a client gets the event before any reply that shows the change. No
//! I/O, no clock: time and connections are arguments.

mod journal;
mod oddities;
mod read;
mod txn;
mod upkeep;
mod write;

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use self::journal::Journal;
pub use self::journal::{Deleted, NextSibling};
use self::oddities::Oddities;
use super::acl::Identity;
use super::proto::{Code, ConnectRequest, Request};
use super::reply::{Answer, Welcome};
use super::sessions::{ConnId, Session, Sessions};
use super::tree::Tree;
use super::watches::{EventKind, Watches};

/// The most bytes of identities that one connection can prove. Real clients need less, and without
/// the bound each proof could add a megabyte.
const MOST_IDENTITIES: usize = 16 << 10;

/// The time at which something is applied.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    /// Since the server was made; never goes back.
    pub(super) uptime: Duration,
    /// For the times in stats and the ends of TTL nodes.
    pub(super) wall_ms: i64,
}

/// An event to send, or a connection to close, after a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    Event {
        conn: ConnId,
        kind: EventKind,
        path: Arc<str>,
    },
    Close(ConnId),
}

/// The reply to one request.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) zxid: i64,
    pub(super) result: Result<Answer, Code>,
    /// The connection ends once this reply is written.
    pub(super) is_last: bool,
}

/// An open connection that has a session.
#[derive(Debug)]
struct Peer {
    session: i64,
    /// Identities belong to the connection, not to the session: a client proves them again after a
    /// reconnect.
    identities: Arc<[Identity]>,
}

#[derive(Debug)]
pub(super) struct Core {
    tree: Tree,
    sessions: Sessions,
    watches: Watches,
    peers: HashMap<ConnId, Peer>,
    zxid: i64,
    timeouts: (Duration, Duration),
    /// A longer reply cannot be sent, so it is not gathered either.
    max_reply: usize,
    journal: Journal,
    oddities: Oddities,
    effects: Vec<Effect>,
}

impl Core {
    pub(super) fn new(timeouts: (Duration, Duration), max_reply: usize, wall_ms: i64) -> Self {
        Self {
            tree: Tree::new(),
            sessions: Sessions::new(wall_ms),
            watches: Watches::default(),
            peers: HashMap::new(),
            zxid: 0,
            timeouts,
            max_reply,
            journal: Journal::default(),
            oddities: Oddities::default(),
            effects: Vec::new(),
        }
    }

    /// Takes the effects since the last call, in order.
    pub(super) fn take_effects(&mut self) -> Vec<Effect> {
        mem::take(&mut self.effects)
    }

    /// Opens a session or moves one to this connection. `None` refuses a client that has seen a
    /// newer zxid than this server. Its connection is closed without a reply, so that the client
    /// tries another server.
    pub(super) fn connect(
        &mut self,
        conn: ConnId,
        request: &ConnectRequest,
        address: Identity,
        now: Now,
    ) -> Option<Welcome> {
        if request.last_zxid > self.zxid_seen_by(request.session, conn) {
            return None;
        }
        let asked = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
        let timeout = asked.clamp(self.timeouts.0, self.timeouts.1);
        let session = if request.session == 0 || self.is_replaced(request.session) {
            self.zxid += 1;
            self.sessions.open(timeout, conn, now.uptime)
        } else {
            self.reattach(conn, request, timeout, now)
        };
        let password = self
            .sessions
            .get(session)
            .map_or([0; 16], |session| session.password);
        if session != 0 {
            self.peers.insert(
                conn,
                Peer {
                    session,
                    identities: [address].into(),
                },
            );
        }
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        Some(Welcome {
            timeout_ms: if session == 0 { 0 } else { timeout_ms },
            session,
            password,
            with_read_only: request.knows_read_only,
        })
    }

    /// The requested session, or 0 if it does not exist or the password is wrong.
    fn reattach(
        &mut self,
        conn: ConnId,
        request: &ConnectRequest,
        timeout: Duration,
        now: Now,
    ) -> i64 {
        let Some(session) = self.sessions.get(request.session) else {
            return 0;
        };
        let is_owner = session.password[..] == request.password[..];
        // ZooKeeper ends the old connection before it checks the password.
        if let Some(old) = session.conn {
            self.effects.push(Effect::Close(old));
            self.disconnect(old);
        }
        if !is_owner {
            return 0;
        }
        self.sessions
            .attach(request.session, conn, timeout, now.uptime);
        request.session
    }

    /// Forgets a connection: its watches go, its session stays.
    pub(super) fn disconnect(&mut self, conn: ConnId) {
        if let Some(peer) = self.peers.remove(&conn) {
            self.sessions.detach(peer.session, conn);
        }
        self.watches.forget(conn);
    }

    /// Restarts the session's timeout.
    pub(super) fn touch(&mut self, conn: ConnId, now: Now) {
        if let Some(peer) = self.peers.get(&conn) {
            self.sessions.touch(peer.session, now.uptime);
        }
    }

    /// Applies one request.
    pub(super) fn apply(&mut self, conn: ConnId, request: &Request, now: Now) -> Reply {
        let Some(peer) = self.peers.get(&conn) else {
            return Reply {
                zxid: self.zxid,
                result: Err(Code::SessionExpired),
                is_last: true,
            };
        };
        let (session, identities) = (peer.session, peer.identities.clone());
        self.touch(conn, now);
        if let Some((zxid, result, is_last)) = self.apply_unordered(conn, request) {
            return Reply {
                zxid,
                result,
                is_last,
            };
        }
        if let Some(reply) = self.answer_from_behind(conn, session, &identities, request) {
            return reply;
        }
        let result = match request {
            Request::Write(write) => self.write(session, identities, write, now),
            Request::Multi(writes) => self.multi(session, identities, writes, now),
            Request::DeleteContainer { path } => {
                self.delete_container(path, now).map(|()| Answer::Empty)
            }
            Request::SetAcl { path, acl, version } => {
                self.set_acl(path, acl, *version, &identities)
            }
            Request::Ping => Ok(Answer::Empty),
            Request::CloseSession => {
                self.end_session(session);
                Ok(Answer::Empty)
            }
            Request::Reconfig => {
                self.zxid += 1;
                Err(Code::ReconfigDisabled)
            }
            Request::Senseless { is_write, .. } => {
                self.zxid += i64::from(*is_write);
                Err(Code::MarshallingError)
            }
            read => self.read(conn, session, &identities, read),
        };
        let is_last = matches!(request, Request::CloseSession);
        Reply {
            zxid: self.zxid,
            result,
            is_last,
        }
    }

    /// The requests that ZooKeeper answers before it orders them. Their replies carry no true zxid.
    fn apply_unordered(
        &mut self,
        conn: ConnId,
        request: &Request,
    ) -> Option<(i64, Result<Answer, Code>, bool)> {
        match request {
            Request::Auth { scheme, secret } => {
                let result = self.authenticate(conn, scheme, secret);
                let is_last = result.is_err();
                Some((0, result, is_last))
            }
            Request::Sasl => Some((0, Ok(Answer::Null), false)),
            Request::Unknown => Some((-1, Err(Code::Unimplemented), true)),
            _ => None,
        }
    }

    fn authenticate(&mut self, conn: ConnId, scheme: &str, secret: &[u8]) -> Result<Answer, Code> {
        let peer = self.peers.get_mut(&conn).ok_or(Code::AuthFailed)?;
        let address = peer.identities.first().ok_or(Code::AuthFailed)?;
        let identity = Identity::prove(scheme, secret, address).ok_or(Code::AuthFailed)?;
        if !peer.identities.contains(&identity) {
            let proved = peer.identities.iter().map(|known| known.id.len());
            if proved.sum::<usize>() + identity.id.len() > MOST_IDENTITIES {
                return Err(Code::AuthFailed);
            }
            peer.identities = peer.identities.iter().cloned().chain([identity]).collect();
        }
        Ok(Answer::Empty)
    }

    /// Expires the sessions whose timeout has passed.
    pub(super) fn expire_overdue(&mut self, now: Now) -> usize {
        let overdue = self.sessions.overdue(now.uptime);
        overdue
            .into_iter()
            .filter(|session| self.expire(*session))
            .count()
    }

    /// Expires a session now, even if its timeout has not passed, and closes its connection.
    pub(super) fn expire(&mut self, session: i64) -> bool {
        let Some(ended) = self.end_session(session) else {
            return false;
        };
        if let Some(conn) = ended.conn {
            self.effects.push(Effect::Close(conn));
            self.disconnect(conn);
        }
        true
    }

    /// Restarts every session's timeout, as a restarted server does.
    pub(super) fn touch_all(&mut self, now: Now) {
        self.sessions.touch_all(now.uptime);
    }

    pub(super) fn sessions(&self) -> impl Iterator<Item = (i64, &Session)> {
        self.sessions.iter()
    }

    pub(super) fn session_of(&self, conn: ConnId) -> Option<i64> {
        self.peers.get(&conn).map(|peer| peer.session)
    }

    /// The open connection of a session.
    pub(super) fn conn_of(&self, session: i64) -> Option<ConnId> {
        self.sessions.get(session)?.conn
    }

    pub(super) fn zxid(&self) -> i64 {
        self.zxid
    }

    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(super) fn watches(&self) -> &Watches {
        &self.watches
    }

    pub(super) fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Makes the next change happen at this zxid.
    pub(super) fn set_next_zxid(&mut self, zxid: i64) {
        self.zxid = zxid.saturating_sub(1);
    }

    /// Sets the number that the next sequential child gets.
    pub(super) fn set_sequence(&mut self, path: &str, next: i32) -> Result<(), Code> {
        self.tree.get_mut(path).ok_or(Code::NoNode)?.cversion = next;
        Ok(())
    }

    pub(super) fn start_journal(&mut self, capacity: usize) {
        self.journal.start(capacity);
    }

    pub(super) fn take_journal(&mut self) -> Vec<Deleted> {
        self.journal.take()
    }
}

#[cfg(test)]
mod tests;
