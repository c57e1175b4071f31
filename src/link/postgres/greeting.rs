//! How a connection to PostgreSQL is made: the checks of the server, and the schema of ours.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::{Client, Row};

use super::connection::PostgresConnection;
use super::endpoint::Endpoint;
use super::events::Events;
use super::lane::Lane;
use super::listener::Subscription;
use super::problem::{REMADE, ungreeted, words};
use super::served::ServedClient;
use super::target::{PostgresTarget, WakeUp};
use super::weaknesses;
use crate::error::UnreachableReason;
use crate::link::engine::{Engine, Weakness};
use crate::link::stored::{Store, Ungreeted};

/// The version of the tables and functions that this Lockkeeper works with.
const SCHEMA_VERSION: i32 = 7;
const OLDEST: i32 = 130_000;
/// What functions set for themselves, for statements that are none.
const PLANS: &str =
    "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c jit=off -c lock_timeout=3000";

/// A function, because bugs that tests put into it are switched in bodies.
fn schema_text() -> &'static str {
    include_str!("schema.sql")
}

fn refusing(why: impl Into<String>) -> Ungreeted {
    Ungreeted::Unreachable(UnreachableReason::Refusing(why.into()))
}

impl Store for PostgresTarget {
    type Connection = PostgresConnection;
    const ENGINE: Engine = Engine::Postgres;
    const HEARTBEATS_APART: bool = true;

    fn server(&self) -> &str {
        &self.server
    }

    fn session_timeout(&self) -> Duration {
        self.session_timeout
    }

    fn is_new(&self) -> bool {
        self.is_new
    }

    async fn weaknesses(&self, limit: Duration) -> Result<Vec<Weakness>, UnreachableReason> {
        let asked = timeout(limit, async {
            let (client, is_straight) = connect_marked(&self.endpoint).await?;
            weaknesses::ask(&client, is_straight).await
        });
        match asked.await {
            Err(_) => Err(UnreachableReason::Silent),
            Ok(Err(ungreeted)) => Err(ungreeted.reason()),
            Ok(Ok(found)) => Ok(found),
        }
    }

    async fn greet(
        &self,
        session: i64,
        number: u64,
        limit: Duration,
    ) -> Result<PostgresConnection, Ungreeted> {
        let greeted = timeout(limit, greeting(self, session, number, limit)).await;
        greeted.unwrap_or(Err(Ungreeted::Unreachable(UnreachableReason::Silent)))
    }
}

/// Connects for heartbeats, for work and for events, and learns which history the server has. What
/// needs no answer of another connection is beside it: each costs the server a process.
async fn greeting(
    target: &PostgresTarget,
    session: i64,
    number: u64,
    limit: Duration,
) -> Result<PostgresConnection, Ungreeted> {
    let greeted = greet_first(target, session, number, limit);
    let work = connect_with(&target.endpoint, PLANS);
    let ((heartbeats, incarnation, events), (work, has_plans)) = tokio::try_join!(greeted, work)?;
    if !is_of(&work, &incarnation, &target.schema).await {
        return Err(refusing(
            "the connection for work is with another server: does its name mean several?",
        ));
    }
    let is_straight = has_plans && heartbeats.is_straight();
    Ok(PostgresConnection {
        number,
        incarnation,
        schema: Arc::clone(&target.schema),
        heartbeats,
        work: Arc::new(Lane::new(work, target.session_timeout, is_straight)),
        events,
    })
}

/// Whether a connection is with the server that has this history. A URL may name several.
async fn is_of(client: &Client, incarnation: &str, schema: &str) -> bool {
    let asked = format!("SELECT {schema}.incarnation()");
    let rows = client.query_typed(&asked, &[]).await;
    rows.is_ok_and(|rows| {
        let its: Option<&str> = rows.first().and_then(|row| row.try_get(0).ok());
        its == Some(incarnation)
    })
}

/// The connection for heartbeats, on which the server is looked at, and the way of events. A pooler
/// is noticed before anything listens, because it would give the listener to others.
async fn greet_first(
    target: &PostgresTarget,
    session: i64,
    number: u64,
    limit: Duration,
) -> Result<(Arc<Lane>, String, Events), Ungreeted> {
    let (client, is_straight) = connect_marked(&target.endpoint).await?;
    if target.wake == WakeUp::Notify && !is_straight {
        return Err(refusing(
            "a pooler is between, which loses notifications: add ?wake=poll to the URL, or name the server itself",
        ));
    }
    let checked = check(&client, &target.schema);
    let (incarnation, subscription) = match target.wake {
        WakeUp::Notify => {
            let rhythm = (target.session_timeout / 3).min(limit);
            let (incarnation, subscription) = subscribe(target, session, rhythm, checked).await?;
            (incarnation, Some(subscription))
        }
        WakeUp::Poll => (checked.await?, None),
    };
    let lane = Arc::new(Lane::new(client, target.session_timeout, is_straight));
    let events = match subscription {
        Some(subscription) => Events::notified(subscription),
        None => Events::polled(Arc::clone(&lane), &target.schema, session, number),
    };
    Ok((lane, incarnation, events))
}

