//! A database with a few connections, opened as they are needed.
//!
//! Invariants: a connection that was dropped in a statement is not used again. A statement is sent
//! once: only the caller knows whether it may be sent again. Renewals and releases of holders never
//! wait for tries, which a stranger's transaction can stop for seconds. What a try without an
//! answer may have taken is freed among the tries: the same transaction can stop that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{FutureExt, ready};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::timeout;

use super::rows::SqlRows;
use super::session::SqlSession;
use super::url::{DatabaseKind, SqlUrl};
use crate::compat::finish::in_turn;
use crate::compat::store::{Attempt, StoreResult};
use crate::compat::turns::Turns;
use crate::error::{Error, Result, StoreProblem};
use crate::latch::Latch;

/// A server has so long to accept a connection and to answer the first statement.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Databases end a statement of ours before. So there is no answer, and the connection is dead.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(12);
/// A connection that was not used for so long may have been ended by its server's idle timeout,
/// which no server counts in less.
const IDLE_UNASKED: Duration = Duration::from_millis(900);
/// So many tries run at once, and as many statements of holders beside them. Connections that hold
/// a lock do not count.
const WIDTH: usize = 4;
/// So many statements of holders more, where those before them wait for rows of strangers. A
/// database has a hundred connections or so for all its clients.
const LATE_WIDTH: usize = 32;
/// Instead of the number of a connection: rows are seen on any.
const GRANTED: u64 = 0;

#[derive(Debug)]
pub(super) struct SqlServer {
    server: String,
    login: Login,
    /// With the moments at which they were used.
    idle: Latch<Vec<(Instant, SqlSession)>>,
    tries: Arc<Turns>,
    holders: Arc<Turns>,
    late_holders: Arc<Turns>,
}

#[allow(clippy::large_enum_variant, reason = "there is one for each store")]
enum Login {
    #[cfg(feature = "postgres")]
    Postgres(Box<tokio_postgres::Config>),
    #[cfg(feature = "mysql")]
    MySql(mysql_async::Opts),
}

/// Without user and password.
impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login")
    }
}

impl SqlServer {
    /// Nothing is sent.
    pub(super) fn of(url: &SqlUrl) -> Result<Arc<Self>> {
        let (login, server) = match url.dialect {
            #[cfg(feature = "postgres")]
            DatabaseKind::Postgres => {
                let (config, server) = super::postgres::config(url)?;
                (Login::Postgres(Box::new(config)), server)
            }
            #[cfg(feature = "mysql")]
            DatabaseKind::MySql => {
                let (opts, server) = super::mysql::options(url)?;
                (Login::MySql(opts), server)
            }
        };
        Ok(Arc::new(Self {
            server,
            login,
            idle: Latch::default(),
            tries: Turns::new(WIDTH),
            holders: Turns::new(WIDTH),
            late_holders: Turns::new(LATE_WIDTH),
        }))
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    pub(super) fn dialect(&self) -> DatabaseKind {
        match self.login {
            #[cfg(feature = "postgres")]
            Login::Postgres(_) => DatabaseKind::Postgres,
            #[cfg(feature = "mysql")]
            Login::MySql(_) => DatabaseKind::MySql,
        }
    }

    /// The error of a call that is for no lock.
    pub(super) fn failed(&self, doing: &'static str, what: &str, problem: StoreProblem) -> Error {
        Error::Store {
            name: what.to_owned(),
            doing,
            server: self.server.as_str().into(),
            problem,
        }
    }

    /// Runs one statement on any connection. If the caller is dropped, a statement that was sent
    /// ends in its own time and its connection is kept; one that was not sent is not sent.
    pub(super) async fn run(self: &Arc<Self>, sql: &str, params: &[&str]) -> StoreResult<SqlRows> {
        let turn = Arc::clone(&self.tries).next(STATEMENT_TIMEOUT);
        let limits = (CONNECT_TIMEOUT, STATEMENT_TIMEOUT);
        self.run_in(turn, limits, sql, params).await
    }

    /// The same for an attempt. That of a holder waits for no try, not long for other holders, and
    /// no longer than its caller for its answer.
    pub(super) async fn run_for(
        self: &Arc<Self>,
        attempt: &Attempt,
        sql: &str,
        params: &[&str],
    ) -> StoreResult<SqlRows> {
        let patience = attempt.patience();
        let (turn, answer) = match attempt.seen.on(GRANTED) {
            None => {
                let turn = Arc::clone(&self.tries).of_try(attempt.clone());
                (turn.boxed(), Turns::silence(attempt))
            }
            Some(_) => (self.turn_of_holder(patience / 4).boxed(), patience),
        };
        let limits = (ping_limit(attempt), STATEMENT_TIMEOUT.min(answer));
        self.run_in(turn, limits, sql, params).await
    }

    /// The next turn, or one beside those that may wait for rows of strangers.
    fn turn_of_holder(
        &self,
        limit: Duration,
    ) -> impl Future<Output = StoreResult<OwnedSemaphorePermit>> + Send + 'static {
        let kinds = [&self.holders, &self.late_holders].map(Arc::clone);
        async move {
            for turns in kinds {
                if let Some(turn) = turns.soon(limit).await {
                    return Ok(turn);
                }
            }
            let why = "too many requests before it are not answered";
            Err(StoreProblem::Unreachable(why.into()))
        }
    }

