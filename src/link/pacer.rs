//! The pacer: makes the client crate try to reconnect about ten times a second for as long as its
//! session can live.
//!
//! The crate goes through the connect string once without any pause, and then backs off without a
//! cap (docs/failures.md row 57): 1.6 s after 1.5 s without servers, 3.2 s after 3.1 s. No option
//! changes that. So we give it a list that is so long that the first pass outlasts the session: the
//! servers are in it many times. Between them stands the pacer, a port of our own that takes a
//! connection and closes it a tenth of a second later. The crate shuffles the list; twice as many
//! servers as pacers keep the gaps short. It logs a warning for each pacer that it meets.
//!
//! Measured with the long form of `tests/sessions/reconnect.rs`: the time from the return of the
//! servers to the first answer, 60 outages of up to 1.2 T each, 1 and 3 servers, the worst of T =
//! 1, 4 and 10 s:
//!
//! | outage | one in two | one in ten longer than | longest |
//! |---|---|---|---|
//! | refused | 0.13 s | 0.30 s | 0.56 s |
//! | refused, with the servers 20 times in the list and no pacer | 0.52 s | 0.97 s | 1.96 s |
//! | silent, or every packet dropped | 0.16 T | 0.34 T | 0.45 T |
//!
//! The crate sends the session's password and its credentials to each entry. Invariant: so a pacer
//! listens on the loopback only, reads nothing, and is kept until the crate's session has ended. It
//! never sends a byte.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

/// The pause that is aimed at.
const PAUSE: Duration = Duration::from_millis(100);
/// The first pause of an outage; the next ones double, so that a short restart costs little time.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// How much of the session timeout the pauses of one pass take together; the crate gives a session
/// up at 1.4.
const PASS: f64 = 1.6;
/// How many pacers a list has: enough to be spread well, and few enough to cost little memory.
const FEWEST: usize = 32;
const MOST: usize = 200;
/// After so many pacers without a session, every server was tried about twenty times, in any order.
const ENOUGH: usize = 20;

/// The pacers of one session.
#[derive(Debug)]
pub(crate) struct Pacer {
    /// Without a port of our own there is no pause, and the crate's back-off begins at once.
    listener: Option<TcpListener>,
    pacers: usize,
}

impl Pacer {
    /// A pacer for a session with this timeout.
    pub(crate) async fn new(session_timeout: Duration) -> Self {
        let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = bound
            .inspect_err(|error| tracing::warn!(%error, "no port to pace reconnects with"))
            .ok();
        let wanted = session_timeout.mul_f64(PASS).as_millis() / PAUSE.as_millis();
        Self {
            listener,
            pacers: usize::try_from(wanted).map_or(MOST, |wanted| wanted.clamp(FEWEST, MOST)),
        }
    }

    /// The list for the crate: all servers after each pacer, and a single one twice.
    pub(crate) fn list(&self, servers: &str) -> String {
        let mut round = match servers.contains(',') {
            true => servers.to_owned(),
            false => format!("{servers},{servers}"),
        };
        let listener = self.listener.as_ref();
        if let Some(port) = listener.and_then(|listener| listener.local_addr().ok()) {
            round = format!("{round},{port}");
        }
        vec![round; self.pacers].join(",")
    }

    /// Closes connections at once, while a session is being opened. Ends when every server must
    /// have been tried.
    pub(crate) async fn count_tries(&self) {
        for _ in 0..ENOUGH {
            drop(self.taken().await);
        }
    }

    /// Paces the reconnects of a session with this timeout, for ever.
    pub(crate) async fn pace(&self, session_timeout: Duration) -> Infallible {
        let pacers = u32::try_from(self.pacers).unwrap_or(u32::MAX);
        let longest = session_timeout.mul_f64(PASS) / pacers;
        let mut pause = Duration::ZERO;
        let mut last = Instant::now();
        loop {
            let taken = self.taken().await;
            if last.elapsed() > session_timeout {
                pause = Duration::ZERO;
            }
            pause = (pause * 2).max(FIRST_PAUSE).min(longest);
            sleep(pause).await;
            drop(taken);
            last = Instant::now();
        }
    }

    /// The next connection, unread.
    async fn taken(&self) -> TcpStream {
        let Some(listener) = &self.listener else {
            return std::future::pending().await;
        };
        loop {
            match listener.accept().await {
                Ok((stream, _)) => return stream,
                // Most likely for lack of file descriptors.
                Err(error) => {
                    tracing::debug!(%error, "the pacer takes no connection");
                    sleep(PAUSE).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_pass_outlasts_the_session_and_names_servers_more_often_than_pacers() {
        for (seconds, servers) in [(1, "a:1"), (4, "a:1,b:2"), (10, "a:1,b:2,c:3"), (40, "a:1")] {
            let pacer = Pacer::new(Duration::from_secs(seconds)).await;

            let list = pacer.list(servers);

            let pacers = list.matches("127.0.0.1:").count();
            assert!((FEWEST..=MOST).contains(&pacers), "{seconds} s: {pacers}");
            for server in servers.split(',') {
                assert!(list.matches(server).count() >= pacers, "{server}");
            }
            assert!(list.split(',').count() >= 3 * pacers, "{seconds} s");
        }
    }
}
