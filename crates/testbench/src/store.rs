//! A store for several processes that checks fencing tokens or, as a control, does not.
//!
//! One line with a write, one line with the answer. It knows nothing of locks but their names.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::checker::Accepted;

/// What the store does with a token below the highest that it has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    Refuses,
    /// The control: it accepts writes that would damage the resource.
    Missing,
}

#[derive(Debug, Serialize, Deserialize)]
struct Write {
    lock: String,
    client: String,
    token: u64,
}

/// A running store. It ends when it is dropped.
#[derive(Debug)]
pub struct Store {
    address: SocketAddr,
    books: Arc<Books>,
    _serving: JoinSet<()>,
}

#[derive(Debug)]
struct Books {
    fence: Fence,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    highest: HashMap<String, u64>,
    accepted: Vec<Accepted>,
    stale: usize,
}

impl Books {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, write: Write) -> bool {
        let mut state = self.state();
        let highest = state.highest.entry(write.lock.clone()).or_default();
        let is_stale = write.token < *highest;
        *highest = write.token.max(*highest);
        state.stale += usize::from(is_stale);
        if is_stale && self.fence == Fence::Refuses {
            return false;
        }
        state.accepted.push(Accepted {
            lock: write.lock,
            client: write.client,
            token: write.token,
        });
        true
    }
}

impl Store {
    pub async fn start(fence: Fence) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let books = Arc::new(Books {
            fence,
            state: Mutex::default(),
        });
        let mut serving = JoinSet::new();
        let theirs = books.clone();
        serving.spawn(async move {
            let mut writers = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                writers.spawn(serve(stream, theirs.clone()));
            }
        });
        Self {
            address,
            books,
            _serving: serving,
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What was accepted, in order.
    pub fn accepted(&self) -> Vec<Accepted> {
        self.books.state().accepted.clone()
    }

    /// How many writes came with a token below the highest.
    pub fn stale(&self) -> usize {
        self.books.state().stale
    }
}

async fn serve(mut stream: TcpStream, books: Arc<Books>) {
    let (reads, mut writes) = stream.split();
    let mut lines = BufReader::new(reads).lines();
    // The connection of a killed writer just ends.
    while let Ok(Some(line)) = lines.next_line().await {
        let write = serde_json::from_str(&line).expect("a write");
        let answer: &[u8] = if books.take(write) { b"yes\n" } else { b"no\n" };
        if writes.write_all(answer).await.is_err() {
            return;
        }
    }
}

/// The writing end.
#[derive(Debug)]
pub struct Writer {
    stream: BufReader<TcpStream>,
    lock: String,
    client: String,
}

impl Writer {
    pub async fn connect(store: SocketAddr, lock: &str, client: &str) -> Self {
        let stream = TcpStream::connect(store).await.expect("the store runs");
        stream.set_nodelay(true).expect("a fresh connection");
        Self {
            stream: BufReader::new(stream),
            lock: lock.to_owned(),
            client: client.to_owned(),
        }
    }

    /// Writes with this token; whether the store accepted it.
    pub async fn write(&mut self, token: u64) -> bool {
        let write = Write {
            lock: self.lock.clone(),
            client: self.client.clone(),
            token,
        };
        let mut line = serde_json::to_vec(&write).expect("a write is JSON");
        line.push(b'\n');
        self.stream.write_all(&line).await.expect("the store runs");
        let mut answer = String::new();
        self.stream
            .read_line(&mut answer)
            .await
            .expect("the store runs");
        match answer.as_str() {
            "yes\n" => true,
            "no\n" => false,
            other => panic!("the store says {other:?}"),
        }
    }
}
