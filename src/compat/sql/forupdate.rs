//! `SELECT ... FOR UPDATE`: a row that is locked by an open transaction.
//!
//! Invariants: each hold is a transaction on a connection of its own. It is committed only when
//! asked for, and then with all that it has changed. A hold whose transaction has ended is lost.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};

use super::held::HeldSessions;
use super::row::{SHORTEST_TTL, check_name};
use super::rows::SqlRows;
use super::schema::Table;
use super::server::{SqlServer, ping_limit};
use super::session::SqlSession;
use super::url::SqlUrl;
use crate::compat::keeper::PlainKeeper;
use crate::compat::store::{Acquired, Attempt, Capabilities, PlainStore, StoreResult};
use crate::error::{Result, StoreProblem};

const LONGEST_NAME: usize = 255;
/// In PostgreSQL, a row that another transaction has made and not committed is not seen, and is
/// waited for when it is made again.
const BEGIN_ROW: &str = "BEGIN; SET LOCAL lock_timeout = '50ms'";

/// `SELECT ... FOR UPDATE NOWAIT`, shared with each program that locks the same row.
///
/// The rows are those of the table `lockkeeper_rows` with the key `name`, or of any table that the
/// options `table` and `column` of the URL name. A row that is missing is made first and stays.
/// The column must be unique. `create_table` makes
///
/// ```sql
/// CREATE TABLE lockkeeper_rows (name varchar(255) PRIMARY KEY) -- varbinary in MariaDB and MySQL
/// ```
///
/// The guard is an open transaction. [`execute`] runs statements in it, and [`commit`] commits them
/// together with the release: another client cannot hold before they are there. Each held lock
/// takes one of the server's connections.
///
/// [`execute`]: crate::compat::PlainGuard::execute
/// [`commit`]: crate::compat::PlainGuard::commit
///
/// The lease is PostgreSQL's `idle_in_transaction_session_timeout`, or `wait_timeout` of MariaDB
/// and MySQL (whole seconds). The server ends the connection of a silent client after the ttl, and
/// with it all that was not committed.
///
/// # What it cannot do
///
/// It is not fair and has no token: what needs one is better done in the transaction, which a lost
/// guard cannot commit. No hold survives a restart or a fail-over of the server. A long hold is a
/// long transaction: PostgreSQL cannot vacuum what is newer.
#[derive(Debug)]
pub struct ForUpdate {
    pub(super) server: Arc<SqlServer>,
    table: Arc<Table>,
    pub(super) held: HeldSessions,
}

impl ForUpdate {
    /// Connects to `postgres+forupdate://[user[:password]@]host[:port]/database` or
    /// `mysql+forupdate://...`, with the options `table` and `column`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) for a URL that is none;
    /// [`Error::Store`](crate::Error::Store) if there is no such database that writes, if it does
    /// not accept the user, or if the table is not there or its key is not unique.
    pub async fn connect(url: &str) -> Result<PlainKeeper<Self>> {
        let (server, table) = parts(url)?;
        table.check(&server).await?;
        Ok(PlainKeeper::new(Self {
            server,
            table: Arc::new(table),
            held: HeldSessions::default(),
        }))
    }

    /// Makes the table that this URL names.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect); also if it is there already.
    pub async fn create_table(url: &str) -> Result<()> {
        let (server, table) = parts(url)?;
        table.create(&server).await
    }

    async fn take(&self, attempt: &Attempt) -> StoreResult<Acquired> {
        let (server, table) = (Arc::clone(&self.server), Arc::clone(&self.table));
        let tried = try_take(server, table, attempt.clone());
        let (session, taken) = self.server.in_try(attempt, tried).await?;
        match taken {
            Some(mark) => {
                self.held.insert(attempt, session, mark);
                Ok(Acquired::Yes { token: None })
            }
            None => {
                self.server.put_back(session);
                Ok(Acquired::No { left: None })
            }
        }
    }

