//! `ls`: the locks that are in use. It only reads.

use lockkeeper::Keeper;
use serde_json::{Value, json};

use crate::args::{Ls, Server};
use crate::failure::Failure;
use crate::live::{self, Sight};
use crate::report;
use crate::signals::{self, Signals};

pub(crate) async fn run(server: &Server, order: &Ls, as_json: bool) -> Result<u8, Failure> {
    if !order.watch {
        let keeper = server.connect().await?;
        let sight = look(&keeper, server).await;
        keeper.close().await;
        live::show(&sight?, as_json)?;
        return Ok(0);
    }
    let mut signals = Signals::listen(signals::ENDING)?;
    let watch = async {
        let keeper = server.connect().await?;
        live::watch(as_json, async || look(&keeper, server).await).await
    };
    tokio::select! {
        failed = watch => failed,
        _ = signals.next() => Ok(0),
    }
}

async fn look(keeper: &Keeper, server: &Server) -> Result<Sight, Failure> {
    let locks = keeper.locks().await?;
    let objects = locks.iter();
    let objects: Vec<Value> = objects
        .map(|lock| json!({ "name": lock.name, "tickets": lock.tickets }))
        .collect();
    let rows: Vec<_> = locks
        .iter()
        .map(|lock| [lock.tickets.to_string(), lock.name.clone()])
        .collect();
    let tickets: usize = locks.iter().map(|lock| lock.tickets).sum();
    Ok(Sight {
        title: format!(
            "locks in use below {} on {}: {}, with {tickets} tickets",
            server.root,
            server.zk,
            locks.len()
        ),
        table: report::rows(["TICKETS", "NAME"], &rows),
        holders: 0,
        nothing: format!("no lock below {} is in use", server.root),
        json: objects.into(),
    })
}
