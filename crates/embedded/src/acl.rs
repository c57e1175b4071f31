//! Access control: permissions, identities, the schemes `world`, `auth`, `digest` and `ip`.
//!
//! Invariant: a stored access list is never empty and holds no `auth` entry. It keeps no state:
//! identities belong to connections, lists to nodes.

use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use sha1::{Digest as _, Sha1};

use super::proto::Code;

pub(super) const READ: i32 = 1;
pub(super) const WRITE: i32 = 2;
pub(super) const CREATE: i32 = 4;
pub(super) const DELETE: i32 = 8;
pub(super) const ADMIN: i32 = 16;
pub(super) const ALL: i32 = 31;

/// The most entries of a list. Each check of a node may read the whole list, and a frame has room
/// for fifty thousand entries.
const MOST_ENTRIES: usize = 1024;

/// One entry of an access list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Acl {
    pub(super) permissions: i32,
    pub(super) scheme: String,
    pub(super) id: String,
}

impl Acl {
    pub(super) fn world(permissions: i32) -> Self {
        Self {
            permissions,
            scheme: "world".to_owned(),
            id: "anyone".to_owned(),
        }
    }

    fn is_world(&self) -> bool {
        self.scheme == "world" && self.id == "anyone"
    }

    fn admits(&self, identity: &Identity) -> bool {
        self.scheme == identity.scheme
            && match self.scheme.as_str() {
                "digest" => self.id == identity.id,
                "ip" => address_matches(&self.id, &identity.id),
                _ => false,
            }
    }
}

/// An identity that a connection has proved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) scheme: &'static str,
    pub(super) id: String,
}

impl Identity {
    pub(super) fn address(address: IpAddr) -> Self {
        Self {
            scheme: "ip",
            id: address.to_canonical().to_string(),
        }
    }

    /// The identity behind an auth packet. `None` for an unknown scheme. Only the digest of a
    /// secret is kept.
    pub(super) fn prove(scheme: &str, secret: &[u8], address: &Self) -> Option<Self> {
        match scheme {
            "digest" => {
                let user = String::from_utf8_lossy(secret);
                let user = user.split(':').next().unwrap_or_default().to_owned();
                let hash = base64::engine::general_purpose::STANDARD.encode(Sha1::digest(secret));
                Some(Self {
                    scheme: "digest",
                    id: format!("{user}:{hash}"),
                })
            }
            "ip" => Some(address.clone()),
            _ => None,
        }
    }

    /// The name shown by "who am I": never the digest.
    pub(super) fn user(&self) -> &str {
        match self.scheme {
            "digest" => self.id.split(':').next().unwrap_or_default(),
            _ => &self.id,
        }
    }
}

/// Fails with `NoAuth` unless `list` grants one of `permissions` to one of `identities`.
pub(super) fn check(list: &[Acl], permissions: i32, identities: &[Identity]) -> Result<(), Code> {
    let granted = list.iter().any(|acl| {
        acl.permissions & permissions != 0
            && (acl.is_world() || identities.iter().any(|identity| acl.admits(identity)))
    });
    if granted { Ok(()) } else { Err(Code::NoAuth) }
}

/// The list to store for a list as sent: duplicates dropped, `auth` replaced by the sender's
/// identities.
pub(super) fn settle(sent: &[Acl], identities: &[Identity]) -> Result<Vec<Acl>, Code> {
    if sent.len() > MOST_ENTRIES {
        return Err(Code::InvalidAcl);
    }
    let mut unique: Vec<&Acl> = Vec::new();
    for acl in sent {
        if !unique.contains(&acl) {
            unique.push(acl);
        }
    }
    let mut settled = Vec::new();
    for acl in unique {
        match acl.scheme.as_str() {
            "world" if acl.is_world() => settled.push(acl.clone()),
            "auth" => {
                let before = settled.len();
                settled.extend(
                    identities
                        .iter()
                        .filter(|identity| identity.scheme == "digest")
                        .map(|identity| Acl {
                            permissions: acl.permissions,
                            scheme: identity.scheme.to_owned(),
                            id: identity.id.clone(),
                        }),
                );
                if settled.len() == before {
                    return Err(Code::InvalidAcl);
                }
            }
            "digest" if is_digest(&acl.id) => settled.push(acl.clone()),
            "ip" if is_address_pattern(&acl.id) => settled.push(acl.clone()),
            _ => return Err(Code::InvalidAcl),
        }
    }
    if settled.is_empty() {
        Err(Code::InvalidAcl)
    } else {
        Ok(settled)
    }
}

