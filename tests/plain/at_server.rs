//! What servers count themselves: requests, connections, and the locks that are in them.
//!
//! They are a case's own, as the clients of other cases would be counted too.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::time::Duration;

use lockkeeper::compat::{PlainKeeper, PlainMutex, PlainStore, connect};
use mysql_async::prelude::Queryable;
use testbench::daemon::{self, Daemon};

use crate::flash_sale::Counted;
use crate::memory::Memory;
use crate::sql;
use crate::tair::TairStandIn;

/// Commands that clients send. Those that a script calls are no requests: it is one that sets, but
/// for one kind of lock.
const COMMANDS_OF_REDIS: [&str; 5] = ["eval", "evalsha", "ping", "subscribe", "unsubscribe"];
const SETS: &str = "redis+setnx";
/// PostgreSQL writes a line for each of these.
const LOGGED: [&str; 3] = [
    "log_statement=all",
    "log_connections=on",
    "max_connections=50",
];

pub struct AtServer {
    kind: &'static str,
    servers: Servers,
}

enum Servers {
    Memory(Counted),
    Redis(Vec<(Daemon, redis::aio::MultiplexedConnection)>),
    Tair(TairStandIn),
    Memcached(Daemon, Mutex<BufReader<TcpStream>>),
    Postgres(Daemon),
    /// With the connection that asks, and how often it has asked.
    MariaDb(Daemon, tokio::sync::Mutex<(mysql_async::Conn, u64)>),
}

impl AtServer {
    /// Starts servers for a kind of lock, and waits until they grant some.
    pub async fn start(kind: &'static str) -> Self {
        let servers = match kind.split_once('+') {
            Some(("redis", "redlock")) => {
                let servers = Servers::redis(3).await;
                // A server is counted when it is up for a ttl.
                tokio::time::sleep(ttl(kind) + Duration::from_secs(2)).await;
                servers
            }
            Some(("redis", "tair")) => Servers::Tair(TairStandIn::start().unwrap()),
            Some(("redis", _)) => Servers::redis(1).await,
            Some(("memcached", _)) => {
                let server = daemon::memcached(&[]).unwrap();
                let stream = TcpStream::connect(server.address()).unwrap();
                Servers::Memcached(server, Mutex::new(BufReader::new(stream)))
            }
            Some(("postgres", _)) => {
                let server = daemon::postgres(&LOGGED).unwrap();
                sql::create(kind, &sql::url(kind, &server)).await.unwrap();
                Servers::Postgres(server)
            }
            Some(("mysql", _)) => {
                let server = daemon::mariadb(&[]).unwrap();
                sql::create(kind, &sql::url(kind, &server)).await.unwrap();
                let conn = mysql_async::Conn::from_url(sql::url("mysql", &server)).await;
                Servers::MariaDb(server, (conn.unwrap(), 0).into())
            }
            _ => Servers::Memory(Counted::new(PlainKeeper::new(Memory::default()).erased())),
        };
        Self { kind, servers }
    }

    /// A lock of a client of its own.
    pub async fn lock(&self, name: &str) -> PlainMutex<dyn PlainStore> {
        let lock = self.keeper().await.mutex(name).unwrap();
        match &self.servers {
            Servers::Memory(_) => lock,
            _ => lock.with_ttl(ttl(self.kind)).unwrap(),
        }
    }

    /// A client of its own.
    pub async fn keeper(&self) -> PlainKeeper<dyn PlainStore> {
        let at = |server: &Daemon| format!("{}://{}", self.kind, server.address());
        let url = match &self.servers {
            Servers::Memory(store) => return PlainKeeper::new(store.clone()).erased(),
            Servers::Redis(servers) => {
                let addresses = servers.iter().map(|(one, _)| one.address().to_string());
                let addresses: Vec<String> = addresses.collect();
                format!("{}://{}", self.kind, addresses.join(","))
            }
            Servers::Tair(server) => format!("{}://{}", self.kind, server.address()),
            Servers::Memcached(server, _) => at(server),
            Servers::Postgres(server) | Servers::MariaDb(server, _) => sql::url(self.kind, server),
        };
        connect(&url).await.unwrap()
    }

    /// How many requests came, to all servers together.
    pub async fn requests(&self) -> u64 {
        match &self.servers {
            Servers::Memory(store) => store.requests(),
            Servers::Redis(servers) => {
                let mut sum = 0;
                for (_, asker) in servers {
                    let told = info(asker, "commandstats").await;
                    let set = (self.kind == SETS).then_some("set");
                    let calls = COMMANDS_OF_REDIS
                        .into_iter()
                        .chain(set)
                        .filter_map(|command| told.split_once(&format!("cmdstat_{command}:calls=")))
                        .map(|(_, rest)| first_number(rest));
                    sum += calls.sum::<u64>();
                }
                sum
            }
            Servers::Tair(server) => server.counts().requests,
            Servers::Memcached(_, asker) => ["cmd_get", "cmd_set", "delete_hits", "delete_misses"]
                .map(|field| stat(asker, field))
                .iter()
                .sum(),
            Servers::Postgres(server) => {
                logged(server, "LOG:  execute ") + logged(server, "LOG:  statement: ")
            }
            Servers::MariaDb(_, asker) => {
                let told = status(asker, "Questions").await;
                told - asker.lock().await.1
            }
        }
    }

    /// How many connections were opened so far.
    pub async fn connections(&self) -> u64 {
        match &self.servers {
            Servers::Memory(_) => 0,
            Servers::Redis(servers) => {
                let mut sum = 0;
                for (_, asker) in servers {
                    let told = info(asker, "stats").await;
                    sum += number_of(&told, "total_connections_received:");
                }
                sum
            }
            Servers::Tair(server) => server.counts().connections,
            Servers::Memcached(_, asker) => stat(asker, "total_connections"),
            Servers::Postgres(server) => logged(server, "LOG:  connection received"),
            Servers::MariaDb(_, asker) => status(asker, "Connections").await,
        }
    }

