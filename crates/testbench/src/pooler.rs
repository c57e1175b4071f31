//! PgBouncer before a PostgreSQL server of [`postgres`](crate::daemon::postgres).

use std::net::SocketAddr;
use std::path::Path;

use crate::daemon::{Daemon, as_user, own};

/// Starts PgBouncer in transaction mode: a transaction is on any of a few connections, and what a
/// client has set or prepared on one is not on the next. `more` is added to its configuration.
pub fn pgbouncer(server: SocketAddr, more: &str) -> Result<Daemon, String> {
    let more = more.to_owned();
    let recipe = move |folder: &Path, port: u16| {
        let config = format!(
            "[databases]\npostgres = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {folder}/users\n\
             pool_mode = transaction\ndefault_pool_size = 20\nmax_client_conn = 1000\n{more}\n",
            server.port(),
            folder = folder.display(),
        );
        let file = folder.join("pgbouncer.ini");
        for (path, text) in [
            (&file, config.as_str()),
            (&folder.join("users"), "\"postgres\" \"\"\n"),
        ] {
            std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        own("postgres", folder)?;
        let mut command = as_user("postgres", Path::new("pgbouncer"));
        command.arg(file);
        Ok(command)
    };
    Daemon::start("pgbouncer", Box::new(recipe))
}
