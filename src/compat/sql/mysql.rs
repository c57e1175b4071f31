//! One connection to MariaDB or MySQL.
//!
//! Invariants: it is to a server that writes. Values that do not fit a column are refused, and not
//! cut: two names that are cut would be one lock.

use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, DriverError, Error, Opts, OptsBuilder, Row, Value};

use super::rows::SqlRows;
use super::url::SqlUrl;
use crate::compat::store::StoreResult;
use crate::error::{Result, StoreProblem};

#[derive(Debug)]
pub(super) struct MySqlSession {
    conn: Conn,
    /// An error of the connection, or a statement that was dropped.
    is_broken: bool,
    /// The connection that was greeted is the one that runs statements.
    pub(super) is_straight: bool,
    /// The last statement that has set something for more than one turn.
    setting: String,
}

/// The options of a URL, and the server's name without user and password.
pub(super) fn options(url: &SqlUrl) -> Result<(Opts, String)> {
    let opts = Opts::from_url(url.plain());
    let opts =
        opts.map_err(|error| crate::error::Error::invalid_url(url.plain(), error.to_string()))?;
    let server = format!(
        "{}:{}/{}",
        opts.ip_or_hostname(),
        opts.tcp_port(),
        opts.db_name().unwrap_or_default()
    );
    let opts = OptsBuilder::from_opts(opts)
        // A row that is found and not changed does not count.
        .client_found_rows(false)
        .prefer_socket(false)
        .tcp_nodelay(true);
    Ok((opts.into(), server))
}

