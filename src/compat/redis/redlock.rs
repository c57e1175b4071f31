//! Redlock: `SET key secret NX PX ttl` at several servers, of which a majority must agree.
//!
//! Invariants: each server is asked at the same time and has a limit of its own, so slow servers
//! do not add up. Only servers that run for a ttl are counted for a grant. What was not granted by
//! a majority is given back at every server.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, join_all};
use redis::cmd;
use tokio::time::timeout;

use super::connection::Connection;
use super::setnx::check_name;
use super::votes::{Tally, Vote, ask_all, extend, free, limit, set, set_again};
use crate::compat::keeper::PlainKeeper;
use crate::compat::store::{Acquired, Attempt, Capabilities, PlainStore, StoreResult};
use crate::error::{Error, Result, StoreProblem};

const SCHEME: &str = "redis+redlock";
/// With two, one server that is down stops both; with one, it is [`SetNx`](super::SetNx).
const FEWEST: usize = 3;
/// Below it a server would have less than 50 ms to answer.
const SHORTEST_TTL: Duration = Duration::from_millis(500);
/// A server has so long to say who it is.
const LONGEST_QUESTION: Duration = Duration::from_secs(5);

/// Locks on several independent Redis servers that node-redlock and redsync use: each server has a
/// [`SetNx`](super::SetNx) lock, and who has a majority of them holds.
///
/// It survives the loss of a minority of the servers. Each server is asked at the same time, and
/// has a tenth of the ttl to answer, at most a second; a renewal or a release has twice as much.
///
/// # Rules
///
/// - The lease counts from before the first request. It ends a tenth of the ttl early, which is
///   more than the allowance for clocks that drift (1 % and 2 ms).
/// - A server that started less than a ttl ago may have forgotten a lock, so it is not counted for
///   a grant until then. All clients must use the same ttl, or the rule protects only the shorter
///   ones. The user must have the right to `INFO`. After a start of all servers the first lock
///   waits for a ttl.
/// - A renewal counts the servers that still had the lock. If they are a majority, a server that
///   lost it gets it again, and is counted the next time. So servers can be restarted one after the
///   other, with a ttl between them.
/// - A release goes to all servers. Where it cannot arrive, the lock ends with its ttl.
///
/// # What it cannot do
///
/// It has no token, by its type: the servers are independent and have no common order. It is not
/// fair: with many clients at once it may be that none gets a majority, and all try again after
/// random pauses. It depends on clocks that run at about the same rate.
///
/// Whether that is enough is disputed. Martin Kleppmann ("How to do distributed locking", 2016)
/// finds it "neither fish nor fowl": too heavy for efficiency, and "not sufficiently safe for
/// situations in which correctness depends on the lock". Salvatore Sanfilippo ("Is Redlock safe?",
/// antirez.com, 2016) answers that a pause after the check of the lease "is common with all the
/// distributed locks implementations", that a unique secret with compare-and-set can stand in for a
/// growing token, and that clocks of well-run servers do not jump. For work that must not overlap,
/// use a [`Keeper`](crate::Keeper) with its tokens.
#[derive(Debug)]
pub struct Redlock {
    masters: Vec<Arc<Connection>>,
    server: String,
}

impl Redlock {
    /// Connects to `redis+redlock://server,server,server...`, where each server is
    /// `[user:password@]host[:port][/database]`. A minority of them may be down.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for fewer than three servers, or one that is named twice;
    /// [`Error::Store`] if a majority cannot be reached, if any server answers that it is a
    /// replica, or refuses, or if two names are one server.
    pub async fn connect(url: &str) -> Result<PlainKeeper<Self>> {
        let redlock = Self::of(url)?;
        let masters = redlock.masters.iter();
        let opened = join_all(masters.map(|master| master.connected())).await;
        let mut failed: Vec<StoreProblem> = opened.into_iter().filter_map(Result::err).collect();
        let refusal = failed.iter().position(|problem| !problem.is_passing());
        let problem = match refusal {
            Some(refusal) => failed.swap_remove(refusal),
            None if redlock.masters.len() - failed.len() >= redlock.majority() => {
                match redlock.named_twice().await {
                    None => return Ok(PlainKeeper::new(redlock)),
                    Some(twice) => StoreProblem::WrongServer(twice),
                }
            }
            None => failed.swap_remove(0),
        };
        Err(Error::Store {
            name: "the store".into(),
            doing: "connect to",
            server: redlock.server.as_str().into(),
            problem,
        })
    }

    fn of(url: &str) -> Result<Self> {
        let refuse = |why: String| Error::InvalidOption {
            what: "connect string",
            // Passwords stand in it.
            given: SCHEME.to_owned(),
            why,
        };
        let rest = url
            .strip_prefix(SCHEME)
            .and_then(|rest| rest.strip_prefix("://"))
            .ok_or_else(|| refuse(format!("it begins with {SCHEME}://")))?;
        let mut masters = Vec::new();
        for server in rest.split(',') {
            masters.push(Arc::new(Connection::new(
                &format!("{SCHEME}://{server}"),
                SCHEME,
            )?));
        }
        if masters.len() < FEWEST {
            return Err(refuse(format!(
                "it names {} of at least {FEWEST} independent servers: with fewer, the lock is gone \
                 with one of them",
                masters.len()
            )));
        }
        let servers: Vec<&str> = masters.iter().map(|master| master.server()).collect();
        let server = servers.join(",");
        // Another database is on the same server.
        let addresses = servers.iter().map(|server| {
            let address = server
                .rsplit_once('/')
                .map_or(*server, |(address, _)| address);
            Some(address.to_owned())
        });
        if let Some(twice) = twice(&servers, addresses) {
            return Err(refuse(twice));
        }
        Ok(Self { masters, server })
    }

