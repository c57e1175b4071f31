//! Plain locks by the scheme of a connect string.

use super::mutex::PlainKeeper;
use super::store::PlainStore;
use crate::error::{Error, Result};

/// Each kind of plain lock: its scheme, and the feature that it needs.
pub const KINDS: &[(&str, &str)] = &[
    ("redis+setnx", "redis"),
    ("redis+fenced", "redis"),
    ("postgres+row", "postgres"),
    ("mysql+row", "mysql"),
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
        #[cfg(feature = "postgres")]
        "postgres+row" => Ok(super::sql::UniqueRow::connect(url).await?.erased()),
        #[cfg(feature = "mysql")]
        "mysql+row" => Ok(super::sql::UniqueRow::connect(url).await?.erased()),
        other => Err(refused(other)),
    }
}

fn refused(scheme: &str) -> Error {
    let why = match KINDS.iter().find(|(kind, _)| *kind == scheme) {
        Some((_, feature)) => format!("it needs the feature `{feature}` of lockkeeper"),
        None => {
            let kinds: Vec<&str> = KINDS.iter().map(|(kind, _)| *kind).collect();
            format!("a plain lock begins with one of {}", kinds.join(", "))
        }
    };
    Error::InvalidOption {
        what: "scheme",
        given: scheme.to_owned(),
        why,
    }
}
