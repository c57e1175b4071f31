//! A sentinel of Redis, which watches a primary with the name `main`.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::daemon::{Daemon, in_memory};

/// Starts a sentinel that thinks a server down after a second. `quorum` of them must agree, and
/// `more` is added to its configuration.
pub fn sentinel(primary: SocketAddr, quorum: usize, more: &str) -> Result<Daemon, String> {
    let more = more.to_owned();
    let recipe = move |folder: &Path, port: u16| {
        let file = folder.join("sentinel.conf");
        // It writes there what it learns.
        if !file.exists() {
            let (ip, folder) = (primary.ip(), folder.display());
            let config = format!(
                "bind 127.0.0.1\nport {port}\ndir {folder}\n\
                 sentinel monitor main {ip} {} {quorum}\n\
                 sentinel down-after-milliseconds main 1000\n\
                 sentinel failover-timeout main 3000\n{more}\n",
                primary.port(),
            );
            std::fs::write(&file, config).map_err(|error| error.to_string())?;
        }
        let mut command = Command::new("redis-server");
        command.arg(file).arg("--sentinel");
        Ok(command)
    };
    // It syncs its configuration to the disk before it answers, and a busy disk takes seconds.
    Daemon::start_in(&in_memory(), "redis-server", Box::new(recipe))
}