    /// How many connections there are, but for those that ask.
    pub async fn clients(&self) -> u64 {
        match &self.servers {
            Servers::Memory(_) => 0,
            Servers::Redis(servers) => {
                let mut sum = 0;
                for (_, asker) in servers {
                    let told = info(asker, "clients").await;
                    sum += number_of(&told, "connected_clients:") - 1;
                }
                sum
            }
            Servers::Tair(server) => server.counts().clients,
            Servers::Memcached(_, asker) => stat(asker, "curr_connections") - 1,
            Servers::Postgres(server) => {
                let others = "SELECT FROM pg_stat_activity \
                              WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
                sql::execute(self.kind, server, others).await
            }
            Servers::MariaDb(_, asker) => status(asker, "Threads_connected").await - 1,
        }
    }

    /// How many locks are in it that have not expired.
    pub async fn held(&self, name: &str) -> u64 {
        let server = match &self.servers {
            Servers::Memory(store) => {
                let tried = PlainKeeper::new(store.clone()).mutex(name).unwrap();
                return u64::from(tried.try_lock().await.unwrap().is_none());
            }
            Servers::Redis(servers) => {
                let mut sum = 0;
                for (_, asker) in servers {
                    let mut asker = asker.clone();
                    let keys = redis::cmd("KEYS").arg("*").query_async(&mut asker).await;
                    let keys: Vec<String> = keys.unwrap();
                    // The numbers of grants stay.
                    sum += keys.iter().filter(|key| !key.ends_with(":token")).count() as u64;
                }
                return sum;
            }
            Servers::Tair(server) => return server.counts().values,
            Servers::Memcached(_, asker) => return stat(asker, "curr_items"),
            Servers::Postgres(server) | Servers::MariaDb(server, _) => server,
        };
        let held = match self.kind {
            "postgres+row" => "SELECT FROM lockkeeper_locks WHERE expires > clock_timestamp()",
            "mysql+row" => "SELECT 1 FROM lockkeeper_locks WHERE expires > UTC_TIMESTAMP(6)",
            "postgres+shedlock" => {
                "SELECT FROM shedlock WHERE lock_until > timezone('utc', clock_timestamp())"
            }
            "mysql+shedlock" => "SELECT 1 FROM shedlock WHERE lock_until > UTC_TIMESTAMP(3)",
            "postgres+spring" | "mysql+spring" => "SELECT 1 FROM INT_LOCK",
            "postgres+forupdate" => {
                "SELECT FROM pg_stat_activity WHERE state = 'idle in transaction'"
            }
            "mysql+forupdate" => "SELECT 1 FROM information_schema.innodb_trx",
            "postgres+advisory" => "SELECT FROM pg_locks WHERE locktype = 'advisory'",
            "mysql+getlock" => {
                let used = format!("SELECT 1 FROM DUAL WHERE IS_USED_LOCK('{name}') IS NOT NULL");
                return sql::execute(self.kind, server, &used).await;
            }
            other => panic!("nothing is known of {other}"),
        };
        sql::execute(self.kind, server, held).await
    }
}

/// As by default, but for servers that would have to be up for so long.
fn ttl(kind: &str) -> Duration {
    match kind {
        "redis+redlock" => Duration::from_secs(8),
        _ => Duration::from_secs(30),
    }
}

impl Servers {
    async fn redis(count: usize) -> Self {
        let mut servers = Vec::new();
        for _ in 0..count {
            let server = daemon::redis(&[]).unwrap();
            let client = redis::Client::open(format!("redis://{}", server.address())).unwrap();
            let asker = client.get_multiplexed_async_connection().await.unwrap();
            servers.push((server, asker));
        }
        Self::Redis(servers)
    }
}

async fn info(asker: &redis::aio::MultiplexedConnection, section: &str) -> String {
    let mut asker = asker.clone();
    let told = redis::cmd("INFO")
        .arg(section)
        .query_async(&mut asker)
        .await;
    told.unwrap()
}

fn number_of(told: &str, field: &str) -> u64 {
    let (_, rest) = told.split_once(field).expect("the field is told");
    first_number(rest)
}

fn first_number(text: &str) -> u64 {
    let end = text.find(|c: char| !c.is_ascii_digit());
    text[..end.unwrap_or(text.len())].parse().unwrap()
}

/// A number of memcached.
fn stat(asker: &Mutex<BufReader<TcpStream>>, field: &str) -> u64 {
    let mut asker = asker.lock().unwrap();
    asker.get_mut().write_all(b"stats\r\n").unwrap();
    let mut told = String::new();
    while !told.ends_with("END\r\n") {
        asker.read_line(&mut told).unwrap();
    }
    number_of(&told, &format!("STAT {field} "))
}

/// How many lines of a server's log have these words.
fn logged(server: &Daemon, words: &str) -> u64 {
    let log = std::fs::read_to_string(server.folder().join("log")).unwrap();
    log.lines().filter(|line| line.contains(words)).count() as u64
}

/// A number of MariaDB, which counts the question too.
async fn status(asker: &tokio::sync::Mutex<(mysql_async::Conn, u64)>, field: &str) -> u64 {
    let mut asker = asker.lock().await;
    asker.1 += 1;
    let sql = format!("SHOW GLOBAL STATUS LIKE '{field}'");
    let row: Option<(String, u64)> = asker.0.query_first(sql).await.unwrap();
    row.expect("the field is told").1
}
