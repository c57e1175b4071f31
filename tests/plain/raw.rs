//! The fewest commands by which each client crate takes and frees the same lock, with nothing
//! around them: no lease, no renewal, no time limit, and an error ends the measurement.

use std::sync::LazyLock;

use futures_util::future::join_all;
use lockkeeper::compat::sql::{AdvisoryLock, SpringLock};
use mysql_async::prelude::Queryable;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Script};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_postgres::types::Type;

use crate::bed::Bed;
use crate::sql::url;

const TTL: u32 = 30_000;

pub enum Raw {
    /// Redlock has several.
    Redis(Vec<MultiplexedConnection>),
    Memcached(BufReader<TcpStream>),
    Postgres(tokio_postgres::Client),
    MySql(mysql_async::Conn),
}

static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end \
         return 0",
    )
});
static FENCED: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if not redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2], 'nx') then return 0 end \
         return redis.call('incr', KEYS[2])",
    )
});
/// A server is counted when it runs for a ttl.
static REDLOCK: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('exists', KEYS[1]) == 1 then return 0 end \
         local age = string.match(redis.call('info', 'server'), 'uptime_in_seconds:(%d+)') \
         redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2]) return tonumber(age)",
    )
});
/// Of the same hash as Redisson's, without its counting: Redisson itself asks for one command more
/// in a release.
static REDISSON: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('exists', KEYS[1]) == 1 then return 0 end \
         redis.call('hset', KEYS[1], ARGV[1], 1) \
         redis.call('pexpire', KEYS[1], ARGV[2]) return 1",
    )
});
static REDISSON_RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('hdel', KEYS[1], ARGV[1]) == 0 then return 0 end \
         redis.call('publish', KEYS[2], 0) return 1",
    )
});

impl Raw {
    pub async fn connect(bed: &Bed) -> Self {
        let servers = bed.addresses();
        match bed.kind.split_once('+').unwrap().0 {
            "redis" => {
                let mut all = Vec::new();
                for server in servers {
                    let url = format!("redis://{server}");
                    let info = redis::IntoConnectionInfo::into_connection_info(url).unwrap();
                    // As ours.
                    let tcp = info.tcp_settings().clone().set_nodelay(true);
                    let client = redis::Client::open(info.set_tcp_settings(tcp)).unwrap();
                    let config = AsyncConnectionConfig::new().set_response_timeout(None);
                    let opened = client.get_multiplexed_async_connection_with_config(&config);
                    all.push(opened.await.unwrap());
                }
                Self::Redis(all)
            }
            "memcached" => {
                let stream = TcpStream::connect(servers[0]).await.unwrap();
                stream.set_nodelay(true).unwrap();
                Self::Memcached(BufReader::new(stream))
            }
            "postgres" => {
                let url = url("postgres", bed.database().server());
                let opened = tokio_postgres::connect(&url, tokio_postgres::NoTls).await;
                let (client, connection) = opened.unwrap();
                tokio::spawn(connection);
                Self::Postgres(client)
            }
            _ => {
                let url = url("mysql", bed.database().server());
                let opts =
                    mysql_async::OptsBuilder::from_opts(mysql_async::Opts::from_url(&url).unwrap());
                let opts = opts.prefer_socket(false).tcp_nodelay(true);
                Self::MySql(mysql_async::Conn::new(opts).await.unwrap())
            }
        }
    }

    /// A lock and its release.
    pub async fn pair(&mut self, kind: &str, name: &str) {
        let secret = uuid::Uuid::new_v4();
        let secret = match kind {
            // The client's id and the thread's.
            "redis+redisson" => format!("{secret}:1"),
            kind if kind.ends_with("+spring") => secret.to_string(),
            _ => secret.simple().to_string(),
        };
        let secret = &*secret;
        match self {
            Self::Redis(servers) => {
                join_all(servers.iter_mut().map(|one| lock(one, kind, name, secret))).await;
                join_all(servers.iter_mut().map(|one| free(one, kind, name, secret))).await;
            }
            Self::Memcached(stream) => {
                let add = format!("ms {name} {} T31 ME c\r\n{secret}\r\n", secret.len());
                let answer = ask(stream, &add).await;
                let version = answer.strip_prefix("HD c").unwrap();
                ask(stream, &format!("md {name} C{version}\r\n")).await;
            }
            Self::Postgres(client) => pair_in_postgres(client, kind, name, secret).await,
            Self::MySql(conn) => pair_in_mysql(conn, kind, name, secret).await,
        }
    }
}

