//! The directory that workloads run in: one of their own, made before and removed after.
//!
//! Invariant: it removes nothing that it has not made, but what is in its own directory. It names
//! the client crate because nothing that a lock does removes directories, or counts a queue without
//! listing it.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::Acl;
use tokio::time::timeout;
use zookeeper_client as zk;

use super::baseline::RawLane;
use super::sample::Result;
use super::zookeeper_lane::Lane;
use crate::access::Access;

/// A directory and a raw session.
///
/// What is in it are containers, which the servers remove when they are empty, and nodes of
/// sessions, which keep them from being so. So nothing of it stays even without a clean-up: after
/// a `kill -9`, say.
pub struct BenchDir {
    client: zk::Client,
    reach: Reach,
    path: String,
    /// Who may do what with all that is made.
    acl: Arc<[zk::Acl]>,
    /// What was made above it, from the top.
    above: Vec<String>,
}

/// Which servers, and how.
#[derive(Clone)]
pub struct Reach {
    pub servers: String,
    pub session_timeout: Duration,
    pub connect_timeout: Duration,
    pub access: Access,
}

/// A store, with a part of it for one workload.
pub trait RawStore: Sized {
    type Lane: RawLane;
    /// What becomes of it if it cannot be removed.
    const LEFT: &'static str = "the servers remove it within minutes";

    /// Makes the part, which must not be there yet.
    fn open(reach: &Reach, path: &str) -> impl Future<Output = Result<Self>>;
    /// A lock in it.
    fn lane(&self, name: &str) -> impl Future<Output = Result<Self::Lane>>;
    /// How many tickets of Lockkeeper's are in a lock in it.
    fn tickets(&self, name: &str) -> impl Future<Output = Result<usize>>;
    /// Removes it with all that is in it. Who uses it must have ended.
    fn clear(self) -> impl Future<Output = Result<()>>;
}

impl RawStore for BenchDir {
    type Lane = Lane;

    /// Makes the directory and what is missing above it.
    async fn open(reach: &Reach, path: &str) -> Result<Self> {
        let mut bench_dir = Self {
            client: connect(reach).await?,
            reach: reach.clone(),
            path: path.to_owned(),
            acl: acl(&reach.access.effective_acl()),
            above: Vec::new(),
        };
        match bench_dir.make().await {
            Ok(()) => Ok(bench_dir),
            Err(error) => {
                // The first failure says more than what follows from it.
                bench_dir.remove_above().await.unwrap_or_default();
                Err(error.into())
            }
        }
    }

    async fn lane(&self, name: &str) -> Result<Lane> {
        let directory = format!("{}/{name}", self.path);
        if self.count(&directory).await?.is_none() {
            self.container(&directory).await?;
        }
        Ok(Lane {
            client: self.client.clone(),
            acl: Arc::clone(&self.acl),
            directory,
        })
    }

    async fn tickets(&self, name: &str) -> Result<usize> {
        let children = self.count(&format!("{}/{name}", self.path)).await?;
        Ok(children.unwrap_or_default())
    }

    /// It also removes what was made above it, unless others are there by now. It asks with a
    /// session of its own, because ours may have ended meanwhile.
    async fn clear(mut self) -> Result<()> {
        let fresh = connect(&self.reach).await?;
        let ours = std::mem::replace(&mut self.client, fresh);
        end(ours, self.reach.session_timeout).await;
        self.remove_all().await?;
        self.remove_above().await?;
        end(self.client, self.reach.session_timeout).await;
        Ok(())
    }
}

impl BenchDir {
    async fn make(&mut self) -> Result<(), RawError> {
        let path = self.path.clone();
        let ends = path.match_indices('/').map(|(at, _)| at).skip(1);
        for above in ends.map(|end| &path[..end]) {
            // Who may only read is refused a create also where the node is there.
            if self.count(above).await?.is_none() {
                match self.create(above, zk::CreateMode::Persistent).await {
                    Ok(()) => self.above.push(above.to_owned()),
                    Err(zk::Error::NodeExists) => {}
                    Err(error) => return Err(raw("create", above)(error)),
                }
            }
        }
        self.container(&path).await
    }

    /// How many nodes are in a directory, if it is there.
    async fn count(&self, path: &str) -> Result<Option<usize>, RawError> {
        let stat = self.client.check_stat(path).await;
        let stat = stat.map_err(raw("look at", path))?;
        Ok(stat.map(|stat| usize::try_from(stat.num_children).unwrap_or_default()))
    }

