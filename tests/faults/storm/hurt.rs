//! Carries out the plans of a storm on servers, and keeps count of all that is hurt.
//!
//! Every fault that begins here ends here; when none is left, the log says that the faults have
//! ended.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockkeeper::Keeper;
use lockkeeper::embedded::{EmbeddedServer, Faults, SessionInfo};
use tokio::time::{Instant, sleep, timeout};
use zookeeper_client::Client;

use crate::faults::T;
use testbench::client::Fleet;
use testbench::ensemble::Ensemble;
use testbench::events::{Log, What};
use testbench::pair::Pair;
use testbench::plan::{EmbeddedFault, ServerFault, Step, StoreFault};
use testbench::proxy::Proxy;

/// How much the world is hurt now, and has been.
#[derive(Debug)]
pub(super) struct Hurt {
    /// Of each lock.
    logs: Vec<Log>,
    state: Mutex<(usize, BTreeMap<String, usize>)>,
}

impl Hurt {
    pub(super) fn new(fleets: &[Arc<Fleet>]) -> Self {
        Self {
            logs: fleets.iter().map(|fleet| fleet.log().clone()).collect(),
            state: Mutex::default(),
        }
    }

    pub(super) fn begin(&self, kind: &str) {
        // The same kind on another client or with another operation is the same kind.
        let word = kind.split(['(', ' ']).next().unwrap_or(kind);
        *self.state().1.entry(word.to_owned()).or_default() += 1;
        self.suffers(kind);
    }

    fn suffers(&self, kind: &str) {
        self.state().0 += 1;
        self.note(&What::Fault {
            kind: kind.to_owned(),
        });
    }

    fn note(&self, what: &What) {
        self.logs.iter().for_each(|log| log.note(what.clone()));
    }

    pub(super) fn end(&self) {
        let mut state = self.state();
        state.0 -= 1;
        if state.0 == 0 {
            self.note(&What::Healed);
        }
    }

    /// Ends a session before its time: its client need not know before its lease ends.
    fn revoke(&self, faults: &Faults, session: SessionInfo) {
        // What the servers create before the session ends is in the list, and nothing after it.
        faults.expire_session_but_keep_its_nodes(session.id);
        let tickets = faults.ephemerals_of(session.id);
        let tokens = tickets.iter().map(|(_, czxid)| czxid.unsigned_abs());
        self.note(&What::Revoked {
            tokens: tokens.collect(),
            within_ns: u64::try_from(session.timeout.as_nanos()).expect("a short time"),
        });
        faults.remove_ephemerals_of(session.id);
    }

    pub(super) fn count(&self) -> usize {
        self.kinds().values().sum()
    }

    pub(super) fn kinds(&self) -> BTreeMap<String, usize> {
        self.state().1.clone()
    }

    fn state(&self) -> MutexGuard<'_, (usize, BTreeMap<String, usize>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// While polled, logs a fault when the ensemble gives out no session like those of the clients,
    /// without a fault of the plan. On a busy machine, members may lose their leader, or commit too
    /// late for so short a session.
    pub(super) async fn watch(&self, connect_string: &str) -> ! {
        const PAUSE: Duration = Duration::from_millis(200);
        let mut is_whole = true;
        loop {
            let connector = Client::connector()
                .with_session_timeout(T)
                .with_connection_timeout(T / 5)
                .with_fail_eagerly();
            let session = timeout(T, connector.connect(connect_string)).await;
            let is_there = session.is_ok_and(|session| session.is_ok());
            match (is_whole, is_there) {
                (true, false) => {
                    println!("the ensemble gives out no session by itself");
                    self.suffers("no quorum");
                }
                (false, true) => self.end(),
                _ => {}
            }
            is_whole = is_there;
            sleep(PAUSE).await;
        }
    }

    /// What comes, if it comes before the world was whole for so long, all in all.
    pub(super) async fn comes<T>(
        &self,
        what: &str,
        within: Duration,
        future: impl Future<Output = T>,
    ) -> T {
        const STEP: Duration = Duration::from_millis(50);
        let whole = async {
            let mut left = within;
            while !left.is_zero() {
                sleep(STEP).await;
                if self.state().0 == 0 {
                    left = left.saturating_sub(STEP);
                }
            }
        };
        tokio::select! {
            it = future => it,
            () = whole => panic!("waited {within:?} in a whole world for: {what}"),
        }
    }
}

