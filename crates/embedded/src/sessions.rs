//! Sessions: their passwords, their timeouts, and which of them are overdue.
//!
//! Invariant: a session is overdue only after a whole timeout without a message from it. It deletes
//! no nodes and closes no connections; time is an argument.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use uuid::Uuid;

/// One TCP connection, numbered in the order of arrival; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ConnId(pub(super) u64);

#[derive(Debug, Clone)]
pub(super) struct Session {
    pub(super) password: [u8; 16],
    pub(super) timeout: Duration,
    pub(super) conn: Option<ConnId>,
    heard: Duration,
}

/// All live sessions. `queue` holds one due time per session, which may be too early but never too
/// late. A message moves nothing in the queue; the due time is corrected once it is reached.
#[derive(Debug)]
pub(super) struct Sessions {
    table: HashMap<i64, Session>,
    queue: BTreeSet<(Duration, i64)>,
    next: i64,
}

impl Sessions {
    /// Ids start from the wall clock, as in the original, so that those of two servers differ.
    pub(super) fn new(wall_ms: i64) -> Self {
        let start = ((wall_ms as u64) << 24 >> 8) | (1 << 56);
        Self {
            table: HashMap::new(),
            queue: BTreeSet::new(),
            next: start as i64,
        }
    }

    pub(super) fn open(&mut self, timeout: Duration, conn: ConnId, now: Duration) -> i64 {
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.table.insert(
            id,
            Session {
                // The password alone gives access to the session and all its identities.
                password: Uuid::new_v4().into_bytes(),
                timeout,
                conn: Some(conn),
                heard: now,
            },
        );
        self.queue.insert((now + timeout, id));
        id
    }

    pub(super) fn get(&self, id: i64) -> Option<&Session> {
        self.table.get(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (i64, &Session)> {
        self.table.iter().map(|(id, session)| (*id, session))
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Moves the session to a new connection with a newly negotiated timeout.
    pub(super) fn attach(&mut self, id: i64, conn: ConnId, timeout: Duration, now: Duration) {
        if let Some(session) = self.table.get_mut(&id) {
            session.conn = Some(conn);
            session.timeout = timeout;
            session.heard = now;
            // The new timeout may be shorter, so the due time in the queue could be too late.
            self.queue.insert((now + timeout, id));
        }
    }

    pub(super) fn detach(&mut self, id: i64, conn: ConnId) {
        if let Some(session) = self.table.get_mut(&id) {
            if session.conn == Some(conn) {
                session.conn = None;
            }
        }
    }

    pub(super) fn touch(&mut self, id: i64, now: Duration) {
        if let Some(session) = self.table.get_mut(&id) {
            session.heard = now;
        }
    }

    /// Restarts every session's timeout, as a restarted server does.
    pub(super) fn touch_all(&mut self, now: Duration) {
        for session in self.table.values_mut() {
            session.heard = now;
        }
    }

    pub(super) fn remove(&mut self, id: i64) -> Option<Session> {
        self.table.remove(&id)
    }

    /// The sessions whose whole timeout has passed, oldest first. The caller removes them. A
    /// session may be listed twice.
    pub(super) fn overdue(&mut self, now: Duration) -> Vec<i64> {
        let mut overdue = Vec::new();
        while let Some(&(due, id)) = self.queue.first() {
            if due > now {
                break;
            }
            self.queue.pop_first();
            let Some(session) = self.table.get(&id) else {
                continue;
            };
            let really_due = session.heard + session.timeout;
            if really_due > now {
                self.queue.insert((really_due, id));
            } else {
                overdue.push(id);
            }
        }
        overdue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_session_is_overdue_only_after_a_whole_timeout_of_silence() {
        let mut sessions = Sessions::new(0);
        let id = sessions.open(4 * SECOND, ConnId(1), SECOND);

        sessions.touch(id, 3 * SECOND);

        assert!(sessions.overdue(5 * SECOND).is_empty());
        assert!(sessions.overdue(6 * SECOND).is_empty());
        assert_eq!(sessions.overdue(7 * SECOND), [id]);
    }

    #[test]
    fn a_shorter_timeout_on_a_new_connection_counts() {
        let mut sessions = Sessions::new(0);
        let id = sessions.open(40 * SECOND, ConnId(1), SECOND);

        sessions.attach(id, ConnId(2), SECOND, 2 * SECOND);

        assert_eq!(sessions.overdue(3 * SECOND), [id]);
    }

    #[test]
    fn the_old_connection_cannot_detach_the_new_one() {
        let mut sessions = Sessions::new(0);
        let id = sessions.open(SECOND, ConnId(1), SECOND);
        sessions.attach(id, ConnId(2), SECOND, SECOND);

        sessions.detach(id, ConnId(1));

        assert_eq!(sessions.get(id).unwrap().conn, Some(ConnId(2)));
    }

    #[test]
    fn ids_are_positive_and_passwords_differ() {
        let mut sessions = Sessions::new(1_795_000_000_000);
        let (a, b) = (
            sessions.open(SECOND, ConnId(1), SECOND),
            sessions.open(SECOND, ConnId(1), SECOND),
        );

        assert!(a > 0 && b == a + 1);
        assert_ne!(
            sessions.get(a).unwrap().password,
            sessions.get(b).unwrap().password
        );
    }

    #[test]
    fn an_id_does_not_tell_its_password() {
        let password = || {
            let mut sessions = Sessions::new(1_795_000_000_000);
            let id = sessions.open(SECOND, ConnId(1), SECOND);
            (id, sessions.get(id).unwrap().password)
        };

        let (one, other) = (password(), password());

        assert_eq!(one.0, other.0);
        assert_ne!(one.1, other.1);
    }
}
