//! memcached's `add`: a key that is there is a lock that is held.
//!
//! Invariants: a lock never exists without its ttl. It is renewed and freed only at the version
//! (`cas`) at which its value was ours, so no other client's lock is touched. A version is
//! remembered for its connection only: a server that starts again counts from the beginning, and
//! no connection outlives it.

use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};

use super::client::{MetaAnswer, MetaClient, MetaConnection};
use crate::compat::keeper::PlainKeeper;
use crate::compat::store::{Acquired, Attempt, Capabilities, PlainStore, StoreResult};
use crate::error::{Error, Result, StoreProblem};

const SCHEME: &str = "memcached+add://";
const PORT: u16 = 11211;
const LONGEST_NAME: usize = 250;
/// What memcached counts.
const SHORTEST_TTL: Duration = Duration::from_secs(1);

/// Locks that Django's `cache.add`, pymemcache's `add` and many others use: a key that is added,
/// with a ttl. Its value is the holder's secret.
///
/// memcached counts whole seconds of a clock that steps once a second, so an item may live almost a
/// second less than asked. The ttl is rounded up, and one more second is asked. A crashed holder's
/// lock is free up to two seconds after the ttl.
///
/// # What it cannot do
///
/// memcached is a cache: it forgets a lock whenever it needs the memory, on a restart and on
/// `flush_all`. The guard learns of that with its next renewal, after up to a third of the ttl.
/// Until then two clients hold. It is not fair, and has no token.
///
/// Connect to the server itself. Behind a proxy the server could start again unseen, and count its
/// versions from the beginning: then a release could free a stranger's lock.
#[derive(Debug)]
pub struct MemcachedAdd {
    client: MetaClient,
}

impl MemcachedAdd {
    /// Connects to `memcached+add://[user:password@]host[:port]`. User and password are taken as
    /// they are. The server must be memcached 1.6 or later.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for a URL that is none; [`Error::Store`] if there is no memcached
    /// server with meta commands, or it does not accept the user.
    pub async fn connect(url: &str) -> Result<PlainKeeper<Self>> {
        let client = client(url)?;
        let opened = client.connected().await.map(drop);
        opened.map_err(|problem| Error::Store {
            name: "the store".into(),
            doing: "connect to",
            server: client.server().into(),
            problem,
        })?;
        Ok(PlainKeeper::new(Self { client }))
    }

    /// Why the lock was not free.
    async fn why_taken(connection: &MetaConnection, attempt: &Attempt) -> StoreResult<Acquired> {
        let asked = connection.ask_at_once(attempt, format!("mg {} t\r\n", attempt.name));
        let left = match asked.await? {
            // `t-1` for a key without a ttl.
            Some(MetaAnswer::Done(flags)) => MetaAnswer::flag(&flags, 't')
                .and_then(|seconds| seconds.parse().ok())
                .map(Duration::from_secs),
            Some(MetaAnswer::Nothing) | None => None,
            Some(other) => return Err(unexpected(&other)),
        };
        Ok(Acquired::No { left })
    }

    /// The version at which the lock is the attempt's.
    async fn read(connection: &MetaConnection, attempt: &Attempt) -> StoreResult<Option<u64>> {
        let read = connection.ask(attempt, format!("mg {} v c\r\n", attempt.name));
        let (flags, value) = match read.await? {
            MetaAnswer::Value(flags, value) => (flags, value),
            MetaAnswer::Nothing => return Ok(None),
            other => return Err(unexpected(&other)),
        };
        if value.as_deref() != Some(attempt.secret.as_bytes()) {
            return Ok(None);
        }
        let version = version(&flags).ok_or_else(|| {
            StoreProblem::WrongServer("it gives no versions: it runs with -C".into())
        })?;
        Ok(Some(version))
    }

    /// Does something with the lock at the version at which it is ours. `false` if it is not.
    async fn if_ours(
        &self,
        attempt: &Attempt,
        request: impl Fn(u64) -> String,
    ) -> StoreResult<bool> {
        let connection = self.client.connected().await?;
        let mut seen = attempt.seen.on(connection.number());
        loop {
            let read = match seen.take() {
                None => Self::read(&connection, attempt).await?,
                seen => seen,
            };
            let Some(version) = read else {
                return Ok(false);
            };
            match connection.ask(attempt, request(version)).await? {
                MetaAnswer::Done(flags) => {
                    remember(attempt, &connection, &flags);
                    return Ok(true);
                }
                MetaAnswer::Nothing => return Ok(false),
                // By another client, or by an earlier request of ours that came late.
                MetaAnswer::Changed => {}
                other => return Err(unexpected(&other)),
            }
        }
    }
}

