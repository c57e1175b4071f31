//! The world of one case: the servers that it meets, and a part of their tree that is its own.
//!
//! On the embedded server each case has a server of its own. The real servers are shared by all
//! cases of a run: what they say of themselves (`mntr`, `wchs`) counts the neighbours too. On Redis
//! each case has a database of its own, and on PostgreSQL a schema.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockkeeper::embedded::EmbeddedServer;
use tokio::time::timeout;
use uuid::Uuid;
use zookeeper_client::{Acls, Client, CreateMode, Error};

use super::ports::{self, Reserved};
use super::protocol::Protocol;
use super::proxy::Proxy;
use super::stored::Stored;
use super::stranger::{self, Database, Schema, Stranger};
use super::{eventually, words};

/// Cheap to clone; it ends with the case.
#[derive(Clone)]
pub struct World(Arc<Inner>);

struct Inner {
    servers: Vec<SocketAddr>,
    /// Of an ensemble; otherwise the only server.
    leader: SocketAddr,
    chroot: String,
    embedded: Option<(EmbeddedServer, Reserved)>,
    stored: Option<Stored>,
}

/// The databases or schemas that cases of this run have taken.
static DATABASES: AtomicUsize = AtomicUsize::new(0);

impl World {
    /// What a user would pass to `Keeper::connect`: `127.0.0.1:p1[,..]/it-<uuid>`, or the
    /// URL of a database or a schema.
    pub fn connect_string(&self) -> String {
        self.connect_string_at(&self.0.servers)
    }

    /// The same for connections to these addresses, behind which are the servers.
    pub fn connect_string_at(&self, addresses: &[SocketAddr]) -> String {
        match &self.0.stored {
            Some(stored) => stored.at(addresses[0]),
            None => format!("{}{}", hosts(addresses), self.0.chroot),
        }
    }

    /// A proxy before the first server.
    pub fn proxy(&self) -> Proxy {
        self.proxy_before(0)
    }

    pub(crate) fn proxy_before(&self, server: usize) -> Proxy {
        let server = self.0.servers[server];
        match self.protocol() {
            Some(protocol) => Proxy::before_store(server, protocol),
            None => Proxy::before(server),
        }
    }

    /// Ends a session at the server, as if its client had been silent for too long.
    pub async fn expire(&self, session: i64) {
        match (&self.0.stored, &self.0.embedded) {
            (Some(stored), _) => stored.expire(session).await.unwrap(),
            (None, Some((server, _))) => {
                assert!(server.faults().expire_session(session), "it lives")
            }
            (None, None) => {
                panic!("a case that expires sessions says that it is not for real ones")
            }
        }
    }

    /// The case's database, for `redis` cases.
    pub fn redis(&self) -> &Database {
        match &self.0.stored {
            Some(Stored::Redis(database)) => database,
            _ => panic!("a case that asks Redis is registered under `redis`"),
        }
    }

    /// The case's schema, for `postgres` cases.
    pub fn postgres(&self) -> &Schema {
        match &self.0.stored {
            Some(Stored::Postgres(schema)) => schema,
            _ => panic!("a case that asks PostgreSQL is registered under `postgres`"),
        }
    }

    pub fn servers(&self) -> &[SocketAddr] {
        &self.0.servers
    }

    /// The case's part of the tree: `/it-<uuid>`.
    pub fn chroot(&self) -> &str {
        &self.0.chroot
    }

    /// How a store beside ZooKeeper is spoken to.
    pub fn protocol(&self) -> Option<Protocol> {
        self.0.stored.as_ref().map(Stored::protocol)
    }

    pub fn is_embedded(&self) -> bool {
        self.0.embedded.is_some()
    }

    /// The embedded server, for `embedded:` cases.
    pub fn embedded(&self) -> &EmbeddedServer {
        self.0
            .embedded
            .as_ref()
            .map(|(server, _)| server)
            .expect("a case that pulls a hook is registered under `embedded:`")
    }

