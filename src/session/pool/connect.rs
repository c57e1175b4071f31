//! Connects to the servers within the connect timeout, and checks the session that they grant.
//!
//! Invariant: a session that cannot keep the promises is refused with a reason, before a lock is
//! asked for. It keeps no session.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::{Access, Pool};
use crate::error::{AddressFailure, Error, Result, UnreachableReason};
use crate::link::engine::Weakness;
use crate::link::{Code, Create, Fault, Found, Link, Opener, Read};
use crate::session::answered;
use crate::session::heartbeat::LeaseStrength;

/// The pause before servers that refused are asked again.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);
/// The same, after several tries of a first connect.
const LONGEST_REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// The limit of a connect that tries once.
const ONE_TRY: Duration = Duration::from_secs(5);
/// Servers grant 2 to 20 of their ticks. No session can live on less than a round trip, and no
/// caller waits for a day, unless it asked for more.
const LEAST_GRANTED: Duration = Duration::from_millis(10);
const MOST_GRANTED: Duration = Duration::from_secs(24 * 3600);

impl Pool {
    /// Connects within the connect timeout. Servers that gave no session, and names that do not
    /// resolve, are asked again: servers start beside us, elect a leader, or have too much to do. A
    /// connect timeout of zero is one try.
    pub(super) async fn connect(&self, is_first: bool) -> Result<Arc<dyn Link>> {
        let (started, mut pause) = (Instant::now(), REFUSED_PAUSE);
        let (is_once, mut limit) = match self.access.connect_timeout {
            Duration::ZERO => (true, ONE_TRY),
            limit => (false, limit),
        };
        let mut known: Option<Error> = None;
        loop {
            let left = limit.saturating_sub(started.elapsed());
            let error = match connect(&self.access, left).await {
                Err(error @ Error::Unreachable { .. }) => error,
                result => return result,
            };
            if let (Some(left), false) = (error.recovering(), is_once || self.is_closing()) {
                // It is bounded, and whoever starts again meets it again.
                tracing::warn!(%error, "waiting for the store");
                let pause = left.min(LONGEST_REFUSED_PAUSE);
                sleep(pause).await;
                limit += pause;
                continue;
            }
            // An error that names a server is the best one to report.
            let error = match known.take() {
                Some(known) if known.names_a_server() && !error.names_a_server() => known,
                _ => error,
            };
            // A try with little time left says nothing that an earlier one has not found.
            let is_late = limit.saturating_sub(started.elapsed() + pause) < limit / 10;
            if is_once || is_late || self.is_closing() {
                return Err(error.after(started.elapsed()));
            }
            known = Some(error);
            sleep(pause).await;
            if is_first {
                pause = (pause * 2).min(LONGEST_REFUSED_PAUSE);
            }
        }
    }

    /// What in the store's configuration weakens the promises.
    pub(crate) async fn weaknesses(&self) -> Result<Vec<Weakness>> {
        let (opener, began) = (&self.access.opener, Instant::now());
        let found = opener.weaknesses(self.access.session_timeout).await;
        found.map_err(|reason| {
            let failure = AddressFailure::new(opener.servers().to_owned(), reason);
            Error::unreachable(vec![failure], began.elapsed())
        })
    }
}

/// Opens one session within the limit, or says why each address gave none.
async fn connect(access: &Access, limit: Duration) -> Result<Arc<dyn Link>> {
    let started = Instant::now();
    let opener = &access.opener;
    // The rest of the time is for the diagnosis.
    let most = limit.mul_f32(0.6);
    match timeout(most, opener.open(most)).await {
        Ok(Ok(link)) => {
            check_granted(access, &*link)?;
            check_strength(access, link.session_timeout())?;
            check_tick(access.tick, link.session_timeout())?;
            let left = limit.saturating_sub(started.elapsed());
            with_chroot(link, &**opener, left).await
        }
        Ok(Err(Fault::Answered(Code::Unauthenticated))) => Err(Error::Unauthenticated {
            servers: opener.servers().to_owned(),
        }),
        Ok(Err(Fault::Answered(code))) => {
            let reason = refusal(code);
            let failure = AddressFailure::new(opener.servers().to_owned(), reason);
            Err(Error::unreachable(vec![failure], started.elapsed()))
        }
        failed => {
            tracing::debug!(?failed, "no session");
            let left = limit
                .saturating_sub(started.elapsed())
                .min(limit.mul_f32(0.35));
            let addresses = opener.failures(left).await;
            Err(Error::unreachable(addresses, started.elapsed()))
        }
    }
}

/// The way to the server is well: it gives no session for a reason of its own.
fn refusal(code: Code) -> UnreachableReason {
    match code {
        Code::Recovering(left) => UnreachableReason::Recovering(left),
        Code::NoAuth(_) => UnreachableReason::Refusing("the user may not write there".into()),
        other => UnreachableReason::Refusing(other.to_string()),
    }
}

