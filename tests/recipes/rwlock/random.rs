//! Many random calls at once: no task writes while another reads or writes.
//!
//! Each holder writes to a node of a stranger's when its hold has begun and before it ends, which
//! gives the time of the server's own clock, its transactions. A ticket that the server removed
//! meanwhile, with a session that ended, held until then only: the embedded server's journal tells.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use lockkeeper::{Error, Keeper, ReadGuard, RwLock, WriteGuard};
use tokio::time::timeout;

use super::SOON;
use crate::recipes::cancel::cancelled_after;
use testbench::children;
use testbench::dice::Dice;
use testbench::{Make, Stranger, World, case, eventually};

const NAME: &str = "random";
const TASKS: u64 = 8;
const OPERATIONS: usize = 2_000;

/// A hold, in transactions of the server.
#[derive(Debug, Clone)]
struct Span {
    writes: bool,
    node: String,
    token: Option<u64>,
    from: i64,
    to: i64,
}

/// What the tasks write down.
struct Ledger {
    stranger: Stranger,
    spans: Mutex<Vec<Span>>,
}

impl Ledger {
    /// The time by the server.
    async fn now(&self) -> i64 {
        let touched = self.stranger.set_data("/clock", b"", None).await;
        touched.unwrap().mzxid
    }

    fn note(&self, span: Span) {
        self.spans.lock().unwrap().push(span);
    }

    async fn read(&self, guard: &ReadGuard, from: i64) {
        let (node, to) = (guard.node().to_owned(), self.now().await);
        self.note(Span {
            writes: false,
            node,
            token: None,
            from,
            to,
        });
    }

    async fn wrote(&self, guard: &WriteGuard, from: i64) {
        let (node, to) = (guard.node().to_owned(), self.now().await);
        self.note(Span {
            writes: true,
            node,
            token: Some(guard.token().into()),
            from,
            to,
        });
    }
}

/// One task that wants the lock.
struct Task {
    lock: RwLock,
    dice: Dice,
    ledger: Arc<Ledger>,
    world: World,
}

/// What an operation may end with where sessions end.
fn forgive(error: &Error) {
    assert!(error.is_lost() || error.is_refusal(), "{error}");
}

impl Task {
    async fn run(mut self, operations: usize) {
        for _ in 0..operations {
            match self.dice.below(12) {
                0..4 => {
                    let guard = self.lock.read().await.unwrap();
                    self.reads(guard).await;
                }
                4..6 => {
                    let guard = self.lock.write().await.unwrap();
                    self.writes(guard).await;
                }
                6 => {
                    if let Some(guard) = self.lock.try_read().await.unwrap() {
                        self.reads(guard).await;
                    }
                }
                7 => {
                    if let Some(guard) = self.lock.try_write().await.unwrap() {
                        self.writes(guard).await;
                    }
                }
                8..11 => self.gives_up().await,
                _ => self.ends_a_session(),
            }
        }
    }

    async fn reads(&mut self, guard: ReadGuard) {
        let from = self.ledger.now().await;
        if self.dice.one_in(4) {
            // No task writes before the upgrade is done, so it is a reader until then.
            let before = self.ledger.now().await;
            let node = guard.node().to_owned();
            self.ledger.note(Span {
                writes: false,
                node,
                token: None,
                from,
                to: before,
            });
            return match guard.try_upgrade().await {
                Ok(writer) => self.writes(writer).await,
                Err(refused) => {
                    forgive(refused.error());
                    let guard = refused.into_guard();
                    self.ledger.read(&guard, before).await;
                }
            };
        }
        self.ledger.read(&guard, from).await;
        self.ends(guard.release()).await;
    }

    async fn writes(&mut self, guard: WriteGuard) {
        let from = self.ledger.now().await;
        self.ledger.wrote(&guard, from).await;
        match self.dice.below(4) {
            0 => {
                // It is a reader from the beginning of this on, without a writer in between.
                let from = self.ledger.now().await;
                match guard.downgrade().await {
                    Ok(reader) => {
                        self.ledger.read(&reader, from).await;
                        self.ends(reader.release()).await;
                    }
                    Err(error) => forgive(&error),
                }
            }
            1 => {
                let polls = self.dice.below(12) as usize;
                if let Some(Ok(reader)) = cancelled_after(polls, guard.downgrade()).await {
                    let from = self.ledger.now().await;
                    self.ledger.read(&reader, from).await;
                }
            }
            _ => self.ends(guard.release()).await,
        }
    }

