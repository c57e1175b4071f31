//! Databases for the cases, and what an operator does in them.

use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use lockkeeper::Result;
use lockkeeper::compat::sql::{AdvisoryLock, ForUpdate, GetLock, ShedLock, SpringLock, UniqueRow};
use mysql_async::prelude::Queryable;
use testbench::daemon::{self, Daemon};

/// Kinds of lock in a database.
pub fn is_sql(kind: &str) -> bool {
    kind.starts_with("postgres+") || kind.starts_with("mysql+")
}

/// Those that are locks of a connection.
pub fn is_session(kind: &str) -> bool {
    ["+advisory", "+getlock", "+forupdate"]
        .iter()
        .any(|end| kind.ends_with(end))
}

/// A database of one kind of lock.
pub struct Database {
    kind: &'static str,
    server: Arc<Daemon>,
}

/// One server of each for all kinds: each kind has its own table. The last of them stops it.
fn server(family: &str) -> std::result::Result<Arc<Daemon>, String> {
    static POSTGRES: Mutex<Weak<Daemon>> = Mutex::new(Weak::new());
    static MARIADB: Mutex<Weak<Daemon>> = Mutex::new(Weak::new());
    let is_postgres = family == "postgres";
    let mut started = if is_postgres { &POSTGRES } else { &MARIADB }
        .lock()
        .unwrap();
    if let Some(server) = started.upgrade() {
        return Ok(server);
    }
    let server = Arc::new(if is_postgres {
        daemon::postgres(&["max_connections=500"])?
    } else {
        daemon::mariadb(&[])?
    });
    *started = Arc::downgrade(&server);
    Ok(server)
}

/// The URL of a server's database.
pub fn url(kind: &str, server: &Daemon) -> String {
    match kind.split_once('+').map_or(kind, |(family, _)| family) {
        "postgres" => format!("{kind}://postgres@{}/postgres", server.address()),
        _ => format!("{kind}://root@{}/test", server.address()),
    }
}

impl Database {
    pub fn start(kind: &'static str) -> std::result::Result<Self, String> {
        let (family, _) = kind.split_once('+').unwrap_or((kind, ""));
        let server = server(family)?;
        let database = Self { kind, server };
        let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
        runtime
            .block_on(create(kind, &database.url()))
            .map_err(|error| error.to_string())?;
        Ok(database)
    }

    pub fn url(&self) -> String {
        url(self.kind, &self.server)
    }

    /// Frees the lock as an operator would.
    pub async fn remove(&self, name: &str) {
        let sql = match self.kind {
            "postgres+row" => format!(
                "UPDATE lockkeeper_locks SET holder = '', expires = now() WHERE name = '{name}'"
            ),
            "mysql+row" => format!(
                "UPDATE lockkeeper_locks SET holder = '', expires = UTC_TIMESTAMP() \
                 WHERE name = '{name}'"
            ),
            "postgres+shedlock" => format!(
                "UPDATE shedlock SET lock_until = timezone('utc', now()) WHERE name = '{name}'"
            ),
            "mysql+shedlock" => {
                format!("UPDATE shedlock SET lock_until = UTC_TIMESTAMP(3) WHERE name = '{name}'")
            }
            "postgres+spring" | "mysql+spring" => {
                let key = SpringLock::key(name);
                format!("DELETE FROM INT_LOCK WHERE LOCK_KEY = '{key}'")
            }
            "postgres+advisory" => {
                let key = AdvisoryLock::key(name);
                format!(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks \
                     WHERE locktype = 'advisory' AND objsubid = 1 \
                     AND ((classid::bigint << 32) | objid::bigint) = {key}"
                )
            }
            "postgres+forupdate" => format!(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity \
                 JOIN lockkeeper_rows r ON backend_xid = r.xmax WHERE r.name = '{name}'"
            ),
            "mysql+getlock" => return self.kill_lock(name).await,
            "mysql+forupdate" => return self.kill_row(name).await,
            other => panic!("nothing is known of {other}"),
        };
        assert_eq!(self.execute(&sql).await, 1, "{name} was there");
    }