/// Refuses a timeout that only a broken server grants: all waits for an answer rest on it.
fn check_granted(access: &Access, link: &dyn Link) -> Result<()> {
    let granted = link.session_timeout();
    let most = MOST_GRANTED.max(access.session_timeout);
    if (LEAST_GRANTED..=most).contains(&granted) {
        return Ok(());
    }
    Err(Error::Refused {
        doing: "keep a session at",
        path: "/".into(),
        servers: access.opener.servers().into(),
        why: format!(
            "a server granted a session timeout of {granted:?}, which is not between {LEAST_GRANTED:?} and {most:?}: this is no ZooKeeper that works"
        ),
    })
}

/// A session timeout of less than four ticks is too short for heartbeats that are no commits.
/// Servers do not tell their tick, but a server that raises our timeout raises it to two ticks.
fn check_strength(access: &Access, granted: Duration) -> Result<()> {
    let asked = access.session_timeout;
    if access.strength == LeaseStrength::Quorum || granted <= asked {
        return Ok(());
    }
    let why = format!(
        "the servers raised it to their minimum, {granted:?}, which is two of their ticks, and LeaseStrength::Sync needs four: ask for {:?} or use LeaseStrength::Quorum",
        granted * 2
    );
    Err(Error::invalid("session timeout", format!("{asked:?}"), why))
}

/// Servers with such a tick do not grant a session timeout of less than two of them.
pub(crate) fn check_tick(tick: Option<Duration>, timeout: Duration) -> Result<()> {
    match tick {
        Some(tick) if tick.is_zero() || tick > timeout / 2 => {
            let why = format!(
                "it is the tickTime of the servers, which grant session timeouts of at least two of them, and this one is {timeout:?}"
            );
            Err(Error::invalid("tick time", format!("{tick:?}"), why))
        }
        _ => Ok(()),
    }
}

/// A missing chroot connects, and only then fails with a bare "no such node". It is made, if that
/// is wanted.
async fn with_chroot(
    link: Arc<dyn Link>,
    opener: &dyn Opener,
    limit: Duration,
) -> Result<Arc<dyn Link>> {
    if opener.chroot().is_empty() || has_chroot(&*link).await {
        return Ok(link);
    }
    if let Some(above) = opener.above_chroot() {
        make_chroot(&*above, opener.chroot(), limit).await?;
        if has_chroot(&*link).await {
            return Ok(link);
        }
    }
    Err(Error::ChrootMissing {
        chroot: opener.chroot().into(),
        servers: opener.servers().into(),
    })
}

/// Whether it is there, as far as that can be found out.
async fn has_chroot(link: &dyn Link) -> bool {
    // Without a sync, a server that lags behind would deny a chroot that was made a moment ago.
    let (synced, found) = (link.sync("/"), link.multi_read(&[Read::Data("/")]));
    synced.await.ok();
    match found.await {
        Ok(found) => found.first() != Some(&Found::Failed(Code::NoNode)),
        Err(Fault::Answered(_) | Fault::Refused(..)) => true,
        Err(Fault::Unknown(why)) => {
            tracing::debug!(why, "could not find out whether the chroot is there");
            true
        }
    }
}

/// Makes the chroot and what is above it, in a session of its own that ends with this.
async fn make_chroot(above: &dyn Opener, chroot: &str, limit: Duration) -> Result<()> {
    const DOING: &str = "make the chroot";
    let (servers, started) = (above.servers(), Instant::now());
    let failed = |why: String| {
        let reason = UnreachableReason::Refusing(why);
        let failure = AddressFailure::new(servers.to_owned(), reason);
        Error::unreachable(vec![failure], started.elapsed())
    };
    let making = async {
        let link = above.open(limit).await.map_err(|fault| (chroot, fault))?;
        let ends = chroot.match_indices('/').map(|(at, _)| at).skip(1);
        let mut refusal = None;
        for path in ends.chain([chroot.len()]).map(|end| &chroot[..end]) {
            match link.create(path, b"", Create::Persistent).await {
                Ok(_) | Err(Fault::Answered(Code::NodeExists)) => refusal = None,
                // An upper one may be refused and yet be there: the next one tells.
                Err(fault) => {
                    refusal.get_or_insert((path, fault));
                }
            }
        }
        refusal.map_or(Ok(()), Err)
    };
    match timeout(limit, making).await {
        Ok(Ok(())) => {
            tracing::info!(chroot, "made the chroot");
            Ok(())
        }
        Ok(Err((path, Fault::Answered(code) | Fault::Refused(_, code)))) => {
            Err(answered(servers, DOING, path, &code))
        }
        Ok(Err((_, Fault::Unknown(why)))) => Err(failed(format!("cannot {DOING}: {why}"))),
        Err(_) => Err(failed(format!("cannot {DOING} in time"))),
    }
}
