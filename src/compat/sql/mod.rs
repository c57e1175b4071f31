//! Plain locks on PostgreSQL, and on MariaDB and MySQL.
//!
//! Each kind says which database and which kind it is by the scheme of its URL, as
//! `postgres+row://user:password@host:5432/database`. TLS is not built in yet: a URL that asks for
//! it is refused.
//!
//! A table is never made in silence. `create_table` of a kind makes it, and each kind documents
//! the statement.

#[cfg(feature = "postgres")]
mod advisory;
mod forupdate;
#[cfg(feature = "mysql")]
mod getlock;
mod held;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod row;
mod rows;
mod schema;
mod server;
mod session;
mod shedlock;
mod spring;
mod transaction;
mod url;
mod version;

#[cfg(feature = "postgres")]
pub use advisory::AdvisoryLock;
pub use forupdate::ForUpdate;
#[cfg(feature = "mysql")]
pub use getlock::GetLock;
pub use row::UniqueRow;
pub use shedlock::ShedLock;
pub use spring::SpringLock;
pub use version::{VersionColumn, VersionConflict, VersionedRow};
