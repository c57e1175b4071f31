//! `break`: asks a holder to leave, and removes a ticket whose owner does not. It never does so
//! without a yes.

use std::io::{self, IsTerminal};
use std::time::Duration;

use lockkeeper::{Keeper, LockKind, LockName, QueueEntry};
use serde_json::json;
use tokio::task::spawn_blocking;

use crate::args::{Break, Server};
use crate::code;
use crate::failure::Failure;
use crate::look;
use crate::queue::word;
use crate::report;

pub(crate) async fn run(server: &Server, order: &Break, as_json: bool) -> Result<u8, Failure> {
    let name = LockName::new(&order.name)?;
    if !order.yes && !io::stdin().is_terminal() {
        return Err(Failure::NobodyToAsk);
    }
    let keeper = server.connect().await?;
    let result = remove(server, &keeper, &name, order).await;
    keeper.close().await;
    let is_removed = result?;
    if as_json {
        report::print_json(&json!({ "removed": is_removed }))?;
    }
    Ok(if is_removed { 0 } else { code::NOTHING })
}

async fn remove(
    server: &Server,
    keeper: &Keeper,
    name: &LockName,
    order: &Break,
) -> Result<bool, Failure> {
    let queue = keeper.queue(name).await?;
    let wanted = |ticket: &&QueueEntry| order.node.as_ref().is_none_or(|node| *node == ticket.node);
    let Some(ticket) = queue.iter().find(wanted) else {
        let nobody = match &order.node {
            Some(node) => format!("{node} is not in the queue of {name}"),
            None => format!("nobody holds or waits for {name}"),
        };
        report::say(look::nothing(server, keeper, nobody).await?);
        return Ok(false);
    };
    let shown = description(ticket);
    if order.yes {
        report::say(format_args!("{name}: {shown}"));
    } else {
        let question = format!("{name}: {shown}. Remove it?");
        // On a thread of its own, so that the session goes on while you think.
        let asked = spawn_blocking(move || report::ask(&question)).await;
        if !asked
            .map_err(io::Error::other)
            .and_then(|asked| asked)
            .map_err(Failure::System)?
        {
            report::say("nothing was removed");
            return Ok(false);
        }
    }
    ask_and_remove(keeper, name, ticket, order.grace, &|step| report::say(step)).await
}

/// Asks the holder to leave within `grace`, removes the ticket if it does not, and tells each step.
/// It is true if the ticket has gone by that.
pub(crate) async fn ask_and_remove(
    keeper: &Keeper,
    name: &LockName,
    ticket: &QueueEntry,
    grace: Duration,
    tell: &(dyn Fn(String) + Sync),
) -> Result<bool, Failure> {
    let node = &ticket.node;
    // Who only waits does not listen, and a candidate is not to be asked.
    if ticket.is_holder && ticket.kind != LockKind::Lead && !grace.is_zero() {
        let span = humantime::format_duration(grace);
        tell(format!("{node} is asked to release {name}, for {span}"));
        if keeper.revoke(name, ticket, grace).await? {
            tell(format!("{node} has gone from the queue of {name}"));
            return Ok(true);
        }
    }
    let is_removed = keeper.evict(name, ticket).await?;
    tell(if is_removed {
        format!("removed {node} from the queue of {name}")
    } else {
        format!("{node} has gone meanwhile")
    });
    Ok(is_removed)
}

/// One line on who it is.
pub(crate) fn description(ticket: &QueueEntry) -> String {
    let state = if ticket.is_holder {
        "holder"
    } else {
        "waiting"
    };
    let mut text = format!(
        "{} ({}, {state}), token {}, session {}",
        ticket.node,
        word(&ticket.kind),
        ticket.token,
        ticket.session
    );
    let given = [
        ("owner", &ticket.owner),
        ("label", &ticket.label),
        ("host", &ticket.host),
    ];
    for (what, text_of) in given {
        if let Some(value) = text_of.as_ref().filter(|value| !value.is_empty()) {
            text += &format!(", {what} {value}");
        }
    }
    if let Some(pid) = ticket.pid {
        text += &format!(", pid {pid}");
    }
    if let Some(since) = ticket.since {
        let age = since.elapsed().unwrap_or_default();
        text += &format!(", for {}", report::span(age));
    }
    text
}
