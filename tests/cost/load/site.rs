//! A server, or an ensemble, that no other case uses, and its own counts.
//!
//! The servers that the cases share count the neighbours too. It judges nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use lockkeeper::embedded::EmbeddedServer;
use tokio::task::spawn_blocking;

use testbench::zookeeper::Servers;
use testbench::{World, words};

/// Of the kind that the cases of this run meet.
pub(crate) enum Site {
    Embedded(EmbeddedServer),
    Real(Servers, Asked),
}

/// Words that the servers were asked: real ones count each as a frame that came and as two that
/// went.
#[derive(Debug, Default)]
pub(crate) struct Asked(AtomicI64);

/// What a site says of itself: totals since its start, and what is there now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    /// How many leaders the members have had; their transactions are numbered anew under each.
    pub(crate) epoch: i64,
    /// Transactions under this leader.
    pub(crate) commits: i64,
    /// Frames from clients, of all members.
    pub(crate) received: i64,
    /// Frames to clients, of all members.
    pub(crate) sent: i64,
    pub(crate) watches: i64,
    pub(crate) connections: i64,
    /// Of one member: each has all of them.
    pub(crate) nodes: i64,
    pub(crate) tickets: i64,
    pub(crate) bytes: i64,
}

impl Told {
    /// The totals since then, and what is there now more than then.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            epoch: self.epoch - before.epoch,
            commits: self.commits - before.commits,
            received: self.received - before.received,
            sent: self.sent - before.sent,
            watches: self.watches - before.watches,
            connections: self.connections - before.connections,
            nodes: self.nodes - before.nodes,
            tickets: self.tickets - before.tickets,
            bytes: self.bytes - before.bytes,
        }
    }
}

impl Site {
    /// Starts one that is like the servers of this world, with more flags for the JVMs if there are
    /// any.
    pub(crate) async fn like(world: &World, flags: &'static [&'static str]) -> Self {
        if world.is_embedded() {
            let timeouts = (Duration::from_millis(100), Duration::from_secs(3600));
            let builder = EmbeddedServer::builder().session_timeouts(timeouts.0, timeouts.1);
            return Self::Embedded(builder.start().await.unwrap());
        }
        let members = world.servers().len();
        let started = spawn_blocking(move || Servers::start_with(members, flags)).await;
        Self::Real(started.unwrap().unwrap(), Asked::default())
    }

    pub(crate) fn connect_string(&self) -> String {
        match self {
            Self::Embedded(server) => server.connect_string(),
            Self::Real(servers, _) => {
                let addresses = servers.addresses();
                let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                addresses.join(",")
            }
        }
    }

    pub(crate) async fn told(&self) -> Told {
        let addresses = match self {
            Self::Embedded(server) => vec![server.addr()],
            Self::Real(servers, _) => servers.addresses(),
        };
        let mut told = Told::default();
        for address in addresses {
            let srvr = words::word(address, "srvr").await;
            let mntr = words::mntr(&words::word(address, "mntr").await);
            let zxid = words::zxid(&srvr).unwrap();
            (told.epoch, told.commits) =
                (told.epoch, told.commits).max((zxid >> 32, zxid & 0xffff_ffff));
            told.received += number(&mntr, "zk_packets_received");
            told.sent += number(&mntr, "zk_packets_sent");
            told.watches += number(&mntr, "zk_watch_count");
            told.connections += number(&mntr, "zk_num_alive_connections");
            told.nodes = number(&mntr, "zk_znode_count");
            told.tickets = number(&mntr, "zk_ephemerals_count");
            told.bytes = number(&mntr, "zk_approximate_data_size");
            if let Self::Real(_, Asked(words)) = self {
                words.fetch_add(2, Ordering::Relaxed);
            }
        }
        if let Self::Real(_, Asked(words)) = self {
            let words = words.load(Ordering::Relaxed);
            told.received -= words;
            told.sent -= 2 * words;
        }
        told
    }

    pub(crate) async fn stop(self) {
        match self {
            Self::Embedded(server) => server.stop().await,
            // It blocks.
            Self::Real(servers, _) => spawn_blocking(move || drop(servers)).await.unwrap(),
        }
    }
}

fn number(mntr: &BTreeMap<String, String>, key: &str) -> i64 {
    let value = mntr
        .get(key)
        .unwrap_or_else(|| panic!("mntr says no {key}"));
    value
        .parse()
        .unwrap_or_else(|_| panic!("{key} is {value:?}"))
}
