//! What a URL of Redis says: one server, or the sentinels that know it. (pure)
//!
//! Invariant: nothing that is shown of a URL is a user or a password.

use std::fmt;

use redis::{ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};

use crate::link::diagnose::with_port;

const SENTINEL_PORT: u16 = 26379;

/// Host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        match host.contains(':') {
            true => write!(f, "[{host}]:{port}"),
            false => write!(f, "{host}:{port}"),
        }
    }
}

/// Who knows the server.
pub(super) enum Names {
    Server(Address),
    Sentinels {
        addresses: Vec<Address>,
        primary: String,
        /// Of the sentinels themselves.
        login: RedisConnectionInfo,
    },
}

pub(super) struct RedisUrl {
    pub(super) names: Names,
    /// User, password and database.
    pub(super) login: RedisConnectionInfo,
    pub(super) is_secure: bool,
    /// The URL without its scheme, user, password and options.
    pub(super) shown: String,
}

impl RedisUrl {
    /// `redis://[user:password@]host[:port][/database]`, or
    /// `redis-sentinel://[user:password@]host[:port],../primary[/database]` with the options
    /// `sentinel_username` and `sentinel_password`. With `rediss` all connections have TLS.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").unwrap_or((url, ""));
        if rest.contains('#') {
            return Err("nothing stands behind a '#': certificates are always verified".into());
        }
        let is_secure = scheme.starts_with("rediss");
        match scheme {
            "redis" | "rediss" => {
                let (address, login) = server(rest)?;
                let shown = format!("{address}/{}", login.db());
                let names = Names::Server(address);
                Ok(Self::new(names, login, is_secure, shown))
            }
            _ => sentinels(rest, is_secure),
        }
    }

    fn new(names: Names, login: RedisConnectionInfo, is_secure: bool, shown: String) -> Self {
        Self {
            names,
            login,
            is_secure,
            shown,
        }
    }
}

/// As the client crate reads it. It repeats no part of the URL.
fn server(rest: &str) -> Result<(Address, RedisConnectionInfo), String> {
    let info = format!("redis://{rest}").into_connection_info();
    let info = info.map_err(|error| error.to_string())?;
    let ConnectionAddr::Tcp(host, port) = info.addr() else {
        return Err("it names no host".into());
    };
    let (host, port) = (host.clone(), *port);
    let login = info.redis_settings().clone();
    Ok((
        Address { host, port },
        login.set_protocol(ProtocolVersion::RESP3),
    ))
}

fn sentinels(rest: &str, is_secure: bool) -> Result<RedisUrl, String> {
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = place.split_once('/').unwrap_or((place, ""));
    let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (primary, database) = path.split_once('/').unwrap_or((path, ""));
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if primary.is_empty() || !primary.chars().all(is_of_name) {
        return Err(
            "behind the sentinels stands the name of the primary that they watch, as in s1:26379,s2:26379/mymaster".into(),
        );
    }
    let addresses = hosts.split(',').map(|host| match host {
        "" => Err("the host of a sentinel is missing".into()),
        host => server(&with_port(host, SENTINEL_PORT)).map(|(address, _)| address),
    });
    let addresses = addresses.collect::<Result<Vec<_>, String>>()?;
    let (_, login) = match user {
        "" => server(&format!("primary/{database}"))?,
        user => server(&format!("{user}@primary/{database}"))?,
    };
    let shown: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let shown = format!("{}/{primary}/{}", shown.join(","), login.db());
    let names = Names::Sentinels {
        addresses,
        primary: primary.to_owned(),
        login: sentinel_login(query)?,
    };
    Ok(RedisUrl::new(names, login, is_secure, shown))
}

/// Of the sentinels, which get nothing of the primary's.
fn sentinel_login(query: &str) -> Result<RedisConnectionInfo, String> {
    let (mut user, mut password) = ("", "");
    for option in query.split('&').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some(("sentinel_username", given)) => user = given,
            Some(("sentinel_password", given)) => password = given,
            _ => {
                return Err(
                    "behind the '?' there are `sentinel_username` and `sentinel_password` only"
                        .into(),
                );
            }
        }
    }
    // What separates the parts of a URL means nothing in an option.
    let part = |text: &str| {
        let text = text.replace(':', "%3A").replace('/', "%2F");
        text.replace('@', "%40")
    };
    let (_, login) = match (user, password) {
        ("", "") => server("sentinel")?,
        (user, password) => server(&format!("{}:{}@sentinel", part(user), part(password)))?,
    };
    Ok(login)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str) -> String {
        let parsed = RedisUrl::parse(url).map(|url| (url.shown, url.is_secure));
        parsed.map_or_else(
            |why| why,
            |(shown, is_secure)| format!("{shown} {is_secure}"),
        )
    }

    #[test]
    fn a_url_names_a_server_or_sentinels_and_says_whether_tls_is_spoken() {
        for (url, means) in [
            ("redis://me:secret@r1:1/2", "r1:1/2 false"),
            ("rediss://r1", "r1:6379/0 true"),
            ("rediss://[::1]/3", "[::1]:6379/3 true"),
            ("redis-sentinel://s1/main", "s1:26379/main/0 false"),
            (
                "rediss-sentinel://me:secret@s1:1,[::1],s3/main/4",
                "s1:1,[::1]:26379,s3:26379/main/4 true",
            ),
            (
                "redis+sentinel://s1/main?sentinel_password=secret",
                "s1:26379/main/0 false",
            ),
        ] {
            assert_eq!(shown(url), means);
        }
    }

    #[test]
    fn each_login_is_its_own() {
        let url =
            "redis-sentinel://me:a%40b@s1/main/4?sentinel_username=you&sentinel_password=c/@:d";
        let url = RedisUrl::parse(url).unwrap();
        let Names::Sentinels { login, primary, .. } = url.names else {
            panic!("sentinels");
        };

        assert_eq!(primary, "main");
        let ours = (url.login.username(), url.login.password(), url.login.db());
        assert_eq!(ours, (Some("me"), Some("a@b"), 4));
        assert_eq!(
            (login.username(), login.password(), login.db()),
            (Some("you"), Some("c/@:d"), 0)
        );
        let bare = RedisUrl::parse("redis-sentinel://me:secret@s1/main").unwrap();
        let Names::Sentinels { login, .. } = bare.names else {
            panic!("sentinels");
        };
        assert_eq!((login.username(), login.password()), (None, None));
    }

    #[test]
    fn what_is_no_url_of_redis_is_refused_without_its_password() {
        for (url, word) in [
            ("rediss://me:secret@r1#insecure", "always verified"),
            ("redis://me:secret@r1/x", "database"),
            ("redis-sentinel://me:secret@s1", "name of the primary"),
            ("redis-sentinel://me:secret@s1/a b", "name of the primary"),
            ("redis-sentinel://me:secret@s1,/main", "is missing"),
            ("redis-sentinel://me:secret@s1:x/main", "did not parse"),
            ("redis-sentinel://me:secret@s1/main/x", "database"),
            (
                "redis-sentinel://s1/main?sentinel_pass=secret",
                "`sentinel_password` only",
            ),
        ] {
            let why = shown(url);
            assert!(
                why.to_lowercase().contains(word) && !why.contains("secret"),
                "{url}: {why}"
            );
        }
    }
}
