//! The rules that every reachable state must keep. (pure)
//!
//! It judges by identities and by what the servers hold, never by what the queue's own rules say.
//! Invariant: whatever is excused is excused by name, narrowly.

use super::chore::Chore;
use super::client::{News, Part, Stage};
use super::permit::{HELD, is_within_limit};
use super::store::{Commit, Node, Tree, Write};
use super::world::World;

impl World {
    /// A turn must be right in what the read saw: the ticket is there, and nobody is before it who
    /// conflicts. Tokens grow over the turns of tickets that are still there (of one that is not,
    /// nobody can say when its holder noticed the turn).
    pub(super) fn judge_turns(
        &mut self,
        client: usize,
        view: &Tree,
        news: &News,
    ) -> Result<(), String> {
        for &(directory, czxid) in &news.turns {
            self.is_first(view, directory, czxid)
                .map_err(|why| format!("client {client} is let in, but {why}"))?;
            let Some(node) = self.tree().identity(directory, czxid) else {
                continue;
            };
            if node.is_shared {
                continue;
            }
            let last = std::mem::replace(&mut self.tokens[directory], czxid);
            if last >= czxid {
                return Err(format!("token {czxid} is granted after {last}"));
            }
        }
        Ok(())
    }

    /// What a client's request may do; whether it was done by mistake.
    pub(super) fn judge_commit(
        &self,
        client: usize,
        part: Part,
        writes: &[Write],
        commit: &Commit,
    ) -> Result<bool, String> {
        for (directory, node) in &commit.deleted {
            if node.owner != client && !self.is_mistaken(client, part, *directory, node, writes) {
                return Err(format!(
                    "client {client} removes {} of client {}",
                    node.name, node.owner
                ));
            }
        }
        let is_mistaken = commit.deleted.iter().any(|(_, node)| node.owner != client);
        for write in writes {
            let Write::Create(create) = write else {
                continue;
            };
            if is_mistaken {
                continue;
            }
            if create.order.is_some() {
                self.is_first(&commit.tree, create.directory, commit.tree.zxid)
                    .map_err(|why| format!("client {client} goes in, but {why}"))?;
            }
            if create.name.starts_with("permit-")
                && create.directory == HELD
                && !is_within_limit(&commit.tree)
            {
                return Err(format!("client {client} takes more permits than there are"));
            }
        }
        Ok(is_mistaken)
    }

    /// The one hole of row 71 that the servers leave open, because no request can ask for an
    /// identity and delete: an operator broke this client's ticket, its directory was removed and
    /// made again, and another ticket has its name; and either the new directory is at the version
    /// that the client asks for, or all that happened between its look and its delete.
    fn is_mistaken(
        &self,
        client: usize,
        part: Part,
        directory: usize,
        node: &Node,
        writes: &[Write],
    ) -> bool {
        let broken = self.broken.as_ref();
        let was_broken = broken.is_some_and(|(at, name, owner)| {
            (*at, &**name, *owner) == (directory, &*node.name, client)
        });
        let asks_for_version = writes.iter().any(|write| {
            matches!(write, Write::Check { directory: at, .. } | Write::Set { directory: at, .. } if *at == directory)
        });
        let was_seen = match part {
            Part::Chore(at) => matches!(
                self.client(client).chores[at],
                Chore::Leave { was_seen: true, .. }
            ),
            _ => false,
        };
        was_broken && (asks_for_version || was_seen)
    }

    /// Whoever believes to have the turn, and has a ticket that is there, is beside nobody with
    /// whom it conflicts; a set is had as a whole.
    pub(super) fn judge(&self) -> Result<(), String> {
        for (at, client) in self.clients().enumerate() {
            let is_part = matches!(&client.stage, Stage::Inside { held, .. }
                if held.len() != client.plan.directories.len());
            if is_part {
                return Err(format!("client {at} is inside by a part of its set"));
            }
        }
        let mut inside: Vec<(usize, usize, &Node)> = Vec::new();
        for (at, directory, czxid) in self.holds() {
            let node = self.tree().identity(directory, czxid);
            let live = node.filter(|node| node.owner == at);
            inside.extend(live.map(|node| (at, directory, &**node)));
        }
        for (number, (at, directory, node)) in inside.iter().enumerate() {
            for (other, elsewhere, beside) in &inside[number + 1..] {
                // A guest has the order of its host, and nobody else's.
                let conflicts = !(node.is_shared && beside.is_shared) && node.order != beside.order;
                let is_excused = [at, other].map(|at| Some(*at)).contains(&self.mistaken);
                if other != at && directory == elsewhere && conflicts && !is_excused {
                    return Err(format!("clients {at} and {other} are inside together"));
                }
            }
        }
        Ok(())
    }

    /// When nothing more happens by itself, everybody has got what they wanted and has left nothing
    /// behind.
    pub(super) fn judge_rest(&self) -> Result<(), String> {
        if let Some(at) = self.clients().position(|client| !client.is_over()) {
            return Err(format!("client {at} waits for ever"));
        }
        match self.tree().nodes().next() {
            Some((_, node)) => Err(format!("{} is left behind", node.name)),
            None => Ok(()),
        }
    }

    /// Whether the ticket is there, and nobody before it conflicts.
    fn is_first(&self, tree: &Tree, directory: usize, czxid: i64) -> Result<(), String> {
        let Some(mine) = tree.identity(directory, czxid) else {
            return Err("its ticket is not there".into());
        };
        let nodes = &tree.directory(directory).unwrap().nodes;
        let before = nodes.iter().find(|node| {
            let conflicts = !(node.is_shared && mine.is_shared);
            node.order < mine.order && conflicts && Some(node.owner) != self.mistaken
        });
        before.map_or(Ok(()), |before| {
            Err(format!("{} is before it", before.name))
        })
    }
}