    async fn prolong(&self, attempt: &Attempt) -> StoreResult<bool> {
        let Some(held) = self.held.get(&attempt.secret) else {
            return Ok(false);
        };
        let mark = held.mark.clone();
        let asked = self
            .held
            .on(&attempt.secret, |session| is_open(session, mark));
        match asked.await {
            Ok(Some(true)) => Ok(true),
            Ok(_) | Err(StoreProblem::Refused(_)) => {
                self.held.close(&attempt.secret).await;
                Ok(false)
            }
            Err(problem) => Err(problem),
        }
    }

    /// Frees the row. What was changed is committed by the guard's `commit` only.
    async fn free(&self, attempt: &Attempt) -> StoreResult<bool> {
        let Some(held) = self.held.get(&attempt.secret) else {
            return Ok(false);
        };
        let has_written = held.has_written();
        let end = if has_written { "ROLLBACK" } else { "COMMIT" };
        let ended = self
            .held
            .end(&attempt.secret, &self.server, |session| batch(session, end));
        match ended.await? {
            Some(()) if has_written => Err(StoreProblem::Refused(
                "statements ran in its transaction, which are rolled back: end such a guard with \
                 commit()"
                    .into(),
            )),
            ended => Ok(ended.is_some()),
        }
    }
}

impl PlainStore for ForUpdate {
    fn server(&self) -> &str {
        self.server.server()
    }

    fn capabilities(&self) -> Capabilities {
        let dialect = self.server.dialect();
        Capabilities {
            ends_with_connection: true,
            tells_loss_first: false,
            frees_late_by: dialect.pick(Duration::ZERO, Duration::from_secs(1)),
            ..Capabilities::of(dialect.pick("postgres+forupdate", "mysql+forupdate"))
        }
    }

    fn shortest_ttl(&self) -> Duration {
        let dialect = self.server.dialect();
        dialect.pick(SHORTEST_TTL, Duration::from_secs(1))
    }

    fn check_name(&self, name: &str) -> Result<(), &'static str> {
        check_name(name, LONGEST_NAME, "it is longer than 255 bytes")
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<Acquired>> {
        let taken = async move {
            self.take(attempt)
                .await
                .inspect_err(|p| self.server.heed(p))
        };
        async { taken.await.map_err(|p| self.table.explain(p)) }.boxed()
    }

    fn renew<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        self.prolong(attempt).boxed()
    }

    fn release<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        self.free(attempt).boxed()
    }
}

/// Dropped, it closes the connection, and the server then frees what it took.
async fn try_take(
    server: Arc<SqlServer>,
    table: Arc<Table>,
    attempt: Attempt,
) -> StoreResult<(SqlSession, Option<String>)> {
    let mut session = server.take(ping_limit(&attempt)).await?;
    let mut taken = table.lock_row(&mut session, &attempt).await;
    if matches!(taken, Err(StoreProblem::NoAnswer)) {
        // It had ended while nobody used it. A lock that it still got ended with it.
        session = server.open().await?;
        taken = table.lock_row(&mut session, &attempt).await;
    }
    Ok((session, taken?))
}

impl Table {
    /// Locks the row. It returns the number of the transaction, or `None` if another one has it. On
    /// an error the session is dropped, and its transaction with it.
    async fn lock_row(
        &self,
        session: &mut SqlSession,
        attempt: &Attempt,
    ) -> StoreResult<Option<String>> {
        for has_made_row in [false, true] {
            let found = match self.begin(session, attempt).await {
                Err(problem) if is_row_taken(&problem) => {
                    session.batch("ROLLBACK").await?;
                    return Ok(None);
                }
                found => found?,
            };
            match found.cell(0) {
                Some(mark) => {
                    // It may have been made a replica since the connection was opened.
                    if needs_savepoint(session) && mark != "0" {
                        return Err(StoreProblem::Replica);
                    }
                    return Ok(Some(mark.to_owned()));
                }
                None => session.batch("ROLLBACK").await?,
            }
            if !has_made_row && !self.make_row(session, &attempt.name).await? {
                return Ok(None);
            }
        }
        // Another client removes the row again and again.
        Ok(None)
    }

