//! `bench`: what locks cost on an ensemble, against the baseline of raw operations.
//!
//! Invariant: it does not end before it has tried to remove everything of its own, unless it is
//! told so twice, and it says what may be left.

#[doc(hidden)]
pub mod baseline;
#[doc(hidden)]
pub mod bench_dir;
mod interrupts;
mod order;
#[doc(hidden)]
pub mod ours;
#[cfg(feature = "postgres")]
#[doc(hidden)]
pub mod postgres_dir;
mod progress;
#[cfg(feature = "redis")]
#[doc(hidden)]
pub mod redis_dir;
mod results;
mod rounds;
#[doc(hidden)]
pub mod sample;
#[doc(hidden)]
pub mod zookeeper_lane;

use std::error::Error;

use nix::sys::signal::Signal;
use uuid::Uuid;

use crate::args::{Place, Server};
use crate::failure::Failure;
use crate::report;
use crate::signals;

use baseline::Baseline;
use bench_dir::{BenchDir, RawError, RawStore, Reach};
use interrupts::Interrupts;
pub(crate) use order::Order;
use ours::Ours;
#[cfg(feature = "postgres")]
use postgres_dir::PostgresDir;
use progress::Progress;
#[cfg(feature = "redis")]
use redis_dir::RedisDir;
use results::Measured;
use rounds::Rounds;

/// Why there is no result.
enum Stop {
    Signal(Signal),
    Failure(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

pub(crate) async fn run(server: &Server, order: &Order, as_json: bool) -> Result<u8, Failure> {
    let mut interrupts = Interrupts::listen()?;
    let measured = match &server.place {
        #[cfg(feature = "postgres")]
        Place::Store {
            engine: "PostgreSQL",
            ..
        } => measure::<PostgresDir>(server, order, &mut interrupts).await,
        #[cfg(feature = "redis")]
        Place::Store {
            engine: "Redis", ..
        } => measure::<RedisDir>(server, order, &mut interrupts).await,
        _ => measure::<BenchDir>(server, order, &mut interrupts).await,
    };
    match measured {
        Ok(measured) if as_json => report::print_json(&measured.object()).map(|()| 0),
        Ok(measured) => report::print(&report::table(Measured::HEAD, &measured.rows())).map(|()| 0),
        Err(Stop::Signal(signal)) => Ok(signals::code(signal)),
        Err(Stop::Failure(failure)) => Err(failure),
    }
}

/// Whether it failed for lack of permission.
pub(crate) fn is_denied(error: &(dyn Error + 'static)) -> bool {
    let library = error.downcast_ref::<lockkeeper::Error>();
    let baseline = error.downcast_ref::<RawError>();
    #[cfg(feature = "postgres")]
    if postgres_dir::is_denied(error) {
        return true;
    }
    library.is_some_and(lockkeeper::Error::is_denied) || baseline.is_some_and(RawError::is_denied)
}

/// Makes a directory, measures in it and removes it.
async fn measure<S: RawStore>(
    server: &Server,
    order: &Order,
    interrupts: &mut Interrupts,
) -> Result<Measured, Stop> {
    let access = interrupts
        .or(server.access())
        .await
        .map_err(Stop::Signal)??;
    // It finds out why there is no server, and can be dropped at any time: nothing of ours is there
    // yet.
    let probe = interrupts.or(server.connect_as(&access, 0)).await;
    probe.map_err(Stop::Signal)??.close().await;

    let id = Uuid::new_v4().simple().to_string();
    let path = format!("{}/bench-{}", server.root.trim_end_matches('/'), &id[..8]);
    let reach = Reach {
        servers: server.place.connect_string().to_owned(),
        session_timeout: server.session_timeout,
        connect_timeout: server.connect_timeout,
        access,
    };
    let bench_dir = S::open(&reach, &path)
        .await
        .map_err(|source| Failure::bench("begin", source))?;

    let measured = both_sides::<S>(&reach, order, &path, interrupts).await;

    match (interrupts.despite(bench_dir.clear()).await, measured) {
        (Ok(Ok(())), measured) => measured,
        (Ok(Err(source)), Ok(_)) => Err(Failure::Left { path, source }.into()),
        (Ok(Err(source)), Err(stop)) => {
            report::complain(&Failure::Left { path, source });
            Err(stop)
        }
        (Err(signal), _) => {
            report::say(format_args!("{path} may be left; {}", S::LEFT));
            Err(Stop::Signal(signal))
        }
    }
}

/// Measures below a directory, and ends all sessions that did.
async fn both_sides<S: RawStore>(
    reach: &Reach,
    order: &Order,
    path: &str,
    interrupts: &mut Interrupts,
) -> Result<Measured, Stop> {
    let ours = Ours::<S>::connect(reach, &format!("{path}/ours")).await;
    let ours = ours.map_err(|source| Failure::bench("begin with Lockkeeper", source))?;
    let baseline = match Baseline::<S>::connect(reach, &format!("{path}/baseline")).await {
        Ok(baseline) => baseline,
        Err(source) => {
            // The first failure says more than what follows from it.
            ours.close().await.unwrap_or_default();
            return Err(Failure::bench("begin with the baseline", source).into());
        }
    };

    let progress = Progress::new(rounds::steps(order));
    let rounds = Rounds {
        ours: &ours,
        baseline: &baseline,
        order,
        progress: &progress,
    };
    let measured = interrupts.or(rounds.run()).await;
    progress.clear();
    if measured.is_err() {
        report::say(format_args!("interrupted: removing {path}"));
    }

    let closing = async { tokio::join!(ours.close(), baseline.close()) };
    // What they could not remove is tried again, and told, with the directory around it.
    drop(interrupts.despite(closing).await.map_err(Stop::Signal)?);
    Ok(measured.map_err(Stop::Signal)??)
}
