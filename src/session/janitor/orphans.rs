//! Tickets that a lost reply hid: finds them, and hands each to its caller or removes it.
//!
//! Invariants: a ticket is taken for ours only if our own session lists it and its data names an
//! attempt that is looked for; a server that may lag behind is not asked. One list answers every
//! caller that waits.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::work::{AT_ONCE, Work};
use super::{Settled, TicketId, Wanted, Wish};
use crate::link::{Fault, Found, Read};
use crate::protocol::departure::Departure;
use crate::protocol::permits;
use crate::protocol::ticket::{Ticket, TicketData};
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
                for owner in owners(wanted) {
                    // The caller may be gone, and so is whatever its create made.
                    owner.send(Err(End::Over(reason))).ok();
                }
                return;
            }
        }
    }

    /// Tells the callers what was found. A ticket whose caller is gone is removed, and so is what
    /// is lost.
    async fn answer(&self, found: Vec<Orphan>, lost: Vec<TicketId>, mut wanted: Wanted) {
        // Somebody asks for these back, and nobody has them.
        let mut orphans = lost;
        for Orphan { attempt, id } in found {
            let there = wanted.get_mut(&id.directory);
            let Some(wish) = there.and_then(|there| there.remove(&attempt)) else {
                continue;
            };
            let settled = Ok(Some((id.ticket.clone(), id.czxid)));
            let is_orphan = match wish {
                Wish::Own(owner) => owner.send(settled).is_err(),
                Wish::Know(asker) => {
                    // A caller that no longer waits asks again, or has it removed.
                    asker.send(settled).ok();
                    false
                }
            };
            if is_orphan {
                orphans.push(id);
            }
        }
        for owner in owners(wanted) {
            // The caller may be gone, and there is nothing to remove.
            owner.send(Ok(None)).ok();
        }
        for ids in orphans.chunks(AT_ONCE) {
            let removals = ids.iter().map(|id| self.remove(id, Departure::just_read()));
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
            let nodes = link
                .multi_read(&reads)
                .await
                .map_err(|fault| format!("{fault:?}"))?;
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
        let Found::Node(node) = node else { return None };
        let (directory, name) = path.rsplit_once('/')?;
        let (directory, there) = wanted.get_key_value(directory)?;
        let attempt = TicketData::parse(&node.data).map(|line| line.attempt);
        let is_ours = node.owner == self.link.session_id()
            && match &attempt {
                Some(attempt) => there.contains_key(attempt),
                None => {
                    (Ticket::parse(name).is_some() || permits::weight(name).is_some())
                        && self.roll.is_nobodys(directory, node.czxid, |attempt| {
                            there.contains_key(attempt)
                        })
                }
            };
        let id = TicketId {
            directory: Arc::clone(directory),
            ticket: name.to_owned(),
            czxid: node.czxid,
        };
        is_ours.then_some((attempt, id))
    }
}

fn owners(wanted: Wanted) -> impl Iterator<Item = oneshot::Sender<Settled>> {
    let wishes = wanted.into_values().flat_map(HashMap::into_values);
    wishes.map(|(Wish::Own(owner) | Wish::Know(owner))| owner)
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
