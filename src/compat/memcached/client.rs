//! One connection to a memcached server, for its meta commands, opened again when it is lost.
//!
//! Invariants: one task owns the connection, and asks one request after the other. So a dropped
//! caller cannot leave half of an answer behind, and requests happen in the order in which they
//! were asked. A request is sent once: only the caller knows whether it may be sent again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy, sink};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::timeout;

use crate::compat::store::StoreResult;
use crate::error::StoreProblem;

/// A server has so long to accept a connection, and to answer a request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// No answer to a meta command has a longer line.
const LONGEST_LINE: u64 = 2048;
/// Longer values are no secrets of a lock, and are not kept.
const LONGEST_VALUE: u64 = 4096;

/// What the server says to one request.
#[derive(Debug)]
pub(super) enum MetaAnswer {
    /// `HD` with its flags: done.
    Done(String),
    /// `VA` with its flags, and the value if it is not too long.
    Value(String, Option<Vec<u8>>),
    /// `EN` or `NF`: there is nothing.
    Nothing,
    /// `NS`: there is something already.
    NotStored,
    /// `EX`: it was changed since.
    Changed,
}

impl MetaAnswer {
    /// The part after a flag's letter.
    pub(super) fn flag(flags: &str, letter: char) -> Option<&str> {
        flags.split(' ').find_map(|flag| flag.strip_prefix(letter))
    }
}

#[derive(Debug)]
pub(super) struct MetaRequest {
    request: Vec<u8>,
    done: oneshot::Sender<StoreResult<MetaAnswer>>,
}

/// How to reach a server, and the task that has its connection.
pub(super) struct MetaClient {
    /// Host and port.
    server: String,
    login: Option<(String, String)>,
    opened: AtomicU64,
    current: Mutex<Option<MetaConnection>>,
}

/// One connection: the queue of the task that has it.
#[derive(Debug, Clone)]
pub(super) struct MetaConnection {
    number: u64,
    queue: mpsc::UnboundedSender<MetaRequest>,
}

impl MetaConnection {
    /// No other connection of the client has it.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) async fn ask(&self, request: impl Into<Vec<u8>>) -> StoreResult<MetaAnswer> {
        let (done, answer) = oneshot::channel();
        let request = request.into();
        let asked = self.queue.send(MetaRequest { request, done });
        drop(asked);
        // Nobody took it from the queue: the connection was lost before.
        let lost = || Err(StoreProblem::Unreachable("the connection was lost".into()));
        answer.await.unwrap_or_else(|_| lost())
    }
}