    async fn ends(&mut self, release: impl Future<Output = lockkeeper::Result<()>>) {
        if self.dice.one_in(3) {
            let polls = self.dice.below(6) as usize;
            drop(cancelled_after(polls, release).await);
        } else if let Err(error) = release.await {
            forgive(&error);
        }
    }

    /// A call that is dropped after a few polls, or never waits for long.
    async fn gives_up(&mut self) {
        let polls = self.dice.below(16) as usize;
        if self.dice.one_in(2) {
            if let Some(guard) = cancelled_after(polls, self.lock.read()).await {
                self.reads(guard.unwrap()).await;
            }
        } else if let Some(guard) = cancelled_after(polls, self.lock.write()).await {
            self.writes(guard.unwrap()).await;
        }
    }

    /// Where that can be had: the end of any session but the stranger's.
    fn ends_a_session(&mut self) {
        if !self.world.is_embedded() || !self.dice.one_in(8) {
            return;
        }
        let faults = self.world.embedded().faults();
        let strangers = self.ledger.stranger.session_id().0;
        let sessions = faults.sessions().into_iter().map(|session| session.id);
        let sessions: Vec<i64> = sessions.filter(|id| *id != strangers).collect();
        if !sessions.is_empty() {
            faults.expire_session(self.dice.pick(&sessions));
        }
    }
}

#[case(within = 240)]
async fn whatever_eight_tasks_do_nobody_writes_beside_another(world: World) {
    let stranger = world.raw().await;
    let options = Make::Persistent;
    stranger.create("/clock", b"", &options).await.unwrap();
    let spans = Mutex::default();
    let ledger = Arc::new(Ledger { stranger, spans });
    if world.is_embedded() {
        world.embedded().journal(1_000_000);
    }
    let operations = World::times(OPERATIONS, 10 * OPERATIONS) / TASKS as usize;
    let mut keepers = Vec::new();
    for _ in 0..4 {
        // Numbers do not start again, so a node is one ticket.
        let builder = Keeper::builder(world.connect_string()).persistent_directories(true);
        keepers.push(builder.connect().await.unwrap());
    }
    let seed = u64::from(std::process::id());
    let tasks = (0..TASKS).map(|number| {
        let keeper = &keepers[number as usize % keepers.len()];
        let task = Task {
            lock: keeper.rw_lock(NAME).unwrap(),
            dice: Dice(seed << 8 | number),
            ledger: Arc::clone(&ledger),
            world: world.clone(),
        };
        tokio::spawn(task.run(operations))
    });

    let all = timeout(Duration::from_secs(200), join_all(tasks)).await;

    for task in all.expect("nobody hangs") {
        task.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    eventually("nothing is left", SOON, || async {
        children(&ledger.stranger, NAME).await.is_empty()
    })
    .await;
    if world.is_embedded() {
        let unwatched = || async { world.embedded().counters().watches == 0 };
        eventually("no watch is left", SOON, unwatched).await;
    }
    let mut spans = ledger.spans.lock().unwrap().clone();
    cut_short(&world, &mut spans);
    judge(&spans, seed);
}

/// A ticket holds for no longer than it is there.
fn cut_short(world: &World, spans: &mut Vec<Span>) {
    if !world.is_embedded() {
        return;
    }
    let journal = world.embedded().take_journal().into_iter();
    let deleted: HashMap<String, i64> = journal
        .filter_map(|deleted| {
            let (_, node) = deleted.path.rsplit_once('/')?;
            Some((node.to_owned(), deleted.zxid))
        })
        .collect();
    for span in &mut *spans {
        let end = deleted[&span.node];
        span.to = span.to.min(end);
    }
    spans.retain(|span| span.from < span.to);
}

fn judge(spans: &[Span], seed: u64) {
    let writers = || spans.iter().filter(|span| span.writes);
    assert!(
        writers().count() > 50 && spans.len() > 200,
        "they were at work"
    );
    for writer in writers() {
        for other in spans {
            let is_beside = other.from < writer.to && writer.from < other.to;
            let is_another = other.node != writer.node;
            assert!(
                !(is_beside && is_another),
                "seed {seed}: {writer:?} beside {other:?}"
            );
        }
    }
    let mut in_order: Vec<&Span> = writers().collect();
    in_order.sort_by_key(|span| span.from);
    let tokens: Vec<_> = in_order.iter().map(|span| span.token).collect();
    assert!(
        tokens.is_sorted_by(|a, b| a <= b),
        "seed {seed}: {tokens:?}"
    );
}
