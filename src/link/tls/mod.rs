//! TLS: the certificates that a program gives, and the handshake of connections to Redis and
//! PostgreSQL. The client crate of ZooKeeper has a handshake of its own.

#[cfg(feature = "tls")]
mod certificates;
#[cfg(any(feature = "postgres", feature = "redis"))]
#[cfg_attr(not(feature = "tls"), path = "absent.rs")]
mod client;

#[cfg(feature = "tls")]
pub use certificates::Tls;
#[cfg(all(feature = "postgres", feature = "tls"))]
pub(crate) use client::TlsStream;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) use client::{TlsClient, refusal};
