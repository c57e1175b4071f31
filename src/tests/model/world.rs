//! The world of a search: the servers, the clients, and what can befall them. (pure)
//!
//! Invariant: each fault happens at most as often as it was given. The rules that every step must
//! keep are in `referee.rs`.

use std::hash::Hash;
use std::rc::Rc;

use super::action::{Action, Faults};
use super::client::{Client, Job, Plan, Request, Stage};
use super::known::{KnownClient, KnownTree, Memory};
use super::permit::LIMIT;
use super::store::{Tree, Write};
use crate::protocol::exchange::Exchanging;
use crate::tests::fingerprint::fingerprint;
use crate::tests::search::Model;

/// A client whose server lags: what that server has still to see, the oldest first.
#[derive(Debug, Clone)]
struct Lag {
    client: usize,
    trees: Vec<Rc<KnownTree>>,
}

#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) tree: Rc<KnownTree>,
    pub(super) clients: Vec<Rc<KnownClient>>,
    lag: Option<Lag>,
    faults: Faults,
    resize_to: u8,
    /// How many directories are removed when they are empty.
    reapable: usize,
    /// The highest token of an exclusive turn, by directory.
    pub(super) tokens: Vec<i64>,
    /// The ticket that an operator removed, and whose it was.
    pub(super) broken: Option<(usize, String, usize)>,
    /// The client that got in by the hole that the referee excuses.
    pub(super) mistaken: Option<usize>,
    pub(super) memory: Rc<Memory>,
}

impl World {
    pub(super) fn new(plans: &[(Rc<Plan>, u8)], directories: usize, faults: Faults) -> Self {
        let clients = plans.iter();
        Self {
            tree: KnownTree::new(Tree::new(directories), plans.len()),
            clients: clients
                .map(|(plan, times)| KnownClient::new(Client::new(plan, *times)))
                .collect(),
            lag: None,
            faults,
            resize_to: 0,
            reapable: directories,
            tokens: vec![0; directories],
            broken: None,
            mistaken: None,
            memory: Rc::default(),
        }
    }

    /// A semaphore with this limit, and another one that it may get.
    pub(super) fn with_limit(mut self, limit: u8, resize_to: u8) -> Self {
        let (data, version) = (Rc::from([b'0' + limit]), 0);
        let set = Write::Set {
            directory: LIMIT,
            data,
            version,
        };
        let limited = self.tree().commit(0, &[set]).unwrap().tree;
        self.tree = KnownTree::new(limited, self.clients.len());
        self.resize_to = resize_to;
        self.reapable = LIMIT;
        self
    }

    pub(super) fn tree(&self) -> &Tree {
        &self.tree.tree
    }

    pub(super) fn client(&self, at: usize) -> &Client {
        &self.clients[at].client
    }

    pub(super) fn clients(&self) -> impl Iterator<Item = &Client> {
        self.clients.iter().map(|client| &client.client)
    }

    /// What each client believes to have the turn by.
    pub(super) fn holds(&self) -> impl Iterator<Item = (usize, usize, i64)> {
        let each = self.clients.iter().enumerate();
        each.flat_map(|(at, known)| {
            let holds = known.holds.iter();
            holds.map(move |(directory, czxid)| (at, *directory, *czxid))
        })
    }

    /// What this client's server knows.
    pub(super) fn view(&self, client: usize) -> &Rc<KnownTree> {
        match &self.lag {
            Some(lag) if lag.client == client => &lag.trees[0],
            _ => &self.tree,
        }
    }

    fn is_behind(&self, client: usize) -> bool {
        self.lag.as_ref().is_some_and(|lag| lag.client == client)
    }

    /// The client's server knows everything from now on.
    pub(super) fn catch_up(&mut self, client: usize) {
        if self.is_behind(client) {
            self.lag = None;
        }
    }

    pub(super) fn set_tree(&mut self, tree: Rc<KnownTree>) {
        if tree.print != self.tree.print {
            self.tree = tree;
            if let Some(lag) = &mut self.lag {
                lag.trees.push(Rc::clone(&self.tree));
            }
        }
    }

    fn happen(&mut self, tree: Tree) {
        self.set_tree(KnownTree::new(tree, self.clients.len()));
    }

    pub(super) fn change(&mut self, at: usize, what: impl Hash, change: impl FnOnce(&mut Client)) {
        self.clients[at] = self.memory.change(&self.clients[at], what, change);
    }

    fn may(&self, fault: u8) -> bool {
        fault > 0 && self.faults.all > 0
    }

    pub(super) fn spend(&mut self, fault: impl FnOnce(&mut Faults) -> &mut u8) {
        *fault(&mut self.faults) -= 1;
        self.faults.all -= 1;
    }

    /// Whether dropping the future while its request is under way is another thing than a lost
    /// reply.
    fn is_creating(client: &Client) -> bool {
        match &client.stage {
            Stage::Joining => true,
            Stage::Inside { is_new, .. } => *is_new && client.plan.job == Job::Upgrade,
            Stage::Exchanging(exchange) => exchange.tickets == Exchanging::Old,
            _ => false,
        }
    }
}

impl Model for World {
    type Action = Action;

    fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        let faults = &self.faults;
        for at in 0..self.clients.len() {
            let client = self.client(at);
            let known = &self.clients[at];
            for &part in self.memory.parts(known, self.view(at)).iter() {
                actions.push(Action::Step(at, part));
                if self.may(faults.lost) && matches!(known.request(part), Request::Writes(_)) {
                    actions.push(Action::Lost(at, part, false));
                    actions.push(Action::Lost(at, part, true));
                }
            }
            if self.may(faults.cancelled) {
                if client.can_be_cancelled() {
                    actions.push(Action::Cancel(at));
                }
                if Self::is_creating(client) {
                    actions.push(Action::CancelSent(at));
                }
            }
            // The end of a session that has nothing at the servers is nobody's business.
            let owns = self.tree.owned[at] != 0;
            if self.may(faults.expired) && owns {
                actions.push(Action::Expire(at));
            }
            if self.may(faults.lags) && self.lag.is_none() && !client.is_over() {
                actions.push(Action::FallBehind(at));
            }
        }
        if self.may(faults.broken) {
            let nodes = self.tree().nodes();
            actions.extend(nodes.map(|(at, node)| Action::Break(at, node.czxid)));
        }
        if self.may(faults.reaped) {
            let is_empty = |at: &usize| {
                let there = self.tree().directory(*at);
                there.is_some_and(|there| there.next > 0 && there.nodes.is_empty())
            };
            actions.extend((0..self.reapable).filter(is_empty).map(Action::Reap));
        }
        if self.may(faults.resized) {
            actions.push(Action::Resize);
        }
        if self.lag.is_some() {
            actions.push(Action::CatchUp);
        }
        actions
    }

    fn after(&self, action: Action) -> Result<Option<Self>, String> {
        let mut world = self.clone();
        match action {
            Action::Step(at, part) => world.step(at, part)?,
            Action::Lost(at, part, is_done) => {
                if !world.lost(at, part, is_done)? {
                    return Ok(None);
                }
            }
            Action::CancelSent(at) => {
                if !world.cancel_sent(at)? {
                    return Ok(None);
                }
            }
            Action::Cancel(at) => {
                world.spend(|faults| &mut faults.cancelled);
                world.change(at, "cancel", |client| client.cancel(None));
            }
            Action::Expire(at) => {
                world.spend(|faults| &mut faults.expired);
                world.happen(self.tree().without(|_, node| node.owner == at));
                world.catch_up(at);
                world.change(at, "expire", Client::expire);
            }
            Action::Break(directory, czxid) => {
                world.spend(|faults| &mut faults.broken);
                let node = self.tree().identity(directory, czxid).unwrap();
                world.broken = Some((directory, node.name.clone(), node.owner));
                let is_gone =
                    |at, node: &super::store::Node| (at, node.czxid) == (directory, czxid);
                world.happen(self.tree().without(is_gone));
            }
            Action::Reap(at) => {
                world.spend(|faults| &mut faults.reaped);
                let mut tree = self.tree().clone();
                tree.directories[at] = None;
                world.happen(tree);
            }
            Action::FallBehind(client) => {
                world.spend(|faults| &mut faults.lags);
                let trees = vec![Rc::clone(&self.tree)];
                world.lag = Some(Lag { client, trees });
            }
            Action::CatchUp => {
                let lag = world.lag.as_mut().unwrap();
                if lag.trees.len() > 1 {
                    lag.trees.remove(0);
                } else {
                    world.lag = None;
                }
            }
            Action::Resize => {
                world.spend(|faults| &mut faults.resized);
                let version = self.tree().directory(LIMIT).unwrap().version;
                let set = Write::Set {
                    directory: LIMIT,
                    data: Rc::from([b'0' + self.resize_to]),
                    version,
                };
                let resized = self.tree().commit(0, &[set]);
                world.happen(resized.map_err(|refusal| format!("{refusal:?}"))?.tree);
            }
        }
        world.judge()?;
        Ok(Some(world))
    }

    fn is_progress(action: Action) -> bool {
        matches!(action, Action::Step(..) | Action::CatchUp)
    }

    fn at_rest(&self) -> Result<(), String> {
        self.judge_rest()
    }

    /// Clients with the same plan are the same client with another number, and nothing in here
    /// depends on the numbers: who is who is left out, and a client is known by its own state and
    /// the nodes that it owns. So states that differ only in who is who are taken for one, and only
    /// such.
    fn fingerprint(&self) -> u128 {
        let record = |at: usize| {
            let broken = self.broken.as_ref().filter(|(.., owner)| *owner == at);
            let broken = broken.map(|(directory, name, _)| (*directory, name));
            let owned = self.tree.owned[at];
            let (is_behind, is_mistaken) = (self.is_behind(at), self.mistaken == Some(at));
            (
                self.clients[at].print,
                owned,
                is_behind,
                is_mistaken,
                broken,
            )
        };
        let mut records: Vec<_> = (0..self.clients.len()).map(record).collect();
        records.sort_unstable();
        let unseen = self.lag.iter().flat_map(|lag| &lag.trees);
        let unseen: Vec<u128> = unseen.map(|tree| tree.print).collect();
        fingerprint(&(self.tree.print, records, unseen, self.faults, &self.tokens))
    }

    fn tell(&self, action: Action, after: Option<&Self>) -> String {
        super::words::tell(self, action, after)
    }
}
