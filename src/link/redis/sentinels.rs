//! Asks sentinels which server is the primary now.
//!
//! Sentinels learn of a fail-over one after the other, and one that is cut off does not. So all are
//! asked at the same time, most are waited for, and what was decided last counts: the primary of
//! before may still think that it is one. Nothing is remembered from one connect to the next,
//! because sentinels that are set up anew count from zero.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{AsyncConnectionConfig, RedisConnectionInfo, from_redis_value};
use tokio::time::{Instant, sleep_until, timeout};

use super::connect::{OpenConnection, connect};
use super::url::Address;
use crate::error::{AddressFailure, UnreachableReason};
use crate::link::stored::Ungreeted;
use crate::link::tls::TlsClient;

/// The sentinels of one primary, and how to reach them.
#[derive(Clone)]
pub(super) struct Sentinels {
    pub(super) addresses: Arc<[Address]>,
    pub(super) primary: Arc<str>,
    pub(super) login: RedisConnectionInfo,
    pub(super) tls: Option<TlsClient>,
}

/// The primary that a sentinel names, and when that was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) primary: Address,
    /// It rises with each fail-over.
    pub(super) epoch: u64,
    pub(super) by: Address,
}

impl Sentinels {
    /// Asks all, and waits for most of them, or for a while. Ends within the limit, with the reason
    /// of each sentinel that named none.
    pub(super) async fn ask(&self, limit: Duration) -> Result<Named, Ungreeted> {
        let asked = self.addresses.iter().map(async |address| {
            let named = timeout(limit, self.ask_one(address, limit)).await;
            let silent = Err(Ungreeted::Unreachable(UnreachableReason::Silent));
            named.unwrap_or(silent).map_err(|ungreeted| {
                AddressFailure::new(format!("sentinel {address}"), ungreeted.reason())
            })
        });
        let mut asked: FuturesUnordered<_> = asked.collect();
        let (most, mut failures) = (self.addresses.len() / 2, Vec::new());
        let (mut newest, mut count) = (None::<Named>, 0);
        let late = Instant::now() + limit * 3 / 4;
        while count <= most {
            tokio::select! {
                answer = asked.next() => match answer {
                    Some(Ok(named)) => {
                        count += 1;
                        let is_newer = newest.as_ref().is_none_or(|last| last.epoch < named.epoch);
                        newest = if is_newer { Some(named) } else { newest };
                    }
                    Some(Err(failure)) => failures.push(failure),
                    None => break,
                },
                () = sleep_until(late), if newest.is_some() => break,
            }
        }
        newest.ok_or(Ungreeted::Each(failures))
    }

    async fn ask_one(&self, address: &Address, limit: Duration) -> Result<Named, Ungreeted> {
        let mut sentinel = self
            .connect(address, AsyncConnectionConfig::new(), limit)
            .await?;
        self.named(address, &mut sentinel).await
    }

    pub(super) async fn connect(
        &self,
        address: &Address,
        config: AsyncConnectionConfig,
        limit: Duration,
    ) -> Result<OpenConnection, Ungreeted> {
        let config = config
            .set_connection_timeout(None)
            .set_response_timeout(None);
        connect(address, self.tls.as_ref(), &self.login, config, limit).await
    }

    /// The primary that this sentinel names. The epoch is asked first: with a fail-over between,
    /// the server is newer than its epoch, and never older.
    pub(super) async fn named(
        &self,
        by: &Address,
        sentinel: &mut OpenConnection,
    ) -> Result<Named, Ungreeted> {
        let known = sentinel.ask("SENTINEL", &["MASTER", &self.primary]).await;
        let known = known.map_err(|error| self.explained(error))?;
        let words = ["GET-MASTER-ADDR-BY-NAME", &self.primary];
        let server = sentinel.ask("SENTINEL", &words).await?;
        let broken = || Ungreeted::refusing("it does not answer as a sentinel");
        let known: HashMap<String, String> = from_redis_value(known).map_err(|_| broken())?;
        let epoch = known.get("config-epoch");
        let epoch = epoch.and_then(|epoch| epoch.parse().ok());
        let (host, port): (String, u16) = from_redis_value(server).map_err(|_| broken())?;
        Ok(Named {
            primary: Address { host, port },
            epoch: epoch.ok_or_else(broken)?,
            by: by.clone(),
        })
    }

    fn explained(&self, error: Ungreeted) -> Ungreeted {
        let Ungreeted::Unreachable(UnreachableReason::Refusing(why)) = error else {
            return error;
        };
        let why = why.to_lowercase();
        if why.contains("no such master") {
            return Ungreeted::refusing(format!(
                "it watches no primary of the name {}",
                self.primary
            ));
        }
        match why.contains("unknown command") {
            true => Ungreeted::refusing("it is no sentinel"),
            false => Ungreeted::refusing(why),
        }
    }
}
