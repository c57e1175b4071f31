//! Asks servers why an address gave no session, and whether a server stands alone. The client crate
//! has one bare error for all reasons.
//!
//! It resolves the name, connects, and asks with a four-letter word. Invariant: it never opens a
//! session. It decides nothing.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout_at};

use crate::error::{AddressFailure, UnreachableReason};

/// The most that is read of an answer; one of ZooKeeper 3.9 has some 200 bytes, a leader's 300.
const MOST: usize = 4 << 10;
/// ZooKeeper's, as the client crate adds it.
pub(crate) const DEFAULT_PORT: u16 = 2181;

/// How a server describes itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerMode {
    Standalone,
    /// One of an ensemble, or a server that will never say.
    Other,
    /// There was no answer.
    Unknown,
}

/// Asks the one server behind an address; ends within `limit`.
pub(crate) async fn mode(address: &str, limit: Duration) -> ServerMode {
    let asked = async {
        let resolved: HashSet<_> = lookup_host(with_port(address, DEFAULT_PORT))
            .await?
            .collect();
        let mut resolved = resolved.into_iter();
        match (resolved.next(), resolved.next()) {
            (Some(only), None) => {
                let answer = ask(TcpStream::connect(only).await?, MOST).await?;
                Ok(mode_of(&String::from_utf8_lossy(&answer)))
            }
            // The server that answers may be another one than our session's.
            _ => Ok(ServerMode::Other),
        }
    };
    match timeout_at(Instant::now() + limit, asked).await {
        Ok(Ok(mode)) => mode,
        Ok::<io::Result<ServerMode>, _>(Err(_)) | Err(_) => ServerMode::Unknown,
    }
}

fn mode_of(answer: &str) -> ServerMode {
    if answer.starts_with("srvr is not") {
        return ServerMode::Other;
    }
    // Only ZooKeeper's words are known. An answer of the full size may have been cut.
    let is_whole =
        answer.starts_with("Zookeeper version") && answer.ends_with('\n') && answer.len() < MOST;
    let mode = answer.lines().find_map(|line| line.strip_prefix("Mode: "));
    match mode.filter(|_| is_whole) {
        Some("standalone") => ServerMode::Standalone,
        Some(_) => ServerMode::Other,
        None => ServerMode::Unknown,
    }
}

/// Asks every address at the same time; ends within `limit`.
pub(crate) async fn failures(
    servers: &str,
    is_secure: bool,
    limit: Duration,
) -> Vec<AddressFailure> {
    let mut asked = Vec::new();
    for address in servers.split(',') {
        let address = address.to_owned();
        asked.push(tokio::spawn(async move {
            let reason = reason(&address, is_secure, Instant::now() + limit).await;
            AddressFailure::new(address, reason)
        }));
    }
    let mut failures = Vec::new();
    for failure in asked {
        // The task neither panics nor is aborted, and a message may miss a line.
        failures.extend(failure.await.ok());
    }
    failures
}

async fn reason(address: &str, is_secure: bool, deadline: Instant) -> UnreachableReason {
    let resolved = match timeout_at(deadline, lookup_host(with_port(address, DEFAULT_PORT))).await {
        Ok(Ok(addresses)) => addresses.collect::<Vec<_>>(),
        Ok(Err(error)) => return UnreachableReason::NotResolved(error.into()),
        Err(_) => return UnreachableReason::NotResolved(failed("no answer in time")),
    };
    if resolved.is_empty() {
        return UnreachableReason::NotResolved(failed("no address"));
    }
    let asked = async {
        match TcpStream::connect(&resolved[..]).await {
            Err(error) => UnreachableReason::Refused(error.into()),
            // A word in the clear would tell nothing.
            Ok(_) if is_secure => UnreachableReason::NoTlsSession,
            Ok(stream) => match ask(stream, 32).await {
                Ok(answer) if is_zookeeper(&answer) => UnreachableReason::NotServing,
                _ => UnreachableReason::NotZooKeeper,
            },
        }
    };
    let reason = timeout_at(deadline, asked).await;
    reason.unwrap_or(UnreachableReason::Silent)
}

fn failed(why: &'static str) -> Arc<io::Error> {
    io::Error::other(why).into()
}

/// Adds a port where none is.
pub(crate) fn with_port(address: &str, port: u16) -> String {
    let host = address.rsplit(']').next().unwrap_or(address);
    if host.contains(':') {
        address.into()
    } else {
        format!("{address}:{port}")
    }
}

/// Sends `srvr` and reads the answer, or so many of its first bytes. A connection that is closed
/// without any has an empty answer.
async fn ask(mut stream: TcpStream, most: usize) -> io::Result<Vec<u8>> {
    stream.write_all(b"srvr").await?;
    let mut answer = Vec::new();
    while answer.len() < most && stream.read_buf(&mut answer).await? > 0 {}
    Ok(answer)
}

/// A server answers with its version, says that it is not serving, or that the word is not on its
/// white list.
fn is_zookeeper(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    text.starts_with("Zookeeper version")
        || text.starts_with("This ZooKeeper")
        || text.starts_with("srvr is not")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_port_is_added_where_none_is() {
        assert_eq!(with_port("zk1", 2181), "zk1:2181");
        assert_eq!(with_port("zk1:99", 2181), "zk1:99");
        assert_eq!(with_port("[::1]", 2181), "[::1]:2181");
        assert_eq!(with_port("[::1]:99", 2181), "[::1]:99");
    }

    #[test]
    fn only_a_whole_answer_of_zookeeper_tells_the_mode() {
        let line = "Zookeeper version: 3.8.0\nMode: standalone\n";
        let endless = line.repeat(MOST.div_ceil(line.len()));
        for (answer, mode) in [
            (line, ServerMode::Standalone),
            (&endless, ServerMode::Unknown),
            (
                "Zookeeper version: 3.8.0\nMode: standalone",
                ServerMode::Unknown,
            ),
            (
                "Zookeeper version: 3.8.0\nMode: leader\n",
                ServerMode::Other,
            ),
            (
                "Zookeeper version: 3.8.0\nMode: read-only\n",
                ServerMode::Other,
            ),
            ("Zookeeper version: 3.8.0\n", ServerMode::Unknown),
            ("Keeper version: 1\nMode: standalone\n", ServerMode::Unknown),
            ("srvr is not executed because", ServerMode::Other),
            ("", ServerMode::Unknown),
        ] {
            assert_eq!(mode_of(answer), mode, "{answer}");
        }
    }
}