/// The list as a client without `ADMIN` sees it: digests are covered.
pub(super) fn covered(list: &Arc<[Acl]>) -> Vec<Acl> {
    let cover = |acl: &Acl| match (acl.scheme.as_str(), acl.id.split_once(':')) {
        ("digest", Some((user, _))) => Acl {
            id: format!("{user}:x"),
            ..acl.clone()
        },
        _ => acl.clone(),
    };
    list.iter().map(cover).collect()
}

/// `user:hash`. ZooKeeper splits at colons, drops empty pieces at the end, and requires two pieces.
fn is_digest(id: &str) -> bool {
    let pieces: Vec<&str> = id.split(':').collect();
    let used = pieces
        .iter()
        .rposition(|piece| !piece.is_empty())
        .map_or(0, |last| last + 1);
    used == 2
}

fn parse_pattern(pattern: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = match pattern.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse::<u32>().ok()?)),
        None => (pattern, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.unwrap_or(width);
    (bits <= width).then_some((address, bits))
}

fn is_address_pattern(pattern: &str) -> bool {
    parse_pattern(pattern).is_some()
}

fn address_matches(pattern: &str, address: &str) -> bool {
    let (Some((wanted, bits)), Ok(actual)) = (parse_pattern(pattern), address.parse::<IpAddr>())
    else {
        return false;
    };
    match (wanted, actual) {
        (IpAddr::V4(wanted), IpAddr::V4(actual)) => {
            (wanted.to_bits() ^ actual.to_bits())
                .checked_shr(32 - bits)
                .unwrap_or(0)
                == 0
        }
        (IpAddr::V6(wanted), IpAddr::V6(actual)) => {
            (wanted.to_bits() ^ actual.to_bits())
                .checked_shr(128 - bits)
                .unwrap_or(0)
                == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(scheme: &str, id: &str) -> Acl {
        Acl {
            permissions: ALL,
            scheme: scheme.to_owned(),
            id: id.to_owned(),
        }
    }

    fn bob() -> Identity {
        let address = Identity::address("127.0.0.1".parse().unwrap());
        Identity::prove("digest", b"bob:pw", &address).unwrap()
    }

    #[test]
    fn digests_are_those_of_the_original() {
        assert_eq!(bob().id, "bob:ikIaKsbtGweaHnb/jKn7OHqbunM=");
        assert_eq!(bob().user(), "bob");
    }

    #[test]
    fn auth_stands_for_the_sender_and_needs_one() {
        assert_eq!(
            settle(&[entry("auth", "")], &[bob()]).unwrap(),
            [entry("digest", &bob().id)]
        );
        assert_eq!(settle(&[entry("auth", "")], &[]), Err(Code::InvalidAcl));
    }

    #[test]
    fn only_well_formed_entries_are_kept() {
        for good in [
            ("digest", ":x"),
            ("digest", "a:b:"),
            ("ip", "10.0.0.0/8"),
            ("world", "anyone"),
        ] {
            assert!(settle(&[entry(good.0, good.1)], &[]).is_ok(), "{good:?}");
        }
        for bad in [
            ("digest", "x"),
            ("digest", "x:"),
            ("digest", "a:b:c"),
            ("ip", "x"),
            ("ip", "1.2.3.4/33"),
            ("world", "bob"),
            ("nosuch", "x"),
        ] {
            assert_eq!(
                settle(&[entry(bad.0, bad.1)], &[]),
                Err(Code::InvalidAcl),
                "{bad:?}"
            );
        }
        assert_eq!(settle(&[], &[]), Err(Code::InvalidAcl));
    }

    #[test]
    fn a_list_that_would_hold_up_everybody_is_refused() {
        let list = |count: usize| -> Vec<Acl> {
            let user = |number| entry("digest", &format!("{number}:x"));
            (0..count).map(user).collect()
        };

        assert!(settle(&list(MOST_ENTRIES), &[]).is_ok());
        assert_eq!(settle(&list(MOST_ENTRIES + 1), &[]), Err(Code::InvalidAcl));
    }

    #[test]
    fn an_address_pattern_admits_its_network_only() {
        let here = [Identity::address("127.0.0.1".parse().unwrap())];

        assert!(check(&[entry("ip", "127.0.0.0/8")], READ, &here).is_ok());
        assert!(check(&[entry("ip", "0.0.0.0/0")], READ, &here).is_ok());
        assert_eq!(
            check(&[entry("ip", "10.0.0.0/8")], READ, &here),
            Err(Code::NoAuth)
        );
    }

    #[test]
    fn a_covered_list_hides_digests() {
        let list: Arc<[Acl]> = vec![entry("digest", "bob:hash"), Acl::world(READ)].into();

        assert_eq!(covered(&list), [entry("digest", "bob:x"), Acl::world(READ)]);
    }
}
