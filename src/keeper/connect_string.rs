//! The connect string: servers, and a chroot. It is only text here: nothing is looked up. (pure)
//!
//! Invariant: no refusal shows the user and password of a URL that was meant for another store.

use std::net::IpAddr;

use crate::compat::KINDS;
use crate::error::{Error, Result};
use crate::name::LockName;

/// The scheme that may stand before the servers.
const ZOOKEEPER: &str = "zookeeper";
/// The schemes of a keeper on Redis: a server, or sentinels that name it, each also with TLS.
pub(super) const REDIS: [&str; 6] = [
    "redis",
    "rediss",
    "redis-sentinel",
    "rediss-sentinel",
    // As other clients write it.
    "redis+sentinel",
    "rediss+sentinel",
];
const POSTGRES: [&str; 2] = ["postgres", "postgresql"];

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
        if let Some((scheme, _)) = scheme(given).filter(|(scheme, _)| *scheme != ZOOKEEPER) {
            return Err(Error::invalid("scheme", scheme, other_store(scheme)));
        }
        let refuse = |why: String| Error::invalid_url(given, why);
        if given.contains('@') {
            return Err(refuse(
                "it has no user and password: give a credential".into(),
            ));
        }
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

/// The servers and the chroot of a connect string, without its scheme.
pub(super) fn split(connect_string: &str) -> (&str, &str) {
    let rest = match scheme(connect_string) {
        Some((ZOOKEEPER, rest)) => rest,
        _ => connect_string,
    };
    let chroot = rest.find('/');
    chroot.map_or((rest, ""), |at| rest.split_at(at))
}

/// The scheme, if there is one, and what follows it. A chroot may have any characters.
fn scheme(connect_string: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = connect_string.split_once("://")?;
    let is_of_scheme = |c: char| c.is_ascii_alphanumeric() || "+-._".contains(c);
    scheme.chars().all(is_of_scheme).then_some((scheme, rest))
}

/// Why a keeper cannot be on the store of this scheme.
fn other_store(scheme: &str) -> String {
    if KINDS.iter().any(|(kind, _)| *kind == scheme) {
        return "it is a plain lock, which has no keeper: see `lockkeeper::compat::connect`".into();
    }
    if REDIS.contains(&scheme) {
        return "it needs the feature `redis` of lockkeeper".into();
    }
    if POSTGRES.contains(&scheme) {
        return "it needs the feature `postgres` of lockkeeper".into();
    }
    "a keeper is on ZooKeeper, Redis or PostgreSQL: write zk1:2181 or zookeeper://zk1:2181, \
     redis://r1:6379, or postgres://user@p1/database. Plain locks of other stores are in `lockkeeper::compat`"
        .into()
}

/// Whether the URL of Redis or PostgreSQL has a password that would cross the network in clear.
pub(super) fn has_password_in_clear(url: &str, has_tls: bool) -> bool {
    let Some((scheme, rest)) = scheme(url) else {
        return false;
    };
    let is_postgres = POSTGRES.contains(&scheme);
    if !is_postgres && !REDIS.contains(&scheme) {
        return false;
    }
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = place.split('/').next().unwrap_or_default();
    let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    let options = || query.split('&').filter_map(|option| option.split_once('='));
    let has_password = user.contains(':') || options().any(|(key, _)| key.ends_with("password"));
    let is_secure = match is_postgres {
        true => {
            has_tls
                || options().any(|option| matches!(option, ("sslmode", "require" | "verify-full")))
        }
        false => scheme.starts_with("rediss"),
    };
    let more = options().filter(|(key, _)| is_postgres && matches!(*key, "host" | "hostaddr"));
    let mut hosts = hosts
        .split(',')
        .chain(more.flat_map(|(_, hosts)| hosts.split(',')));
    has_password && !is_secure && !hosts.all(is_of_this_machine)
}