async fn lock(redis: &mut MultiplexedConnection, kind: &str, name: &str, secret: &str) {
    let script = match kind {
        "redis+setnx" => {
            let mut set = redis::cmd("SET");
            set.arg(name).arg(secret).arg("NX").arg("PX").arg(TTL);
            let taken: Option<()> = set.query_async(redis).await.unwrap();
            return assert!(taken.is_some());
        }
        "redis+tair" => {
            let mut set = redis::cmd("EXSET");
            set.arg(name).arg(secret).arg("PX").arg(TTL).arg("NX");
            let taken: Option<()> = set.arg("ABS").arg(7).query_async(redis).await.unwrap();
            return assert!(taken.is_some());
        }
        "redis+fenced" => &FENCED,
        "redis+redlock" => &REDLOCK,
        _ => &REDISSON,
    };
    let mut script = script.key(name);
    if kind == "redis+fenced" {
        script.key(format!("{name}:token"));
    }
    let taken: u64 = script
        .arg(secret)
        .arg(TTL)
        .invoke_async(redis)
        .await
        .unwrap();
    assert!(taken > 0);
}

async fn free(redis: &mut MultiplexedConnection, kind: &str, name: &str, secret: &str) {
    let freed: u64 = match kind {
        "redis+tair" => {
            let mut delete = redis::cmd("EXCAD");
            delete.arg(name).arg(7).query_async(redis).await.unwrap()
        }
        "redis+redisson" => {
            let mut script = REDISSON_RELEASE.key(name);
            script.key(format!("redisson_lock__channel:{{{name}}}"));
            script.arg(secret).invoke_async(redis).await.unwrap()
        }
        _ => {
            let mut script = RELEASE.key(name);
            script.arg(secret).invoke_async(redis).await.unwrap()
        }
    };
    assert_eq!(freed, 1);
}

async fn ask(stream: &mut BufReader<TcpStream>, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    assert!(line.starts_with("HD"), "{line}");
    line.trim_end().to_owned()
}

/// The fewest statements, for a row that is there already.
async fn pair_in_postgres(client: &tokio_postgres::Client, kind: &str, name: &str, secret: &str) {
    let (name, text) = (name.to_owned(), secret.to_owned());
    let now = "timezone('utc', clock_timestamp())";
    let (lock, free) = match kind {
        "postgres+row" => (
            "INSERT INTO lockkeeper_locks AS l (name, holder, host, token, expires) \
             VALUES ($1, $2, '', 1, clock_timestamp() + interval '30 s') \
             ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, token = l.token + 1, \
             expires = excluded.expires WHERE l.expires <= clock_timestamp() RETURNING token"
                .to_owned(),
            "UPDATE lockkeeper_locks SET holder = '', expires = clock_timestamp() \
             WHERE name = $1 AND holder = $2"
                .to_owned(),
        ),
        "postgres+shedlock" => (
            format!(
                "INSERT INTO shedlock AS l (name, lock_until, locked_at, locked_by) \
                 VALUES ($1, {now} + interval '30 s', {now}, $2) ON CONFLICT (name) DO UPDATE SET \
                 lock_until = excluded.lock_until, locked_at = excluded.locked_at, \
                 locked_by = excluded.locked_by WHERE l.lock_until <= {now}"
            ),
            format!("UPDATE shedlock SET lock_until = {now} WHERE name = $1 AND locked_by = $2"),
        ),
        "postgres+spring" => (
            format!(
                "INSERT INTO INT_LOCK AS l (LOCK_KEY, REGION, CLIENT_ID, CREATED_DATE) \
                 VALUES ($1, 'DEFAULT', $2, {now}) ON CONFLICT (LOCK_KEY, REGION) DO NOTHING"
            ),
            "DELETE FROM INT_LOCK WHERE LOCK_KEY = $1 AND REGION = 'DEFAULT' AND CLIENT_ID = $2"
                .to_owned(),
        ),
        "postgres+advisory" => {
            let key = AdvisoryLock::key(&name);
            // What ends the lock of a silent client is a part of it, as a lease is elsewhere.
            let lock = "SELECT pg_try_advisory_lock($1), \
                        set_config('idle_session_timeout', '30000', false)";
            client
                .query_typed(lock, &[(&key, Type::INT8)])
                .await
                .unwrap();
            let free = "SELECT pg_advisory_unlock($1), \
                        set_config('idle_session_timeout', '0', false)";
            client
                .query_typed(free, &[(&key, Type::INT8)])
                .await
                .unwrap();
            return;
        }
        _ => {
            let begin = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = 30000";
            client.batch_execute(begin).await.unwrap();
            let lock = "SELECT 1 FROM lockkeeper_rows WHERE name = $1 FOR UPDATE NOWAIT";
            let found = client.query_typed(lock, &[(&name, Type::TEXT)]).await;
            // A row that is missing would be no lock.
            if found.unwrap().is_empty() {
                let make = "INSERT INTO lockkeeper_rows (name) VALUES ($1)";
                client.execute(make, &[&name]).await.unwrap();
            }
            client.batch_execute("COMMIT").await.unwrap();
            return;
        }
    };
    let name = match kind {
        "postgres+spring" => SpringLock::key(&name),
        _ => name,
    };
    for statement in [lock, free] {
        let params = [(&name as _, Type::TEXT), (&text as _, Type::TEXT)];
        client.query_typed(&statement, &params).await.unwrap();
    }
}

