//! The connections of one session to PostgreSQL: one for heartbeats, and one for work.
//!
//! Requests on one connection are done one after the other, and a write may wait there for a row
//! that another client has locked. So heartbeats have a connection of their own.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::events::Events;
use super::problem::trouble;
use super::reply::{self, ReplyShape};
use super::statement::{Call, Parameter};
use crate::latch::Latch;
use crate::link::stored::{SessionKey, StoreConnection, StoreReply, StoreRequest, Trouble};

/// Longer than a function of ours waits for a row.
const SHORTEST_PATIENCE: Duration = Duration::from_secs(4);

pub(crate) struct PostgresConnection {
    pub(super) number: u64,
    /// Which history the server has: another one after each start, crash and promotion.
    pub(super) incarnation: String,
    pub(super) schema: Arc<str>,
    pub(super) beats: Arc<Lane>,
    pub(super) work: Arc<Lane>,
    pub(super) events: Events,
}

/// One connection, on which requests are answered in their order.
#[derive(Debug)]
pub(super) struct Lane {
    client: Client,
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
            heard: Latch::new(Instant::now()),
            patience: deadline.max(SHORTEST_PATIENCE),
            turn: (!is_straight).then(Mutex::default),
        }
    }

    /// Sends a statement when it is first polled. It is not prepared by name.
    pub(super) async fn query(
        &self,
        sql: &str,
        parameters: &[Parameter],
    ) -> Result<Vec<Row>, Trouble> {
        let parameters: Vec<(&(dyn ToSql + Sync), Type)> =
            parameters.iter().map(Parameter::typed).collect();
        let _turn = match &self.turn {
            Some(turn) => Some(turn.lock().await),
            None => None,
        };
        let since = Instant::now();
        let mut asked = std::pin::pin!(self.client.query_typed(sql, &parameters));
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
}

impl StoreConnection for PostgresConnection {
    fn number(&self) -> u64 {
        self.number
    }

    fn ask(
        &self,
        session: &SessionKey,
        request: &StoreRequest,
    ) -> BoxFuture<'static, Result<StoreReply, Trouble>> {
        let call = Call::new(self, session, request);
        let shape = ReplyShape::of(request, session.id);
        let polled = self.events.asking(request);
        let watch = match request {
            StoreRequest::Watch { number, .. } => Some(*number),
            _ => None,
        };
        let lane = match request.is_heartbeat() {
            true => Arc::clone(&self.beats),
            false => Arc::clone(&self.work),
        };
        Box::pin(async move {
            let rows = lane.query(&call.sql, &call.parameters).await?;
            reply::check_echo(&rows, call.echo)?;
            let reply = reply::read(&rows, shape)?;
            match (&reply, polled, watch) {
                (StoreReply::Done { events, .. }, Some(polled), _) => {
                    events.iter().for_each(|event| polled.told(event));
                }
                (StoreReply::Refused { .. }, Some(polled), Some(number)) => polled.disarm(number),
                _ => {}
            }
            Ok(reply)
        })
    }

    async fn event(&mut self) -> Option<String> {
        self.events.next().await
    }
}
