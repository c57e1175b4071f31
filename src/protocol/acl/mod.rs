//! Access lists and credentials: the identity of a client, and the rights on its nodes. (pure)
//!
//! Invariant: a secret is shown by nothing here, in no `Debug` and in no error. It asks no server.

#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use crate::brief::{Brief, shows};
use crate::error::Error;

/// The letters of ZooKeeper's own tools, in their order, and the bits of its protocol.
const RIGHTS: [(char, u8); 5] = [('c', 4), ('d', 8), ('r', 1), ('w', 2), ('a', 16)];
const ALL: u8 = 31;

/// The access list of the nodes that a keeper makes: directories, tickets, permits, limits.
///
/// Every client that shares a lock needs all rights but `a` on its nodes: a waiter reads them, a
/// release writes and deletes them, and the next client creates in the same directory. A node that
/// exists keeps the list with which it was made, and is refused if that is wider: see
/// [`KeeperBuilder::strict_acl`](crate::KeeperBuilder::strict_acl) and
/// [the guide](crate::guide::security).
///
/// # Examples
///
/// The text is that of ZooKeeper's own tools: `scheme:id:rights`, separated by commas, with the
/// rights **c**reate, **d**elete, **r**ead, **w**rite and **a**dminister; or `open`, or `creator`.
///
/// ```
/// use lockkeeper::Acl;
///
/// let acl: Acl = "auth::cdrwa,world:anyone:r".parse()?;
/// assert_eq!(acl, Acl::creator().allow("world", "anyone", "r")?);
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Acl {
    entries: Vec<Entry>,
}

/// Without the hashes of digests.
impl fmt::Debug for Acl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.entries.iter().map(Entry::covered).collect();
        write!(f, "Acl({:?})", Brief(Self { entries }.to_string()))
    }
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
    /// Everybody may do everything: the default without a
    /// [`credential`](crate::KeeperBuilder::credential).
    pub fn open() -> Self {
        Self::of("world", "anyone", ALL)
    }

    /// Clients with the same identity may do everything, and others nothing: the default with a
    /// [`credential`](crate::KeeperBuilder::credential), which it needs.
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

    /// Whether everybody may do everything.
    pub(crate) fn is_open(&self) -> bool {
        rights_in(&self.entries, "world") == ALL
    }

    /// Whether it gives the creator of a node any right on it.
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
        for (place, entry) in self.entries.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{entry}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scheme, id, rights } = self;
        write!(f, "{scheme}:{id}:")?;
        for (letter, _) in RIGHTS.iter().filter(|(_, bit)| rights & bit != 0) {
            write!(f, "{letter}")?;
        }
        Ok(())
    }
}

impl Entry {
    /// As servers show it to a client without `ADMIN`: without the hash of a digest.
    fn covered(&self) -> Self {
        let id = match self.id.split_once(':') {
            Some((user, _)) if self.scheme == "digest" => format!("{user}:x"),
            _ => self.id.clone(),
        };
        Self { id, ..self.clone() }
    }
}

/// What the nodes of a keeper's list are known to allow: the entries, as servers keep them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Allowed {
    entries: Vec<Entry>,
    /// What `auth` stands for is known by the names of users only.
    by_name: bool,
}

impl Allowed {
    /// What servers have made of the list.
    pub(crate) fn settled(entries: Vec<Entry>) -> Self {
        let by_name = false;
        Self { entries, by_name }
    }

    /// The list itself. Servers replace `auth` by our proved identities, and only they know all of
    /// them.
    pub(crate) fn asked(acl: &Acl, credentials: &[Credential]) -> Self {
        let resolve = |entry: &Entry| -> Vec<Entry> {
            if entry.scheme != "auth" {
                return vec![entry.clone()];
            }
            let user = |credential: &Credential| {
                let user = String::from_utf8_lossy(&credential.secret);
                Entry {
                    scheme: credential.scheme.clone(),
                    id: user.split(':').next().unwrap_or_default().to_owned() + ":x",
                    rights: entry.rights,
                }
            };
            let digests = credentials.iter().filter(|own| own.scheme == "digest");
            let others = std::iter::once(entry.clone());
            digests.map(user).chain(others).collect()
        };
        Self {
            entries: acl.entries.iter().flat_map(resolve).collect(),
            by_name: acl.needs_credential(),
        }
    }