async fn pair_in_mysql(conn: &mut mysql_async::Conn, kind: &str, name: &str, secret: &str) {
    let mut name = name.to_owned();
    let (lock, free) = match kind {
        "mysql+row" => (
            "INSERT INTO lockkeeper_locks (name, holder, host, token, expires) \
             VALUES (?, ?, '', 1, UTC_TIMESTAMP(6) + INTERVAL 30 SECOND) ON DUPLICATE KEY UPDATE \
             token = IF(expires <= UTC_TIMESTAMP(6), LAST_INSERT_ID(token + 1), token), \
             holder = IF(expires <= UTC_TIMESTAMP(6), VALUES(holder), holder), \
             expires = IF(expires <= UTC_TIMESTAMP(6), VALUES(expires), expires)",
            "UPDATE lockkeeper_locks SET holder = '', expires = UTC_TIMESTAMP(6) \
             WHERE name = ? AND holder = ?",
        ),
        "mysql+shedlock" => (
            "INSERT INTO shedlock (name, lock_until, locked_at, locked_by) \
             VALUES (?, UTC_TIMESTAMP(3) + INTERVAL 30 SECOND, UTC_TIMESTAMP(3), ?) \
             ON DUPLICATE KEY UPDATE \
             locked_by = IF(lock_until <= UTC_TIMESTAMP(3), VALUES(locked_by), locked_by), \
             lock_until = IF(lock_until <= UTC_TIMESTAMP(3), VALUES(lock_until), lock_until)",
            "UPDATE shedlock SET lock_until = UTC_TIMESTAMP(3) WHERE name = ? AND locked_by = ?",
        ),
        "mysql+spring" => {
            name = SpringLock::key(&name);
            (
                // A row whose holder is dead is taken: that is a part of the lock.
                "INSERT INTO INT_LOCK (LOCK_KEY, REGION, CLIENT_ID, CREATED_DATE) \
                 VALUES (?, 'DEFAULT', ?, UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE \
                 CLIENT_ID = IF(CREATED_DATE < UTC_TIMESTAMP(6) - INTERVAL 10 SECOND, \
                 VALUES(CLIENT_ID), CLIENT_ID), \
                 CREATED_DATE = IF(CREATED_DATE < UTC_TIMESTAMP(6) - INTERVAL 10 SECOND, \
                 VALUES(CREATED_DATE), CREATED_DATE)",
                "DELETE FROM INT_LOCK \
                 WHERE LOCK_KEY = ? AND REGION = 'DEFAULT' AND CLIENT_ID = ?",
            )
        }
        "mysql+getlock" => {
            for sql in ["SELECT GET_LOCK(?, 0)", "SELECT RELEASE_LOCK(?)"] {
                let got: Option<u64> = conn.exec_first(sql, (&name,)).await.unwrap();
                assert_eq!(got, Some(1));
            }
            return;
        }
        _ => {
            conn.query_drop("START TRANSACTION").await.unwrap();
            let lock = "SELECT 1 FROM lockkeeper_rows WHERE name = ? FOR UPDATE NOWAIT";
            let found: Option<u8> = conn.exec_first(lock, (&name,)).await.unwrap();
            if found.is_none() {
                let make = "INSERT INTO lockkeeper_rows (name) VALUES (?)";
                conn.exec_drop(make, (&name,)).await.unwrap();
            }
            conn.query_drop("COMMIT").await.unwrap();
            return;
        }
    };
    for statement in [lock, free] {
        conn.exec_drop(statement, (&name, secret)).await.unwrap();
        assert!(conn.affected_rows() > 0, "{statement}");
    }
}
