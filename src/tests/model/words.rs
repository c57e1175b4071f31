//! A step of a search in plain words, for whoever reads how a rule was broken. (pure)

use super::action::Action;
use super::client::{Client, Part, Request, Stage};
use super::held_ticket::WalkingTicket;
use super::store::{Tree, Write};
use super::world::World;

pub(super) fn tell(before: &World, action: Action, after: Option<&World>) -> String {
    let asks = |at: usize, part: Part| match before.client(at).request(part) {
        Request::Writes(writes) => writes.iter().map(write).collect::<Vec<_>>().join(" and "),
        Request::Read | Request::SyncedRead => match part {
            Part::Chore(_) => "has its janitor look".into(),
            _ => "looks".into(),
        },
    };
    let (what, client) = match action {
        Action::Step(at, part) => (format!("client {at} {}", asks(at, part)), Some(at)),
        Action::Lost(at, part, is_done) => {
            let done = if is_done { "done" } else { "not done" };
            let asks = asks(at, part);
            (
                format!("client {at} {asks}: {done}, and the reply is lost"),
                Some(at),
            )
        }
        Action::Cancel(at) => (format!("client {at} is cancelled"), Some(at)),
        Action::CancelSent(at) => {
            let asks = asks(at, Part::Main);
            (
                format!("client {at} {asks}, and is cancelled before the reply"),
                Some(at),
            )
        }
        Action::Expire(at) => (format!("the session of client {at} expires"), None),
        Action::Break(directory, czxid) => {
            let node = before.tree().identity(directory, czxid).unwrap();
            (
                format!("an operator removes {directory}/{}", node.name),
                None,
            )
        }
        Action::Reap(at) => (format!("the empty directory {at} is removed"), None),
        Action::FallBehind(at) => (
            format!("the server of client {at} sees nothing new for a while"),
            None,
        ),
        Action::CatchUp => ("that server sees one commit more".into(), None),
        Action::Resize => ("the limit is changed".into(), None),
    };
    let Some(after) = after else { return what };
    let now = client.map(|at| format!("; it {}", stage(after.client(at))));
    format!(
        "{what}{}  [{}]",
        now.unwrap_or_default(),
        queue(after.tree())
    )
}

fn write(write: &Write) -> String {
    match write {
        Write::Make { directory } => format!("makes {directory}"),
        Write::Check { directory, version } => format!("checks {directory} at {version}"),
        Write::CheckNode { directory, name } => format!("checks {directory}/{name}"),
        Write::Set {
            directory,
            data,
            version,
        } => format!(
            "writes {} into {directory} at {version}",
            String::from_utf8_lossy(data)
        ),
        Write::Create(create) => format!("creates {}/{}", create.directory, create.name),
        Write::Delete { directory, name } => format!("deletes {directory}/{name}"),
    }
}

fn stage(client: &Client) -> String {
    let told = match &client.stage {
        Stage::Joining => "is about to join".into(),
        Stage::Making => "needs the directory".into(),
        Stage::Settling { .. } => "does not know what it made".into(),
        Stage::Identifying { names, .. } => format!("made {names:?}"),
        Stage::Walking(tickets) => {
            let each = tickets.each.iter();
            let words = |ticket: &WalkingTicket| {
                format!(
                    "asks next for {} to {}: {:?}",
                    ticket.directory,
                    ticket.name,
                    ticket.walk.step()
                )
            };
            each.map(words).collect::<Vec<_>>().join(", ")
        }
        Stage::Confirming(_) => "looks whether all are still there".into(),
        Stage::Inside { held, .. } => format!(
            "is inside by {}",
            held.iter()
                .map(|held| format!("{}/{}", held.directory, held.name))
                .collect::<Vec<_>>()
                .join(" and ")
        ),
        Stage::Leaving(_) => "leaves".into(),
        Stage::Exchanging(exchange) => format!(
            "exchanges {} for {}",
            exchange.old.name, exchange.create.name
        ),
        Stage::Upgrading(upgrade) => format!("upgrades: {upgrade:?}"),
        Stage::Head(head) => format!("is the head: {head:?}"),
        Stage::MakingHeld(_) => "needs the directory of permits".into(),
        Stage::Over => "is done".into(),
    };
    if client.chores.is_empty() {
        return told;
    }
    format!("{told}, its janitor has {}", client.chores.len())
}

fn queue(tree: &Tree) -> String {
    let each = tree.directories.iter().map(|directory| match directory {
        None => "gone".to_owned(),
        Some(there) => {
            let names: Vec<&str> = there.nodes.iter().map(|node| &*node.name).collect();
            format!("v{} {}", there.version, names.join(" "))
        }
    });
    each.collect::<Vec<_>>().join(" | ")
}
