//! `serve`: the embedded server as a process of its own, for tests and demos.

use lockkeeper::embedded::EmbeddedServer;
use serde_json::json;

use crate::args::Serve;
use crate::failure::Failure;
use crate::report;
use crate::signals::{self, Signals};

pub(crate) async fn run(order: &Serve, as_json: bool) -> Result<u8, Failure> {
    let mut signals = Signals::listen(signals::ENDING)?;
    let most = match order.max_client_connections {
        0 => usize::MAX,
        most => most,
    };
    let builder = EmbeddedServer::builder().listen(order.listen);
    let starting = builder.max_client_connections(most).start();
    let server = starting.await.map_err(|source| Failure::Listen {
        address: order.listen,
        source,
    })?;
    report::say(
        "this server is NOT FOR PRODUCTION: it keeps everything in memory and forgets it when it ends",
    );
    let address = server.addr();
    if !address.ip().to_canonical().is_loopback() {
        report::say(format_args!(
            "{address} is open to other machines, without TLS: any client that reaches it can do everything"
        ));
    }
    if as_json {
        report::print_json(&json!({ "listen": address.to_string() }))?;
    } else {
        report::print(&format!("listening on {address}"))?;
    }

    signals.next().await;
    server.stop().await;
    Ok(0)
}
