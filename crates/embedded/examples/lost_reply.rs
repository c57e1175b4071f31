//! An injected fault: the server does what it is asked, and its reply is lost.
//!
//! `cargo run -p zookeeper-embedded --example lost_reply`. A client that creates again after such
//! an error has two znodes. So a careful one reads first.
#![allow(clippy::print_stdout, reason = "an example")]

use std::error::Error;

use zookeeper_client as zk;
use zookeeper_embedded::{EmbeddedServer, Match, Op};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = EmbeddedServer::start().await?;
    let client = zk::Client::connect(&server.connect_string()).await?;
    let options = zk::CreateMode::EphemeralSequential.with_acls(zk::Acls::anyone_all());

    // For one request: it is applied, and the connection is closed without the reply.
    let create = Match::op(Op::Create).path_prefix("/ticket-");
    server.faults().on(create).drop_reply();

    let answer = client.create("/ticket-", b"", &options).await;
    println!("the client was told: {:?}", answer.err());

    // The session lives on, on its next connection, and so does the znode.
    let tickets = client.list_children("/").await?;
    let tickets: Vec<_> = tickets
        .iter()
        .filter(|name| name.starts_with("ticket-"))
        .collect();
    println!("and yet there is {tickets:?}");
    assert_eq!(tickets.len(), 1);
    assert_eq!(server.faults().armed_rules(), 0);

    server.stop().await;
    Ok(())
}