    /// Asks what a try would like to know, such as when the other's ttl is over. It is not asked
    /// while other tries wait, and what fails in passing is told as nothing.
    pub(super) async fn ask_for(
        self: &Arc<Self>,
        attempt: &Attempt,
        sql: &str,
        params: &[&str],
    ) -> StoreResult<SqlRows> {
        let Some(turn) = self.tries.at_once() else {
            return Ok(SqlRows::default());
        };
        attempt.turn.begin();
        let limits = (
            ping_limit(attempt),
            STATEMENT_TIMEOUT.min(Turns::silence(attempt)),
        );
        let told = self.run_in(ready(Ok(turn)), limits, sql, params);
        // What comes later is not worth a connection, but leaves it whole.
        match timeout(attempt.patience() / 2, told).await {
            Ok(Err(problem)) if !problem.is_passing() => Err(problem),
            told => Ok(told.ok().and_then(Result::ok).unwrap_or_default()),
        }
    }

    /// From now on it is that of a holder.
    pub(super) fn granted(attempt: &Attempt) {
        attempt.seen.saw(GRANTED, 0);
    }

    async fn run_in(
        self: &Arc<Self>,
        turn: impl Future<Output = StoreResult<OwnedSemaphorePermit>> + Send + 'static,
        (ping_limit, limit): (Duration, Duration),
        sql: &str,
        params: &[&str],
    ) -> StoreResult<SqlRows> {
        let server = Arc::clone(self);
        let turn = async move {
            let turn = turn.await?;
            let session = server.take(ping_limit).await?;
            Ok((turn, server, session))
        };
        let sql = sql.to_owned();
        let params: Vec<String> = params.iter().map(|&param| param.to_owned()).collect();
        let statement = async move |(turn, server, mut session): (_, Arc<Self>, SqlSession)| {
            let params: Vec<&str> = params.iter().map(|param| &**param).collect();
            let Ok(answer) = timeout(limit, session.run_again(&sql, &params)).await else {
                // It would keep its turn for ever, and the others may be silent too.
                server.forget_idle();
                return Err(StoreProblem::NoAnswer);
            };
            server.tries.told(&answer);
            match &answer {
                Err(problem @ StoreProblem::Replica) => server.heed(problem),
                _ => server.put_back(session),
            }
            drop(turn);
            answer
        };
        in_turn(turn, statement).await
    }