    /// The first entry of a node's list that allows somebody more than this one does, or may do so:
    /// its digests are covered then, and a stranger with the name of one of our users looks the
    /// same. That we may read the list proves that one of its digests is ours, but only where
    /// digests alone may.
    pub(crate) fn beyond(&self, list: &[Entry]) -> Option<Entry> {
        let is_digest = |entry: &&Entry| entry.scheme == "digest";
        let is_covered = |entry: &Entry| entry.id.ends_with(":x");
        let hides = list.iter().filter(is_digest).any(is_covered);
        let in_doubt = hides && !self.by_name && !list.iter().all(|entry| is_digest(&entry));
        let cover = |entries: &[Entry]| -> Vec<Entry> {
            if hides || self.by_name {
                entries.iter().map(Entry::covered).collect()
            } else {
                entries.to_vec()
            }
        };
        let (ours, theirs) = (cover(&self.entries), cover(list));
        let everybody = rights_in(&ours, "world");
        let same = |entry: &Entry, entries: &[Entry]| -> Vec<Entry> {
            let is_same = |other: &&Entry| other.scheme == entry.scheme && other.id == entry.id;
            entries.iter().filter(is_same).cloned().collect()
        };
        let is_proved = |entry: &Entry| !["world", "ip", "digest"].contains(&&*entry.scheme);
        let beyond = theirs.iter().find(|entry| {
            let known = same(entry, &ours);
            let rights = known.iter().map(|known| known.rights);
            let mut allowed = rights.fold(everybody, |all, known| all | known);
            if self.by_name && is_proved(entry) {
                allowed |= rights_in(&ours, "auth");
            }
            let is_hidden = is_digest(entry) && is_covered(entry) && entry.rights & !everybody != 0;
            entry.rights & !allowed != 0
                || is_hidden && (in_doubt || same(entry, &theirs).len() > known.len())
        });
        beyond.map(Entry::covered)
    }
}

fn rights_in(entries: &[Entry], scheme: &str) -> u8 {
    let those = entries.iter().filter(|entry| entry.scheme == scheme);
    those.fold(0, |all, entry| all | entry.rights)
}

impl FromStr for Acl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let entries = Vec::new();
        let mut acl = match text {
            "open" => return Ok(Self::open()),
            "creator" => return Ok(Self::creator()),
            _ => Self { entries },
        };
        for entry in text.split(',') {
            let parts = entry.split_once(':').and_then(|(scheme, rest)| {
                let (id, rights) = rest.rsplit_once(':')?;
                Some((scheme, id, rights))
            });
            let Some((scheme, id, rights)) = parts.filter(|(scheme, ..)| !scheme.is_empty()) else {
                let why = "it looks like world:anyone:cdrwa, or auth::cdrwa";
                return Err(invalid(entry, why));
            };
            acl = acl.allow(scheme, id, rights)?;
        }
        Ok(acl)
    }
}

fn rights_of(letters: &str) -> Result<u8, Error> {
    let with = |all: u8, letter: char| {
        let found = RIGHTS.iter().find(|(known, _)| *known == letter);
        found.map(|(_, bit)| all | bit)
    };
    match letters.chars().try_fold(0, with) {
        None | Some(0) => Err(invalid(letters, "rights are letters of cdrwa")),
        Some(rights) => Ok(rights),
    }
}

fn invalid(given: &str, why: &str) -> Error {
    Error::invalid("access list", given, why)
}

/// The proof of an identity. Its `Debug` shows the scheme only.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credential {
    pub(crate) scheme: String,
    pub(crate) secret: Vec<u8>,
}

shows!(|credential| Credential {
    scheme: credential.scheme,
});
