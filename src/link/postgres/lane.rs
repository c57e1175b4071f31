//! One connection to PostgreSQL, on which requests are answered in their order.
//!
//! Invariant: requests leave in the order in which their futures are first polled, and at once
//! unless one of them waits for something first. One that is not answered for long is the end of
//! the connection.

use std::collections::HashMap;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{join, ready};
use futures_util::poll;
use tokio::sync::Mutex;
use tokio::task::unconstrained;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row, Statement};

use super::parameter::Parameter;
use super::problem::trouble;
use super::served::ServedClient;
use crate::latch::Latch;
use crate::link::stored::Trouble;

/// Longer than a function of ours waits for a row.
const SHORTEST_PATIENCE: Duration = Duration::from_secs(4);

/// One connection, on which requests are answered in their order.
#[derive(Debug)]
pub(super) struct Lane {
    client: ServedClient,
    /// Statements by their text; none while it is prepared.
    prepared: Latch<HashMap<String, Option<Statement>>>,
    heard: Latch<Instant>,
    patience: Duration,
    /// Whether no pooler is between.
    is_straight: bool,
    /// Whose turn it is to leave. Behind a pooler, until it is answered: with two under way,
    /// PgBouncer 1.18 may give the answer of a client that leaves to the next one.
    turn: Mutex<()>,
}

impl Lane {
    pub(super) fn new(client: ServedClient, deadline: Duration, is_straight: bool) -> Self {
        Self {
            client,
            prepared: Latch::default(),
            heard: Latch::new(Instant::now()),
            patience: deadline.max(SHORTEST_PATIENCE),
            is_straight,
            turn: Mutex::default(),
        }
    }

    pub(super) fn is_straight(&self) -> bool {
        self.is_straight
    }

    /// Sends a statement when it is first polled.
    pub(super) async fn query(
        &self,
        sql: &str,
        parameters: &[Parameter],
    ) -> Result<Vec<Row>, Trouble> {
        self.query_after(ready(Ok(())), sql, parameters).await
    }

    /// The same once that has ended well. What is asked behind it leaves behind it.
    pub(super) async fn query_after(
        &self,
        first: impl Future<Output = Result<(), Trouble>>,
        sql: &str,
        parameters: &[Parameter],
    ) -> Result<Vec<Row>, Trouble> {
        // In a long poll, tokio would have one come again, and later ones might be before it.
        let turn = unconstrained(self.turn.lock()).await;
        first.await?;
        let since = Instant::now();
        let mut asked = std::pin::pin!(self.ask(sql, parameters));
        // It leaves.
        if let Poll::Ready(answered) = poll!(&mut asked) {
            return self.answered(answered);
        }
        let _turn = (!self.is_straight).then_some(turn);
        loop {
            let heard = since.max(*self.heard.lock());
            match timeout_at(heard + self.patience, &mut asked).await {
                Ok(answered) => return self.answered(answered),
                // Others are answered: it waits behind them.
                Err(_) if *self.heard.lock() > heard => {}
                Err(_) => {
                    let why = format!("no answer within {:?}", self.patience);
                    return Err(Trouble::Lost(why));
                }
            }
        }
    }

    fn answered(&self, answered: Result<Vec<Row>, Error>) -> Result<Vec<Row>, Trouble> {
        *self.heard.lock() = Instant::now();
        answered.map_err(|error| trouble(&error))
    }

    /// To plan a statement takes as long as to run it, so it is prepared for the next time. That is
    /// asked right behind the first: what is called later must not leave sooner. Behind a pooler,
    /// another client would meet what was prepared.
    async fn ask(&self, sql: &str, parameters: &[Parameter]) -> Result<Vec<Row>, Error> {
        let typed: Vec<(&(dyn ToSql + Sync), Type)> =
            parameters.iter().map(Parameter::typed).collect();
        let plain = self.client.query_typed(sql, &typed);
        if !self.is_straight() {
            return plain.await;
        }
        let known = self.prepared.lock().get(sql).cloned();
        match known {
            Some(Some(statement)) => {
                let values: Vec<&(dyn ToSql + Sync)> =
                    typed.iter().map(|(value, _)| *value).collect();
                self.client.query(&statement, &values).await
            }
            Some(None) => plain.await,
            None => {
                self.prepared.lock().insert(sql.to_owned(), None);
                let types: Vec<Type> = typed.iter().map(|(_, of)| of.clone()).collect();
                let (rows, statement) = join(plain, self.client.prepare_typed(sql, &types)).await;
                if let Ok(statement) = statement {
                    self.prepared.lock().insert(sql.to_owned(), Some(statement));
                }
                rows
            }
        }
    }
}
