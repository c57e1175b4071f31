//! A stand-in for Tair: a server that has the few commands of TairString that a lock needs, as
//! their documentation describes them. And what is special to this kind.
//!
//! `LOCKKEEPER_TAIR_MODULE=/path/tairstring_module.so` runs the same cases on Redis with the module
//! itself, but for those that need a server of their own.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockkeeper::Error;
use lockkeeper::compat::{StoreProblem, connect};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::bed::Bed;

crate::cases![
    ["redis+tair"]
    a_new_lock_has_no_version_of_an_old_one,
    a_server_without_the_commands_is_told_so,
    a_plain_string_is_told_so,
    a_plain_string_in_its_place_is_its_loss,
];

async fn a_new_lock_has_no_version_of_an_old_one(bed: Arc<Bed>, name: String) {
    let lock = bed.lock(&name).await;
    let mut versions = Vec::new();
    for _ in 0..3 {
        let guard = lock.lock().await.unwrap();
        guard.check().await.unwrap();
        versions.push(bed.tair_version(&name).await);
        guard.release().await.unwrap();
    }
    versions.sort_unstable();
    versions.dedup();
    assert_eq!(versions.len(), 3, "{versions:?}");
    assert!(versions[0] > Some(1 << 30), "{versions:?}");
}

async fn a_server_without_the_commands_is_told_so(_bed: Arc<Bed>, name: String) {
    let redis = testbench::daemon::redis(&[]).unwrap();
    let keeper = connect(&format!("redis+tair://{}", redis.address()))
        .await
        .unwrap();
    let error = keeper.mutex(&name).unwrap().lock().await.unwrap_err();
    let Error::Store { problem, .. } = &error else {
        panic!("{error}")
    };
    assert!(matches!(problem, StoreProblem::WrongServer(_)), "{error}");
}

async fn a_plain_string_is_told_so(bed: Arc<Bed>, name: String) {
    bed.set_string(&name).await;
    let error = bed.lock(&name).await.lock().await.unwrap_err();
    let Error::Store { problem, .. } = &error else {
        panic!("{error}")
    };
    assert!(matches!(problem, StoreProblem::OtherContent(_)), "{error}");
}

async fn a_plain_string_in_its_place_is_its_loss(bed: Arc<Bed>, name: String) {
    let [first, second] = [format!("{name}/1"), format!("{name}/2")];
    let renewed = bed.lock(&first).await.lock().await.unwrap();
    let released = bed.lock(&second).await.lock().await.unwrap();
    bed.set_string(&first).await;
    bed.set_string(&second).await;

    let errors = [renewed.check().await, released.release().await];

    for error in errors.map(Result::unwrap_err) {
        assert!(error.is_lost(), "{error}");
    }
}

/// A value with its version, or a plain string; and its end.
enum Content {
    Versioned(Vec<u8>, i64, Option<Instant>),
    Plain,
}

type Contents = Arc<Mutex<HashMap<Vec<u8>, Content>>>;

#[derive(Clone)]
pub struct TairStandIn {
    address: SocketAddr,
    contents: Contents,
    counts: Arc<Mutex<Counts>>,
}

/// What it knows of its clients.
#[derive(Clone, Copy, Default)]
pub struct Counts {
    pub requests: u64,
    /// Ever.
    pub connections: u64,
    /// Now.
    pub clients: u64,
    pub values: u64,
    is_replica: bool,
}

impl TairStandIn {
    /// It ends with the process.
    pub fn start() -> Result<Self, String> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
        let address = listener.local_addr().map_err(|e| e.to_string())?;
        listener.set_nonblocking(true).map_err(|e| e.to_string())?;
        let contents = Contents::default();
        let counts = Arc::<Mutex<Counts>>::default();
        let (served, counted) = (Arc::clone(&contents), Arc::clone(&counts));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async move {
                let listener = TcpListener::from_std(listener).unwrap();
                loop {
                    let (client, _) = listener.accept().await.unwrap();
                    let (served, counted) = (Arc::clone(&served), Arc::clone(&counted));
                    counted.lock().unwrap().connections += 1;
                    counted.lock().unwrap().clients += 1;
                    tokio::spawn(async move {
                        serve(client, served, &counted).await;
                        counted.lock().unwrap().clients -= 1;
                    });
                }
            });
        });
        Ok(Self {
            address,
            contents,
            counts,
        })
    }

    pub fn counts(&self) -> Counts {
        Counts {
            values: self.contents.lock().unwrap().len() as u64,
            ..*self.counts.lock().unwrap()
        }
    }

    /// From now on it says that it is one.
    pub fn set_replica(&self) {
        self.counts.lock().unwrap().is_replica = true;
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn remove(&self, name: &str) -> bool {
        self.contents
            .lock()
            .unwrap()
            .remove(name.as_bytes())
            .is_some()
    }

    pub fn version(&self, name: &str) -> Option<i64> {
        match self.contents.lock().unwrap().get(name.as_bytes())? {
            Content::Versioned(_, version, _) => Some(*version),
            Content::Plain => None,
        }
    }

    pub fn set_string(&self, name: &str) {
        let mut contents = self.contents.lock().unwrap();
        contents.insert(name.as_bytes().to_vec(), Content::Plain);
    }
}

