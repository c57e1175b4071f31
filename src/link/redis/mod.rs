//! The link on Redis, 7.0 and newer: each operation is one script and one round trip.
//!
//! The script keeps nodes, sessions and watches as ZooKeeper does, and compares the server's
//! history with each request. After a start or a promotion, data may be lost. Then every session is
//! over, and none is given before the clients of before must have stopped. Invariant: no grant
//! rests on what a replica says.

mod answer;
mod connect;
mod follower;
mod greeted;
mod request;
mod sentinels;
mod target;
mod url;
mod weaknesses;

pub(crate) use target::RedisTarget;