    /// Two names may lead to one server. One that is down, or does not say who it is, is not known.
    async fn named_twice(&self) -> Option<String> {
        let masters = self.masters.iter();
        let ids = join_all(masters.map(|master| async move {
            let asked = timeout(LONGEST_QUESTION, run_id(master)).await;
            asked.ok().flatten()
        }));
        let servers: Vec<&str> = self.masters.iter().map(|master| master.server()).collect();
        twice(&servers, ids.await)
    }

    fn majority(&self) -> usize {
        self.masters.len() / 2 + 1
    }

    async fn set(&self, attempt: &Attempt) -> StoreResult<Acquired> {
        let mut votes = ask_all(&self.masters, attempt, limit(attempt.ttl), set);
        let mut tally = Tally::new(self.masters.len());
        while let Some((_, vote)) = votes.next().await {
            tally.count(vote);
            if tally.has_majority() {
                // The others get it later, or not at all.
                return Ok(Acquired::Yes { token: None });
            }
            if tally.is_taken() {
                break;
            }
        }
        // Everywhere, also where nothing was answered.
        let mut freed = ask_all(&self.masters, attempt, limit(attempt.ttl), free);
        while freed.next().await.is_some() {}
        tally.refused()
    }

    async fn extend(&self, attempt: &Attempt) -> StoreResult<bool> {
        let mut votes = ask_all(&self.masters, attempt, limit(attempt.ttl) * 2, extend);
        let mut tally = Tally::new(self.masters.len());
        let mut without = Vec::new();
        while let Some((master, vote)) = votes.next().await {
            without.extend((vote == Vote::No(None)).then_some(master));
            tally.count(vote);
            if tally.has_majority() {
                for master in without {
                    tokio::spawn(set_again(master, attempt.clone()));
                }
                return Ok(true);
            }
            if tally.is_denied() {
                return Ok(false);
            }
        }
        Err(tally.refusal().unwrap_or(StoreProblem::NoAnswer))
    }

    async fn free(&self, attempt: &Attempt) -> StoreResult<bool> {
        let mut votes = ask_all(&self.masters, attempt, limit(attempt.ttl) * 2, free);
        let mut tally = Tally::new(self.masters.len());
        while let Some((_, vote)) = votes.next().await {
            tally.count(vote);
            if tally.has_majority() {
                return Ok(true);
            }
        }
        if tally.is_denied() {
            Ok(false)
        } else if tally.has_any() {
            // Those that did not answer may have had it too. There it ends with its ttl.
            Ok(true)
        } else {
            Err(tally.refusal().unwrap_or(StoreProblem::NoAnswer))
        }
    }
}

impl PlainStore for Redlock {
    fn server(&self) -> &str {
        &self.server
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            survives_restart: true,
            ..Capabilities::of(SCHEME)
        }
    }

    fn shortest_ttl(&self) -> Duration {
        SHORTEST_TTL
    }

    fn check_name(&self, name: &str) -> Result<(), &'static str> {
        check_name(name)
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<Acquired>> {
        self.set(attempt).boxed()
    }

    fn renew<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        self.extend(attempt).boxed()
    }

    fn release<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        self.free(attempt).boxed()
    }
}

/// What differs from process to process.
async fn run_id(master: &Connection) -> Option<String> {
    let mut info = cmd("INFO");
    let told: String = master.call(info.arg("server")).await.ok()?;
    let (_, rest) = told.split_once("run_id:")?;
    Some(rest.lines().next()?.trim().to_owned())
}

/// Which two of the servers are one, by what is known of them.
fn twice(servers: &[&str], known: impl IntoIterator<Item = Option<String>>) -> Option<String> {
    let mut seen = HashMap::new();
    for (server, id) in servers.iter().zip(known) {
        if let Some(other) = id.and_then(|id| seen.insert(id, server)) {
            return Some(format!(
                "it names one server twice, as {other} and as {server}"
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compat::lease::PlainLease;

    #[test]
    fn the_lease_ends_before_the_validity_of_redlock() {
        for ms in [500, 1_000, 30_000, 86_400_000] {
            let ttl = Duration::from_millis(ms);
            let drift = ttl.mul_f64(0.01) + Duration::from_millis(2);
            // Both count from before the first request.
            let lease = PlainLease::new(ttl, Duration::ZERO).until();
            assert!(lease <= ttl - drift, "{ttl:?}");
            // Asking and giving back fit into what the caller waits for.
            assert!(limit(ttl) * 2 < ttl / 4, "{ttl:?}");
        }
    }

    #[test]
    fn fewer_than_three_servers_and_one_named_twice_are_refused() {
        for (url, why) in [
            ("redis+redlock://a", "1 of at least 3"),
            ("redis+redlock://a,b", "2 of at least 3"),
            ("redis+redlock://a,b,a:6379", "twice"),
            ("redis://a,b,c", "begins with"),
        ] {
            let error = Redlock::of(url).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
        let redlock = Redlock::of("redis+redlock://me:hidden@a,b:1,c/2,d").unwrap();
        assert_eq!(redlock.server, "a:6379/0,b:1/0,c:6379/2,d:6379/0");
        assert_eq!(redlock.majority(), 3);
    }
}
