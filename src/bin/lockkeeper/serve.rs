//! `serve`: the embedded server as a process of its own, for tests and demos.

use lockkeeper::embedded::EmbeddedServer;
use serde_json::json;

use crate::args::Serve;
use crate::failure::Failure;
use crate::report;
use crate::signals::{self, Signals};

pub(crate) async fn run(order: &Serve, as_json: bool) -> Result<u8, Failure> {
    let mut signals = Signals::listen(signals::ENDING)?;
    let starting = EmbeddedServer::builder().listen(order.listen).start();
    let server = starting.await.map_err(|source| Failure::Listen {
        address: order.listen,
        source,
    })?;
    report::say(
        "this server is NOT FOR PRODUCTION: it keeps everything in memory and forgets it when it ends",
    );
    let address = server.addr();
    if as_json {
        report::print_json(&json!({ "listen": address.to_string() }))?;
    } else {
        report::print(&format!("listening on {address}"))?;
    }

    signals.next().await;
    server.stop().await;
    Ok(0)
}
