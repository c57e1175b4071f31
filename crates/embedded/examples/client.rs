//! A test that talks to the server with an ordinary client:
//! `cargo run -p zookeeper-embedded --example client`.
//!
//! It needs no Java, no Docker and no fixed port. The session is then ended, and its ephemeral
//! znode goes.
#![allow(clippy::print_stdout, reason = "an example")]

use std::error::Error;

use zookeeper_client as zk;
use zookeeper_embedded::{EmbeddedServer, Op};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = EmbeddedServer::start().await?;
    let worker = zk::Client::connect(&server.connect_string()).await?;
    let observer = zk::Client::connect(&server.connect_string()).await?;

    let options = zk::CreateMode::Ephemeral.with_acls(zk::Acls::anyone_all());
    worker.create("/worker", b"10.0.0.7:80", &options).await?;
    let (data, stat, watch) = observer.get_and_watch_data("/worker").await?;
    assert_eq!(data, b"10.0.0.7:80");
    assert_eq!(stat.ephemeral_owner, worker.session_id().0);

    // As if the servers had not heard of the worker for its session timeout.
    assert!(server.faults().expire_session(worker.session_id().0));

    let event = watch.changed().await;
    assert_eq!(event.event_type, zk::EventType::NodeDeleted);
    assert!(observer.check_stat("/worker").await?.is_none());
    println!(
        "{} was deleted with its session; {} requests, {} create",
        event.path,
        server.counters().requests(),
        server.counters().get(Op::Create)
    );

    server.stop().await;
    Ok(())
}
