//! Where the locks are: the servers of a coordinator, or the URL of a plain lock.
//!
//! Invariant: nothing that is shown of a URL is more than its scheme, because the rest may have a
//! password.

use std::fmt;

use clap::CommandFactory;
use clap::error::ErrorKind;
use lockkeeper::compat::KINDS;

use super::Words;
use super::settings::Origin;
use super::told::Told;

const DEFAULT: &str = "localhost:2181";

/// The schemes of the coordinators beside ZooKeeper, and their names.
const STORES: &[(&str, &str)] = &[
    #[cfg(feature = "redis")]
    ("redis", "Redis"),
    #[cfg(feature = "redis")]
    ("rediss", "Redis"),
    #[cfg(feature = "redis")]
    ("redis-sentinel", "Redis"),
    #[cfg(feature = "redis")]
    ("rediss-sentinel", "Redis"),
    #[cfg(feature = "redis")]
    ("redis+sentinel", "Redis"),
    #[cfg(feature = "redis")]
    ("rediss+sentinel", "Redis"),
    #[cfg(feature = "postgres")]
    ("postgres", "PostgreSQL"),
    #[cfg(feature = "postgres")]
    ("postgresql", "PostgreSQL"),
];

#[derive(Clone)]
pub(crate) enum Place {
    /// Servers and a chroot.
    ZooKeeper(String),
    /// A coordinator on another store.
    Store {
        engine: &'static str,
        url: String,
    },
    Plain {
        kind: &'static str,
        url: String,
    },
}

impl Default for Place {
    fn default() -> Self {
        Self::ZooKeeper(DEFAULT.to_owned())
    }
}

/// Without the URL.
impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ZooKeeper(_) => "ZooKeeper",
            Self::Store { engine, .. } => engine,
            Self::Plain { kind, .. } => kind,
        })
    }
}

impl Place {
    /// What the option says, or its older word; without them the variables, and then a file. Both
    /// words may say the same.
    pub(super) fn chosen(told: &Told<'_>) -> Result<Self, clap::Error> {
        let rank = |id| told.origin(id).rank();
        let given = match (told.text("servers"), told.text("zk")) {
            (Some(new), Some(old)) if rank("servers") == rank("zk") && new != old => {
                return Err(refused(match told.origin("zk") {
                    Origin::Option => "--servers and --zk differ, and mean the same",
                    _ => "LOCKKEEPER_SERVERS and LOCKKEEPER_ZK differ, and mean the same",
                }));
            }
            (Some(_), Some(old)) if rank("servers") < rank("zk") => old,
            (Some(new), _) => new,
            (None, Some(old)) => old,
            (None, None) => DEFAULT,
        };
        Self::parse(given).map_err(refused)
    }

    fn parse(given: &str) -> Result<Self, String> {
        let given = given.trim();
        let (scheme, rest) = match given.split_once("://") {
            // A chroot, of which the library says what is wrong.
            Some((servers, _)) if servers.contains(['/', ':', '@', ',']) => ("zookeeper", given),
            Some(parts) => parts,
            None => ("zookeeper", given),
        };
        if scheme == "zookeeper" {
            return Ok(Self::ZooKeeper(rest.to_owned()));
        }
        if let Some((_, engine)) = STORES.iter().find(|(store, _)| *store == scheme) {
            let url = given.to_owned();
            return Ok(Self::Store { engine, url });
        }
        match KINDS.iter().find(|(kind, _)| *kind == scheme) {
            Some((kind, _)) => Ok(Self::Plain {
                kind,
                url: given.to_owned(),
            }),
            None => Err(unknown(scheme)),
        }
    }

    /// What a keeper connects to. Orders that need one were refused on plain locks before.
    pub(crate) fn connect_string(&self) -> &str {
        match self {
            Self::ZooKeeper(servers) => servers,
            Self::Store { url, .. } => url,
            Self::Plain { kind, .. } => kind,
        }
    }

    /// With its scheme, and without a password. The URL of a plain lock may have one anywhere.
    pub(super) fn without_secrets(&self) -> String {
        match self {
            Self::ZooKeeper(servers) => servers.rsplit('@').next().unwrap_or_default().to_owned(),
            Self::Store { url, .. } => {
                let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
                format!("{scheme}://{}", self.shown())
            }
            Self::Plain { kind, .. } => format!("{kind}://***"),
        }
    }

    /// The same without a password.
    pub(crate) fn shown(&self) -> &str {
        match self {
            Self::ZooKeeper(servers) => servers,
            Self::Store { url, .. } => {
                let rest = url.split_once("://").map_or(&**url, |(_, rest)| rest);
                match (rest.find('?'), rest.rfind('@')) {
                    // The one may be in a password, or the other.
                    (Some(query), Some(at)) if query < at => "***",
                    (query, at) => {
                        let hosts = at.map_or(0, |at| at + 1);
                        &rest[hosts..query.unwrap_or(rest.len())]
                    }
                }
            }
            Self::Plain { kind, .. } => kind,
        }
    }

