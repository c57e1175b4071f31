//! A ZooKeeper-compatible server in this process.
