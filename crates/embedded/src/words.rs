//! The four-letter words, which operators and their tools send instead of a connect request.
//!
//! Invariant: an answer is text in the form of ZooKeeper 3.8, built from a snapshot; it changes
//! nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use super::counters::Counters;

const VERSION: &str = concat!(
    "3.8.0-lockkeeper-embedded-",
    env!("CARGO_PKG_VERSION"),
    ", built on 1970-01-01 00:00 UTC"
);

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
    Envi,
    Isro,
}

/// A connection as the words show it.
#[derive(Debug)]
pub(super) struct ConnStatus {
    pub(super) address: SocketAddr,
    pub(super) session: i64,
    pub(super) received: u64,
    pub(super) sent: u64,
}

/// The data of all the words.
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

    /// ZooKeeper counts its root under two paths.
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
            b"envi" => Self::Envi,
            b"isro" => Self::Isro,
            _ => return None,
        })
    }

    /// Whether the answer grows with the server's contents.
    pub(super) fn is_long(self) -> bool {
        matches!(self, Self::Stat | Self::Wchc | Self::Cons | Self::Dump)
    }

    /// The snapshot is taken only for words that show it, because it copies a large part of the
    /// server's contents.
    pub(super) fn answer(self, status: impl FnOnce() -> Status) -> String {
        match self {
            Self::Ruok => return "imok".to_owned(),
            Self::Isro => return "rw".to_owned(),
            // kazoo takes the version from here.
            Self::Envi => return format!("Environment:\nzookeeper.version={VERSION}\n"),
            _ => {}
        }
        let status = &status();
        match self {
            Self::Srvr => format!("Zookeeper version: {VERSION}\n{}", summary(status)),
            Self::Stat => format!(
                "Zookeeper version: {VERSION}\nClients:\n{}\n{}",
                conns(status, false),
                summary(status)
            ),
            Self::Mntr => mntr(status),
            Self::Wchs => wchs(status),
            Self::Wchc => wchc(status),
            Self::Cons => format!("{}\n", conns(status, true)),
            Self::Dump => dump(status),
            Self::Ruok | Self::Isro | Self::Envi => unreachable!("answered above"),
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

fn conns(status: &Status, in_full: bool) -> String {
    let mut text = String::new();
    for conn in &status.conns {
        let interest = u8::from(conn.session != 0);
        let ConnStatus {
            address,
            received,
            sent,
            ..
        } = conn;
        // Writing to a string cannot fail.
        write!(
            text,
            " /{address}[{interest}](queued=0,recved={received},sent={sent}"
        )
        .ok();
        if let Some(timeout) = status.sessions.get(&conn.session).filter(|_| in_full) {
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
        (
            "zk_uptime",
            u64::try_from(status.uptime.as_millis()).unwrap_or(u64::MAX),
        ),
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
        writeln!(
            text,
            "1 expire after {} ms of silence:\n\t0x{session:x}",
            timeout.as_millis()
        )
        .ok();
    }
    writeln!(
        text,
        "ephemeral nodes dump:\nSessions with Ephemerals ({}):",
        status.ephemerals.len()
    )
    .ok();
    for (session, paths) in &status.ephemerals {
        writeln!(text, "0x{session:x}:").ok();
        for path in paths {
            writeln!(text, "\t{path}").ok();
        }
    }
    let count = status.conns.len();
    writeln!(
        text,
        "Connections dump:\nConnections Sets ({count})/({count}):"
    )
    .ok();
    for conn in &status.conns {
        writeln!(
            text,
            "\tip: /{} sessionId: 0x{:x}",
            conn.address, conn.session
        )
        .ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Status {
        let conn = ConnStatus {
            address: ([127, 0, 0, 1], 9).into(),
            session: 0xab,
            received: 2,
            sent: 1,
        };
        Status {
            conns: vec![conn],
            sessions: [(0xab, Duration::from_secs(9))].into(),
            watches: vec![(0xab, vec!["/a".to_owned()])],
            watched_paths: 1,
            ephemerals: [(0xab, vec!["/e".to_owned()])].into(),
            zxid: 0x1f,
            data_bytes: 44,
            uptime: Duration::from_secs(1),
            counters: Counters::default(),
        }
    }

    #[test]
    fn words_answer_in_the_form_of_the_original() {
        assert_eq!(Word::Ruok.answer(status), "imok");
        assert_eq!(
            Word::Wchs.answer(status),
            "1 connections watching 1 paths\nTotal watches:1\n"
        );
        assert_eq!(Word::Wchc.answer(status), "0xab\n\t/a\n\n");
        assert!(
            Word::Srvr
                .answer(status)
                .contains("\nZxid: 0x1f\nMode: standalone\n")
        );
        assert!(
            Word::Stat
                .answer(status)
                .contains(" /127.0.0.1:9[1](queued=0,recved=2,sent=1)\n\n")
        );
        assert!(
            Word::Cons
                .answer(status)
                .contains("sent=1,sid=0xab,to=9000)")
        );
        assert!(
            Word::Dump
                .answer(status)
                .contains("Sessions with Ephemerals (1):\n0xab:\n\t/e\n")
        );
    }

    #[test]
    fn mntr_has_the_keys_that_monitors_read() {
        let text = Word::Mntr.answer(status);
        for key in [
            "zk_version",
            "zk_server_state",
            "zk_znode_count",
            "zk_watch_count",
            "zk_ephemerals_count",
            "zk_num_alive_connections",
            "zk_outstanding_requests",
            "zk_packets_received",
            "zk_packets_sent",
            "zk_approximate_data_size",
        ] {
            assert!(
                text.lines()
                    .any(|line| line.starts_with(&format!("{key}\t"))),
                "{key}"
            );
        }
    }
}