/// The way of events from the server that was checked.
async fn subscribe(
    target: &PostgresTarget,
    session: i64,
    rhythm: Duration,
    checked: impl Future<Output = Result<String, Ungreeted>>,
) -> Result<(String, Subscription), Ungreeted> {
    let (listeners, schema) = (&target.listeners, &target.schema);
    let listening = || listeners.subscribe(&target.endpoint, session, rhythm);
    // A standby refuses a listener, too: what is wrong with the server is told first.
    let (checked, first) = tokio::join!(checked, listening());
    let (incarnation, first) = (checked?, first?);
    if is_of(first.client(), &incarnation, schema).await {
        return Ok((incarnation, first));
    }
    listeners.leave(&first).await;
    let next = listening().await?;
    if is_of(next.client(), &incarnation, schema).await {
        return Ok((incarnation, next));
    }
    listeners.leave(&next).await;
    Err(refusing(
        "the connection for notifications is with another server: does its name mean several?",
    ))
}

/// Whether a session can be there, and which history the server has. One question after the other,
/// because a pooler may be between.
async fn check(client: &Client, schema: &str) -> Result<String, Ungreeted> {
    // A word of SQL takes a name as text without a look at rights.
    let asked = format!(
        "SELECT current_setting('server_version_num')::int4, pg_is_in_recovery(), \
         current_setting('transaction_read_only') = 'on', current_setting('transaction_isolation'), \
         count(*) FILTER (WHERE relname = 'schema_version') > 0, count(*) FROM pg_class \
         WHERE relnamespace = to_regnamespace('{schema}')::oid AND relname IN \
         ('schema_version', 'meta', 'alive', 'sessions', 'nodes', 'watches', 'events')"
    );
    let row = ask(client, &asked).await?;
    check_server(&row)?;
    if !is_made(&row, schema)? {
        let made = schema_text().replace("%S", schema);
        let made = client.batch_execute(&made).await;
        made.map_err(|error| ungreeted(&error))?;
    }
    check_version(client, schema).await?;
    let hello = format!("SELECT {schema}.hello()");
    cell(&ask(client, &hello).await?, 0)
}

/// Connects. Whether no pooler is between: a setting that came with the connection is there.
async fn connect_marked(endpoint: &Endpoint) -> Result<(ServedClient, bool), Ungreeted> {
    let marker = uuid::Uuid::new_v4().simple().to_string();
    let (client, has_options) =
        connect_with(endpoint, &format!("-c lockkeeper.marker={marker}")).await?;
    let is_straight = has_options && {
        let asked = "SELECT coalesce(current_setting('lockkeeper.marker', true), '')";
        let seen: String = cell(&ask(&client, asked).await?, 0)?;
        seen == marker
    };
    Ok((client, is_straight))
}

/// Connects with these options beside those of the URL, or without if a pooler refuses any. Which
/// of both.
async fn connect_with(
    endpoint: &Endpoint,
    options: &str,
) -> Result<(ServedClient, bool), Ungreeted> {
    let (opened, has_options) = match endpoint.connect_with(options).await {
        Err(error) if words(&error).contains("startup parameter") => {
            (endpoint.connect().await, false)
        }
        opened => (opened, true),
    };
    let opened = opened.map_err(|error| ungreeted(&error))?;
    Ok((ServedClient::new(opened), has_options))
}

/// One row, without a statement that is prepared by name.
async fn ask(client: &Client, sql: &str) -> Result<Row, Ungreeted> {
    let rows = client.query_typed(sql, &[]).await;
    let rows = rows.map_err(|error| ungreeted(&error))?;
    rows.into_iter()
        .next()
        .ok_or_else(|| refusing("it is no PostgreSQL server"))
}

fn cell<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a Row,
    at: usize,
) -> Result<T, Ungreeted> {
    row.try_get(at)
        .map_err(|error| refusing(format!("it is no PostgreSQL server ({})", words(&error))))
}

fn check_server(row: &Row) -> Result<(), Ungreeted> {
    if cell::<i32>(row, 0)? < OLDEST {
        return Err(refusing("it needs PostgreSQL 13 or newer"));
    }
    if cell(row, 1)? {
        return Err(refusing("it is a standby: name its primary"));
    }
    if cell(row, 2)? {
        return Err(refusing(
            "transactions are read-only there: set default_transaction_read_only to off for this user",
        ));
    }
    match cell::<String>(row, 3)?.as_str() {
        "read committed" => Ok(()),
        other => Err(refusing(format!(
            "its transactions are {other}: set default_transaction_isolation to read committed for this user"
        ))),
    }
}

/// Whether the tables and functions are there.
fn is_made(row: &Row, schema: &str) -> Result<bool, Ungreeted> {
    let is_made = cell(row, 4)?;
    if is_made && cell::<i64>(row, 5)? < 7 {
        return Err(refusing(format!(
            "a table of the schema {schema} is not there: {REMADE}"
        )));
    }
    Ok(is_made)
}

async fn check_version(client: &Client, schema: &str) -> Result<(), Ungreeted> {
    let version = format!("SELECT version FROM {schema}.schema_version");
    match cell::<i32>(&ask(client, &version).await?, 0)? {
        SCHEMA_VERSION => Ok(()),
        other => Err(refusing(format!(
            "its schema {schema} is of version {other}, and this Lockkeeper knows version {SCHEMA_VERSION}: use the same Lockkeeper everywhere, or another schema with ?schema=NAME in the URL"
        ))),
    }
}
