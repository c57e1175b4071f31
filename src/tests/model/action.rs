//! What can happen in the world of a search, and how often what must not. (pure)

use super::client::Part;

/// How often each fault may happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Faults {
    /// A reply is lost, whether the request was done or not.
    pub(super) lost: u8,
    /// A session ends.
    pub(super) expired: u8,
    /// A client drops its future.
    pub(super) cancelled: u8,
    /// An operator removes a ticket.
    pub(super) broken: u8,
    /// The servers remove an empty directory, and its numbers begin again.
    pub(super) reaped: u8,
    /// A client's server falls behind, and catches up one commit after another.
    pub(super) lags: u8,
    /// The limit is set to another one.
    pub(super) resized: u8,
    /// All of them together.
    pub(super) all: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// A request is sent, done and answered.
    Step(usize, Part),
    /// It is done or not, and the reply is lost.
    Lost(usize, Part, bool),
    /// The future is dropped.
    Cancel(usize),
    /// A create or exchange is done, and the future is dropped before the reply is there.
    CancelSent(usize),
    Expire(usize),
    Break(usize, i64),
    Reap(usize),
    FallBehind(usize),
    CatchUp,
    Resize,
}
