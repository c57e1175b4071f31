//! Schedulers of which one runs the jobs, and hands over cleanly to the next.
//!
//! `cargo run --example scheduler` in this folder runs on the embedded server;
//! `cargo run --example scheduler zk1:2181,zk2:2181` on yours. Each leader runs a few jobs, tells
//! everybody how far it is, and resigns between two jobs, as before a restart. The next one goes on
//! where it stopped: no job is left out, and none is run twice.
#![allow(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockkeeper::embedded::EmbeddedServer;
use lockkeeper::{Keeper, Leadership, Token};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const SCHEDULERS: usize = 3;
const JOBS: usize = 12;
/// The jobs of one leader before it hands over.
const TERM: usize = 3;

#[tokio::main]
async fn main() -> Result<()> {
    let jobs = match std::env::args().nth(1) {
        Some(servers) => schedule(&servers).await?,
        None => {
            let server = EmbeddedServer::start().await?;
            schedule(&server.connect_string()).await?
        }
    };
    println!("{} jobs, each run once and in order", jobs.len());
    Ok(())
}

/// Lets the schedulers run all jobs; which leader ran which, in the order of their ends.
///
/// # Errors
///
/// Whatever a scheduler failed with.
pub(crate) async fn schedule(servers: &str) -> Result<Vec<(usize, Token)>> {
    let journal = Arc::new(Journal::default());
    let watcher = tokio::spawn(watch(Keeper::connect(servers).await?));
    let schedulers: Vec<_> = (0..SCHEDULERS)
        .map(|number| {
            let (servers, journal) = (servers.to_owned(), Arc::clone(&journal));
            tokio::spawn(run(format!("scheduler-{number}"), servers, journal))
        })
        .collect();
    for scheduler in schedulers {
        scheduler.await??;
    }
    watcher.abort();
    Ok(journal.jobs().clone())
}

/// One scheduler: stands, leads, hands over and stands again, until there is nothing left to do.
async fn run(name: String, servers: String, journal: Arc<Journal>) -> Result<()> {
    let keeper = Keeper::connect(servers).await?;
    let election = keeper.election("scheduler")?;
    election
        .lead(name.clone(), async move |leadership| {
            lead(&name, leadership, &journal).await
        })
        .await?;
    keeper.close().await;
    Ok(())
}

/// One term. Leadership is given away when this has ended, and not before.
async fn lead(name: &str, leadership: &Leadership, journal: &Journal) -> ControlFlow<()> {
    for _ in 0..TERM {
        let job = journal.jobs().len();
        if job == JOBS {
            return Break(());
        }
        // The work ends with the leadership, if that is lost.
        if leadership.run(work()).await.is_err() || !journal.done(job, leadership.token()) {
            break;
        }
        let progress = format!("{name}: {} of {JOBS} jobs", job + 1);
        if leadership.proclaim(progress).await.is_err() {
            break;
        }
    }
    Continue(())
}

async fn work() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}

/// Follows the leaders without standing.
async fn watch(keeper: Keeper) -> Result<()> {
    let mut observer = keeper.election("scheduler")?.observe();
    loop {
        observer.changed().await?;
        match observer.borrow() {
            Some(leader) => println!("{} (token {})", leader.value, leader.token),
            None => println!("nobody leads"),
        }
    }
}

/// Which jobs are done. It refuses what comes from a leader that is older than one it has seen.
#[derive(Default)]
struct Journal(Mutex<Vec<(usize, Token)>>);

impl Journal {
    fn jobs(&self) -> MutexGuard<'_, Vec<(usize, Token)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn done(&self, job: usize, token: Token) -> bool {
        let mut jobs = self.jobs();
        let is_newest = jobs.last().is_none_or(|(_, newest)| token >= *newest);
        let is_next = is_newest && jobs.len() == job;
        if is_next {
            jobs.push((job, token));
        }
        is_next
    }
}