    /// The servers of ZooKeeper, if it is on them.
    pub(crate) fn zookeeper(&self) -> Option<&str> {
        match self {
            Self::ZooKeeper(servers) => Some(servers),
            Self::Store { .. } | Self::Plain { .. } => None,
        }
    }
}

/// Names the schemes there are; of the same store, if it has some.
fn unknown(scheme: &str) -> String {
    let store = scheme.split('+').next().unwrap_or_default();
    let store = match store {
        "rediss" => "redis",
        "postgresql" => "postgres",
        "mariadb" => "mysql",
        store => store,
    };
    let stores = STORES.iter().map(|(scheme, _)| *scheme);
    let all = stores.chain(KINDS.iter().map(|(kind, _)| *kind));
    let of_store: Vec<&str> = all
        .clone()
        .filter(|kind| kind.split('+').next() == Some(store))
        .collect();
    let (kinds, rest) = match of_store.len() {
        0 => (
            all.collect(),
            ", or zookeeper:// or no scheme for ZooKeeper",
        ),
        _ => (of_store, ""),
    };
    let kinds: Vec<String> = kinds.iter().map(|kind| format!("{kind}://")).collect();
    format!(
        "no kind of lock has the scheme {scheme}://. There are {}{rest}",
        kinds.join(", ")
    )
}

pub(super) fn refused(why: impl fmt::Display) -> clap::Error {
    Words::command().error(ErrorKind::ArgumentConflict, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Arguments;

    fn servers(words: &[&str]) -> Result<Place, String> {
        let order = ["lockkeeper", "run", "a"];
        let words = order.iter().chain(words).chain(&["--", "true"]);
        let arguments = Arguments::read(words, &[]).map_err(|error| error.to_string())?;
        Ok(arguments.server.place)
    }

    #[test]
    fn the_scheme_chooses_the_lock() {
        for (given, place) in [
            ("zk1:2181,zk2/app", "zk1:2181,zk2/app"),
            ("zookeeper://zk1:2181/app", "zk1:2181/app"),
        ] {
            let chosen = servers(&["--servers", given]).unwrap();
            assert!(matches!(chosen, Place::ZooKeeper(servers) if servers == place));
        }
        for (scheme, engine) in STORES {
            let given = format!("{scheme}://me:secret@a:1/2?sentinel_password=secret");
            let chosen = servers(&["--servers", &given]).unwrap();
            assert_eq!(format!("{chosen:?}"), *engine);
            assert_eq!(chosen.connect_string(), given);
            assert_eq!(chosen.shown(), "a:1/2");
        }
        for (given, shown) in [
            ("redis://a:1/2", "redis://a:1/2"),
            (
                "postgres://a/b?user=me@corp&password=secret",
                "postgres://***",
            ),
            ("postgres://me:se?secret@a/b", "postgres://***"),
        ] {
            let chosen = servers(&["--servers", given]).unwrap();
            assert_eq!(chosen.without_secrets(), shown);
        }
        for (kind, _) in KINDS {
            let given = format!("{kind}://me:secret@a:1/b?c=d");
            let chosen = servers(&["--zk", &given]).unwrap();
            assert_eq!(format!("{chosen:?}"), *kind);
            assert!(matches!(chosen, Place::Plain { url, .. } if url == given));
        }
    }

    #[test]
    fn an_unknown_scheme_is_refused_with_those_there_are() {
        for (given, word) in [
            ("redisss://me:secret@a", "redis://, rediss://"),
            (
                "redis+set://me:secret@a",
                "redis+sentinel://, redis+setnx://",
            ),
            ("postgres+x://me:secret@a/b", "postgres://, postgres+row://"),
            ("mysql+advisory://me:secret@a/b", "mysql+getlock://"),
            ("memcached://me:secret@a", "memcached+add://"),
            ("http://me:secret@a", "zookeeper:// or no scheme"),
            ("REDIS+SETNX://me:secret@a", "redis+setnx://"),
        ] {
            let error = servers(&["--servers", given]).unwrap_err();
            assert!(error.contains(word) && !error.contains("secret"), "{error}");
        }
        let error = servers(&["--servers", "redis+x://a"]).unwrap_err();
        assert!(!error.contains("postgres"), "{error}");
    }

    #[test]
    fn both_words_may_say_the_same_and_nothing_else() {
        let same = ["--servers", "zk1:1", "--zk", "zk1:1"];
        assert!(servers(&same).is_ok());
        let error = servers(&["--servers", "zk1:1", "--zk", "zk2:1"]).unwrap_err();
        assert!(error.contains("--servers and --zk differ"), "{error}");
    }
}
