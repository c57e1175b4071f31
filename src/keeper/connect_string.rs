//! The connect string: servers, and a chroot. It is only text here: nothing is looked up. (pure)

use std::net::IpAddr;

use crate::error::{Error, Result};
use crate::name::LockName;

/// A checked connect string.
#[derive(Debug)]
pub(super) struct ConnectString {
    pub(super) servers: String,
    /// Empty, or a path.
    pub(super) chroot: String,
}

impl ConnectString {
    pub(super) fn parse(given: &str) -> Result<Self> {
        let given = given.trim();
        let refuse = |why: String| Error::invalid("connect string", given, why);
        let (servers, chroot) = split(given);
        let chroot = if chroot == "/" { "" } else { chroot };
        for server in servers.split(',') {
            check_server(server).map_err(refuse)?;
        }
        if chroot.contains(',') {
            return Err(refuse(
                "the chroot stands once, behind the last server, and has no ','".into(),
            ));
        }
        if !chroot.is_empty() {
            check_path(chroot).map_err(refuse)?;
        }
        Ok(Self {
            servers: servers.into(),
            chroot: chroot.into(),
        })
    }
}

/// The servers and the chroot of a connect string.
pub(super) fn split(connect_string: &str) -> (&str, &str) {
    let chroot = connect_string.find('/');
    chroot.map_or((connect_string, ""), |at| connect_string.split_at(at))
}

/// Whether the address is of this machine. No name is looked up.
pub(super) fn is_loopback(server: &str) -> bool {
    let host = match server
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
    {
        Some((host, _)) => host,
        None => server.rsplit_once(':').map_or(server, |(host, _)| host),
    };
    let address = host.parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

fn check_server(server: &str) -> Result<(), String> {
    let (host, port) = match server
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
    {
        Some((host, port)) => (
            host,
            port.strip_prefix(':')
                .or_else(|| port.is_empty().then_some("2181")),
        ),
        None => server
            .rsplit_once(':')
            .map_or((server, Some("2181")), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return Err("a host name is missing (it looks like zk1:2181,zk2:2181/chroot)".into());
    }
    let is_never_in_a_name = |c: char| c.is_whitespace() || c.is_control() || "[]".contains(c);
    if host.contains(is_never_in_a_name) {
        return Err(format!("{host:?} is not a host name"));
    }
    match port.and_then(|port| port.parse::<u16>().ok()) {
        Some(1..) => Ok(()),
        _ => Err(format!(
            "{server:?} has no port number from 1 to 65535 after its ':'"
        )),
    }
}

/// A root or chroot: `/` and then what is legal for a lock name.
pub(super) fn check_path(path: &str) -> Result<(), String> {
    let Some(relative) = path.strip_prefix('/') else {
        return Err("a path must start with '/'".into());
    };
    match LockName::new(relative) {
        Ok(_) => Ok(()),
        Err(Error::InvalidName { why, .. }) => Err(why.into()),
        Err(other) => Err(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_every_form_are_accepted() {
        for server in ["zk1", "zk1:2181", "10.0.0.1:1", "[::1]:2181", "[::1]"] {
            assert_eq!(check_server(server), Ok(()), "{server}");
        }
    }
}
