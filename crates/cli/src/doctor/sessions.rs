//! Which sessions there are, as the servers say when they are asked with the four-letter word
//! `dump`.
//!
//! Invariant: it counts only if every server of the list answers; where one does not, nothing is
//! known. An answer is read to the end of its sessions: what follows names the owners of nodes,
//! whether they live or not. It opens no session.

use std::collections::HashSet;
use std::io;
use std::time::Duration;

use lockkeeper::SessionId;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::args::Server;

/// For one server.
const PATIENCE: Duration = Duration::from_secs(5);
/// So much of an answer is read: half a million sessions.
const MOST: u64 = 16 << 20;
/// What follows it is not needed.
const NODES: &str = "ephemeral nodes dump";

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    sessions: HashSet<SessionId>,
    /// The store has no ticket without a session: it removes both together.
    is_of_store: bool,
}

impl Census {
    pub(super) fn knows(&self, session: SessionId) -> bool {
        self.is_of_store || self.sessions.contains(&session)
    }

    /// Whether it is an answer. Every session is named with `0x`.
    fn take_in(&mut self, sessions: &str) -> bool {
        let words = sessions.split(|c: char| !c.is_ascii_alphanumeric());
        let ids = words.filter_map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
        self.sessions
            .extend(ids.map(|id| SessionId::from(id as i64)));
        sessions.contains("Session")
    }
}

/// Asks every server; or says why it cannot be known.
pub(crate) async fn ask(server: &Server) -> Result<Census, String> {
    if server.tls_ca.is_some() {
        return Err("the word `dump` is sent without TLS, and --tls-ca was given".into());
    }
    let Some(servers) = server.place.zookeeper() else {
        return Ok(Census {
            is_of_store: true,
            ..Census::default()
        });
    };
    let servers = servers.split('/').next().unwrap_or_default();
    let mut census = Census::default();
    for address in servers.split(',') {
        let answer = timeout(PATIENCE, dump(address)).await;
        let answer = answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let answer = answer.map_err(|error| format!("{address}: {error}"))?;
        if !census.take_in(&answer) {
            let line = answer.lines().next().unwrap_or("no answer");
            return Err(format!(
                "{address}: {line} (4lw.commands.whitelist=dump allows it)"
            ));
        }
    }
    Ok(census)
}

async fn dump(address: &str) -> io::Result<String> {
    let has_port = address
        .rsplit(']')
        .next()
        .is_some_and(|host| host.contains(':'));
    let with_port = if has_port {
        address.to_owned()
    } else {
        format!("{address}:2181")
    };
    let mut stream = TcpStream::connect(with_port).await?;
    stream.write_all(b"dump").await?;
    sessions_of(stream).await
}

/// What an answer says of sessions.
async fn sessions_of(stream: impl AsyncRead + Unpin) -> io::Result<String> {
    let mut stream = stream.take(MOST);
    let mut answer = Vec::new();
    let mut looked_at = 0;
    while stream.read_buf(&mut answer).await? > 0 {
        let mut new = answer[looked_at..].windows(NODES.len());
        if let Some(end) = new.position(|bytes| bytes == NODES.as_bytes()) {
            answer.truncate(looked_at + end);
            break;
        }
        looked_at = answer.len().saturating_sub(NODES.len());
    }
    if answer.len() as u64 == MOST {
        return Err(io::Error::other("its answer has more than 16 MiB"));
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sessions_are_read_from_what_leaders_and_followers_say() {
        let leader = "SessionTracker dump:\nSession Sets (1)/(1):\n1 expire at Sun:\n\t0x100000001a60000\nephemeral nodes dump:\nSessions with Ephemerals (1):\n0xdead00001a60000:\n\t/locks/0xfe\n";
        let follower = "Global Sessions(1):\n0x200000001a60000\t10000ms\nephemeral nodes dump:\n";
        let mut census = Census::default();

        for answer in [leader, follower] {
            let sessions = sessions_of(answer.as_bytes()).await.unwrap();
            assert!(census.take_in(&sessions), "{sessions}");
        }

        assert!(
            census.knows(0x0100_0000_01a6_0000.into())
                && census.knows(0x0200_0000_01a6_0000.into())
        );
        assert!(
            !census.knows(0x0dea_d000_01a6_0000.into()),
            "it only has a node"
        );
    }

    #[test]
    fn a_server_without_sessions_has_answered_and_a_refusal_has_not() {
        assert!(Census::default().take_in("SessionTracker dump:\nSession Sets (0)/(0):\n"));
        let refusal = "dump is not executed because it is not in the whitelist.\n";
        assert!(!Census::default().take_in(refusal));
        assert!(!Census::default().take_in(""));
    }
}
