//! The usual lock on Redis: `SET NX PX` with a random value, and a script that deletes the key only
//! if the value is still ours.
//!
//! A client that finds it taken asks again after a pause. There is no queue, no order, and no
//! notification.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, Script};
use uuid::Uuid;

use super::contender::Contender;
use super::polling::Refused;
use crate::Result;

const EXPIRY: Duration = Duration::from_secs(600);
const UNLOCK: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

#[derive(Clone)]
pub(super) struct SetNx {
    connection: MultiplexedConnection,
    unlock: Arc<Script>,
    refused: Refused,
}

/// The key and our value.
pub(super) struct Hold(String, String);

impl SetNx {
    pub(super) async fn connect(server: &str) -> Result<Self> {
        // A crowd that polls keeps the server busy; an answer may take long.
        let config =
            AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(60)));
        let info = format!("redis://{server}/").into_connection_info()?;
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let client = Client::open(info.set_tcp_settings(tcp))?;
        Ok(Self {
            connection: client
                .get_multiplexed_async_connection_with_config(&config)
                .await?,
            unlock: Arc::new(Script::new(UNLOCK)),
            refused: Refused::default(),
        })
    }
}

impl Contender for SetNx {
    type Seat = ();
    type Hold = Hold;

    async fn prepare(&self, _: &str) -> Result<()> {
        Ok(())
    }

    async fn seat(&self) -> Result<()> {
        Ok(())
    }

    async fn leave(&self, (): ()) -> Result<()> {
        Ok(())
    }

    async fn lock(&self, name: &str, (): &()) -> Result<Hold> {
        let value = Uuid::new_v4().simple().to_string();
        let connection = &self.connection;
        let mut set = redis::cmd("SET");
        set.arg(name).arg(&value);
        set.arg("NX").arg("PX").arg(EXPIRY.as_millis() as u64);
        self.refused
            .until_granted(|| {
                let (set, mut connection) = (&set, connection.clone());
                async move {
                    let done = set.query_async::<Option<String>>(&mut connection).await?;
                    Ok(done.is_some())
                }
            })
            .await?;
        Ok(Hold(name.to_owned(), value))
    }

    async fn unlock(&self, Hold(name, value): Hold) -> Result<()> {
        let mut call = self.unlock.key(name);
        call.arg(value);
        let mut connection = self.connection.clone();
        match call.invoke_async::<i64>(&mut connection).await? {
            1 => Ok(()),
            _ => Err("the lock was no longer ours".into()),
        }
    }

    async fn all_wait(&self, _: &str, waiters: usize) -> Result<bool> {
        Ok(self.refused.count() >= waiters)
    }
}
