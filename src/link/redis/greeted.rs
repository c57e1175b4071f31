//! A connection of a session to Redis: its requests, and what is pushed to it.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::mpsc;

use super::answer::{self, Shape};
use super::connect::OpenConnection;
use super::follower::Followed;
use super::request::Keys;
use crate::link::stored::{SessionKey, StoreConnection, StoreReply, StoreRequest, Trouble};

/// A connection that was greeted.
pub(crate) struct Greeted {
    pub(super) number: u64,
    pub(super) open: OpenConnection,
    /// Whether it still leads to the primary, if sentinels know that.
    pub(super) followed: Option<Followed>,
    pub(super) pushes: mpsc::UnboundedReceiver<PushInfo>,
    pub(super) keys: Keys,
    pub(super) script: Arc<str>,
    /// Which history the server has: another one after each start and each promotion.
    pub(super) incarnation: String,
}

impl Greeted {
    /// The command that carries a request.
    fn command(&self, session: &SessionKey, operation: &StoreRequest) -> redis::Cmd {
        let of_session = self.keys.of_session(session.id);
        let request = self.keys.request(operation);
        let mut command = redis::cmd("EVALSHA");
        command
            .arg(&*self.script)
            .arg(of_session.len() + request.keys.len())
            .arg(&of_session)
            .arg(&request.keys)
            .arg(&self.incarnation)
            .arg(session.id)
            .arg(&*session.secret)
            .arg(self.number)
            .arg(request.operation);
        for argument in &request.arguments {
            command.arg(argument.as_slice());
        }
        command
    }
}

impl StoreConnection for Greeted {
    fn number(&self) -> u64 {
        self.number
    }

    fn ask(
        &self,
        session: &SessionKey,
        operation: &StoreRequest,
    ) -> BoxFuture<'static, Result<StoreReply, Trouble>> {
        let command = self.command(session, operation);
        let shape = Shape::of(operation, session.id);
        let mut connection = self.open.connection.clone();
        Box::pin(async move {
            let answered = match connection.send_packed_command(&command).await {
                Ok(Value::ServerError(error)) => Err(error.into()),
                answered => answered,
            };
            let opens = matches!(shape, Shape::Granted);
            let answered = answered.map_err(|error| answer::trouble(&error, opens))?;
            answer::reply(answered, shape)
        })
    }

    async fn event(&mut self) -> Option<String> {
        loop {
            let push = match &mut self.followed {
                None => self.pushes.recv().await?,
                Some(followed) => tokio::select! {
                    biased;
                    push = self.pushes.recv() => push?,
                    // Another connection asks the sentinels again.
                    () = followed.moved() => return None,
                },
            };
            match (&push.kind, push.data.get(1)) {
                (PushKind::Disconnection, _) => return None,
                (PushKind::Message, Some(Value::BulkString(event))) => {
                    return Some(String::from_utf8_lossy(event).into_owned());
                }
                _ => {}
            }
        }
    }
}