    /// A directory that the servers leave alone for as long as our session lives.
    async fn container(&self, path: &str) -> Result<(), RawError> {
        let made = self.create(path, zk::CreateMode::Container).await;
        made.map_err(raw("create", path))?;
        let pin = format!("{path}/in-use");
        let made = self.create(&pin, zk::CreateMode::Ephemeral).await;
        made.map_err(raw("create", &pin))
    }

    async fn create(&self, path: &str, mode: zk::CreateMode) -> Result<(), zk::Error> {
        let options = mode.with_acls(zk::Acls::new(&self.acl));
        self.client.create(path, b"", &options).await.map(drop)
    }

    async fn remove_all(&self) -> Result<(), RawError> {
        let mut todo = vec![self.path.clone()];
        while let Some(path) = todo.last().cloned() {
            match self.client.delete(&path, None).await {
                Ok(()) | Err(zk::Error::NoNode) => drop(todo.pop()),
                Err(zk::Error::NotEmpty) => {
                    let children = self.client.list_children(&path).await;
                    let children = children.map_err(raw("list", &path))?;
                    todo.extend(children.iter().map(|child| format!("{path}/{child}")));
                }
                Err(error) => return Err(raw("remove", &path)(error)),
            }
        }
        Ok(())
    }

    async fn remove_above(&self) -> Result<(), RawError> {
        for path in self.above.iter().rev() {
            match self.client.delete(path, None).await {
                Ok(()) | Err(zk::Error::NoNode | zk::Error::NotEmpty) => {}
                Err(error) => return Err(raw("remove", path)(error)),
            }
        }
        Ok(())
    }
}

/// As the client crate has it: the text says all of it, in the words of ZooKeeper's tools.
fn acl(acl: &Acl) -> Arc<[zk::Acl]> {
    let rights = [
        ('r', zk::Permission::READ),
        ('w', zk::Permission::WRITE),
        ('c', zk::Permission::CREATE),
        ('d', zk::Permission::DELETE),
        ('a', zk::Permission::ADMIN),
    ];
    let text = acl.to_string();
    let entries = text.split(',').filter_map(|entry| {
        let (whose, letters) = entry.rsplit_once(':')?;
        let (scheme, id) = whose.split_once(':')?;
        let granted = rights
            .iter()
            .filter(|(letter, _)| letters.contains(*letter));
        let granted = granted.fold(zk::Permission::NONE, |all, (_, right)| all | *right);
        Some(zk::Acl::new(granted, zk::AuthId::new(scheme, id)))
    });
    entries.collect()
}

/// A session, if a server gives one within about the session timeout.
async fn connect(reach: &Reach) -> Result<zk::Client, RawError> {
    let failed = || raw("connect to", &reach.servers);
    let mut connector = zk::Client::connector().with_session_timeout(reach.session_timeout);
    if let Some((scheme, secret)) = &reach.access.credential {
        connector = connector.with_auth(scheme, secret.as_bytes());
    }
    let Some(ca) = &reach.access.ca else {
        let connected = Box::pin(connector.connect(&reach.servers)).await;
        return connected.map_err(failed());
    };
    let mut tls = zk::TlsOptions::new().with_pem_ca(ca).map_err(failed())?;
    if let Some((certificate, key)) = &reach.access.identity {
        let identified = tls.with_pem_identity(certificate, key);
        tls = identified.map_err(failed())?;
    }
    let connecting = connector.with_tls(tls).secure_connect(&reach.servers);
    Box::pin(connecting).await.map_err(failed())
}

/// Ends a session and waits until it has ended.
async fn end(client: zk::Client, limit: Duration) {
    let mut states = client.state_watcher();
    drop(client);
    let ended = async {
        // Of what has ended already it tells nothing more.
        while !states.peek_state().is_terminated() {
            states.changed().await;
        }
    };
    // A session that cannot be ended now ends when it times out.
    timeout(limit, ended).await.unwrap_or_default();
}

/// A raw operation failed.
#[derive(Debug)]
pub struct RawError {
    doing: &'static str,
    path: String,
    source: zk::Error,
}

impl RawError {
    /// For lack of permission.
    pub fn is_denied(&self) -> bool {
        matches!(self.source, zk::Error::NoAuth)
    }
}

impl fmt::Display for RawError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refusal = if self.is_denied() {
            "no permission to"
        } else {
            "cannot"
        };
        write!(f, "{refusal} {} {}", self.doing, self.path)
    }
}

impl Error for RawError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

/// What makes an error of the client crate one of ours.
pub fn raw(doing: &'static str, path: &str) -> impl FnOnce(zk::Error) -> RawError {
    move |source| RawError {
        doing,
        path: path.to_owned(),
        source,
    }
}
