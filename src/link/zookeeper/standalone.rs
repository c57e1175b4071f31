//! Whether the server behind a session's connection surely stands alone. Then no other server has
//! to hear of its requests.
//!
//! Such a server says so when it is asked (`srvr`), but on another connection. Two servers cannot
//! listen at one address. If the server of our connection still answers *after* the answer to the
//! question came, it listened all the time, so it has answered the question. Therefore the question
//! is asked once a connection is there. Its answer counts for that connection only, and only for
//! requests that are sent afterwards and answered on it. A server joins an ensemble only by a
//! restart, which ends its connections, and each new connection is asked again. A member of an
//! ensemble never says that it stands alone, and neither does a read-only server.
//!
//! Assumed: a server is reached at its address, and no other server is. So the proof does not hold
//! behind a load balancer or a name that turns from one server to another, if only one of them
//! stands alone. Invariant: without an answer (a list of allowed words, a firewall, silence)
//! nothing is proved. It delays no request.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::time::sleep;
use zookeeper_client as zk;

use crate::latch::Latch;
use crate::link::diagnose::{self, ServerMode};

/// The longest pause before a server is asked again that has given no answer.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// The connections of one session, and which one is proved.
#[derive(Debug)]
pub(super) struct Standalone {
    seen: Latch<StateSeen>,
    /// The connection for which the last proof came; 0 before there is any.
    proved: watch::Sender<u64>,
}

/// The crate's states so far. It tells a state before any answer that came in that state.
#[derive(Debug)]
struct StateSeen {
    states: zk::StateWatcher,
    connection: u64,
}

impl Standalone {
    pub(super) fn new(states: zk::StateWatcher) -> Self {
        let connection = 1;
        Self {
            seen: Latch::new(StateSeen { states, connection }),
            proved: watch::Sender::new(0),
        }
    }

    /// The number of the connection as it is now, if it is proved.
    pub(super) fn connection(&self) -> Option<u64> {
        let proved = *self.proved.borrow();
        (self.current() == proved).then_some(proved)
    }

    pub(super) fn proofs(&self) -> watch::Receiver<u64> {
        self.proved.subscribe()
    }

    /// Another number after each change of the crate's state, even if it is asked for late.
    fn current(&self) -> u64 {
        let mut seen = self.seen.lock();
        while seen.states.changed().now_or_never().is_some() {
            seen.connection += 1;
        }
        seen.connection
    }
}

/// Asks the only server of a session on a connection that is there.
pub(super) async fn prove(standalone: &Standalone, server: &str, session_timeout: Duration) {
    let connection = standalone.current();
    // If that connection is lost by the end, it proves nothing.
    if ask(server, session_timeout).await {
        standalone.proved.send_replace(connection);
    }
}

/// Whether the server stands alone. Asks until there is an answer.
async fn ask(server: &str, session_timeout: Duration) -> bool {
    let mut pause = session_timeout;
    loop {
        match diagnose::mode(server, session_timeout / 2).await {
            ServerMode::Standalone => return true,
            ServerMode::Other => return false,
            ServerMode::Unknown => tracing::debug!(server, "does not say whether it stands alone"),
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;
    use zookeeper_embedded::EmbeddedServer;

    const SOON: Duration = Duration::from_secs(10);

    /// Asks a listener that answers once the connection is cut and there again, or at once. The
    /// reconnect is not told.
    async fn proved(is_cut: bool) -> Option<u64> {
        let server = EmbeddedServer::start().await.unwrap();
        let client = zk::Client::connect(&server.connect_string()).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let standalone = Standalone::new(client.state_watcher());
        let mut proofs = standalone.proofs();
        let address = listener.local_addr().unwrap().to_string();
        let asking = prove(&standalone, &address, SOON);
        let answering = async {
            let (mut question, _) = listener.accept().await.unwrap();
            question.read_exact(&mut [0; 4]).await.unwrap();
            let first = standalone.current();
            if is_cut {
                server.faults().cut(client.session_id().0);
                while standalone.current() == first || client.sync("/").await.is_err() {
                    tokio::task::yield_now().await;
                }
            }
            let answer = b"Zookeeper version: 3.8.0\nMode: standalone\nNode count: 5\n";
            question.write_all(answer).await.unwrap();
            drop(question);
            proofs.changed().await.unwrap();
        };
        let both = async { tokio::join!(asking, answering) };
        timeout(SOON, both).await.unwrap();
        standalone.connection()
    }

    #[tokio::test]
    async fn an_answer_proves_the_connection_that_it_was_asked_for() {
        assert!(proved(false).await.is_some());
    }

    #[tokio::test]
    async fn an_answer_that_comes_late_does_not_prove_the_next_connection() {
        assert_eq!(proved(true).await, None);
    }
}
