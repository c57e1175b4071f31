//! Plain locks by the scheme of a connect string.

use super::keeper::PlainKeeper;
use super::store::PlainStore;
use crate::error::{Error, Result};

/// Each kind of plain lock: its scheme, and the feature that it needs.
pub const KINDS: &[(&str, &str)] = &[
    ("redis+setnx", "redis"),
    ("redis+fenced", "redis"),
    ("redis+redisson", "redis"),
    ("redis+redlock", "redis"),
    ("redis+tair", "redis"),
    ("memcached+add", "memcached"),
    ("postgres+row", "postgres"),
    ("postgres+forupdate", "postgres"),
    ("postgres+shedlock", "postgres"),
    ("postgres+spring", "postgres"),
    ("postgres+advisory", "postgres"),
    ("mysql+row", "mysql"),
    ("mysql+forupdate", "mysql"),
    ("mysql+shedlock", "mysql"),
    ("mysql+spring", "mysql"),
    ("mysql+getlock", "mysql"),
];

/// Connects to a store by the scheme of the URL, for a program whose user chooses the kind of lock.
///
/// # Errors
///
/// [`Error::InvalidOption`] for a scheme that is not in [`KINDS`] or whose feature is not built in;
/// otherwise as `connect` of the kind.
pub async fn connect(url: &str) -> Result<PlainKeeper<dyn PlainStore>> {
    let (scheme, _) = url.split_once("://").unwrap_or((url, ""));
    match scheme {
        #[cfg(feature = "redis")]
        "redis+setnx" => Ok(super::redis::SetNx::connect(url).await?.erased()),
        #[cfg(feature = "redis")]
        "redis+fenced" => Ok(super::redis::FencedSetNx::connect(url).await?.erased()),
        #[cfg(feature = "redis")]
        "redis+redisson" => Ok(super::redis::Redisson::connect(url).await?.erased()),
        #[cfg(feature = "redis")]
        "redis+redlock" => Ok(super::redis::Redlock::connect(url).await?.erased()),
        #[cfg(feature = "redis")]
        "redis+tair" => Ok(super::redis::Tair::connect(url).await?.erased()),
        #[cfg(feature = "memcached")]
        "memcached+add" => Ok(super::memcached::MemcachedAdd::connect(url).await?.erased()),
        #[cfg(feature = "postgres")]
        scheme if scheme.starts_with("postgres+") => in_sql(scheme, url).await,
        #[cfg(feature = "mysql")]
        scheme if scheme.starts_with("mysql+") => in_sql(scheme, url).await,
        other => Err(refused(other)),
    }
}

#[cfg(any(feature = "mysql", feature = "postgres"))]
async fn in_sql(scheme: &str, url: &str) -> Result<PlainKeeper<dyn PlainStore>> {
    use super::sql;
    match scheme {
        "postgres+row" | "mysql+row" => Ok(sql::UniqueRow::connect(url).await?.erased()),
        "postgres+forupdate" | "mysql+forupdate" => {
            Ok(sql::ForUpdate::connect(url).await?.erased())
        }
        "postgres+shedlock" | "mysql+shedlock" => Ok(sql::ShedLock::connect(url).await?.erased()),
        "postgres+spring" | "mysql+spring" => Ok(sql::SpringLock::connect(url).await?.erased()),
        #[cfg(feature = "postgres")]
        "postgres+advisory" => Ok(sql::AdvisoryLock::connect(url).await?.erased()),
        #[cfg(feature = "mysql")]
        "mysql+getlock" => Ok(sql::GetLock::connect(url).await?.erased()),
        other => Err(refused(other)),
    }
}

fn refused(scheme: &str) -> Error {
    let why = match KINDS.iter().find(|(kind, _)| *kind == scheme) {
        Some((_, feature)) => format!("it needs the feature `{feature}` of lockkeeper"),
        None if scheme.starts_with("rediss") => {
            "plain locks speak no TLS yet: let a TLS proxy beside this program do it".into()
        }
        None => {
            let kinds: Vec<&str> = KINDS.iter().map(|(kind, _)| *kind).collect();
            format!("a plain lock begins with one of {}", kinds.join(", "))
        }
    };
    Error::invalid("scheme", scheme, why)
}
