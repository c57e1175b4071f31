//! `ls`: the locks that are in use. It only reads.

use serde_json::{Value, json};

use crate::args::Server;
use crate::failure::Failure;
use crate::report;

pub(crate) async fn run(server: &Server, as_json: bool) -> Result<u8, Failure> {
    let keeper = server.connect().await?;
    let locks = keeper.locks().await;
    keeper.close().await;
    let locks = locks?;
    if as_json {
        let rows: Vec<Value> = locks
            .iter()
            .map(|lock| json!({ "name": lock.name, "tickets": lock.tickets }))
            .collect();
        report::print_json(&rows)?;
    } else if locks.is_empty() {
        report::say(format_args!("no lock below {} is in use", server.root));
    } else {
        let rows: Vec<_> = locks
            .iter()
            .map(|lock| [lock.tickets.to_string(), lock.name.clone()])
            .collect();
        report::print(&report::table(["TICKETS", "NAME"], &rows))?;
    }
    Ok(0)
}
