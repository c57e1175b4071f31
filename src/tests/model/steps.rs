//! Requests in the world of a search: sent, done or not, answered or not. (pure)
//!
//! Invariant: an answer to a write, even a refusal, comes from a server that has seen all before
//! it; one to a read need not.

use std::rc::Rc;

use super::client::{Part, Reply, Request};
use super::known::Committed;
use super::world::World;
use crate::protocol::answer::Answer;

impl World {
    pub(super) fn step(&mut self, at: usize, part: Part) -> Result<(), String> {
        match self.clients[at].request(part) {
            Request::Writes(_) => {
                let committed = self.write(at, part)?;
                // An answer to a write, even a refusal, comes from a server that has seen all
                // before it.
                self.catch_up(at);
                let reply = match &*committed {
                    Ok(done) => Reply {
                        answer: Answer::Done,
                        attempt: Some(done.commit.tree.zxid),
                        names: &done.commit.names,
                    },
                    Err(answer) => Reply {
                        answer: *answer,
                        attempt: None,
                        names: &[],
                    },
                };
                self.change(at, (part, reply), |client| client.answered(part, reply));
                Ok(())
            }
            Request::Read => self.read(at, part),
            Request::SyncedRead => {
                self.catch_up(at);
                self.read(at, part)
            }
        }
    }

    fn read(&mut self, at: usize, part: Part) -> Result<(), String> {
        let view = Rc::clone(self.view(at));
        let (after, news) = self.memory.read(at, &self.clients[at], part, &view);
        self.clients[at] = after;
        self.judge_turns(at, &view.tree, &news)
    }

    /// The identity that was given, if it was done.
    fn write_unheard(&mut self, at: usize, part: Part) -> Result<Option<i64>, String> {
        let committed = self.write(at, part)?;
        let done = committed.as_ref().as_ref().ok();
        Ok(done.map(|done| done.commit.tree.zxid))
    }

    pub(super) fn lost(&mut self, at: usize, part: Part, is_done: bool) -> Result<bool, String> {
        self.spend(|faults| &mut faults.lost);
        let mut attempt = None;
        if is_done {
            attempt = self.write_unheard(at, part)?;
            if attempt.is_none() {
                return Ok(false);
            }
        }
        let reply = Reply {
            answer: Answer::Unknown,
            attempt,
            names: &[],
        };
        self.change(at, (part, reply), |client| client.answered(part, reply));
        Ok(true)
    }

    pub(super) fn cancel_sent(&mut self, at: usize) -> Result<bool, String> {
        self.spend(|faults| &mut faults.cancelled);
        let attempt = self.write_unheard(at, Part::Main)?;
        if attempt.is_some() {
            self.change(at, ("cancel", attempt), |client| {
                client.cancel(Some(attempt));
            });
        }
        Ok(attempt.is_some())
    }

    fn write(&mut self, at: usize, part: Part) -> Result<Rc<Committed>, String> {
        let client = &self.clients[at];
        let committed = self.memory.commit(at, client, part, &self.tree);
        if let (Ok(done), Request::Writes(writes)) = (&*committed, client.request(part)) {
            let is_mistaken = self.judge_commit(at, part, writes, &done.commit)?;
            if is_mistaken && !done.commit.names.is_empty() {
                self.mistaken = Some(at);
            }
            self.set_tree(Rc::clone(&done.tree));
        }
        Ok(committed)
    }
}
