//! The four-letter words that operators and their tools send instead of a connect request.
//!
//! Invariant: an answer is text in the form of ZooKeeper 3.8, built from a snapshot; it changes nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use super::counters::Counters;

const VERSION: &str = concat!("3.8.0-lockkeeper-embedded-", env!("CARGO_PKG_VERSION"), ", built on 1970-01-01 00:00 UTC");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    Ruok,
    Srvr,
    Stat,
    Mntr,
    Wchs,
    Wchc,
    Cons,
    Dump,
}

/// A connection as the words show it.
#[derive(Debug)]
pub(super) struct ConnStatus {
    pub(super) address: SocketAddr,
    pub(super) session: i64,
    pub(super) received: u64,
    pub(super) sent: u64,
}

/// Everything that the words tell.
#[derive(Debug)]
pub(super) struct Status {
    pub(super) conns: Vec<ConnStatus>,
    pub(super) sessions: BTreeMap<i64, Duration>,
    pub(super) watches: Vec<(i64, Vec<String>)>,
    pub(super) watched_paths: usize,
    pub(super) ephemerals: BTreeMap<i64, Vec<String>>,
    pub(super) zxid: i64,
    pub(super) data_bytes: usize,
    pub(super) uptime: Duration,
    pub(super) counters: Counters,
}

impl Status {
    fn received(&self) -> u64 {
        self.counters.requests() + self.counters.connects
    }

    fn sent(&self) -> u64 {
        self.counters.replies + self.counters.events
    }

    /// The original counts its root under two paths.
    fn nodes(&self) -> u64 {
        self.counters.nodes + 1
    }

    fn ephemeral_count(&self) -> usize {
        self.ephemerals.values().map(Vec::len).sum()
    }
}

impl Word {
    pub(super) fn parse(bytes: &[u8; 4]) -> Option<Self> {
        Some(match bytes {
            b"ruok" => Self::Ruok,
            b"srvr" => Self::Srvr,
            b"stat" => Self::Stat,
            b"mntr" => Self::Mntr,
            b"wchs" => Self::Wchs,
            b"wchc" => Self::Wchc,
            b"cons" => Self::Cons,
            b"dump" => Self::Dump,
            _ => return None,
        })
    }

    pub(super) fn answer(self, status: &Status) -> String {
        match self {
            Self::Ruok => "imok".to_owned(),
            Self::Srvr => format!("Zookeeper version: {VERSION}\n{}", summary(status)),
            Self::Stat => format!("Zookeeper version: {VERSION}\nClients:\n{}\n{}", conns(status), summary(status)),
            Self::Mntr => mntr(status),
            Self::Wchs => wchs(status),
            Self::Wchc => wchc(status),
            Self::Cons => format!("{}\n", conns(status)),
            Self::Dump => dump(status),
        }
    }
}

fn summary(status: &Status) -> String {
    format!(
        "Latency min/avg/max: 0/0.0/0\nReceived: {}\nSent: {}\nConnections: {}\nOutstanding: 0\nZxid: 0x{:x}\n\
         Mode: standalone\nNode count: {}\n",
        status.received(),
        status.sent(),
        status.conns.len(),
        status.zxid,
        status.nodes(),
    )
}

fn conns(status: &Status) -> String {
    let mut text = String::new();
    for conn in &status.conns {
        let interest = u8::from(conn.session != 0);
        let ConnStatus { address, received, sent, .. } = conn;
        // Writing to a string cannot fail.
        write!(text, " /{address}[{interest}](queued=0,recved={received},sent={sent}").ok();
        if let Some(timeout) = status.sessions.get(&conn.session) {
            write!(text, ",sid=0x{:x},to={}", conn.session, timeout.as_millis()).ok();
        }
        text.push_str(")\n");
    }
    text
}

fn mntr(status: &Status) -> String {
    let mut text = format!("zk_version\t{VERSION}\nzk_server_state\tstandalone\n");
    let numbers = [
        ("zk_ephemerals_count", status.ephemeral_count() as u64),
        ("zk_num_alive_connections", status.conns.len() as u64),
        ("zk_avg_latency", 0),
        ("zk_min_latency", 0),
        ("zk_max_latency", 0),
        ("zk_outstanding_requests", 0),
        ("zk_znode_count", status.nodes()),
        ("zk_global_sessions", status.sessions.len() as u64),
        ("zk_local_sessions", 0),
        ("zk_packets_sent", status.sent()),
        ("zk_packets_received", status.received()),
        ("zk_watch_count", status.counters.watches),
        ("zk_approximate_data_size", status.data_bytes as u64),
        ("zk_uptime", u64::try_from(status.uptime.as_millis()).unwrap_or(u64::MAX)),
    ];
    for (name, number) in numbers {
        writeln!(text, "{name}\t{number}").ok();
    }
    text
}

fn wchs(status: &Status) -> String {
    let total: usize = status.watches.iter().map(|(_, paths)| paths.len()).sum();
    let (conns, paths) = (status.watches.len(), status.watched_paths);
    format!("{conns} connections watching {paths} paths\nTotal watches:{total}\n")
}

fn wchc(status: &Status) -> String {
    let mut text = String::new();
    for (session, paths) in &status.watches {
        writeln!(text, "0x{session:x}").ok();
        for path in paths {
            writeln!(text, "\t{path}").ok();
        }
    }
    text.push('\n');
    text
}

fn dump(status: &Status) -> String {
    let count = status.sessions.len();
    let mut text = format!("SessionTracker dump:\nSession Sets ({count})/({count}):\n");
    for (session, timeout) in &status.sessions {
        writeln!(text, "1 expire after {} ms of silence:\n\t0x{session:x}", timeout.as_millis()).ok();
    }
    writeln!(text, "ephemeral nodes dump:\nSessions with Ephemerals ({}):", status.ephemerals.len()).ok();
    for (session, paths) in &status.ephemerals {
        writeln!(text, "0x{session:x}:").ok();
        for path in paths {
            writeln!(text, "\t{path}").ok();
        }
    }
    let count = status.conns.len();
    writeln!(text, "Connections dump:\nConnections Sets ({count})/({count}):").ok();
    for conn in &status.conns {
        writeln!(text, "\tip: /{} sessionId: 0x{:x}", conn.address, conn.session).ok();
    }
    text
}