    /// Tries something in its turn. Dropped, it does not go on.
    pub(super) async fn in_try<T: Send + 'static>(
        &self,
        attempt: &Attempt,
        tried: impl Future<Output = StoreResult<T>> + Send + 'static,
    ) -> StoreResult<T> {
        let (tries, attempt) = (Arc::clone(&self.tries), attempt.clone());
        let limited = async move {
            let limit = STATEMENT_TIMEOUT.min(Turns::silence(&attempt));
            let _turn = Arc::clone(&tries).of_try(attempt).await?;
            // A caller that polls no more gives up nothing.
            let tried = timeout(limit, tried).await;
            let tried = tried.unwrap_or(Err(StoreProblem::NoAnswer));
            if !matches!(tried, Err(StoreProblem::Unreachable(_))) {
                tries.told(&tried);
            }
            tried
        };
        in_turn(limited, |tried| ready(Ok(tried))).await
    }

    /// A connection for its taker alone, which may be asked for so long whether it lives. One that
    /// is opened for a taker that is dropped is kept: on a slow server, no try would ever end
    /// otherwise.
    pub(super) async fn take(self: &Arc<Self>, ping_limit: Duration) -> StoreResult<SqlSession> {
        loop {
            let idle = self.idle.lock().pop();
            let Some((used, mut session)) = idle else {
                break;
            };
            if session.is_closed() {
                continue;
            }
            let is_alive = async {
                used.elapsed() < IDLE_UNASKED
                    || timeout(ping_limit, session.is_alive()).await == Ok(true)
            };
            if is_alive.await {
                return Ok(session);
            }
            // The others were used before it, and have most likely ended too.
            self.forget_idle();
        }
        let server = Arc::clone(self);
        let (done, opened) = oneshot::channel();
        tokio::spawn(async move {
            if let Err(Ok(session)) = done.send(server.open().await) {
                server.put_back(session);
            }
        });
        let gone = || Err(StoreProblem::Unreachable("the runtime ends".into()));
        opened.await.unwrap_or_else(|_| gone())
    }

    pub(super) fn put_back(&self, session: SqlSession) {
        if session.is_closed() {
            // The others have most likely ended with it.
            return self.forget_idle();
        }
        let mut idle = self.idle.lock();
        let surplus = if idle.len() < 2 * WIDTH {
            idle.push((Instant::now(), session));
            None
        } else {
            Some(session)
        };
        drop(idle);
        drop(surplus);
    }

    /// A try was told of a problem, on a connection that is used no more. A server that only reads
    /// now keeps its connections: those opened from now on may lead to the next primary.
    pub(super) fn heed(&self, problem: &StoreProblem) {
        if *problem == StoreProblem::Replica {
            self.forget_idle();
        }
    }

    fn forget_idle(&self) {
        let ended = std::mem::take(&mut *self.idle.lock());
        drop(ended);
    }

    pub(super) async fn open(&self) -> StoreResult<SqlSession> {
        let opened = timeout(CONNECT_TIMEOUT, self.connect()).await;
        opened.unwrap_or_else(|_| {
            let kind = self.dialect().pick("PostgreSQL", "MariaDB or MySQL");
            Err(StoreProblem::Unreachable(format!(
                "no {kind} server answers there within {CONNECT_TIMEOUT:?}"
            )))
        })
    }

    async fn connect(&self) -> StoreResult<SqlSession> {
        match &self.login {
            #[cfg(feature = "postgres")]
            Login::Postgres(config) => {
                let session = super::postgres::PostgresSession::open(config).await?;
                Ok(SqlSession::Postgres(session))
            }
            #[cfg(feature = "mysql")]
            Login::MySql(opts) => {
                let session = super::mysql::MySqlSession::open(opts).await?;
                Ok(SqlSession::MySql(session))
            }
        }
    }
}

/// There is time left to open another connection.
pub(super) fn ping_limit(attempt: &Attempt) -> Duration {
    CONNECT_TIMEOUT.min(attempt.patience() / 2)
}
