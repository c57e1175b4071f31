//! What can happen next, in plain words.

use super::client::{Client, Stage};
use super::rules::Ms;
use super::world::World;

/// Where a request arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    Primary,
    /// The primary that was cut off.
    Old,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Tick,
    Open(usize, At),
    /// Its client gives it up, and it is late.
    OpenLate(usize),
    /// Whether it is answered.
    Create(usize, At, bool),
    FindOut(usize, At),
    Heartbeat(usize, At),
    Enter(usize, At),
    /// The next step of a departure; whether it is answered.
    Leave(usize, At, bool),
    /// Its delete has no answer, and is late or has a copy that is: whether it was done before.
    LeaveLate(usize, bool),
    Arrive(usize, At),
    FindLate(u8, At),
    Remove(u8, At),
    Keep,
    Restart,
    /// Whether the replica has anything.
    Promote(bool),
    Return,
    Flush,
    Collect,
    /// The primary's clock, by so many ticks.
    Step(Ms),
}

fn answer(is_answered: bool) -> &'static str {
    if is_answered {
        ""
    } else {
        ", without an answer"
    }
}

/// The action, before what came of it.
pub(super) fn words(world: &World, action: Action) -> String {
    let on = |at| match at {
        At::Primary => "",
        At::Old => " at the old primary",
    };
    match action {
        Action::Tick => "a tick passes".into(),
        Action::Open(client, at) => format!("client {client} asks for a session{}", on(at)),
        Action::OpenLate(client) => format!("client {client} asks for a session, which is late"),
        Action::Create(client, at, is_answered) => {
            let answer = answer(is_answered);
            format!("client {client} creates its ticket{}{answer}", on(at))
        }
        Action::FindOut(client, at) => format!("client {client} looks for its ticket{}", on(at)),
        Action::Heartbeat(client, at) => format!("client {client} sends a heartbeat{}", on(at)),
        Action::Enter(client, at) => format!("client {client} reads the queue{}", on(at)),
        Action::Leave(client, at, is_answered) => {
            let answer = answer(is_answered);
            format!("client {client} leaves{}{answer}", on(at))
        }
        Action::LeaveLate(client, false) => {
            format!("client {client} sends its delete, which is late")
        }
        Action::LeaveLate(client, true) => format!("client {client} leaves, and a copy is late"),
        Action::Arrive(late, at) => format!("late, {:?} arrives{}", world.late[late].asked, on(at)),
        Action::FindLate(id, at) => format!("session {id} is seen to be late{}", on(at)),
        Action::Remove(id, at) => format!("what session {id} has left is removed{}", on(at)),
        Action::Keep => "this moment is kept".into(),
        Action::Restart => "the primary starts again with what was kept".into(),
        Action::Promote(true) => "a replica that lags is promoted".into(),
        Action::Promote(false) => "a replica without any data is promoted".into(),
        Action::Return => "the primary of before is promoted again".into(),
        Action::Flush => "all data is removed".into(),
        Action::Collect => "the empty directory is removed".into(),
        Action::Step(ticks) => format!("the primary's clock steps by {ticks}"),
    }
}

/// A client in short.
pub(super) fn shown(client: &Client) -> String {
    let stage = match &client.stage {
        Stage::Away => "away".into(),
        Stage::Ready => "ready".into(),
        Stage::FindsOut => "in doubt".into(),
        Stage::Waiting(ticket) => format!("waits as {}", ticket.number),
        Stage::Inside(ticket) => format!("HOLDS as {}", ticket.number),
        Stage::Leaving(ticket, _) => format!("leaves as {}", ticket.number),
        Stage::Done => "done".into(),
    };
    match client.caller {
        Some(caller) => format!("{stage}, session {}, lease {}", caller.id, client.lease),
        None => stage,
    }
}
