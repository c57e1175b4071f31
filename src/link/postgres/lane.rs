//! One connection to PostgreSQL, on which requests are answered in their order.
//!
//! Invariant: a request leaves when its future is first polled. One that is not answered for long
//! is the end of the connection.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row, Statement};

use super::parameter::Parameter;
use super::problem::trouble;
use crate::latch::Latch;
use crate::link::stored::Trouble;

/// Longer than a function of ours waits for a row.
const SHORTEST_PATIENCE: Duration = Duration::from_secs(4);

/// One connection, on which requests are answered in their order.
#[derive(Debug)]
pub(super) struct Lane {
    client: Client,
    /// Statements by their text; none while it is prepared.
    prepared: Latch<HashMap<String, Option<Statement>>>,
    heard: Latch<Instant>,
    patience: Duration,
    /// One request after the other, if a pooler is between. With two under way, PgBouncer 1.18 may
    /// give the answer of a client that leaves to the next one.
    turn: Option<Mutex<()>>,
}

impl Lane {
    pub(super) fn new(client: Client, deadline: Duration, is_straight: bool) -> Self {
        Self {
            client,
            prepared: Latch::default(),
            heard: Latch::new(Instant::now()),
            patience: deadline.max(SHORTEST_PATIENCE),
            turn: (!is_straight).then(Mutex::default),
        }
    }

    /// Whether no pooler is between.
    pub(super) fn is_straight(&self) -> bool {
        self.turn.is_none()
    }

    /// Sends a statement when it is first polled.
    pub(super) async fn query(
        &self,
        sql: &str,
        parameters: &[Parameter],
    ) -> Result<Vec<Row>, Trouble> {
        let _turn = match &self.turn {
            Some(turn) => Some(turn.lock().await),
            None => None,
        };
        let since = Instant::now();
        let mut asked = std::pin::pin!(self.ask(sql, parameters));
        loop {
            let heard = since.max(*self.heard.lock());
            match timeout_at(heard + self.patience, &mut asked).await {
                Ok(answered) => {
                    *self.heard.lock() = Instant::now();
                    return answered.map_err(|error| trouble(&error));
                }
                // Others are answered: it waits behind them.
                Err(_) if *self.heard.lock() > heard => {}
                Err(_) => {
                    let why = format!("no answer within {:?}", self.patience);
                    return Err(Trouble::Lost(why));
                }
            }
        }
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