    /// A stranger's plain client in the same part of the tree, with a session of ten seconds. It is
    /// at the leader, so that it sees what others were told is done, which a follower may learn
    /// later.
    pub async fn raw(&self) -> Stranger {
        match &self.0.stored {
            Some(stored) => stored.stranger().await.expect("a session on the store"),
            None => Stranger::ZooKeeper(self.zookeeper().await),
        }
    }

    /// The same where it speaks ZooKeeper's protocol.
    pub async fn zookeeper(&self) -> Client {
        assert!(
            self.0.stored.is_none(),
            "a case that needs ZooKeeper says so"
        );
        connect(&format!("{}{}", self.0.leader, self.0.chroot))
            .await
            .expect("a plain client connects")
    }

    /// What the first server answers to a four-letter word.
    pub async fn word(&self, word: &str) -> String {
        words::word(self.0.servers[0], word).await
    }

    /// What all servers answer to a four-letter word, one after the other.
    pub async fn words_of_all(&self, word: &str) -> String {
        let mut all = String::new();
        for server in &self.0.servers {
            all += &words::word(*server, word).await;
        }
        all
    }

    /// How many paths of this world each session watches, and their bytes, by the servers' own
    /// word.
    pub async fn watched_by_session(&self) -> BTreeMap<String, (usize, usize)> {
        if let Some(stored) = &self.0.stored {
            return stored.watched().await.unwrap();
        }
        let mut watched: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        let mut session = String::new();
        for line in self.words_of_all("wchc").await.lines() {
            match line.strip_prefix('\t') {
                Some(path) if path.starts_with(self.chroot()) => {
                    let (paths, bytes) = watched.entry(session.clone()).or_default();
                    *paths += 1;
                    *bytes += path.len();
                }
                Some(_) => {}
                None => session = line.to_owned(),
            }
        }
        watched
    }

    /// What the case's part of a store beside ZooKeeper takes there.
    pub async fn stored_bytes(&self) -> Option<i64> {
        let stored = self.0.stored.as_ref()?;
        Some(stored.bytes().await.unwrap())
    }

    /// Whether the long form of the cases is asked for (`LOCKKEEPER_SOAK=1`); their limits are ten
    /// times as long then.
    pub fn soak() -> bool {
        std::env::var("LOCKKEEPER_SOAK").is_ok_and(|word| word == "1")
    }

    /// How often a case repeats: `short` times, or `soak` times in the long form.
    pub fn times(short: usize, soak: usize) -> usize {
        if Self::soak() { soak } else { short }
    }

    pub(crate) async fn on_embedded() -> Result<Self, String> {
        // A session that lives for an hour sends no beat while a case counts requests.
        let timeouts = (Duration::from_millis(100), Duration::from_secs(3600));
        // A case may stop it for a while: nobody else is to get its port then.
        let port = ports::reserve(1).map_err(|error| format!("no port: {error}"))?;
        let port = port.into_iter().next().expect("one was asked for");
        let address = (Ipv4Addr::LOCALHOST, port.number);
        let server = EmbeddedServer::builder()
            .session_timeouts(timeouts.0, timeouts.1)
            .listen(address)
            .start()
            .await
            .map_err(|error| format!("the embedded server: {error}"))?;
        Self::open(vec![address.into()], Some((server, port))).await
    }

    pub(crate) async fn on_real(servers: &[SocketAddr]) -> Result<Self, String> {
        Self::open(servers.to_vec(), None).await
    }

    /// In a database of its own, whose root is new.
    pub(crate) async fn on_redis(server: SocketAddr) -> Result<Self, String> {
        let number = DATABASES.fetch_add(1, Ordering::Relaxed);
        Self::on(server, Stored::Redis(Database { server, number })).await
    }