async fn serve(client: TcpStream, contents: Contents, counts: &Mutex<Counts>) -> Option<()> {
    let mut client = BufReader::new(client);
    loop {
        let count = number(&mut client, b'*').await?;
        let mut words = Vec::new();
        for _ in 0..count {
            let length = number(&mut client, b'$').await?;
            let mut word = vec![0; length + 2];
            client.read_exact(&mut word).await.ok()?;
            word.truncate(length);
            words.push(word);
        }
        counts.lock().unwrap().requests += 1;
        let is_replica = counts.lock().unwrap().is_replica;
        let answer = match words[0].eq_ignore_ascii_case(b"ROLE") && is_replica {
            true => "*5\r\n$5\r\nslave\r\n$1\r\na\r\n:1\r\n$9\r\nconnected\r\n:0\r\n".into(),
            false => answer(&words, &contents),
        };
        client.write_all(answer.as_bytes()).await.ok()?;
    }
}

async fn number(client: &mut BufReader<TcpStream>, kind: u8) -> Option<usize> {
    let mut line = String::new();
    client.read_line(&mut line).await.ok()?;
    let line = line.strip_prefix(char::from(kind))?;
    line.trim_end().parse().ok()
}

fn answer(words: &[Vec<u8>], contents: &Contents) -> String {
    let mut contents = contents.lock().unwrap();
    contents.retain(|_, content| match content {
        Content::Versioned(_, _, until) => until.is_none_or(|until| until > Instant::now()),
        Content::Plain => true,
    });
    let text: Vec<String> = words
        .iter()
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    let command = text[0].to_uppercase();
    let key = words.get(1).cloned().unwrap_or_default();
    let there = contents.get(&key);
    if command.starts_with("EX") && matches!(there, Some(Content::Plain)) {
        return "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n".into();
    }
    let version = match there {
        Some(Content::Versioned(_, version, _)) => Some(*version),
        _ => None,
    };
    match &*command {
        "ROLE" => "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n".into(),
        "CLIENT" => "+OK\r\n".into(),
        "PTTL" => match there {
            None => ":-2\r\n".into(),
            Some(Content::Versioned(_, _, Some(until))) => {
                format!(":{}\r\n", (*until - Instant::now()).as_millis())
            }
            Some(_) => ":-1\r\n".into(),
        },
        "EXGET" => match there {
            Some(Content::Versioned(value, version, _)) => format!(
                "*2\r\n${}\r\n{}\r\n:{version}\r\n",
                value.len(),
                String::from_utf8_lossy(value)
            ),
            _ => "$-1\r\n".into(),
        },
        "EXSET" => exset(&text, key, version, &mut contents),
        "EXCAD" => match version {
            None => ":-1\r\n".into(),
            Some(version) if version.to_string() != text[2] => ":0\r\n".into(),
            Some(_) => {
                contents.remove(&key);
                ":1\r\n".into()
            }
        },
        other => format!("-ERR unknown command '{other}'\r\n"),
    }
}

fn exset(
    text: &[String],
    key: Vec<u8>,
    version: Option<i64>,
    contents: &mut HashMap<Vec<u8>, Content>,
) -> String {
    let (mut new, mut until) = (version.unwrap_or(0) + 1, None);
    let mut options = text[3..].iter();
    while let Some(option) = options.next() {
        match &*option.to_uppercase() {
            "NX" if version.is_some() => return "$-1\r\n".into(),
            "XX" if version.is_none() => return "$-1\r\n".into(),
            "NX" | "XX" => {}
            "PX" => {
                let ttl = Duration::from_millis(options.next().unwrap().parse().unwrap());
                until = Some(Instant::now() + ttl);
            }
            "ABS" => new = options.next().unwrap().parse().unwrap(),
            "VER" => {
                let given: i64 = options.next().unwrap().parse().unwrap();
                if version.is_some_and(|version| version != given) {
                    return "-ERR update version is stale\r\n".into();
                }
            }
            _ => return "-ERR syntax error\r\n".into(),
        }
    }
    let value = text[2].clone().into_bytes();
    contents.insert(key, Content::Versioned(value, new, until));
    "+OK\r\n".into()
}
