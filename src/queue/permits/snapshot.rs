//! Reading the permits and the limit of a semaphore, at one moment.
//!
//! Invariant: a name that a lock or another library's semaphore has in use is refused. It only
//! reads.

use std::sync::Arc;
use std::time::Duration;

use super::super::doubts;
use super::super::join::MOST_SETBACKS;
use super::{LOOKING, PermitPool};
use crate::error::{Error, Result};
use crate::link::{Code, Found, Node, Read};
use crate::protocol::dialect::{check_neighbours, in_doubt};
use crate::protocol::permits;
use crate::session::{Failure, Session, children_in, failed, node_in};

/// What Curator's semaphore has below the same name.
const CURATORS_LEASES: &str = "leases";

/// The pause between two looks at whether a client that joined the queue of another lock has left,
/// as it does at once.
const PAUSE: Duration = Duration::from_millis(5);

/// The limit as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Limit {
    pub(in super::super) value: u32,
    pub(in super::super) version: i32,
}

/// The permits at one moment.
#[derive(Debug)]
pub(in super::super) struct PermitSnapshot {
    pub(in super::super) children: Vec<String>,
    /// The version of the directory of permits; none if it is not there.
    pub(in super::super) held: Option<i32>,
    pub(in super::super) limit: Option<Limit>,
    /// The nodes whose access lists matter, unless ours is open.
    pub(in super::super) nodes: Vec<(Arc<str>, Node)>,
}

impl PermitSnapshot {
    pub(in super::super) fn names(&self) -> impl Iterator<Item = &str> {
        self.children.iter().map(String::as_str)
    }
}

impl PermitPool {
    /// The limit as it is stored, if it is. Refuses a directory that another library's semaphore,
    /// or another recipe, has in use.
    pub(super) async fn stored(&self, session: &Session) -> Result<Option<Limit>> {
        let mut setbacks = 0;
        loop {
            let (limit, neighbours) = self.stored_now(session).await?;
            if self
                .is_alone(session, limit, neighbours, &mut setbacks)
                .await?
            {
                return Ok(limit);
            }
        }
    }

    async fn stored_now(&self, session: &Session) -> Result<(Option<Limit>, Result<()>)> {
        let leases = format!("{}/{CURATORS_LEASES}", self.base.path);
        let reads = [
            Read::Data(&self.limit),
            Read::Children(&self.base.path),
            Read::Children(&leases),
        ];
        let found = session.read(|link| link.multi_read(&reads)).await;
        let found = found.map_err(|failure| self.failed(session, LOOKING, failure))?;
        let mut found = found.into_iter();
        let limit = found.next();
        let listed = |found| match found {
            Some(Found::Children(children)) => children,
            _ => Vec::new(),
        };
        let (children, taken) = (listed(found.next()), listed(found.next()));
        let neighbours = async {
            check_neighbours(&self.name, None, &children)?;
            for (path, children) in [(&*self.base.path, &children), (&*leases, &taken)] {
                doubts::read(session, &self.name, path, &in_doubt(None, children, None)).await?;
            }
            Ok(())
        };
        let neighbours = neighbours.await;
        Ok((self.read_limit(session, limit)?, neighbours))
    }

    /// The permits and the limit at one moment.
    pub(in super::super) async fn read(&self, session: &Session) -> Result<PermitSnapshot> {
        let mut setbacks = 0;
        loop {
            let reads = self.reads(session);
            let found = session.read(|link| link.multi_read(&reads)).await;
            let found = found.map_err(|failure| self.failed(session, LOOKING, failure))?;
            let (snapshot, neighbours) = self.snapshot(session, found.into_iter())?;
            let is_alone = self.is_alone(session, snapshot.limit, neighbours, &mut setbacks);
            if is_alone.await? {
                return Ok(snapshot);
            }
        }
    }

    /// Whether no ticket is in the way. Beside a limit, a client that joins the queue of another
    /// lock is refused and leaves at once, and must not take us along: so only a ticket that stays
    /// refuses us. `false` after a pause.
    pub(in super::super) async fn is_alone(
        &self,
        session: &Session,
        limit: Option<Limit>,
        neighbours: Result<()>,
        setbacks: &mut u32,
    ) -> Result<bool> {
        match neighbours {
            Err(Error::UnsafeMix { .. }) if limit.is_some() && *setbacks < MOST_SETBACKS => {
                *setbacks += 1;
                let back = session.reconnected(PAUSE).await;
                back.map_err(|end| end.while_trying(LOOKING, &self.name))?;
                Ok(false)
            }
            neighbours => {
                *setbacks = 0;
                neighbours.map(|()| true)
            }
        }
    }

    /// What has to be read for a snapshot, in one request. A client that may write in the lowest
    /// directory could put another limit there.
    pub(in super::super) fn reads(&self, session: &Session) -> Vec<Read<'_>> {
        let held = &*self.held.path;
        let mut reads = vec![
            Read::Children(held),
            Read::Data(held),
            Read::Data(&self.limit),
            Read::Children(&self.base.path),
        ];
        let checks = !session.acls.is_open;
        reads.extend(checks.then_some(Read::Data(&self.base.path)));
        reads
    }

    /// Takes in what the reads found, with the tickets in the name's own queue. With the limit
    /// stored no ticket comes to be the first in there, so a ticket in there came before, and is
    /// seen here.
    pub(in super::super) fn snapshot(
        &self,
        session: &Session,
        mut found: impl Iterator<Item = Found>,
    ) -> Result<(PermitSnapshot, Result<()>)> {
        let unread = |path: &Arc<str>| {
            let path = Arc::clone(path);
            move |failure| failed(session, LOOKING, &self.name, &path, failure)
        };
        let children = children_in(found.next()).map_err(unread(&self.held.path))?;
        let (held, limit, beside) = (found.next(), found.next(), found.next());
        let base = found.next();
        let checks = !session.acls.is_open;
        let paths = [&self.held.path, &self.limit, &self.base.path];
        let nodes = paths.into_iter().zip([&held, &limit, &base]);
        let nodes = nodes.filter_map(|(path, found)| match found {
            Some(Found::Node(node)) if checks => Some((Arc::clone(path), node.clone())),
            _ => None,
        });
        let nodes = nodes.collect();
        let held = node_in(held).map_err(unread(&self.held.path))?;
        let limit = self.read_limit(session, limit)?;
        let beside = children_in(beside).map_err(unread(&self.base.path))?;
        let neighbours = check_neighbours(&self.name, None, &beside.unwrap_or_default());
        let snapshot = PermitSnapshot {
            children: children.unwrap_or_default(),
            held: held.map(|node| node.version),
            limit,
            nodes,
        };
        Ok((snapshot, neighbours))
    }

    fn read_limit(&self, session: &Session, found: Option<Found>) -> Result<Option<Limit>> {
        let failed = |failure| self.failed(session, LOOKING, failure);
        let Some(node) = node_in(found).map_err(failed)? else {
            return Ok(None);
        };
        let version = node.version;
        match permits::parse_limit(&node.data) {
            Some(value) => Ok(Some(Limit { value, version })),
            None => {
                let why = Code::Other("what is stored there is no limit".into());
                Err(failed(Failure::Answered(why)))
            }
        }
    }
}