/// A socket, a loopback address, or a host that an option names.
fn is_of_this_machine(host: &str) -> bool {
    let is_socket = host.starts_with('/') || host.to_ascii_lowercase().starts_with("%2f");
    host.is_empty() || is_socket || is_loopback(host)
}

/// Whether the address is of this machine. No name is looked up.
pub(super) fn is_loopback(server: &str) -> bool {
    let (host, _) = host_and_port(server);
    let address = host.parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

/// There is no port if what stands behind a host in brackets is none.
fn host_and_port(server: &str) -> (&str, Option<&str>) {
    const DEFAULT_PORT: &str = "2181";

    let bracketed = server.strip_prefix('[');
    match bracketed.and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, Some(DEFAULT_PORT)),
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => match server.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (server, Some(DEFAULT_PORT)),
        },
    }
}

fn check_server(server: &str) -> Result<(), String> {
    let (host, port) = host_and_port(server);
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

    #[test]
    fn the_scheme_may_be_said_and_changes_nothing() {
        for given in ["zk1:1,zk2/app", "zookeeper://zk1:1,zk2/app"] {
            let parsed = ConnectString::parse(given).unwrap();
            assert_eq!(
                (&*parsed.servers, &*parsed.chroot),
                ("zk1:1,zk2", "/app"),
                "{given}"
            );
            assert_eq!(split(given), ("zk1:1,zk2", "/app"));
        }
        for given in [
            "zookeeper://",
            "zookeeper:///app",
            "zookeeper://zookeeper://a",
        ] {
            let error = ConnectString::parse(given).unwrap_err();
            assert!(error.is_invalid(), "{given}: {error}");
        }
    }

    #[test]
    fn another_store_is_refused_by_its_scheme_and_without_its_password() {
        for (given, words) in [
            ("redis+setnx://me:secret@a:1", "is a plain lock"),
            ("postgres+row://me:secret@a/b", "lockkeeper::compat"),
            ("redis://me:secret@a:1", "needs the feature"),
            (
                "rediss-sentinel://me:secret@a/x",
                "needs the feature `redis`",
            ),
            ("postgres://me:secret@a/b", "needs the feature `postgres`"),
            ("http://me:secret@a", "lockkeeper::compat"),
            ("ZOOKEEPER://a:1", "a keeper is on ZooKeeper"),
            ("me:secret@a:1", "no user and password"),
            ("zookeeper://me:secret@a:x", "no user and password"),
            ("://me:secret@a", "a keeper is on ZooKeeper"),
            ("zk1:1/a://me:secret@b", "no user and password"),
        ] {
            let error = ConnectString::parse(given).unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(error.is_invalid() && text.contains(words), "{text}");
            assert!(!text.contains("secret"), "{text}");
        }
    }

    #[test]
    fn a_password_is_in_clear_without_tls_beyond_this_machine() {
        for url in [
            "redis://:secret@r1",
            "redis-sentinel://me:secret@127.0.0.1,s2/main",
            "redis-sentinel://s1/main?sentinel_password=secret",
            "postgres://me:secret@p1/base",
            "postgres://me:secret@127.0.0.1/base?host=p1",
            "postgresql://me@p1/base?sslmode=disable&password=secret",
        ] {
            assert!(has_password_in_clear(url, false), "{url}");
        }
        for url in [
            "redis://r1",
            "redis://me@r1",
            "redis://:secret@[::1]:1",
            "rediss://:secret@r1",
            "rediss-sentinel://me:secret@s1/main?sentinel_password=secret",
            "postgres://me:secret@localhost/base",
            "postgres://me:secret@%2Fvar%2Frun/base",
            "postgres://me:secret@p1/base?sslmode=verify-full",
            "zookeeper://p1:secret",
        ] {
            assert!(!has_password_in_clear(url, false), "{url}");
        }
        assert!(!has_password_in_clear("postgres://me:secret@p1/base", true));
        assert!(has_password_in_clear("redis://me:secret@p1", true));
    }
}