impl MetaClient {
    pub(super) fn new(server: String, login: Option<(String, String)>) -> Self {
        Self {
            server,
            login,
            opened: AtomicU64::new(0),
            current: Mutex::new(None),
        }
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// The connection, opened if there is none.
    pub(super) async fn connected(&self) -> StoreResult<MetaConnection> {
        let mut current = self.current.lock().await;
        if let Some(connection) = current.as_ref().filter(|one| !one.queue.is_closed()) {
            return Ok(connection.clone());
        }
        let opened = timeout(ANSWER_TIMEOUT, self.open()).await;
        let stream = opened.unwrap_or_else(|_| {
            Err(StoreProblem::Unreachable(format!(
                "no answer of a memcached server within {ANSWER_TIMEOUT:?}"
            )))
        })?;
        let (queue, asked) = mpsc::unbounded_channel();
        tokio::spawn(serve(stream, asked));
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(current.insert(MetaConnection { number, queue }).clone())
    }

    async fn open(&self) -> StoreResult<BufReader<TcpStream>> {
        let unreachable = |error: std::io::Error| StoreProblem::Unreachable(error.to_string());
        let stream = TcpStream::connect(&self.server).await;
        let stream = stream.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let mut stream = BufReader::new(stream);
        if let Some((user, password)) = &self.login {
            let length = user.len() + 1 + password.len();
            let login = format!("set login 0 0 {length}\r\n{user} {password}\r\n");
            match &*greet(&mut stream, &login).await? {
                "STORED" => {}
                other => return Err(refusal(other)),
            }
        }
        // The meta command that does nothing.
        match &*greet(&mut stream, "mn\r\n").await? {
            "MN" => Ok(stream),
            "ERROR" => Err(StoreProblem::WrongServer(
                "it has no meta commands, which memcached has since 1.6".into(),
            )),
            other => Err(refusal(other)),
        }
    }
}

/// Says the first words, before there is anything whose outcome could be unknown.
async fn greet(stream: &mut BufReader<TcpStream>, words: &str) -> StoreResult<String> {
    let sent = stream.write_all(words.as_bytes()).await;
    sent.map_err(|error| StoreProblem::Unreachable(error.to_string()))?;
    line(stream).await.map_err(|problem| match problem {
        StoreProblem::NoAnswer => {
            StoreProblem::Unreachable("the server closed the connection".into())
        }
        other => other,
    })
}

/// Owns a connection until it is lost, no answer comes in time, or its client is gone.
async fn serve(mut stream: BufReader<TcpStream>, mut asked: mpsc::UnboundedReceiver<MetaRequest>) {
    loop {
        let next = tokio::select! {
            biased;
            // Nothing was asked: it is closed, or speaks out of turn.
            _ = stream.fill_buf() => return,
            next = asked.recv() => next,
        };
        let Some(MetaRequest { request, done }) = next else {
            return;
        };
        // A request whose caller is gone is not sent.
        if done.is_closed() {
            continue;
        }
        let answer = timeout(ANSWER_TIMEOUT, exchange(&mut stream, &request)).await;
        let answer = answer.unwrap_or(Err(StoreProblem::NoAnswer));
        let is_usable = !matches!(
            answer,
            Err(StoreProblem::NoAnswer | StoreProblem::WrongServer(_))
        );
        if !is_usable {
            // The next request opens another connection.
            asked.close();
        }
        done.send(answer).unwrap_or_default();
        if !is_usable {
            return;
        }
    }
}

async fn exchange(stream: &mut BufReader<TcpStream>, request: &[u8]) -> StoreResult<MetaAnswer> {
    let lost = |_| StoreProblem::NoAnswer;
    stream.write_all(request).await.map_err(lost)?;
    let line = line(stream).await?;
    let (code, rest) = line.split_once(' ').unwrap_or((&line, ""));
    match code {
        "HD" => Ok(MetaAnswer::Done(rest.to_owned())),
        "VA" => {
            let (size, flags) = rest.split_once(' ').unwrap_or((rest, ""));
            let size: u64 = size.parse().map_err(|_| refusal(&line))?;
            let value = value(stream, size).await?;
            Ok(MetaAnswer::Value(flags.to_owned(), value))
        }
        "EN" | "NF" => Ok(MetaAnswer::Nothing),
        "NS" => Ok(MetaAnswer::NotStored),
        "EX" => Ok(MetaAnswer::Changed),
        _ => Err(refusal(&line)),
    }
}

async fn line(stream: &mut BufReader<TcpStream>) -> StoreResult<String> {
    let mut line = Vec::new();
    let mut limited = stream.take(LONGEST_LINE);
    let read = limited.read_until(b'\n', &mut line).await;
    read.map_err(|_| StoreProblem::NoAnswer)?;
    match line.strip_suffix(b"\r\n").map(std::str::from_utf8) {
        Some(Ok(line)) => Ok(line.to_owned()),
        None if (line.len() as u64) < LONGEST_LINE && !line.ends_with(b"\n") => {
            Err(StoreProblem::NoAnswer)
        }
        _ => Err(refusal(&String::from_utf8_lossy(&line))),
    }
}

async fn value(stream: &mut BufReader<TcpStream>, size: u64) -> StoreResult<Option<Vec<u8>>> {
    let lost = |_| StoreProblem::NoAnswer;
    let mut value = Vec::new();
    if size <= LONGEST_VALUE {
        let mut limited = (&mut *stream).take(size);
        limited.read_to_end(&mut value).await.map_err(lost)?;
    } else {
        let mut limited = (&mut *stream).take(size);
        copy(&mut limited, &mut sink()).await.map_err(lost)?;
    }
    match &*line(stream).await? {
        "" => Ok((size <= LONGEST_VALUE).then_some(value)),
        _ => Err(refusal("a value of another length than it said")),
    }
}

/// What a line means that is no answer to what was asked.
fn refusal(line: &str) -> StoreProblem {
    match line.split_once(' ') {
        Some(("CLIENT_ERROR", why)) if why.contains("auth") => StoreProblem::Denied(why.into()),
        Some(("CLIENT_ERROR" | "SERVER_ERROR", why)) => StoreProblem::Refused(why.into()),
        _ => {
            let begin: String = line.chars().take(60).collect();
            StoreProblem::WrongServer(format!("it does not speak memcached's protocol: {begin:?}"))
        }
    }
}

/// Without the password.
impl std::fmt::Debug for MetaClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetaClient")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}
