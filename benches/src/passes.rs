//! The passes that are not timed: memory in fresh processes, and bytes on the wire.
//!
//! They come after the rounds, so that neither the relay nor a cold process is in any time.

use crate::Result;
use crate::driver::Outcome;
use crate::order::Order;
use crate::relay::Relay;
use crate::results::{Crossing, Memory};
use crate::run::{PATIENCE, Stage};
use crate::text::{bytes, say, three};

/// Enough that connections and caches are there; little enough that the allocator has nothing to
/// spare.
const LUKEWARM: [Order; 2] = [
    Order::Uncontended { rounds: 50 },
    Order::HandOver {
        waiters: 10,
        repeats: 1,
    },
];

/// Queues crowds in processes that never had one. An allocator keeps its memory, so a second crowd
/// shows nothing.
pub(crate) async fn memory(stage: &Stage<'_>) -> Result<Vec<Memory>> {
    let mut found = Vec::new();
    for waiters in &stage.plan.crowds {
        for peer in &stage.plan.peers {
            for _ in 0..stage.plan.memory_rounds(*peer, *waiters) {
                let mut driver = stage.driver(*peer).await?;
                for order in LUKEWARM {
                    driver.obey(&order, PATIENCE).await;
                }
                let outcome = driver.obey(&Order::hand_over(*waiters), PATIENCE).await;
                if let Some(per_waiter) = outcome
                    .measured()
                    .and_then(|answer| answer.bytes_per_waiter)
                {
                    say(format_args!(
                        "memory, {waiters} waiters: {} {}",
                        peer.key(),
                        bytes(per_waiter)
                    ));
                }
                found.push(Memory {
                    peer: *peer,
                    waiters: *waiters,
                    outcome,
                });
                driver.dismiss().await?;
            }
        }
    }
    Ok(found)
}

/// Sends one order of each kind through a relay that counts.
pub(crate) async fn crossings(stage: &Stage<'_>) -> Result<Vec<Crossing>> {
    let mut found = Vec::new();
    for peer in &stage.plan.peers {
        let relay = Relay::to(stage.servers.address(peer.server(stage.plan.on))).await?;
        let mut driver = stage.driver_through(*peer, relay.address()).await?;
        for order in LUKEWARM {
            driver.obey(&order, PATIENCE).await;
        }
        for order in stage.plan.counted(*peer) {
            let before = relay.traffic();
            let outcome = driver.obey(&order, PATIENCE).await;
            let traffic = relay.traffic().since(before);
            let crossing = Crossing {
                peer: *peer,
                order,
                outcome,
                traffic,
            };
            say(format_args!(
                "on the wire: {}, {}: {} bytes, {} requests each",
                peer.key(),
                crossing.title(),
                three(crossing.each(crossing.bytes())),
                three(crossing.each(traffic.requests)),
            ));
            found.push(crossing);
        }
        driver.dismiss().await?;
    }
    Ok(found)
}

impl Crossing {
    /// What each operation is.
    pub(crate) fn title(&self) -> String {
        match self.order {
            Order::HandOver { waiters, .. } => {
                format!("a waiter's whole way among {waiters}: join, grant, release")
            }
            _ => "lock + release, alone".into(),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.traffic.bytes_up + self.traffic.bytes_down
    }

    /// For one operation.
    pub(crate) fn each(&self, total: u64) -> f64 {
        let operations = match self.order {
            Order::Uncontended { rounds } => rounds,
            Order::HandOver { waiters, repeats } => waiters * repeats,
            Order::Independent { .. } | Order::Linger { .. } => 1,
        };
        total as f64 / operations as f64
    }

    /// Whether all did what was asked.
    pub(crate) fn is_whole(&self) -> bool {
        let measured: Option<_> = Outcome::measured(&self.outcome);
        measured.is_some_and(|answer| answer.failed == 0)
    }
}
