//! Values with what is taken from them once, and answers that were worked out before. (pure)
//!
//! Most steps of a search are steps of a client that was in the same state before, at servers that
//! held the same, while others were elsewhere. Nothing here changes what is found; it is why the
//! search can be as large as it is.

use std::cell::RefCell;
use std::hash::Hash;
use std::rc::Rc;

use super::client::{Client, News, Part, Request, Stage};
use super::store::{Commit, Tree};
use crate::protocol::answer::Answer;
use crate::tests::fingerprint::{ByPrint, fingerprint};

/// The servers' data.
#[derive(Debug)]
pub(super) struct KnownTree {
    pub(super) tree: Tree,
    /// Without whose the nodes are.
    pub(super) print: u128,
    /// With it.
    whole: u128,
    /// What each client owns; 0 for nothing.
    pub(super) owned: Vec<u128>,
}

impl KnownTree {
    pub(super) fn new(tree: Tree, clients: usize) -> Rc<Self> {
        let owned = (0..clients).map(|client| {
            let nodes = tree.nodes().filter(|(_, node)| node.owner == client);
            let nodes: Vec<_> = nodes.map(|(at, node)| (at, node.czxid)).collect();
            match &nodes[..] {
                [] => 0,
                nodes => fingerprint(nodes),
            }
        });
        let owned: Vec<u128> = owned.collect();
        let print = fingerprint(&tree);
        let whole = fingerprint(&(print, &owned));
        Rc::new(Self {
            tree,
            print,
            whole,
            owned,
        })
    }
}

#[derive(Debug)]
pub(super) struct KnownClient {
    pub(super) client: Client,
    pub(super) print: u128,
    pub(super) holds: Vec<(usize, i64)>,
    main: Option<Request>,
    chores: Vec<Request>,
}

impl KnownClient {
    pub(super) fn new(client: Client) -> Rc<Self> {
        let asks = !matches!(client.stage, Stage::Over | Stage::Leaving(_));
        Rc::new(Self {
            print: fingerprint(&client),
            holds: client.holds(),
            main: asks.then(|| client.request(Part::Main)),
            chores: client.chores.iter().map(|chore| chore.request()).collect(),
            client,
        })
    }

    pub(super) fn request(&self, part: Part) -> &Request {
        match (part, &self.main) {
            (Part::Chore(at), _) => &self.chores[at],
            (Part::Main, Some(request)) => request,
            _ => &Request::Read,
        }
    }
}

/// What came of a request of writes.
pub(super) type Committed = Result<Done, Answer>;

#[derive(Debug)]
pub(super) struct Done {
    pub(super) commit: Commit,
    pub(super) tree: Rc<KnownTree>,
}

/// Answers that were worked out before.
#[derive(Debug, Default)]
pub(super) struct Memory {
    parts: RefCell<ByPrint<Rc<[Part]>>>,
    reads: RefCell<ByPrint<(Rc<KnownClient>, Rc<News>)>>,
    commits: RefCell<ByPrint<Rc<Committed>>>,
    changes: RefCell<ByPrint<Rc<KnownClient>>>,
}

impl Memory {
    /// The parts of a client that can do something.
    pub(super) fn parts(&self, client: &KnownClient, view: &KnownTree) -> Rc<[Part]> {
        let key = fingerprint(&(client.print, view.print));
        let parts = || client.client.parts(&view.tree).into();
        Rc::clone(self.parts.borrow_mut().entry(key).or_insert_with(parts))
    }

    /// The client after a read.
    pub(super) fn read(
        &self,
        at: usize,
        client: &KnownClient,
        part: Part,
        view: &KnownTree,
    ) -> (Rc<KnownClient>, Rc<News>) {
        let key = fingerprint(&(at, client.print, part, view.whole));
        let mut reads = self.reads.borrow_mut();
        let (after, news) = reads.entry(key).or_insert_with(|| {
            let mut after = client.client.clone();
            let news = after.read(at, part, &view.tree);
            (KnownClient::new(after), Rc::new(news))
        });
        (Rc::clone(after), Rc::clone(news))
    }

    /// What a request of writes does.
    pub(super) fn commit(
        &self,
        at: usize,
        client: &KnownClient,
        part: Part,
        tree: &KnownTree,
    ) -> Rc<Committed> {
        let key = fingerprint(&(at, client.print, part, tree.whole));
        let commit = || {
            let Request::Writes(writes) = client.request(part) else {
                unreachable!("{part:?} writes nothing")
            };
            let done = tree.tree.commit(at, writes).map(|commit| {
                let clients = tree.owned.len();
                let tree = KnownTree::new(commit.tree.clone(), clients);
                Done { commit, tree }
            });
            Rc::new(done)
        };
        Rc::clone(self.commits.borrow_mut().entry(key).or_insert_with(commit))
    }

    /// The client after anything else that depends on it and on this only.
    pub(super) fn change(
        &self,
        client: &KnownClient,
        what: impl Hash,
        change: impl FnOnce(&mut Client),
    ) -> Rc<KnownClient> {
        let key = fingerprint(&(client.print, what));
        let after = || {
            let mut after = client.client.clone();
            change(&mut after);
            KnownClient::new(after)
        };
        Rc::clone(self.changes.borrow_mut().entry(key).or_insert_with(after))
    }
}
