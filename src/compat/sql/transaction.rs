//! The transaction of a `FOR UPDATE` guard, for statements of its owner.
//!
//! Invariants: what was executed is committed by `commit` alone, while the guard is held. A
//! statement that fails does not end the transaction.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::{BoxFuture, FutureExt};

use super::forupdate::{ForUpdate, batch, is_open};
use super::rows::SqlRows;
use super::session::SqlSession;
use crate::compat::guard::PlainGuard;
use crate::compat::store::StoreResult;
use crate::error::{Result, StoreProblem};

impl PlainGuard<ForUpdate> {
    /// Runs a statement in the transaction that holds the lock, and returns how many rows it has
    /// written. Its parameters are text, which the server converts: `$1` or `?`.
    ///
    /// A statement that fails is undone alone, and the lock stays. One that takes longer than the
    /// lease is the guard's loss, since nothing else can be asked on that connection.
    ///
    /// # Errors
    ///
    /// [`is_lost`](crate::Error::is_lost); [`Error::Store`](crate::Error::Store) for what the
    /// server refuses. A statement that ends the transaction loses the lock.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the statement goes on.
    pub async fn execute(&self, sql: &str, params: &[&str]) -> Result<u64> {
        Ok(self.statement(sql, params).await?.affected)
    }

    /// As [`execute`](Self::execute), for a statement with rows. In PostgreSQL a column must be a
    /// text, an integer or a boolean; cast others to `text`.
    ///
    /// # Errors
    ///
    /// As [`execute`](Self::execute).
    ///
    /// # Cancel safety
    ///
    /// As [`execute`](Self::execute).
    pub async fn query(&self, sql: &str, params: &[&str]) -> Result<Vec<Vec<Option<String>>>> {
        Ok(self.statement(sql, params).await?.rows)
    }

    /// Commits what was executed, and releases the lock with it. Any other end of the guard undoes
    /// it.
    ///
    /// # Errors
    ///
    /// [`is_lost`](crate::Error::is_lost) if the lock was lost before: then nothing is committed.
    /// [`Error::Store`](crate::Error::Store) with [`StoreProblem::NoAnswer`] if the connection was
    /// lost in the commit, which may have happened.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the commit goes on.
    pub async fn commit(self) -> Result<()> {
        if !self.is_held() {
            return Err(self.lost().await);
        }
        let store = self.store();
        let (held, server) = (store.held.clone(), Arc::clone(&store.server));
        let secret = self.secret().to_owned();
        let ended = async move {
            held.end(&secret, &server, |session| batch(session, "COMMIT"))
                .await
        };
        match self.finish(ended).await? {
            Ok(Some(())) => Ok(()),
            Ok(None) => Err(self.failed("commit", StoreProblem::NoAnswer)),
            Err(problem) => Err(self.failed("commit", problem)),
        }
    }

    async fn statement(&self, sql: &str, params: &[&str]) -> Result<SqlRows> {
        let held = self.store().held.get(self.secret());
        let Some(held) = held.filter(|_| self.is_held()) else {
            return Err(self.failed("use", StoreProblem::NotOurs));
        };
        held.has_written.store(true, Ordering::Relaxed);
        let (mark, sql) = (held.mark.clone(), sql.to_owned());
        let params: Vec<String> = params.iter().map(|&param| param.to_owned()).collect();
        let (all, secret) = (self.store().held.clone(), self.secret().to_owned());
        let done = async move {
            all.on(&secret, |session| step(session, mark, sql, params))
                .await
        };
        match self.finish(done).await? {
            Ok(Some(Ok(answer))) => Ok(answer),
            Ok(Some(Err(problem))) | Err(problem) => {
                if problem == StoreProblem::NotOurs {
                    self.store().held.close(self.secret()).await;
                }
                Err(self.failed("use", problem))
            }
            Ok(None) => Err(self.failed("use", StoreProblem::NotOurs)),
        }
    }
}

/// A statement of the guard's owner. If it fails, it is undone alone: in PostgreSQL, a failed
/// statement would end the whole transaction, and with it the lock.
fn step(
    session: &mut SqlSession,
    mark: String,
    sql: String,
    params: Vec<String>,
) -> BoxFuture<'_, StoreResult<StoreResult<SqlRows>>> {
    async move {
        let params: Vec<&str> = params.iter().map(|param| &**param).collect();
        session.batch("SAVEPOINT lockkeeper_step").await?;
        let done = session.run(&sql, &params).await;
        if matches!(done, Err(StoreProblem::NoAnswer)) {
            return Err(StoreProblem::NoAnswer);
        }
        if done.is_err() {
            let undone = session.batch("ROLLBACK TO SAVEPOINT lockkeeper_step").await;
            if undone.is_err() {
                return Ok(Err(StoreProblem::NotOurs));
            }
        }
        // Each would be a transaction in the last one, until the end of all.
        if needs_release(session, &sql) {
            match session.batch("RELEASE SAVEPOINT lockkeeper_step").await {
                Ok(()) => {}
                Err(StoreProblem::NoAnswer) => return Err(StoreProblem::NoAnswer),
                Err(_) => return Ok(Err(StoreProblem::NotOurs)),
            }
        }
        match is_open(session, mark).await {
            Ok(true) => Ok(done),
            Ok(false) | Err(StoreProblem::Refused(_)) => Ok(Err(StoreProblem::NotOurs)),
            Err(problem) => Err(problem),
        }
    }
    .boxed()
}

/// Whether the savepoint of a statement is still there and of no use. In MariaDB and MySQL the next
/// one takes its place. A statement about savepoints may have removed it, or stands around others.
fn needs_release(session: &SqlSession, sql: &str) -> bool {
    let word = sql.split_whitespace().next().unwrap_or_default();
    let is_about_savepoints = ["SAVEPOINT", "RELEASE", "ROLLBACK"]
        .iter()
        .any(|other| word.eq_ignore_ascii_case(other));
    session.dialect().pick(true, false) && !is_about_savepoints
}
