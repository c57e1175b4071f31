//! Plain locks on PostgreSQL, and on MariaDB and MySQL.
//!
//! Each kind says which database and which kind it is by the scheme of its URL, as
//! `postgres+row://user:password@host:5432/database`. TLS is not built in yet: a URL that asks for
//! it is refused.
//!
//! A table is never made in silence. `create_table` of a kind makes it, and each kind documents
//! the statement.

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod row;
mod schema;
mod server;
mod session;
mod url;

pub use row::UniqueRow;