/// Carries out the plan on an ensemble, for about that long: after some faults the members take
/// their time to find together, and the next fault waits for that.
pub(super) async fn ensemble(
    ensemble: &mut Ensemble,
    plan: &[Step<ServerFault>],
    hurt: &Hurt,
    length: Duration,
) {
    let began = Instant::now();
    for step in plan {
        if began.elapsed() > length {
            break;
        }
        let leader = ensemble.leader().await;
        let follower = (leader + 1) % ensemble.count();
        let fault = step.fault;
        hurt.begin(&format!("{fault:?}"));
        let member = match fault {
            ServerFault::KillLeader | ServerFault::FreezeLeader | ServerFault::CutOffLeader(_) => {
                leader
            }
            _ => follower,
        };
        match fault {
            ServerFault::KillLeader | ServerFault::KillFollower => {
                ensemble.with(move |servers| servers.kill(member)).await;
                sleep(step.lasts).await;
                ensemble
                    .with(move |servers| servers.launch(member))
                    .await
                    .expect("the member starts again");
            }
            ServerFault::FreezeLeader | ServerFault::FreezeFollower => {
                ensemble.with(move |servers| servers.freeze(member)).await;
                sleep(step.lasts).await;
                ensemble.with(move |servers| servers.thaw(member)).await;
            }
            ServerFault::CutOffLeader(cut) | ServerFault::CutOffFollower(cut) => {
                ensemble.cut_off(member, cut);
                sleep(step.lasts).await;
                ensemble.join(member).await;
            }
        }
        ensemble.serves().await;
        hurt.end();
        sleep(step.rest).await;
    }
}

/// Carries out the plan on an embedded server.
pub(super) async fn embedded(server: &EmbeddedServer, plan: &[Step<EmbeddedFault>], hurt: &Hurt) {
    for step in plan {
        hurt.begin(&format!("{:?}", step.fault));
        match step.fault {
            EmbeddedFault::Outage => {
                server.stop().await;
                sleep(step.lasts).await;
                server.restart().await.expect("the port is still ours");
            }
            EmbeddedFault::ExpireSession => {
                let sessions = server.faults().sessions();
                // Whichever the length of the step picks.
                let pick = step.lasts.as_millis() as usize % sessions.len().max(1);
                if let Some(session) = sessions.get(pick) {
                    hurt.revoke(&server.faults(), *session);
                }
                sleep(step.lasts).await;
            }
            EmbeddedFault::CutAll => {
                server.faults().cut_all();
                sleep(step.lasts).await;
            }
        }
        hurt.end();
        sleep(step.rest).await;
    }
}

/// Carries out the plan on a store, for about that long: after some faults nobody is given a
/// session for a while, and the next fault waits for that. `front` is where clients find it.
pub(super) async fn store(
    pair: &mut Pair,
    front: &Proxy,
    plan: &[Step<StoreFault>],
    hurt: &Hurt,
    length: Duration,
) {
    let began = Instant::now();
    for step in plan {
        if began.elapsed() > length {
            break;
        }
        hurt.begin(&format!("{:?}", step.fault));
        match step.fault {
            StoreFault::Kill => {
                pair.kill().await;
                sleep(step.lasts).await;
                pair.launch().await;
            }
            StoreFault::Freeze => {
                pair.primary().freeze();
                sleep(step.lasts).await;
                pair.primary().thaw();
            }
            StoreFault::Part => {
                // A primary that misses its replica answers for some seconds.
                pair.part();
                sleep(step.lasts + 2 * T).await;
                pair.rejoin();
            }
            StoreFault::Promote => {
                pair.part();
                sleep(step.lasts).await;
                let old = pair.promote().await;
                front.lead_to(pair.address());
                // Meanwhile it still answers those that are connected.
                pair.follow(old).await;
            }
        }
        serves(&pair.stored().at(front.address())).await;
        // Nobody promotes a replica that has not got all that was there at some time.
        pair.catches_up().await;
        hurt.end();
        sleep(step.rest).await;
    }
}

/// Until the store gives sessions.
async fn serves(connect_string: &str) {
    const LONGEST: Duration = Duration::from_secs(60);
    let builder = Keeper::builder(connect_string).session_timeout(T);
    let connected = timeout(LONGEST, builder.connect_timeout(LONGEST).connect());
    let keeper = connected.await.expect("the pause of the store ends");
    keeper.expect("the store serves").close().await;
}
