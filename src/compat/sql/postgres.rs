//! One connection to PostgreSQL.
//!
//! Invariants: it is to a server that writes. Behind a pooler, no statement is prepared by name:
//! the next one may go to another connection.

use std::collections::HashMap;
use std::error::Error as _;

use bytes::BytesMut;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{Format, FromSql, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Config, NoTls, Row, RowStream, Statement};

use super::rows::SqlRows;
use super::url::SqlUrl;
use crate::compat::store::StoreResult;
use crate::error::{Error, Result, StoreProblem};
use crate::link::postgres::served::ServedClient;

/// A store has three or four statements that come again.
const MOST_PREPARED: usize = 32;

type Cause = Box<dyn std::error::Error + Sync + Send>;

#[derive(Debug)]
pub(super) struct PostgresSession {
    client: ServedClient,
    /// No pooler is between.
    pub(super) is_straight: bool,
    /// Prepared statements.
    prepared: HashMap<String, Statement>,
}

/// The options of a URL, and the server's name without user and password.
pub(super) fn config(url: &SqlUrl) -> Result<(Config, String)> {
    let mut config: Config = url
        .plain()
        .parse()
        .map_err(|error: tokio_postgres::Error| Error::invalid_url(url.plain(), told(&error)))?;
    config.ssl_mode(SslMode::Disable);
    if config.get_application_name().is_none() {
        config.application_name("lockkeeper");
    }
    let host = match config.get_hosts() {
        [Host::Tcp(host), ..] => host.clone(),
        [Host::Unix(path), ..] => path.display().to_string(),
        [] => return Err(Error::invalid_url(url.plain(), "it names no host")),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let base = config.get_dbname().or_else(|| config.get_user());
    let server = format!("{host}:{port}/{}", base.unwrap_or_default());
    Ok((config, server))
}

impl PostgresSession {
    pub(super) async fn open(config: &Config) -> StoreResult<Self> {
        // A statement that waits for a row must not happen long after its caller has gone. The
        // settings come with the connection: a pooler refuses them, ignores them, or gives them to
        // a connection that is not ours alone. Set later, they would stay there for others.
        let marker = uuid::Uuid::new_v4().simple();
        let given = config.get_options().unwrap_or_default();
        let options = format!(
            "{given} -c lock_timeout=2s -c statement_timeout=10s -c lockkeeper.marker={marker}"
        );
        let client = match connect(config.clone().options(options)).await {
            Err(StoreProblem::Refused(why)) if why.contains("startup parameter") => {
                connect(config).await?
            }
            other => other?,
        };
        let mut session = Self {
            client,
            is_straight: false,
            prepared: HashMap::new(),
        };
        let asked = "SELECT current_setting('transaction_read_only'), \
                     current_setting('lockkeeper.marker', true)";
        let answer = session.run(asked, &[]).await?;
        session.is_straight = answer.cell(1) == Some(&*marker.to_string());
        match answer.cell(0) {
            Some("off") => Ok(session),
            _ => Err(StoreProblem::Replica),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    pub(super) async fn run(&self, sql: &str, params: &[&str]) -> StoreResult<SqlRows> {
        let params: Vec<Text<'_>> = params.iter().map(|param| Text(param)).collect();
        let params = params
            .iter()
            .map(|param| (param as &(dyn ToSql + Sync), Type::UNKNOWN));
        let rows = self.client.query_typed_raw(sql, params).await;
        read(rows.map_err(|error| problem(&error))?).await
    }

    /// Runs a statement that will come again, outside of a transaction: to plan it takes longer
    /// than to run it.
    pub(super) async fn run_again(&mut self, sql: &str, params: &[&str]) -> StoreResult<SqlRows> {
        if !self.is_straight {
            return self.run(sql, params).await;
        }
        let statement = match self.prepared.get(sql) {
            Some(statement) => statement.clone(),
            None => {
                let statement = self.client.prepare(sql).await;
                let statement = statement.map_err(|error| problem(&error))?;
                // A user may give each lock another ttl, and some statements have it in them.
                if self.prepared.len() >= MOST_PREPARED {
                    self.prepared.clear();
                }
                self.prepared.insert(sql.to_owned(), statement.clone());
                statement
            }
        };
        let texts = params.iter().map(|param| Text(param));
        match self.client.query_raw(&statement, texts).await {
            // The table was changed, or something else on this connection has ended all that was
            // prepared. Nothing has happened.
            Err(error) if is_outdated(&error) => {
                self.prepared.clear();
                self.run(sql, params).await
            }
            rows => read(rows.map_err(|error| problem(&error))?).await,
        }
    }

    /// Runs a statement behind a batch, without waiting for the batch's answer.
    pub(super) async fn run_after(
        &self,
        batch: &str,
        sql: &str,
        params: &[&str],
    ) -> StoreResult<SqlRows> {
        // Each is sent when it is first polled, in this order.
        let (done, rows) = tokio::join!(biased; self.batch(batch), self.run(sql, params));
        done?;
        rows
    }

    pub(super) async fn batch(&self, sql: &str) -> StoreResult<()> {
        let done = self.client.batch_execute(sql).await;
        done.map_err(|error| problem(&error))
    }
}

async fn connect(config: &Config) -> StoreResult<ServedClient> {
    let opened = config.connect(NoTls).await;
    opened
        .map(ServedClient::new)
        .map_err(|error| at_connect(&error))
}

async fn read(rows: RowStream) -> StoreResult<SqlRows> {
    use futures_util::TryStreamExt;
    let mut answer = SqlRows::default();
    let mut rows = std::pin::pin!(rows);
    while let Some(row) = rows.try_next().await.map_err(|error| problem(&error))? {
        answer.rows.push(cells(&row)?);
    }
    answer.affected = rows.rows_affected().unwrap_or(0);
    Ok(answer)
}

/// Whether a prepared statement cannot be used as it is.
fn is_outdated(error: &tokio_postgres::Error) -> bool {
    error
        .code()
        .is_some_and(|code| matches!(code.code(), "0A000" | "26000"))
}

/// A parameter in its text form: the server knows its type.
#[derive(Debug)]
struct Text<'a>(&'a str);

impl ToSql for Text<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Cause> {
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

/// A value as text, of the types that have one form only.
struct Cell(String);

impl<'a> FromSql<'a> for Cell {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Cause> {
        Ok(Self(match *ty {
            Type::BOOL => bool::from_sql(ty, raw)?.to_string(),
            Type::INT2 => i16::from_sql(ty, raw)?.to_string(),
            Type::INT4 => i32::from_sql(ty, raw)?.to_string(),
            Type::INT8 => i64::from_sql(ty, raw)?.to_string(),
            _ => String::from_sql(ty, raw)?,
        }))
    }

    fn accepts(ty: &Type) -> bool {
        matches!(*ty, Type::BOOL | Type::INT2 | Type::INT4 | Type::INT8)
            || <String as FromSql<'_>>::accepts(ty)
    }
}

fn cells(row: &Row) -> StoreResult<Vec<Option<String>>> {
    let columns = row.columns().iter().enumerate();
    let cells = columns.map(|(at, column)| {
        // `pg_sleep` and such give a value without a content.
        if *column.type_() == Type::VOID {
            return Ok(None);
        }
        let cell: Result<Option<Cell>, _> = row.try_get(at);
        cell.map(|cell| cell.map(|Cell(text)| text)).map_err(|_| {
            StoreProblem::Refused(format!(
                "column {} is a {}: cast it to text",
                column.name(),
                column.type_()
            ))
        })
    });
    cells.collect()
}

fn told(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(error), _) => format!("{} ({})", error.message(), error.code().code()),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

fn at_connect(error: &tokio_postgres::Error) -> StoreProblem {
    if error.as_db_error().is_some() {
        return match problem(error) {
            StoreProblem::NoAnswer => StoreProblem::Unreachable(told(error)),
            other => other,
        };
    }
    let is_io = error.source().is_some_and(|source| {
        let io: Option<&std::io::Error> = source.downcast_ref();
        io.is_some_and(|io| {
            use std::io::ErrorKind::{InvalidData, InvalidInput};
            !matches!(io.kind(), InvalidData | InvalidInput)
        })
    });
    let text = told(error);
    if is_io || error.is_closed() {
        StoreProblem::Unreachable(text)
    } else if text.contains("authentication") || text.contains("password") {
        StoreProblem::Denied(text)
    } else {
        StoreProblem::WrongServer(format!("it does not speak PostgreSQL's protocol ({text})"))
    }
}

fn problem(error: &tokio_postgres::Error) -> StoreProblem {
    let Some(code) = error.code() else {
        return match error.source() {
            None => StoreProblem::NoAnswer,
            Some(source) if source.is::<std::io::Error>() => StoreProblem::NoAnswer,
            Some(_) => StoreProblem::Refused(told(error)),
        };
    };
    let text = told(error);
    match code.code() {
        // The connection is ended by the server, an operator, or a time-out.
        "57P01" | "57P02" | "57P05" | "25P03" => StoreProblem::NoAnswer,
        "25006" => StoreProblem::Replica,
        "42501" => StoreProblem::Denied(text),
        "42P01" | "42703" | "42P10" | "42804" | "42883" | "42846" | "3D000" | "3F000" | "22001"
        | "22P02" | "22008" | "23502" => StoreProblem::Schema(text),
        "42704" => StoreProblem::WrongServer(format!("it needs PostgreSQL 14 or newer ({text})")),
        // Nothing has happened, and it may go on soon.
        "55P03" | "57014" | "40001" | "40P01" | "57P03" | "53300" => {
            StoreProblem::Unreachable(text)
        }
        code if code.starts_with("28") => StoreProblem::Denied(text),
        code if code.starts_with("08") && *code != *SqlState::PROTOCOL_VIOLATION.code() => {
            StoreProblem::NoAnswer
        }
        _ => StoreProblem::Refused(text),
    }
}

/// Whether a problem is that another transaction has the row.
pub(super) fn is_row_taken(problem: &StoreProblem) -> bool {
    matches!(problem, StoreProblem::Unreachable(text) if text.ends_with("(55P03)"))
}