impl MySqlSession {
    pub(super) async fn open(opts: &Opts) -> StoreResult<Self> {
        let conn = Conn::new(opts.clone())
            .await
            .map_err(|error| match problem(&error) {
                StoreProblem::NoAnswer => StoreProblem::Unreachable(error.to_string()),
                other => other,
            })?;
        let mut session = Self {
            conn,
            is_broken: false,
            is_straight: false,
            setting: String::new(),
        };
        // A statement that waits for a row must not happen long after its caller has gone.
        let set = "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', \
                   autocommit = 1, innodb_lock_wait_timeout = 2";
        session.batch(set).await?;
        session
            .batch("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            .await?;
        let asked = "SELECT @@global.read_only, CONNECTION_ID()";
        let answer = session.run(asked, &[]).await?;
        // A greeting has 32 bits of it. A proxy greets with a number of its own.
        let number = answer.number(1).map(|number| number & 0xffff_ffff);
        session.is_straight = number == Some(session.conn.id().into());
        match answer.number(0) {
            Some(0) => Ok(session),
            _ => Err(StoreProblem::Replica),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_broken
    }

    pub(super) async fn run(&mut self, sql: &str, params: &[&str]) -> StoreResult<SqlRows> {
        let params: Vec<Value> = params.iter().map(|param| Value::from(*param)).collect();
        // It stays set if this future is dropped: the answer would be the next statement's.
        let was_broken = std::mem::replace(&mut self.is_broken, true);
        let rows: Result<Vec<Row>, Error> = self.conn.exec(sql, params).await;
        let rows = self.judge(rows, was_broken)?;
        let matched = matched(&self.conn.info());
        Ok(SqlRows {
            rows: rows.into_iter().map(cells).collect(),
            affected: matched.unwrap_or_else(|| self.conn.affected_rows()),
            last_id: self.conn.last_insert_id(),
        })
    }

    /// Runs a statement with one text in it behind a batch, in one request. Only its rows are read.
    pub(super) async fn run_after(
        &mut self,
        batch: &str,
        before: &str,
        text: &str,
        after: &str,
    ) -> StoreResult<SqlRows> {
        // The server reads digits as the text they stand for: nothing in it ends a literal.
        let digits: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        let sql = format!("{batch}; {before}_utf8mb4 x'{digits}'{after}");
        let was_broken = std::mem::replace(&mut self.is_broken, true);
        let rows = last_rows(&mut self.conn, &sql).await;
        let rows = self.judge(rows, was_broken)?;
        Ok(SqlRows {
            rows: rows.into_iter().map(cells).collect(),
            ..SqlRows::default()
        })
    }

    pub(super) async fn batch(&mut self, sql: &str) -> StoreResult<()> {
        let was_broken = std::mem::replace(&mut self.is_broken, true);
        let done = self.conn.query_drop(sql).await;
        self.judge(done, was_broken)
    }

    /// Sets the time after which the server ends a silent connection, unless it is so already.
    pub(super) async fn lease(&mut self, ttl: Duration) -> StoreResult<()> {
        let setting = wait_timeout(ttl);
        if self.setting != setting {
            self.batch(&setting).await?;
            self.setting = setting;
        }
        Ok(())
    }

    pub(super) fn forget_setting(&mut self) {
        self.setting.clear();
    }

    pub(super) async fn ping(&mut self) -> StoreResult<()> {
        let was_broken = std::mem::replace(&mut self.is_broken, true);
        let done = self.conn.ping().await;
        self.judge(done, was_broken)
    }

    fn judge<T>(&mut self, done: Result<T, Error>, was_broken: bool) -> StoreResult<T> {
        match done {
            Ok(value) => {
                self.is_broken = was_broken;
                Ok(value)
            }
            Err(error) => {
                let problem = problem(&error);
                let is_lost = matches!(
                    problem,
                    StoreProblem::NoAnswer | StoreProblem::WrongServer(_)
                );
                self.is_broken = was_broken || is_lost;
                Err(problem)
            }
        }
    }
}

/// The rows of the last of some statements.
async fn last_rows(conn: &mut Conn, sql: &str) -> Result<Vec<Row>, Error> {
    let mut answers = conn.query_iter(sql).await?;
    let mut rows = Vec::new();
    while !answers.is_empty() {
        rows = answers.collect().await?;
    }
    // An error in the place of a set of rows is told last.
    answers.drop_result().await?;
    Ok(rows)
}

/// The server never ends the connection before the ttl is over. MariaDB has more timeouts for
/// connections in a transaction. Unless they are off, they count instead of this one. MySQL takes
/// their names for a comment.
fn wait_timeout(ttl: Duration) -> String {
    let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    format!(
        "SET SESSION wait_timeout = {seconds} /*M!100300 , idle_transaction_timeout = 0, \
         idle_readonly_transaction_timeout = 0, idle_write_transaction_timeout = 0 */"
    )
}

/// How many rows an UPDATE has found, also those that have had the new values before.
fn matched(info: &str) -> Option<u64> {
    let rest = info.strip_prefix("Rows matched: ")?;
    rest.split_whitespace().next()?.parse().ok()
}

fn cells(row: Row) -> Vec<Option<String>> {
    let values = row.unwrap().into_iter();
    let cells = values.map(|value| match value {
        Value::NULL => None,
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        Value::Int(number) => Some(number.to_string()),
        Value::UInt(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Double(number) => Some(number.to_string()),
        other => Some(other.as_sql(true).trim_matches('\'').to_owned()),
    });
    cells.collect()
}

fn problem(error: &Error) -> StoreProblem {
    let error = match error {
        Error::Server(error) => error,
        Error::Driver(DriverError::ConnectionClosed) | Error::Io(_) => {
            return StoreProblem::NoAnswer;
        }
        other => {
            return StoreProblem::WrongServer(format!(
                "it does not speak MariaDB's protocol ({other})"
            ));
        }
    };
    let text = format!("{} ({})", error.message, error.code);
    match error.code {
        // Ended by the server, an operator, or a time-out.
        1053 | 1317 | 1927 | 1152 | 1153 | 4031 => StoreProblem::NoAnswer,
        1290 | 1792 | 1836 => StoreProblem::Replica,
        1044 | 1045 | 1130 | 1142 | 1143 | 1227 | 1370 | 1698 | 1524 | 1251 => {
            StoreProblem::Denied(text)
        }
        1046 | 1049 | 1054 | 1146 | 1264 | 1265 | 1292 | 1364 | 1366 | 1406 => {
            StoreProblem::Schema(text)
        }
        // Nothing has happened, and it may go on soon.
        1040 | 1203 | 1205 | 1213 | 3572 => StoreProblem::Unreachable(text),
        _ => StoreProblem::Refused(text),
    }
}

/// Whether a problem is that another transaction has the row.
pub(super) fn is_row_taken(problem: &StoreProblem) -> bool {
    matches!(problem, StoreProblem::Unreachable(text)
        if text.ends_with("(1205)") || text.ends_with("(3572)"))
}
