//! One connection to a memcached server, for its meta commands, opened again when it is lost.
//!
//! Invariants: one request is under way at a time, and what was begun is brought to its end, also
//! without its caller. So a caller that is dropped, or not polled, cannot leave half of an answer
//! behind. Requests happen in the order in which they were asked, but those of holders pass tries.
//! A request is sent once: only the caller knows whether it may be sent again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{FutureExt, ready};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy, sink};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit};
use tokio::time::timeout;

use crate::compat::finish::in_turn;
use crate::compat::store::{Attempt, StoreResult};
use crate::compat::turns::Turns;
use crate::error::StoreProblem;

/// A server has so long to accept a connection, and at most so long to answer a request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// No answer to a meta command has a longer line.
const LONGEST_LINE: u64 = 2048;
/// Longer values are no secrets of a lock, and are not kept.
const LONGEST_VALUE: u64 = 4096;
/// No server has more settings.
const MOST_SETTINGS: usize = 1000;

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

/// How to reach a server, and its connection.
#[derive(Clone)]
pub(super) struct MetaClient(Arc<MetaServer>);

struct MetaServer {
    /// Host and port.
    server: String,
    login: Option<(String, String)>,
    opened: AtomicU64,
    current: Arc<Mutex<Option<MetaConnection>>>,
}

/// One connection, until it is lost.
#[derive(Debug, Clone)]
pub(super) struct MetaConnection {
    number: u64,
    /// None when it is lost.
    stream: Arc<Mutex<Option<BufReader<TcpStream>>>>,
    /// One try at a time waits for it, so that a holder waits for no more than that.
    tries: Arc<Turns>,
}

impl MetaConnection {
    /// No other connection of the client has it.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// A request whose caller is gone before its turn is not sent. One that is not answered while
    /// its caller waits ends the connection: it may be dead without a sign of it.
    pub(super) async fn ask(
        &self,
        attempt: &Attempt,
        request: impl Into<Vec<u8>>,
    ) -> StoreResult<MetaAnswer> {
        let (tries, attempt) = (Arc::clone(&self.tries), attempt.clone());
        let limit = answer_limit(&attempt);
        let first = async move {
            match attempt.seen.is_any() {
                true => Ok(None),
                false => tries.of_try(attempt).await.map(Some),
            }
        };
        self.ask_in(first, limit, request.into()).await
    }

    /// Asks what a try would like to know. `None` if other tries wait, or if there is no answer.
    pub(super) async fn ask_at_once(
        &self,
        attempt: &Attempt,
        request: String,
    ) -> StoreResult<Option<MetaAnswer>> {
        let Some(turn) = self.tries.at_once() else {
            return Ok(None);
        };
        attempt.turn.begin();
        let limit = answer_limit(attempt);
        let told = self.ask_in(ready(Ok(Some(turn))), limit, request.into());
        // What comes later is not worth a connection, but leaves it whole.
        match timeout(attempt.patience() / 2, told).await {
            Ok(Err(problem)) if !problem.is_passing() => Err(problem),
            told => Ok(told.ok().and_then(Result::ok)),
        }
    }

    /// `first`: the turn of a try.
    async fn ask_in(
        &self,
        first: impl Future<Output = StoreResult<Option<OwnedSemaphorePermit>>> + Send + 'static,
        limit: Duration,
        request: Vec<u8>,
    ) -> StoreResult<MetaAnswer> {
        let (stream, tries) = (Arc::clone(&self.stream), Arc::clone(&self.tries));
        let turn = async move {
            let _first = first.await?;
            Ok(stream.lock_owned().await)
        };
        let exchanged = async move |mut turn: OwnedMutexGuard<Option<_>>| {
            let Some(stream) = turn.as_mut() else {
                return Err(StoreProblem::Unreachable("the connection was lost".into()));
            };
            let answer = timeout(limit, exchange(stream, &request)).await;
            let answer = answer.unwrap_or(Err(StoreProblem::NoAnswer));
            tries.told(&answer);
            if matches!(
                answer,
                Err(StoreProblem::NoAnswer | StoreProblem::WrongServer(_))
            ) {
                // The next request opens another one.
                *turn = None;
            }
            answer
        };
        in_turn(turn, exchanged).await
    }

    /// Whether nothing is known against it. It says nothing unless it is asked.
    fn is_usable(&self) -> bool {
        match self.stream.try_lock() {
            Ok(mut stream) => match stream.as_mut() {
                None => false,
                // It is closed, or speaks out of turn.
                Some(stream) => stream.fill_buf().now_or_never().is_none(),
            },
            // It is just asked.
            Err(_) => true,
        }
    }
}

fn answer_limit(attempt: &Attempt) -> Duration {
    ANSWER_TIMEOUT.min(attempt.patience())
}

impl MetaClient {
    pub(super) fn new(server: String, login: Option<(String, String)>) -> Self {
        Self(Arc::new(MetaServer {
            server,
            login,
            opened: AtomicU64::new(0),
            current: Arc::default(),
        }))
    }

    pub(super) fn server(&self) -> &str {
        &self.0.server
    }

    /// The connection, opened if there is none. It is opened to the end, also if nobody waits for
    /// it any more: that may take longer than a caller waits.
    pub(super) async fn connected(&self) -> StoreResult<MetaConnection> {
        let turn = Arc::clone(&self.0.current).lock_owned();
        let shared = Arc::clone(&self.0);
        let opened = async move |mut current: OwnedMutexGuard<Option<MetaConnection>>| {
            if let Some(connection) = current.as_ref().filter(|one| one.is_usable()) {
                return Ok(connection.clone());
            }
            let opened = timeout(ANSWER_TIMEOUT, shared.open()).await;
            let stream = opened.unwrap_or_else(|_| {
                Err(StoreProblem::Unreachable(format!(
                    "no answer of a memcached server within {ANSWER_TIMEOUT:?}"
                )))
            })?;
            let opened = MetaConnection {
                number: shared.opened.fetch_add(1, Ordering::Relaxed),
                stream: Arc::new(Mutex::new(Some(stream))),
                tries: Turns::new(1),
            };
            Ok(current.insert(opened).clone())
        };
        in_turn(turn.map(Ok), opened).await
    }
}

impl MetaServer {
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
            "MN" => {}
            "ERROR" => {
                return Err(StoreProblem::WrongServer(
                    "it has no meta commands, which memcached has since 1.6".into(),
                ));
            }
            other => return Err(refusal(other)),
        }
        match gives_versions(&mut stream).await? {
            true => Ok(stream),
            false => Err(StoreProblem::WrongServer(
                "it gives no versions, by which locks are renewed and freed: start it without -C"
                    .into(),
            )),
        }
    }
}

/// A server that does not tell its settings is told at the first renewal.
async fn gives_versions(stream: &mut BufReader<TcpStream>) -> StoreResult<bool> {
    let mut setting = greet(stream, "stats settings\r\n").await?;
    let mut gives_versions = true;
    for _ in 0..MOST_SETTINGS {
        if !setting.starts_with("STAT ") {
            break;
        }
        gives_versions &= setting != "STAT cas_enabled no";
        setting = line(stream).await?;
    }
    Ok(gives_versions)
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
        Some(("ERROR", why)) if why.contains("open connections") => {
            StoreProblem::Unreachable(why.into())
        }
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
            .field("server", &self.0.server)
            .finish_non_exhaustive()
    }
}
