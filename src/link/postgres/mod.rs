//! The link on PostgreSQL, 13 and newer: each operation is one statement, one round trip and one
//! transaction.
//!
//! Functions in a schema of ours keep nodes, sessions and watches as ZooKeeper does, and compare
//! the server's history with each request. After a start, a crash or a promotion, data may be lost.
//! Then every session is over, and none is given before the clients of before must have stopped.
//! Invariants: no grant rests on what a standby says. Requests pass a pooler: behind one, nothing
//! is prepared by name, and what is set on a connection is true for each client of it.

mod armed;
mod connection;
mod endpoint;
mod events;
mod greeting;
mod lane;
mod listener;
mod parameter;
mod problem;
mod reply;
pub(crate) mod served;
mod statement;
mod target;
#[cfg(feature = "tls")]
mod transport;
mod weaknesses;

pub(crate) use target::PostgresTarget;