    async fn kill_lock(&self, name: &str) {
        let mut conn = self.conn().await;
        let holder: Option<u64> = conn
            .query_first(format!("SELECT IS_USED_LOCK('{name}')"))
            .await
            .unwrap()
            .unwrap();
        let holder = holder.expect("it was there");
        conn.query_drop(format!("KILL {holder}")).await.unwrap();
        let free = format!("SELECT IS_FREE_LOCK('{name}')");
        while conn.query_first::<u64, _>(&free).await.unwrap() != Some(1) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Who has a row is only told to who waits for it.
    async fn kill_row(&self, name: &str) {
        // What the server tells is as old as the last question, unless none came for 0.1 s.
        static ONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let _one = ONE.lock().await;
        let (mut waiter, mut conn) = (self.conn().await, self.conn().await);
        let waiting = waiter.id();
        let sql = format!("SELECT 1 FROM lockkeeper_rows WHERE name = '{name}' FOR UPDATE");
        let freed = tokio::spawn(async move { waiter.query_drop(sql).await });
        let asked = format!(
            "SELECT b.trx_mysql_thread_id FROM information_schema.innodb_lock_waits w \
             JOIN information_schema.innodb_trx b ON b.trx_id = w.blocking_trx_id \
             JOIN information_schema.innodb_trx r ON r.trx_id = w.requesting_trx_id \
             WHERE r.trx_mysql_thread_id = {waiting}"
        );
        let holder: u64 = loop {
            assert!(!freed.is_finished(), "{name} was there");
            if let Some(holder) = conn.query_first(&asked).await.unwrap() {
                break holder;
            }
            tokio::time::sleep(Duration::from_millis(150)).await;
        };
        conn.query_drop(format!("KILL {holder}")).await.unwrap();
        freed.await.unwrap().unwrap();
    }

    pub async fn conn(&self) -> mysql_async::Conn {
        mysql_async::Conn::from_url(url("mysql", &self.server))
            .await
            .unwrap()
    }

    /// The address of the server.
    pub fn server(&self) -> &Daemon {
        &self.server
    }

    /// Runs a statement as an operator. It returns how many rows it has written, or read.
    pub async fn execute(&self, sql: &str) -> u64 {
        execute(self.kind, &self.server, sql).await
    }
}

pub async fn execute(kind: &str, server: &Daemon, sql: &str) -> u64 {
    if kind.starts_with("postgres") {
        let url = url("postgres", server);
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
            .await
            .unwrap();
        tokio::spawn(connection);
        return client.execute(sql, &[]).await.unwrap();
    }
    let mut conn = mysql_async::Conn::from_url(url("mysql", server))
        .await
        .unwrap();
    let rows: Vec<mysql_async::Row> = conn.query(sql).await.unwrap();
    let written = conn.affected_rows().max(rows.len() as u64);
    conn.disconnect().await.unwrap();
    written
}

/// Makes the table of a kind, as soon as the server takes connections. It is asked for once: the
/// table may be there after an answer that did not come.
pub async fn create(kind: &str, url: &str) -> Result<()> {
    let begun = Instant::now();
    while let Err(error) = connect(kind, url).await {
        // Said by a server that starts.
        if begun.elapsed() > Duration::from_secs(20) || !is_passing(&error) {
            return Err(error);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    match kind.split_once('+') {
        Some((_, "row")) => UniqueRow::create_table(url).await,
        Some((_, "forupdate")) => ForUpdate::create_table(url).await,
        Some((_, "shedlock")) => ShedLock::create_table(url).await,
        Some((_, "spring")) => SpringLock::create_table(url).await,
        Some((_, "advisory" | "getlock")) => Ok(()),
        _ => panic!("no table is known for {kind}"),
    }
}

/// Connects for the locks that need no table.
async fn connect(kind: &str, url: &str) -> Result<()> {
    let url = url.split_once('?').map_or(url, |(plain, _table)| plain);
    if kind.starts_with("postgres") {
        let url = url.replacen(kind, "postgres+advisory", 1);
        AdvisoryLock::connect(&url).await.map(drop)
    } else {
        let url = url.replacen(kind, "mysql+getlock", 1);
        GetLock::connect(&url).await.map(drop)
    }
}

fn is_passing(error: &lockkeeper::Error) -> bool {
    matches!(
        error,
        lockkeeper::Error::Store {
            problem: lockkeeper::compat::StoreProblem::Unreachable(_)
                | lockkeeper::compat::StoreProblem::NoAnswer,
            ..
        }
    )
}