impl PlainStore for MemcachedAdd {
    fn server(&self) -> &str {
        self.client.server()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            may_be_evicted: true,
            frees_late_by: Duration::from_secs(2),
            ..Capabilities::of("memcached+add")
        }
    }

    fn shortest_ttl(&self) -> Duration {
        SHORTEST_TTL
    }

    fn check_name(&self, name: &str) -> Result<(), &'static str> {
        if name.is_empty() {
            Err("it is empty")
        } else if name.len() > LONGEST_NAME {
            Err("it is longer than 250 bytes")
        } else if name.contains(|c: char| c.is_whitespace() || c.is_control()) {
            Err("it has a space or a control character")
        } else {
            Ok(())
        }
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<Acquired>> {
        async move {
            let connection = self.client.connected().await?;
            // `E`: add.
            match connection.ask(attempt, set(attempt, "ME")).await? {
                MetaAnswer::Done(flags) => {
                    remember(attempt, &connection, &flags);
                    Ok(Acquired::Yes { token: None })
                }
                MetaAnswer::NotStored => Self::why_taken(&connection, attempt).await,
                other => Err(unexpected(&other)),
            }
        }
        .boxed()
    }

    fn renew<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        self.if_ours(attempt, |version| set(attempt, &format!("C{version}")))
            .boxed()
    }

    fn release<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        self.if_ours(attempt, |version| {
            format!("md {} C{version}\r\n", attempt.name)
        })
        .boxed()
    }
}

fn set(attempt: &Attempt, how: &str) -> String {
    let Attempt {
        name, secret, ttl, ..
    } = attempt;
    // `c`: the answer has the new version.
    format!(
        "ms {name} {} T{} {how} c\r\n{secret}\r\n",
        secret.len(),
        seconds(*ttl)
    )
}

/// At least the ttl by a clock that steps once a second.
fn seconds(ttl: Duration) -> u64 {
    ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0) + 1
}

/// `c0` of a server without versions is none.
fn version(flags: &str) -> Option<u64> {
    let version = MetaAnswer::flag(flags, 'c')?.parse().ok();
    version.filter(|version| *version != 0)
}

fn remember(attempt: &Attempt, connection: &MetaConnection, flags: &str) {
    if let Some(version) = version(flags) {
        attempt.seen.saw(connection.number(), version);
    }
}

fn unexpected(answer: &MetaAnswer) -> StoreProblem {
    StoreProblem::WrongServer(format!("it answers {answer:?}, which was not asked"))
}

fn client(url: &str) -> Result<MetaClient> {
    let refuse = |why: &str| Error::invalid_url(url, why);
    let rest = url
        .strip_prefix(SCHEME)
        .ok_or_else(|| refuse("it begins with memcached+add://"))?;
    let (login, server) = match rest.rsplit_once('@') {
        None => (None, rest),
        Some((login, server)) => {
            let login = login
                .split_once(':')
                .filter(|(user, _)| !user.is_empty() && !user.contains(' '))
                .filter(|_| !login.contains(['\r', '\n']))
                .ok_or_else(|| refuse("before the @ is user:password"))?;
            (Some((login.0.to_owned(), login.1.to_owned())), server)
        }
    };
    let server = server.trim_end_matches('/');
    if server.is_empty() || server.contains(['/', '?', ',', ' ']) {
        return Err(refuse("it is not one host with a port"));
    }
    // The colons of an IPv6 address stand in brackets.
    let has_port = server
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.ends_with(']'));
    let server = if has_port {
        server.to_owned()
    } else {
        format!("{server}:{PORT}")
    };
    Ok(MetaClient::new(server, login))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_lives_for_the_ttl_at_least() {
        let asked = [1000, 1001, 1999, 2000].map(|ms| seconds(Duration::from_millis(ms)));
        assert_eq!(asked, [2, 3, 3, 3]);
    }

    #[test]
    fn a_url_names_one_server_and_hides_its_password() {
        for (url, server) in [
            ("memcached+add://cache", "cache:11211"),
            ("memcached+add://[::1]/", "[::1]:11211"),
            ("memcached+add://me:p@:s@[::1]:2", "[::1]:2"),
        ] {
            let client = client(url).unwrap();
            assert_eq!(client.server(), server);
            assert!(!format!("{client:?}").contains("p@"));
        }
        for url in [
            "redis://cache",
            "memcached+add://",
            "memcached+add://a,b",
            "memcached+add://hidden@cache",
        ] {
            let error = client(url).unwrap_err();
            assert!(!error.to_string().contains("hidden"), "{error}");
        }
    }
}
