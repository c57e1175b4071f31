//! `ui`: a page that shows all locks live, the same as JSON, and chosen locks for Prometheus.
//!
//! One reader asks the servers, whatever the number of viewers: handlers see what it has read, and
//! say what they look at. Only `break` writes, and only if it was allowed.

mod answers;
mod assets;
mod blockers;
mod breaks;
mod desk;
mod events;
mod exposition;
mod gate;
mod listen;
mod picture;
mod reader;
mod routes;
mod sessions;
mod visit;

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::json;
use tokio::net::TcpListener;

use self::desk::Desk;
use self::gate::Gate;
use self::reader::Reader;
use self::routes::Site;
use crate::args::{Server, Ui};
use crate::failure::Failure;
use crate::report;
use crate::signals::{self, Signals};

pub(crate) async fn run(server: &Server, order: &Ui, as_json: bool) -> Result<u8, Failure> {
    let mut signals = Signals::listen(signals::ENDING)?;
    let gate = Gate::of(order)?;
    let serving = async {
        let listen = |source| Failure::Listen {
            address: order.listen,
            source,
        };
        let listener = TcpListener::bind(order.listen).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let keeper = server.connect().await?;
        let (desk, publish) = Desk::new();
        let desk = Arc::new(desk);
        let gate = gate.at(address.port());
        let site = Site::new(server, order, keeper.clone(), desk.clone(), gate);
        let reader = Reader::new(server, order, keeper, desk, publish);
        say_where(order, address, as_json)?;
        tokio::select! {
            () = listen::serve(listener, routes::of(Arc::new(site))) => {}
            () = reader.read() => {}
        }
        Ok(0)
    };
    // Dropped, it leaves an idle session behind, which ends with its connection.
    tokio::select! {
        served = Box::pin(serving) => served,
        _ = signals.next() => Ok(0),
    }
}

fn say_where(order: &Ui, address: SocketAddr, as_json: bool) -> Result<(), Failure> {
    if order.allow_break && order.token_file.is_none() && order.proxy_header.is_none() {
        report::say("every user of this machine can remove tickets: --token-file keeps them out");
    }
    if as_json {
        report::print_json(&json!({ "listen": address.to_string() }))
    } else {
        report::print(&format!("listening on http://{address}/"))
    }
}
