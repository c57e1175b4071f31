//! Questions to servers about themselves, beside the protocol of their clients.
//!
//! Each is one short connection of its own, so that no relay and no session sees it.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_postgres::NoTls;

use crate::Result;

const PATIENCE: Duration = Duration::from_secs(10);

/// The server's answer to this word, read until it closes the connection.
async fn ask(server: &str, question: &str) -> Result<String> {
    let exchange = async {
        let mut stream = TcpStream::connect(server).await?;
        stream.write_all(question.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Result::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    timeout(PATIENCE, exchange)
        .await
        .map_err(|_| format!("{server} does not answer {question:?}"))?
}

/// A four-letter word of ZooKeeper's.
pub(crate) async fn zookeeper(server: &str, word: &str) -> Result<String> {
    ask(server, word).await
}

/// How many watches a ZooKeeper server holds.
pub(crate) async fn watches(server: &str) -> Result<usize> {
    let answer = ask(server, "wchs").await?;
    let line = answer
        .lines()
        .find_map(|line| line.strip_prefix("Total watches:"));
    let count = line.and_then(|count| count.trim().parse().ok());
    count.ok_or_else(|| format!("{server} said to wchs: {answer}").into())
}

/// How many ephemeral nodes a ZooKeeper server holds.
pub(crate) async fn ephemerals(server: &str) -> Result<usize> {
    let answer = ask(server, "mntr").await?;
    let line = answer
        .lines()
        .find_map(|line| line.strip_prefix("zk_ephemerals_count"));
    let count = line.and_then(|count| count.trim().parse().ok());
    count.ok_or_else(|| format!("{server} said to mntr: {answer}").into())
}

/// An HTTP server's answer, with its head.
pub(crate) async fn http(server: &str, path: &str) -> Result<String> {
    let request = format!("GET {path} HTTP/1.0\r\nHost: {server}\r\n\r\n");
    ask(server, &request).await
}

/// How many watchers etcd holds, and how many of them have not caught up yet.
pub(crate) async fn etcd_watchers(server: &str) -> Result<(usize, usize)> {
    let answer = http(server, "/metrics").await?;
    let gauge = |name: &str| {
        let mut lines = answer.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = value.and_then(|value| value.trim().parse::<f64>().ok());
        value.ok_or_else(|| format!("{server} has no {name} in its metrics"))
    };
    let watchers = gauge("etcd_debugging_mvcc_watcher_total")?;
    let behind = gauge("etcd_debugging_mvcc_slow_watcher_total")?;
    Ok((watchers as usize, behind as usize))
}

/// The answer of Redis to one command, whose words have no spaces.
pub(crate) async fn redis(server: &str, command: &str) -> Result<String> {
    ask(server, &format!("{command}\r\nQUIT\r\n")).await
}

/// Whether `PostgreSQL` gives connections.
pub(crate) async fn postgres(server: &str) -> Result<String> {
    let url = format!("postgres://postgres@{server}/postgres");
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    // It ends with its client.
    tokio::spawn(connection);
    client.batch_execute("SELECT").await?;
    Ok("serves".into())
}
