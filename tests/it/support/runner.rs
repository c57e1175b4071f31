//! Runs one case: its own runtime, its own world, a limit on its time, and nothing left running after it.
//!
//! The limit does not lean on the runtime of the case, so that a case that blocks its threads is caught too.

use std::net::SocketAddr;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use tokio::runtime::Builder;

use super::case::Case;
use super::target::Target;
use super::zookeeper::Servers;
use super::{World, panics};

/// Cases that take all the processor time they can get run alone, because beside them nobody's clock could be trusted; and so do those
/// that measure how fast many sessions come back, because beside others it is the machine that they would measure.
const LOUD: &[&str] = &[
    "cli::bench::",
    "cli::terminal::bench",
    "cost::beats::",
    "linger::a_ticket_has_ten_thousand",
    "linger::competitor::",
    "linger::crowds",
    "linger::storm::",
    "load::",
    "reconnect::whatever",
    "sharing::crowd::",
];
static ROOM: RwLock<()> = RwLock::new(());

/// How long each case took, without its wait for room.
static TAKEN: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());

/// The slowest cases of this run, the slowest first.
pub(crate) fn slowest(count: usize) -> Vec<(Duration, String)> {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    taken.sort_by(|one, other| other.cmp(one));
    taken.truncate(count);
    taken
}

/// The servers that the cases of this run share: none when each starts an embedded one.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    target: Target,
    servers: Arc<OnceLock<Vec<SocketAddr>>>,
}

impl Field {
    pub(crate) fn new(target: Target) -> Self {
        Self {
            target,
            servers: Arc::default(),
        }
    }

    /// Tells the cases where the servers are, and hands the servers back to whoever keeps them alive.
    pub(crate) fn play_on(&self, servers: Servers) -> Servers {
        self.servers
            .set(servers.addresses())
            .expect("servers are started once");
        servers
    }

    async fn world(&self) -> Result<World, String> {
        match self.target {
            Target::Embedded => World::on_embedded().await,
            _ => {
                World::on_real(
                    self.servers
                        .get()
                        .expect("servers are started before the cases"),
                )
                .await
            }
        }
    }
}

pub(crate) fn trial(case: Case, field: &Field) -> Trial {
    let field = field.clone();
    Trial::test(case.name.clone(), move || {
        let is_loud = LOUD.iter().any(|loud| case.name.starts_with(loud));
        let alone = is_loud.then(|| ROOM.write().unwrap_or_else(PoisonError::into_inner));
        let beside = (!is_loud).then(|| ROOM.read().unwrap_or_else(PoisonError::into_inner));
        panics::watch(&case.name);
        let begun = Instant::now();
        let outcome = run(&case, field);
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        taken.push((begun.elapsed(), case.name.clone()));
        drop((taken, alone, beside));
        let panics = panics::taken(&case.name, outcome.is_err());
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

fn run(case: &Case, field: Field) -> Result<(), String> {
    let limit = if World::soak() {
        case.limit * 10
    } else {
        case.limit
    };
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name(&case.name)
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
    panics::case_is_over(&case.name);
    runtime.shutdown_timeout(Duration::from_secs(2));
    match outcome {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => Err(format!(
            "hangs: {} was still running after {limit:?}\n",
            case.name
        )),
        Err(RecvTimeoutError::Disconnected) => Err("the runner of the case panicked: ".to_owned()),
    }
}
