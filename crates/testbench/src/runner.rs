//! Runs one case: its own runtime, its own world, a limit on its time, and nothing left running
//! after it.
//!
//! The limit does not use the case's runtime, so it also catches a case that blocks its threads.

use std::net::SocketAddr;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use tokio::runtime::Builder;

use super::case::Case;
use super::target::Target;
use super::{World, panics};

/// A case that runs alone holds this exclusively: beside it, no other case's times could be
/// trusted.
static ROOM: RwLock<()> = RwLock::new(());

/// How long each case took, without its wait for room.
static TAKEN: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());

/// The slowest cases of this run, the slowest first.
pub fn slowest(count: usize) -> Vec<(Duration, String)> {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    taken.sort_by(|one, other| other.cmp(one));
    taken.truncate(count);
    taken
}

/// The servers that the cases of this run share: none when each starts an embedded one.
#[derive(Clone, Debug)]
pub struct Field {
    target: Target,
    servers: Arc<OnceLock<Vec<SocketAddr>>>,
}

impl Field {
    pub fn new(target: Target) -> Self {
        Self {
            target,
            servers: Arc::default(),
        }
    }

    /// Tells the cases where the servers are. The caller keeps them alive.
    pub fn play_on(&self, servers: Vec<SocketAddr>) {
        self.servers.set(servers).expect("servers are started once");
    }

    async fn world(&self) -> Result<World, String> {
        let servers = || {
            let servers = self.servers.get();
            servers.expect("servers are started before the cases")
        };
        match self.target {
            Target::Embedded => World::on_embedded().await,
            Target::Zookeeper | Target::Ensemble => World::on_real(servers()).await,
            Target::Redis => World::on_redis(servers()[0]).await,
            Target::Postgres => World::on_postgres(servers()[0]).await,
        }
    }
}

pub fn trial(case: Case, field: &Field) -> Trial {
    let (field, name) = (field.clone(), case.path());
    Trial::test(name.clone(), move || {
        let alone = case
            .is_alone
            .then(|| ROOM.write().unwrap_or_else(PoisonError::into_inner));
        let beside = (!case.is_alone).then(|| ROOM.read().unwrap_or_else(PoisonError::into_inner));
        panics::watch(&name);
        let begun = Instant::now();
        let outcome = run(&case, &name, field);
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        taken.push((begun.elapsed(), name.clone()));
        drop((taken, alone, beside));
        let panics = panics::taken(&name, outcome.is_err());
        match outcome {
            Ok(()) if panics.is_empty() => Ok(()),
            Ok(()) => Err(Failed::from(format!(
                "the case ended well, but a task of it {}",
                panics.join("\n")
            ))),
            Err(why) if panics.is_empty() => Err(Failed::from(why)),
            Err(why) => Err(Failed::from(format!("{why}{}", panics.join("\n")))),
        }
    })
}

fn run(case: &Case, name: &str, field: Field) -> Result<(), String> {
    let limit = if World::soak() {
        case.limit * 10
    } else {
        case.limit
    };
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name(name)
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
    let (done, ended) = channel();
    let start = case.run;

    runtime.spawn(async move {
        let outcome = match field.world().await {
            Ok(world) => {
                let outcome = tokio::spawn(start(world.clone())).await;
                world.close(outcome.is_ok()).await;
                // The words of the panic are in the notes.
                outcome.map_err(|_| String::new())
            }
            Err(why) => Err(format!("no world for the case: {why}")),
        };
        done.send(outcome).unwrap_or_default();
    });

    let outcome = ended.recv_timeout(limit);
    panics::case_is_over(name);
    runtime.shutdown_timeout(Duration::from_secs(2));
    match outcome {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => {
            Err(format!("hangs: {name} was still running after {limit:?}\n"))
        }
        Err(RecvTimeoutError::Disconnected) => Err("the runner of the case panicked: ".to_owned()),
    }
}
