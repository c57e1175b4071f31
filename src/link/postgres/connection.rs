//! The connections of one session to PostgreSQL: one for heartbeats, and one for work.
//!
//! Requests on one connection are done one after the other, and a write may wait there for a row
//! that another client has locked. So heartbeats have a connection of their own.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::events::Events;
use super::lane::Lane;
use super::reply::{self, ReplyShape};
use super::statement::{Call, Caller};
use crate::link::stored::{SessionKey, StoreConnection, StoreReply, StoreRequest, Trouble};

pub(crate) struct PostgresConnection {
    pub(super) number: u64,
    /// Which history the server has: another one after each start, crash and promotion.
    pub(super) incarnation: String,
    pub(super) schema: Arc<str>,
    pub(super) heartbeats: Arc<Lane>,
    pub(super) work: Arc<Lane>,
    pub(super) events: Events,
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
        let by = Caller {
            schema: &self.schema,
            incarnation: &self.incarnation,
            session,
            connection: self.number,
            channel: self.events.channel(),
            has_plans: self.work.is_straight(),
        };
        let call = Call::new(&by, request);
        let shape = ReplyShape::of(request, session.id);
        let armed = self.events.asking(request);
        let first = self.events.ready(request);
        let watch = match request {
            StoreRequest::Watch { number, .. } => Some(*number),
            _ => None,
        };
        let lane = match request.is_heartbeat() {
            true => Arc::clone(&self.heartbeats),
            false => Arc::clone(&self.work),
        };
        Box::pin(async move {
            let replied = asked(&lane, first, &call, shape).await;
            match (&replied, watch) {
                (Ok(StoreReply::Done { events, .. }), _) => {
                    events.iter().for_each(|event| armed.told(event));
                }
                // What may be armed in spite of an error ends with the connection.
                (Ok(StoreReply::Refused { .. }) | Err(_), Some(number)) => armed.disarm(number),
                _ => {}
            }
            replied
        })
    }

    async fn event(&mut self) -> Option<String> {
        self.events.next().await
    }
}

async fn asked(
    lane: &Lane,
    first: impl Future<Output = Result<(), Trouble>>,
    call: &Call,
    shape: ReplyShape,
) -> Result<StoreReply, Trouble> {
    let rows = lane.query_after(first, &call.sql, &call.parameters).await?;
    reply::check_echo(&rows, call.echo)?;
    reply::read(&rows, shape)
}
