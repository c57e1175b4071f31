//! Tickets that a lost reply hid: finds them, and hands each to its caller or removes it.
//!
//! Invariants: a ticket is taken for ours only if our own session lists it and `protocol/sweep.rs`
//! finds it; a server that may lag behind is not asked. One list answers every caller that waits.
//!
//! The list is of our own session, so a ticket in it that may not be read is ours too. Without its
//! `czxid` it can be any ticket of ours in its directory. So it is removed only while no place and
//! no other create answers for a ticket there; otherwise it goes with its session.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::work::{AT_ONCE, Work};
use super::{Settled, TicketId, Wanted};
use crate::link::{Code, Fault, Found, Read};
use crate::protocol::departure::Departure;
use crate::protocol::sweep;
use crate::protocol::ticket::TicketData;
use crate::session::End;
use crate::session::setbacks::Setbacks;

/// Tickets that are read in one request when one of ours is looked for.
const READ_AT_ONCE: usize = 100;

/// A ticket of ours that a lost reply hid.
struct Orphan {
    attempt: Uuid,
    id: TicketId,
}

impl Work {
    /// Answers every caller that waits to know what its create made, with one list for all.
    pub(super) async fn settle_all(&self, wanted: Wanted) {
        let mut setbacks = Setbacks::default();
        loop {
            match self.find(&wanted).await {
                Ok((found, lost)) => return self.answer(found, lost, wanted).await,
                Err(why) => tracing::debug!(why, "a create has an unknown outcome"),
            }
            if let Err(reason) = self.reconnected(setbacks.pause()).await {
                for caller in callers(wanted) {
                    // It may be gone, and so is whatever its create made.
                    caller.send(Err(End::Over(reason))).ok();
                }
                return;
            }
        }
    }

    /// Tells the callers what was found. A ticket whose caller is gone is removed, and so is what
    /// is lost.
    async fn answer(&self, found: Vec<Orphan>, lost: Vec<TicketId>, mut wanted: Wanted) {
        // A caller's next ticket would be behind these, and might not be allowed to watch them.
        self.remove_all(&lost).await;
        let mut orphans = Vec::new();
        for Orphan { attempt, id } in found {
            let there = wanted.get_mut(&id.directory);
            let Some((wish, caller)) = there.and_then(|there| there.remove(&attempt)) else {
                continue;
            };
            // A caller that only wants to know, and is gone, asks again or has it removed.
            let told = caller.send(Ok(Some((id.ticket.clone(), id.czxid))));
            if wish.is_orphan(told.is_ok()) {
                orphans.push(id);
            }
        }
        for caller in callers(wanted) {
            // It may be gone, and there is nothing to remove.
            caller.send(Ok(None)).ok();
        }
        self.remove_all(&orphans).await;
    }

    async fn remove_all(&self, ids: &[TicketId]) {
        for ids in ids.chunks(AT_ONCE) {
            let removals = ids
                .iter()
                .map(|id| self.remove(id, Departure::just_read(), None));
            join_all(removals).await;
        }
    }

    /// Finds our tickets by their attempts among this session's own nodes. A node of an older
    /// session of ours is not in that list, so it is never taken for ours. Beside them those whose
    /// data somebody has written over, so that they cannot be found, if nobody answers for them.
    async fn find(&self, wanted: &Wanted) -> Result<(Vec<Orphan>, Vec<TicketId>), String> {
        let link = &*self.link;
        let common = common_start(wanted.keys());
        // One directory will do for all; if it is gone it cannot be synced everywhere, and that is
        // an answer too.
        let any = wanted.keys().next().map_or("/", |directory| &**directory);
        let (synced, listed) = (link.sync(any), link.ephemerals(&common));
        if let Some(why) = synced.await.as_ref().err().and_then(Fault::unclear) {
            return Err(why.to_owned());
        }
        let listed = listed.await.map_err(|fault| format!("{fault:?}"))?;
        let in_wanted = |path: &&String| {
            let directory = path.rsplit_once('/').map(|(directory, _)| directory);
            directory.is_some_and(|directory| wanted.contains_key(directory))
        };
        let candidates: Vec<&String> = listed.iter().filter(in_wanted).collect();
        let (mut found, mut lost) = (Vec::new(), Vec::new());
        for paths in candidates.chunks(READ_AT_ONCE) {
            let reads: Vec<Read<'_>> = paths.iter().map(|path| Read::Data(path)).collect();
            let nodes = link.multi_read(&reads).await;
            let nodes = nodes.map_err(|fault| format!("{fault:?}"))?;
            for (path, node) in paths.iter().zip(nodes) {
                match self.recognise(path, node, wanted) {
                    Some((Some(attempt), id)) => found.push(Orphan { attempt, id }),
                    Some((None, id)) => lost.push(id),
                    None => {}
                }
            }
        }
        Ok((found, lost))
    }

    /// What an attempt that is looked for has made, if this is it; or, without one, what was made
    /// by nobody knows which and is nobody's.
    fn recognise(
        &self,
        path: &str,
        node: Found,
        wanted: &Wanted,
    ) -> Option<(Option<Uuid>, TicketId)> {
        let (directory, name) = path.rsplit_once('/')?;
        let (directory, there) = wanted.get_key_value(directory)?;
        let (czxid, attempt) = match node {
            Found::Node(node) if node.owner == self.link.session_id() => {
                let line = TicketData::parse(&node.data);
                (Some(node.czxid), line.map(|line| line.attempt))
            }
            Found::Failed(Code::NoAuth(_)) => (None, None),
            _ => return None,
        };
        let is_wanted = |attempt: &Uuid| there.contains_key(attempt);
        let is_nobodys = || self.roll.is_nobodys(directory, czxid, is_wanted);
        let is_ours = sweep::finds(name, attempt.as_ref().map(is_wanted), is_nobodys);
        let id = TicketId {
            directory: Arc::clone(directory),
            ticket: name.to_owned(),
            // A ticket that may not be read leaves by the list, or stays.
            czxid: czxid.unwrap_or_default(),
        };
        is_ours.then_some((attempt, id))
    }
}

fn callers(wanted: Wanted) -> impl Iterator<Item = oneshot::Sender<Settled>> {
    wanted.into_values().flatten().map(|(_, (_, asker))| asker)
}

/// What the paths of everything in these directories start with.
fn common_start<'a>(directories: impl Iterator<Item = &'a Arc<str>>) -> String {
    let starts = directories.map(|directory| format!("{directory}/"));
    let common = starts.reduce(|common, next| {
        let same = common.chars().zip(next.chars());
        same.take_while(|(ours, theirs)| ours == theirs)
            .map(|(ours, _)| ours)
            .collect()
    });
    // A path must not end with a slash, and a start of fewer letters finds no less.
    match common.as_deref().map(|common| common.trim_end_matches('/')) {
        None | Some("") => "/".into(),
        Some(common) => common.into(),
    }
}