    /// Begins a transaction, and locks the row in it: in one round trip.
    async fn begin(&self, session: &mut SqlSession, attempt: &Attempt) -> StoreResult<SqlRows> {
        let (table, column) = (&self.name, &self.key[0]);
        match session {
            #[cfg(feature = "postgres")]
            SqlSession::Postgres(session) => {
                let ttl = super::row::millis(attempt.ttl);
                let begin = format!(
                    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; \
                     SET LOCAL idle_in_transaction_session_timeout = {ttl}"
                );
                let lock = format!(
                    "SELECT txid_current()::text FROM {table} \
                     WHERE {column} = $1 FOR UPDATE NOWAIT"
                );
                session.run_after(&begin, &lock, &[&attempt.name]).await
            }
            #[cfg(feature = "mysql")]
            SqlSession::MySql(session) => {
                session.lease(attempt.ttl).await?;
                // The savepoint is what the transaction is known by.
                let begin = "START TRANSACTION; SAVEPOINT lockkeeper_hold";
                let lock = format!("SELECT @@global.read_only FROM {table} WHERE {column} = ");
                session
                    .run_after(begin, &lock, &attempt.name, " FOR UPDATE NOWAIT")
                    .await
            }
        }
    }

    /// `false` if another transaction has just made it, and goes on.
    async fn make_row(&self, session: &mut SqlSession, name: &str) -> StoreResult<bool> {
        let (table, column) = (&self.name, &self.key[0]);
        let sql = session.dialect().pick(
            format!("INSERT INTO {table} ({column}) VALUES ($1) ON CONFLICT DO NOTHING"),
            format!(
                "INSERT INTO {table} ({column}) VALUES (?) \
                 ON DUPLICATE KEY UPDATE {column} = {column}"
            ),
        );
        let is_waited_for = session.dialect().pick(true, false);
        if is_waited_for {
            session.batch(BEGIN_ROW).await?;
        }
        let (is_made, end) = match session.run(&sql, &[name]).await {
            Err(problem) if is_row_taken(&problem) => (false, "ROLLBACK"),
            made => (made.map(|_| true)?, "COMMIT"),
        };
        if is_waited_for {
            session.batch(end).await?;
        }
        Ok(is_made)
    }
}

fn is_row_taken(problem: &StoreProblem) -> bool {
    let mut is_taken = false;
    #[cfg(feature = "postgres")]
    {
        is_taken |= super::postgres::is_row_taken(problem);
    }
    #[cfg(feature = "mysql")]
    {
        is_taken |= super::mysql::is_row_taken(problem);
    }
    is_taken
}

/// A transaction of PostgreSQL has a number; in MariaDB and MySQL it is known by a savepoint.
fn needs_savepoint(session: &SqlSession) -> bool {
    session.dialect().pick(false, true)
}

/// Whether the transaction that has locked the row is still open.
pub(super) fn is_open(session: &mut SqlSession, mark: String) -> BoxFuture<'_, StoreResult<bool>> {
    async move {
        if needs_savepoint(session) {
            let renew = "RELEASE SAVEPOINT lockkeeper_hold; SAVEPOINT lockkeeper_hold";
            session.batch(renew).await?;
            let asked = session.run("SELECT @@global.read_only", &[]).await?;
            return Ok(asked.cell(0) == Some("0"));
        }
        let sql = "SELECT txid_current_if_assigned()::text";
        Ok(session.run(sql, &[]).await?.cell(0) == Some(&mark))
    }
    .boxed()
}

pub(super) fn batch<'a>(
    session: &'a mut SqlSession,
    sql: &'static str,
) -> BoxFuture<'a, StoreResult<()>> {
    async move { session.batch(sql).await }.boxed()
}

fn parts(url: &str) -> Result<(Arc<SqlServer>, Table)> {
    let url = SqlUrl::parse(url, "forupdate", &["table", "column"])?;
    let name = url.identifier("table", "lockkeeper_rows")?;
    let column = url.identifier("column", "name")?;
    let kind = url.dialect.pick("varchar(255)", "varbinary(255)");
    let table = Table {
        create: format!("CREATE TABLE {name} ({column} {kind} PRIMARY KEY)"),
        columns: vec![(column.clone(), &[])],
        key: vec![column],
        name,
    };
    Ok((SqlServer::of(&url)?, table))
}
