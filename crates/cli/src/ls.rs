//! `ls`: the locks that are in use. It only reads.

use lockkeeper::{Keeper, LockSummary};
use serde_json::{Value, json};

use crate::args::{Ls, Server};
use crate::failure::Failure;
use crate::live::{self, Sight};
use crate::look;
use crate::report;
use crate::signals::{self, Signals};

pub(crate) async fn run(server: &Server, order: &Ls, as_json: bool) -> Result<u8, Failure> {
    if !order.watch {
        let sight = look::once(server, async |keeper| see(keeper, server).await).await;
        live::show(&sight?, as_json)?;
        return Ok(0);
    }
    let mut signals = Signals::listen(signals::ENDING)?;
    let watch = async {
        let keeper = server.connect().await?;
        let limit = server.read_timeout;
        live::watch(as_json, async || {
            look::within(limit, see(&keeper, server)).await
        })
        .await
    };
    tokio::select! {
        failed = watch => failed,
        _ = signals.next() => Ok(0),
    }
}

/// How many tickets there are, if we may know.
fn tickets(lock: &LockSummary) -> Option<usize> {
    (!lock.is_denied).then_some(lock.tickets)
}

async fn see(keeper: &Keeper, server: &Server) -> Result<Sight, Failure> {
    let locks = keeper.locks().await?;
    let mut nothing = format!("no lock below {} is in use", server.root);
    if locks.is_empty() {
        nothing = look::nothing(server, keeper, nothing).await?;
    }
    let objects = locks.iter();
    let objects: Vec<Value> = objects
        .map(|lock| json!({ "name": lock.name, "tickets": tickets(lock) }))
        .collect();
    let row = |lock: &LockSummary| {
        let tickets = tickets(lock).map(|tickets| tickets.to_string());
        [
            tickets.unwrap_or_else(|| "denied".into()),
            lock.name.clone(),
        ]
    };
    let rows: Vec<_> = locks.iter().map(row).collect();
    let in_use = locks.iter().filter_map(tickets);
    let (used, all) = (in_use.clone().count(), in_use.sum::<usize>());
    let denied = match locks.len() - used {
        0 => String::new(),
        denied => format!("; directories that may not be read: {denied}"),
    };
    Ok(Sight {
        title: format!(
            "locks in use below {} on {}: {used}, tickets: {all}{denied}",
            server.root,
            server.place.shown(),
        ),
        table: report::rows(["TICKETS", "NAME"], &rows),
        holders: 0,
        nothing,
        json: objects.into(),
    })
}
