//! Carries out the plans of a storm, on clients and on servers at the same time.
//!
//! Every fault that begins here ends here; when none is left, the log says that the faults have
//! ended.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockkeeper::embedded::{EmbeddedServer, Faults, SessionInfo};
use tokio::time::{Instant, sleep, timeout};
use zookeeper_client::Client;

use crate::faults::T;
use testbench::client::{Fleet, Order, Process};
use testbench::ensemble::Ensemble;
use testbench::events::{Log, What};
use testbench::frames::Matching;
use testbench::plan::{ClientFault, EmbeddedFault, ServerFault, Step};
use testbench::proxy::{End, Proxies, Proxy, Way};

/// How much the world is hurt now, and has been.
#[derive(Debug)]
pub(super) struct Hurt {
    log: Log,
    state: Mutex<(usize, BTreeMap<String, usize>)>,
}

impl Hurt {
    pub(super) fn new(log: Log) -> Self {
        Self {
            log,
            state: Mutex::default(),
        }
    }

    fn begin(&self, kind: &str) {
        // The same kind on another client or with another operation is the same kind.
        let word = kind.split(['(', ' ']).next().unwrap_or(kind);
        *self.state().1.entry(word.to_owned()).or_default() += 1;
        self.suffers(kind);
    }

    fn suffers(&self, kind: &str) {
        self.state().0 += 1;
        self.log.note(What::Fault {
            kind: kind.to_owned(),
        });
    }

    fn end(&self) {
        let mut state = self.state();
        state.0 -= 1;
        if state.0 == 0 {
            self.log.note(What::Healed);
        }
    }

    /// Ends a session before its time: its client need not know before its lease ends.
    fn revoke(&self, faults: &Faults, session: SessionInfo) {
        // What the servers create before the session ends is in the list, and nothing after it.
        faults.expire_session_but_keep_its_nodes(session.id);
        let tickets = faults.ephemerals_of(session.id);
        let tokens = tickets.iter().map(|(_, czxid)| czxid.unsigned_abs());
        self.log.note(What::Revoked {
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

/// The clients, each behind proxies of its own.
pub(super) struct Crew {
    members: Vec<Member>,
}

struct Member {
    proxies: Proxies,
    process: Process,
    order: Order,
    lives: usize,
}

impl Crew {
    pub(super) async fn start(
        fleet: &Fleet,
        servers: &[SocketAddr],
        chroot: &str,
        count: usize,
    ) -> Self {
        let member = |number: usize| {
            let proxies = Proxies::before_servers(servers, chroot);
            let mut order = fleet.order(&format!("c{number}"));
            order.connect_string = proxies.connect_string();
            // Every second one loses its patience.
            order.patience = (number % 2 == 0).then_some(Duration::from_secs(3));
            Member {
                proxies,
                process: fleet.start(&order),
                order,
                lives: 1,
            }
        };
        Self {
            members: (0..count).map(member).collect(),
        }
    }

    pub(super) fn names(&self) -> Vec<String> {
        let names = self.members.iter().map(|member| member.process.name());
        names.map(str::to_owned).collect()
    }

    pub(super) async fn ends(self, within: Duration) {
        for member in self.members {
            member.process.ends(within).await;
        }
    }

    /// Carries out the plan.
    pub(super) async fn storm(
        &mut self,
        fleet: &Fleet,
        plan: &[Step<(usize, ClientFault)>],
        hurt: &Hurt,
    ) {
        for step in plan {
            let (client, fault) = step.fault;
            hurt.begin(&format!("{fault:?} of c{client}"));
            self.members[client].suffer(fleet, fault, step.lasts).await;
            hurt.end();
            sleep(step.rest).await;
        }
    }
}

impl Member {
    async fn suffer(&mut self, fleet: &Fleet, fault: ClientFault, lasts: Duration) {
        match fault {
            ClientFault::Stop => {
                self.process.stop();
                sleep(lasts).await;
                self.process.go_on();
            }
            ClientFault::Kill => {
                self.lives += 1;
                let mut order = self.order.clone();
                order.name += &format!(".{}", self.lives);
                std::mem::replace(&mut self.process, fleet.start(&order))
                    .kill()
                    .await;
                sleep(lasts).await;
            }
            ClientFault::Cut(end) => {
                self.proxies.cut(end).await;
                sleep(lasts / 4).await;
            }
            ClientFault::Refuse => {
                self.proxies.refuse().await;
                self.proxies.cut(End::Rst).await;
                sleep(lasts).await;
                self.proxies.accept().await;
            }
            ClientFault::BlackHole(way) => {
                self.proxies.black_hole(way);
                sleep(lasts).await;
                self.proxies.heal();
            }
            ClientFault::Delay(way) => {
                self.proxies.delay(way, lasts / 6);
                sleep(lasts).await;
                self.proxies.delay(Way::Both, Duration::ZERO);
            }
            ClientFault::ByteByByte => {
                self.each(|proxy| proxy.byte_by_byte(true));
                sleep(lasts).await;
                self.each(|proxy| proxy.byte_by_byte(false));
            }
            ClientFault::LoseReply(operation) => {
                self.each(|proxy| proxy.cut_at_reply(Matching::op(operation)));
                sleep(lasts / 2).await;
                self.each(Proxy::disarm);
            }
            ClientFault::DuplicateReply(operation) => {
                self.each(|proxy| proxy.duplicate_reply(Matching::op(operation)));
                sleep(lasts / 2).await;
                self.each(Proxy::disarm);
            }
            ClientFault::HoldReply(operation) => {
                let holds: Vec<_> = self
                    .proxies
                    .each
                    .iter()
                    .map(|proxy| proxy.hold_reply(Matching::op(operation)))
                    .collect();
                sleep(lasts).await;
                self.each(Proxy::disarm);
                drop(holds);
            }
            ClientFault::SwapSession => {
                self.each(Proxy::swap_next_session);
                self.proxies.cut(End::Rst).await;
                sleep(lasts).await;
                self.each(Proxy::disarm);
            }
        }
    }

    fn each(&self, act: impl Fn(&Proxy)) {
        self.proxies.each.iter().for_each(act);
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