    /// In a schema of its own, whose root is new.
    pub(crate) async fn on_postgres(server: SocketAddr) -> Result<Self, String> {
        let number = DATABASES.fetch_add(1, Ordering::Relaxed);
        Self::on(server, Stored::Postgres(Schema { server, number })).await
    }

    async fn on(server: SocketAddr, stored: Stored) -> Result<Self, String> {
        stored
            .make(stranger::LONGEST)
            .await
            .map_err(|error| format!("no session on the store: {error}"))?;
        Ok(Self(Arc::new(Inner {
            servers: vec![server],
            leader: server,
            chroot: String::new(),
            embedded: None,
            stored: Some(stored),
        })))
    }

    async fn open(
        servers: Vec<SocketAddr>,
        embedded: Option<(EmbeddedServer, Reserved)>,
    ) -> Result<Self, String> {
        let chroot = format!("/it-{}", Uuid::new_v4());
        let zxid = make(&servers, &chroot)
            .await
            .map_err(|error| format!("cannot make {chroot}: {error}"))?;
        let mut leader = servers[0];
        if embedded.is_none() {
            for server in &servers {
                if words::mode(&words::word(*server, "srvr").await) == Some("leader") {
                    leader = *server;
                }
            }
            // A follower may be behind, and a case must not find its own root missing.
            let all_know = || async {
                for server in &servers {
                    if words::zxid(&words::word(*server, "srvr").await)
                        .is_none_or(|seen| seen < zxid)
                    {
                        return false;
                    }
                }
                true
            };
            eventually(
                "every member knows the root of the case",
                Duration::from_secs(10),
                all_know,
            )
            .await;
        }
        Ok(Self(Arc::new(Inner {
            servers,
            leader,
            chroot,
            embedded,
            stored: None,
        })))
    }

    /// Ends the world. After a failed case its nodes stay, for inspection on the server.
    pub(crate) async fn close(self, passed: bool) {
        // A database that was emptied would end the sessions of tasks that still run.
        if self.0.stored.is_some() {
            return;
        }
        if let (true, false) = (passed, self.is_embedded()) {
            // Only tidiness: the servers' data is temporary, and nodes with ACLs cannot be removed.
            let tidied = timeout(
                Duration::from_secs(5),
                remove(&self.0.servers, &self.0.chroot),
            )
            .await;
            tidied
                .map(|removed| removed.unwrap_or_default())
                .unwrap_or_default();
        }
        if let Some(Inner {
            embedded: Some((server, _port)),
            ..
        }) = Arc::into_inner(self.0)
        {
            server.stop().await;
        }
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.connect_string())
    }
}

fn hosts(servers: &[SocketAddr]) -> String {
    servers
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(",")
}

async fn connect(to: &str) -> Result<Client, Error> {
    Client::connector()
        .with_session_timeout(Duration::from_secs(10))
        .connect(to)
        .await
}

/// Creates the root of the case and returns its zxid. The session that did it is gone afterwards.
async fn make(servers: &[SocketAddr], chroot: &str) -> Result<i64, Error> {
    let client = connect(&hosts(servers)).await?;
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let (stat, _) = client.create(chroot, b"", &options).await?;
    let mut state = client.state_watcher();
    drop(client);
    while !state.changed().await.is_terminated() {}
    Ok(stat.czxid)
}

/// Removes the root of the case with all below it, even if another client still adds nodes.
async fn remove(servers: &[SocketAddr], chroot: &str) -> Result<(), Error> {
    let client = connect(&hosts(servers)).await?;
    client.sync("/").await?;
    let mut todo = vec![chroot.to_owned()];
    while let Some(path) = todo.last().cloned() {
        match client.delete(&path, None).await {
            Ok(()) | Err(Error::NoNode) => drop(todo.pop()),
            Err(Error::NotEmpty) => {
                let children = client.list_children(&path).await.unwrap_or_default();
                todo.extend(children.into_iter().map(|child| format!("{path}/{child}")));
            }
            Err(other) => return Err(other),
        }
    }
    Ok(())
}
