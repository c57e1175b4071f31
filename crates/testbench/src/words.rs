//! Four-letter words: what a server says of itself, seen from outside any session.
//!
//! It opens a connection per question and keeps none.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Asks on this thread, for when there is no runtime yet.
pub fn ask(server: SocketAddr, word: &str) -> io::Result<String> {
    let patience = Duration::from_secs(5);
    let mut stream = TcpStream::connect_timeout(&server, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(word.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Asks a server that must answer.
pub async fn word(server: SocketAddr, word: &str) -> String {
    let asked = word.to_owned();
    let answer = tokio::task::spawn_blocking(move || ask(server, &asked))
        .await
        .expect("the question ends");
    answer.unwrap_or_else(|error| panic!("{server} does not answer `{word}`: {error}"))
}

/// `mntr` as a map.
pub fn mntr(answer: &str) -> BTreeMap<String, String> {
    let pairs = answer.lines().filter_map(|line| line.split_once('\t'));
    pairs
        .map(|(key, value)| (key.to_owned(), value.trim().to_owned()))
        .collect()
}

/// What `wchs` counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wchs {
    pub connections: u64,
    pub paths: u64,
    pub watches: u64,
}

/// `wchs`, of one server or of several one after the other: the sum.
pub fn wchs(answer: &str) -> Wchs {
    let mut sum = Wchs::default();
    let mut seen = 0;
    for line in answer.lines() {
        if let Some(watches) = line.strip_prefix("Total watches:") {
            sum.watches += watches.trim().parse::<u64>().expect("a number of watches");
            seen += 1;
        } else if let Some((connections, paths)) = line.split_once(" connections watching ") {
            sum.connections += connections.parse::<u64>().expect("a number of connections");
            sum.paths += paths
                .trim_end_matches(" paths")
                .parse::<u64>()
                .expect("a number of paths");
        }
    }
    assert!(seen > 0, "not an answer to wchs: {answer:?}");
    sum
}

/// The mode in an answer to `srvr`: `standalone`, `leader` or `follower`. None while the server
/// does not serve.
pub fn mode(srvr: &str) -> Option<&str> {
    srvr.lines().find_map(|line| line.strip_prefix("Mode: "))
}

/// The last zxid in an answer to `srvr`.
pub fn zxid(srvr: &str) -> Option<i64> {
    let hex = srvr
        .lines()
        .find_map(|line| line.strip_prefix("Zxid: 0x"))?;
    i64::from_str_radix(hex.trim(), 16).ok()
}
