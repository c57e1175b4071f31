//! Access: who we say we are, and who may do what with the nodes that we make. (pure)
//!
//! Invariant: a secret is shown by nothing here, in no `Debug` and in no error. It asks no server.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// The letters of ZooKeeper's own tools, by the bits of its protocol.
const RIGHTS: [(char, u8); 5] = [('r', 1), ('w', 2), ('c', 4), ('d', 8), ('a', 16)];
const ALL: u8 = 31;

/// Who may do what with the nodes that a keeper makes: directories, tickets, permits, limits.
///
/// Everybody who shares a lock needs all rights but `a` on its nodes: whoever waits reads them, whoever releases writes and deletes
/// them, and the next one creates in the same directory. What is there already keeps the list with which it was made. See
/// `docs/security.md`.
///
/// # Examples
///
/// The text is that of ZooKeeper's own tools: `scheme:id:rights`, separated by commas, with the rights **c**reate, **d**elete, **r**ead,
/// **w**rite and **a**dminister.
///
/// ```
/// use lockkeeper::Acl;
///
/// let acl: Acl = "auth::cdrwa,world:anyone:r".parse()?;
/// assert_eq!(acl, Acl::creator().allow("world", "anyone", "r")?);
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Acl {
    entries: Vec<Entry>,
}

/// What one identity may do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub(crate) scheme: String,
    pub(crate) id: String,
    /// In the bits of the protocol.
    pub(crate) rights: u8,
}

impl Acl {
    /// Everybody may do everything: the default.
    pub fn open() -> Self {
        Self::of("world", "anyone", ALL)
    }

    /// Whoever proves to be whom we prove to be may do everything, and nobody else anything. It needs a
    /// [`credential`](crate::KeeperBuilder::credential).
    pub fn creator() -> Self {
        Self::of("auth", "", ALL)
    }

    /// Allows an identity of a scheme something as well: `("digest", "user:hash", "cdrw")`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for rights that are none, or none at all.
    pub fn allow(
        mut self,
        scheme: impl Into<String>,
        id: impl Into<String>,
        rights: &str,
    ) -> Result<Self, Error> {
        self.entries.push(Entry {
            scheme: scheme.into(),
            id: id.into(),
            rights: rights_of(rights)?,
        });
        Ok(self)
    }

    fn of(scheme: &str, id: &str, rights: u8) -> Self {
        Self {
            entries: vec![Entry {
                scheme: scheme.into(),
                id: id.into(),
                rights,
            }],
        }
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether it says that whoever makes a node may do something with it.
    pub(crate) fn needs_credential(&self) -> bool {
        self.entries.iter().any(|entry| entry.scheme == "auth")
    }
}

impl Default for Acl {
    fn default() -> Self {
        Self::open()
    }
}

/// As it is read.
impl fmt::Display for Acl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, Entry { scheme, id, rights }) in self.entries.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{scheme}:{id}:")?;
            for (letter, _) in RIGHTS.iter().filter(|(_, bit)| rights & bit != 0) {
                write!(f, "{letter}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for Acl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut acl = Self {
            entries: Vec::new(),
        };
        for entry in text.split(',') {
            let parts = entry.split_once(':').and_then(|(scheme, rest)| {
                let (id, rights) = rest.rsplit_once(':')?;
                Some((scheme, id, rights))
            });
            let Some((scheme, id, rights)) = parts.filter(|(scheme, ..)| !scheme.is_empty()) else {
                return Err(invalid(
                    entry,
                    "it looks like world:anyone:cdrwa, or auth::cdrwa",
                ));
            };
            acl = acl.allow(scheme, id, rights)?;
        }
        Ok(acl)
    }
}

fn rights_of(letters: &str) -> Result<u8, Error> {
    let bit = |letter: char| {
        let found = RIGHTS.iter().find(|(known, _)| *known == letter);
        found.map(|(_, bit)| *bit)
    };
    let bits = letters.chars().map(bit).collect::<Option<Vec<u8>>>();
    match bits
        .unwrap_or_default()
        .into_iter()
        .fold(0, |all, bit| all | bit)
    {
        0 => Err(invalid(letters, "rights are letters of cdrwa")),
        rights => Ok(rights),
    }
}

fn invalid(given: &str, why: &str) -> Error {
    Error::InvalidOption {
        what: "access list",
        given: given.to_owned(),
        why: why.to_owned(),
    }
}

/// What proves who we are. It shows its scheme only.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credential {
    pub(crate) scheme: String,
    pub(crate) secret: Vec<u8>,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("scheme", &self.scheme)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_zookeepers_own_tools_do() {
        let acl: Acl = "digest:who:aGFzaA==:cdrw,world:anyone:r,auth::cdrwa"
            .parse()
            .unwrap();

        let entry = |scheme: &str, id: &str, rights| Entry {
            scheme: scheme.into(),
            id: id.into(),
            rights,
        };
        assert_eq!(
            acl.entries(),
            [
                entry("digest", "who:aGFzaA==", 15),
                entry("world", "anyone", 1),
                entry("auth", "", 31)
            ]
        );
        assert_eq!(acl.to_string().parse::<Acl>().unwrap(), acl);
        assert!(acl.needs_credential() && !Acl::open().needs_credential());
        assert_eq!("world:anyone:cdrwa".parse::<Acl>().unwrap(), Acl::default());
        assert_eq!("auth::acdrw".parse::<Acl>().unwrap(), Acl::creator());
    }

    #[test]
    fn what_is_no_list_is_refused_and_named() {
        for given in [
            "",
            "world",
            "world:anyone",
            "world:anyone:",
            "world:anyone:x",
            ":a:r",
            "auth::cdrwa,",
        ] {
            let error = given.parse::<Acl>().unwrap_err();

            assert!(error.is_invalid(), "{given:?}: {error}");
            assert!(error.to_string().contains("access list"), "{error}");
        }
    }

    #[test]
    fn a_credential_shows_no_secret() {
        let credential = Credential {
            scheme: "digest".into(),
            secret: b"who:hunter2".to_vec(),
        };

        let shown = format!("{credential:?} {credential:#?}");

        assert!(
            shown.contains("digest") && !shown.contains("hunter2"),
            "{shown}"
        );
        assert!(!shown.contains("104"), "nor its bytes: {shown}");
    }
}
