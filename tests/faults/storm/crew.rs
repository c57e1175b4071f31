//! The clients of a storm, and what happens to them and to their connections.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::hurt::Hurt;
use testbench::client::{Fleet, Order, Process, Recipe};
use testbench::frames::Matching;
use testbench::plan::{ClientFault, Step};
use testbench::proxy::{End, Proxies, Proxy, Way};

/// The clients, each behind proxies of its own.
#[derive(Default)]
pub(super) struct Crew {
    members: Vec<Member>,
}

struct Member {
    fleet: Arc<Fleet>,
    proxies: Proxies,
    process: Process,
    order: Order,
    lives: usize,
}

impl Crew {
    /// A client in a process of its own, or in a task.
    pub(super) fn join(
        &mut self,
        fleet: &Arc<Fleet>,
        recipe: Recipe,
        is_task: bool,
        proxies: Proxies,
    ) {
        let number = self.members.len();
        let mut order = fleet.order(&format!("c{number}"));
        order.connect_string = proxies.connect_string();
        order.recipe = recipe;
        // Every second one loses its patience.
        order.patience = (number % 2 == 0).then_some(Duration::from_secs(3));
        self.members.push(Member {
            fleet: Arc::clone(fleet),
            proxies,
            process: begin(fleet, &order, is_task),
            order,
            lives: 1,
        });
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Each with its fleet.
    pub(super) fn names(&self) -> Vec<(Arc<Fleet>, String)> {
        let names = self
            .members
            .iter()
            .map(|member| (Arc::clone(&member.fleet), member.process.name().to_owned()));
        names.collect()
    }

    pub(super) async fn ends(self, within: Duration) {
        for member in self.members {
            member.process.ends(within).await;
        }
    }

    /// Carries out the plan.
    pub(super) async fn storm(&mut self, plan: &[Step<(usize, ClientFault)>], hurt: &Hurt) {
        for step in plan {
            let (client, fault) = step.fault;
            hurt.begin(&format!("{fault:?} of c{client}"));
            self.members[client].suffer(fault, step.lasts).await;
            hurt.end();
            sleep(step.rest).await;
        }
    }
}

fn begin(fleet: &Fleet, order: &Order, is_task: bool) -> Process {
    match is_task {
        true => fleet.spawn(order),
        false => fleet.start(order),
    }
}

impl Member {
    async fn suffer(&mut self, fault: ClientFault, lasts: Duration) {
        match fault {
            ClientFault::Stop if self.process.is_task() => {
                self.proxies.black_hole(Way::Both);
                sleep(lasts).await;
                self.proxies.heal();
            }
            ClientFault::Stop => {
                self.process.stop();
                sleep(lasts).await;
                self.process.go_on();
            }
            ClientFault::Kill => {
                self.lives += 1;
                let mut order = self.order.clone();
                order.name += &format!(".{}", self.lives);
                let next = begin(&self.fleet, &order, self.process.is_task());
                std::mem::replace(&mut self.process, next).kill().await;
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
