//! A stranger: a plain client in the case's part of the tree, with a session of its own, on any
//! server.
//!
//! It speaks as ZooKeeper's client does, and answers with its types. It uses none of Lockkeeper's
//! code but the script and the functions that every client of a root runs on its store.

mod postgres;
mod redis;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error, SessionId, Stat};

pub use self::postgres::{Schema, SchemaSession};
pub use self::redis::{Database, Session};

/// The largest session timeout of a root, unless a case wants another one.
pub(crate) const LONGEST: Duration = Duration::from_secs(30);

type Result<T> = std::result::Result<T, Error>;

/// A client's answers are behind all that was committed before this call, on any server.
///
/// It commits a check. A `sync` does not do on a leader: it is answered as a read is, while a
/// follower may have shown somebody what the leader has yet to apply (`ProposalRequestProcessor`
/// and `Leader.tryToCommit` of ZooKeeper).
pub async fn catch_up(client: &Client) -> Result<()> {
    let mut writer = client.new_multi_writer();
    writer.add_check_version("/", -1)?;
    Ok(writer.commit().await.map(drop)?)
}

/// What a stranger makes. Everybody may do everything with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Make {
    Persistent,
    Ephemeral,
    EphemeralSequential,
}

impl From<Make> for CreateOptions<'static> {
    fn from(make: Make) -> Self {
        let mode = match make {
            Make::Persistent => CreateMode::Persistent,
            Make::Ephemeral => CreateMode::Ephemeral,
            Make::EphemeralSequential => CreateMode::EphemeralSequential,
        };
        mode.with_acls(Acls::anyone_all())
    }
}

/// One change of several.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    Delete(&'a str),
    Create(&'a str, Make),
}

impl Make {
    /// The word of the script and of the functions.
    fn word(self) -> &'static str {
        match self {
            Self::Persistent => "create",
            Self::Ephemeral => "ephemeral",
            Self::EphemeralSequential => "sequential",
        }
    }
}

/// The number that was appended to a name, with all its digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number(i64);

impl Number {
    pub fn into_i64(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:010}", self.0)
    }
}

/// Its session ends with its last clone.
#[derive(Clone, Debug)]
pub enum Stranger {
    ZooKeeper(Client),
    Redis(Arc<Session>),
    Postgres(Arc<SchemaSession>),
}

impl Stranger {
    /// ZooKeeper's client, for what only ZooKeeper has.
    pub fn zookeeper(&self) -> &Client {
        match self {
            Self::ZooKeeper(client) => client,
            _ => panic!("a case that needs ZooKeeper's own client says so"),
        }
    }

    pub fn session_id(&self) -> SessionId {
        match self {
            Self::ZooKeeper(client) => client.session_id(),
            Self::Redis(session) => SessionId(session.id()),
            Self::Postgres(session) => SessionId(session.id()),
        }
    }

    /// Its answers are behind all that was committed before the call.
    pub async fn catch_up(&self) -> Result<()> {
        match self {
            Self::ZooKeeper(client) => catch_up(client).await,
            Self::Redis(_) | Self::Postgres(_) => Ok(()),
        }
    }

    pub async fn create(&self, path: &str, data: &[u8], make: &Make) -> Result<(Stat, Number)> {
        match self {
            Self::ZooKeeper(client) => {
                let created = client.create(path, data, &(*make).into()).await?;
                Ok((created.0, Number(created.1.into_i64())))
            }
            Self::Redis(session) => {
                let (stat, number) = session.create(path, data, *make).await?;
                Ok((stat, Number(number)))
            }
            Self::Postgres(session) => {
                let (stat, number) = session.create(path, data, *make).await?;
                Ok((stat, Number(number)))
            }
        }
    }

    /// Makes a node with all above it.
    pub async fn mkdir(&self, path: &str, make: &Make) -> Result<()> {
        if let Self::ZooKeeper(client) = self {
            return client.mkdir(path, &(*make).into()).await;
        }
        let ends = path.match_indices('/').map(|(at, _)| at);
        for end in ends.skip(1).chain([path.len()]) {
            match self.create(&path[..end], b"", make).await {
                Ok(_) | Err(Error::NodeExists) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub async fn delete(&self, path: &str, version: Option<i32>) -> Result<()> {
        match self {
            Self::ZooKeeper(client) => client.delete(path, version).await,
            Self::Redis(session) => session.write("delete", path, b"", version).await,
            Self::Postgres(session) => session.write("delete", path, b"", version).await,
        }
    }

    /// Does all of these or none.
    pub async fn commit(&self, changes: &[Change<'_>]) -> Result<()> {
        let client = match self {
            Self::ZooKeeper(client) => client,
            Self::Redis(session) => return session.commit(changes).await,
            Self::Postgres(session) => return session.commit(changes).await,
        };
        let mut writer = client.new_multi_writer();
        for change in changes {
            match *change {
                Change::Delete(path) => writer.add_delete(path, None)?,
                Change::Create(path, make) => writer.add_create(path, b"", &make.into())?,
            }
        }
        let committed = writer.commit().await;
        committed
            .map(drop)
            .map_err(|error| Error::UnexpectedError(error.to_string()))
    }

    pub async fn set_data(&self, path: &str, data: &[u8], version: Option<i32>) -> Result<Stat> {
        match self {
            Self::ZooKeeper(client) => client.set_data(path, data, version).await,
            Self::Redis(session) => {
                session.write("set", path, data, version).await?;
                session.node(path).await.map(|(_, stat)| stat)
            }
            Self::Postgres(session) => {
                session.write("set", path, data, version).await?;
                session.node(path).await.map(|(_, stat)| stat)
            }
        }
    }

    pub async fn get_data(&self, path: &str) -> Result<(Vec<u8>, Stat)> {
        match self {
            Self::ZooKeeper(client) => client.get_data(path).await,
            Self::Redis(session) => session.node(path).await,
            Self::Postgres(session) => session.node(path).await,
        }
    }

    pub async fn check_stat(&self, path: &str) -> Result<Option<Stat>> {
        if let Self::ZooKeeper(client) = self {
            return client.check_stat(path).await;
        }
        match self.get_data(path).await {
            Ok((_, stat)) => Ok(Some(stat)),
            Err(Error::NoNode) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub async fn list_children(&self, path: &str) -> Result<Vec<String>> {
        match self {
            Self::ZooKeeper(client) => client.list_children(path).await,
            Self::Redis(session) => session.names(path).await,
            Self::Postgres(session) => session.names(path).await,
        }
    }
}
