//! A session on a store that keeps nodes and watches as data: what the engines there share.
//!
//! The task of a session, its inbox, its watches, reconnects and the removal of dead sessions are
//! here. An engine brings a [`Store`]: how its server is greeted, and how a request becomes one
//! call there. Invariant: nothing in here knows which store it is.

#[cfg(test)]
mod by_hand;
mod inbox;
mod opener;
mod reaper;
mod reconnect;
mod request;
mod session;
mod task;
mod watches;

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::engine::{Engine, Weakness};
use super::{Code, Created, Fault, Found, Node};
use crate::error::{AddressFailure, UnreachableReason, list};
use crate::protocol::epoch::Reaping;

#[cfg(test)]
pub(crate) use by_hand::ByHand;
pub(super) use inbox::SessionKey;
#[cfg(feature = "postgres")]
pub(super) use request::WriteKind;
pub(super) use request::{Rearmed, StoreRequest, StoredWrite, WatchKind};

/// Containers that have been empty for so long are removed, as ZooKeeper does it.
pub(super) const EMPTY_FOR: Duration = Duration::from_secs(60);

/// A store's server, and what is asked of it.
pub(crate) trait Store: Clone + fmt::Debug + Send + Sync + 'static {
    type Connection: StoreConnection;
    const ENGINE: Engine;
    /// So many requests of a session are under way at most. The others wait in its inbox, where one
    /// takes a fraction of the memory that a request on its way takes.
    const UNDER_WAY: usize = 64;
    /// Heartbeats have a way of their own, and wait for no other request. Elsewhere no request
    /// waits for another client's, so those before it hold up a heartbeat for a moment only.
    const HEARTBEATS_APART: bool = false;
    /// A connection that answers nothing for so long is left, however long the session lasts.
    const MOST_SILENT: Duration = Duration::MAX;

    /// Its address, without user and password.
    fn server(&self) -> &str;
    fn session_timeout(&self) -> Duration;
    /// The root is declared to be new: nobody waits for clients of before.
    fn is_new(&self) -> bool;
    fn reaping(&self) -> Reaping {
        Reaping::Usual
    }
    /// Connects, and learns which history the server has. `number`: the how manieth connection of
    /// its session it is.
    fn greet(
        &self,
        session: i64,
        number: u64,
        limit: Duration,
    ) -> impl Future<Output = Result<Self::Connection, Ungreeted>> + Send;
    /// What in its configuration weakens the promises.
    fn weaknesses(
        &self,
        _limit: Duration,
    ) -> impl Future<Output = Result<Vec<Weakness>, UnreachableReason>> + Send {
        std::future::ready(Ok(Vec::new()))
    }
}

/// A connection of a session. It was greeted.
pub(crate) trait StoreConnection: Send + Sync + 'static {
    fn number(&self) -> u64;
    /// One call at the server, which leaves when the future is first polled.
    fn ask(
        &self,
        session: &SessionKey,
        operation: &StoreRequest,
    ) -> BoxFuture<'static, Result<StoreReply, Trouble>>;
    /// The next event of a watch; none at the end of the connection. Cancel safe.
    fn event(&mut self) -> impl Future<Output = Option<String>> + Send;
}

/// Why a connection is none on which a session can be.
#[derive(Debug)]
pub(crate) enum Ungreeted {
    /// The user or the password is wrong, or the user may not do what is needed.
    Unauthenticated(String),
    Unreachable(UnreachableReason),
    /// Of several servers, each for a reason of its own.
    #[cfg_attr(not(feature = "redis"), allow(dead_code))]
    Each(Vec<AddressFailure>),
}

impl Ungreeted {
    #[cfg_attr(not(feature = "redis"), allow(dead_code))]
    pub(crate) fn refusing(why: impl Into<String>) -> Self {
        Self::Unreachable(UnreachableReason::Refusing(why.into()))
    }

    /// In one reason.
    pub(crate) fn reason(self) -> UnreachableReason {
        match self {
            Self::Unauthenticated(why) => UnreachableReason::Refusing(why),
            Self::Unreachable(reason) => reason,
            Self::Each(failures) => UnreachableReason::Refusing(list(&failures)),
        }
    }
}

/// What the store says to a request.
#[derive(Debug)]
pub(crate) enum StoreReply {
    Done {
        /// Of this session's own watches: `x` and the number for a delete, `c` for another change.
        events: Vec<String>,
        outcome: Outcome,
    },
    Refused {
        at: usize,
        code: Code,
    },
    /// Nobody gets a session for so long.
    Grace(Duration),
    /// The session is over.
    Over,
    /// The session has another connection by now; nothing was done.
    Moved,
    /// The server has another history than the one that the connection was greeted with.
    OtherIncarnation,
}

/// The result of an operation that was done.
#[derive(Debug)]
pub(crate) enum Outcome {
    Nothing,
    /// The timeout of the session that was opened.
    Granted(Duration),
    /// What was made, with its paths.
    Made(Vec<(String, Created)>),
    Found(Vec<Found>),
    /// A watch was armed: the node, and its children if they are watched.
    Armed(Node, Vec<String>),
    Paths(Vec<String>),
    /// Sessions that may be over, and containers that have been empty for long; and when to look
    /// again, if that is known.
    Due(Vec<i64>, Vec<String>, Option<Duration>),
    /// A session that is late: when to look again, or what is left of it.
    Buried(Duration, Vec<String>),
}

/// Why a request has no reply.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Nothing was done.
    Refused(Code),
    /// The connection is of no use any more. What was not answered may have been done.
    Lost(String),
    /// The answer is none of ours.
    Broken(String),
}

fn unexpected(outcome: &Outcome) -> Fault {
    Fault::Unknown(format!("not an answer to that question: {outcome:?}"))
}
