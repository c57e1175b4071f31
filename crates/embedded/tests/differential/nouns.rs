//! What scripts speak of: paths, data, access lists and secrets, right and wrong.

use super::op::{Acl, Bytes};

/// Few, and most of them one, so that sessions meet.
pub(super) const PATHS: [&str; 16] = [
    "/a", "/a", "/a", "/a", "/a", "/a/x", "/a/x", "/a/x", "/b", "/b", "/b/x", "/a/y", "/c",
    "/a/x/q", "/a/s-", "",
];

/// Names that sequential creates are likely to have made.
pub(super) const NUMBERED: [&str; 8] = [
    "/a/s-0000000000",
    "/a/s-0000000001",
    "/a/s-0000000002",
    "/a0000000001",
    "/b0000000002",
    "/s-0000000000",
    "/s-0000000001",
    "/s-0000000003",
];

/// Below the root, and wrong or at least strange.
pub(super) const STRANGE: [&str; 18] = [
    "/",
    "//x",
    "/a/",
    "/a//x",
    "/.",
    "/..",
    "/a/.",
    "/a/../b",
    "/a/./x",
    "/\u{1}",
    "/\0",
    "/a\0b",
    "/\u{7f}",
    "/\u{e000}",
    "/\u{fffd}",
    "/é",
    "/😀",
    "/a/...",
];

/// Not below the root. A null path is not among them: no client sends one, and what a real server
/// says to it depends on which line of Java stumbles first.
pub(super) const FOREIGN: [&[u8]; 4] = [b"x", b"x/y", b"//", b"\xff\xfe"];

pub(super) const DATA: [Option<Bytes>; 6] = [
    Some(Bytes(b"")),
    Some(Bytes(b"one")),
    Some(Bytes(b"two")),
    Some(Bytes(b"\0\xff")),
    Some(Bytes(&[b'x'; 300])),
    None,
];

pub(super) const BOB: &str = "bob:ikIaKsbtGweaHnb/jKn7OHqbunM=";
pub(super) const OPEN: &[Acl] = &[(31, "world", "anyone")];
pub(super) const ACLS: [Option<&[Acl]>; 22] = [
    Some(&[(1, "world", "anyone")]),
    Some(&[(30, "world", "anyone")]),
    Some(&[(27, "world", "anyone")]),
    Some(&[(23, "world", "anyone")]),
    Some(&[(31, "auth", "")]),
    Some(&[(31, "auth", "")]),
    Some(&[(31, "digest", BOB)]),
    Some(&[(31, "digest", BOB), (1, "world", "anyone")]),
    Some(&[(15, "digest", BOB), (16, "world", "anyone")]),
    Some(&[(31, "auth", "who"), (17, "world", "anyone")]),
    Some(&[(31, "ip", "127.0.0.1")]),
    Some(&[(31, "ip", "127.0.0.0/8")]),
    Some(&[(31, "ip", "10.0.0.0/8"), (16, "world", "anyone")]),
    Some(&[
        (1, "world", "anyone"),
        (1, "world", "anyone"),
        (2, "world", "anyone"),
    ]),
    Some(&[(0, "world", "anyone")]),
    Some(&[(64, "world", "anyone")]),
    Some(&[(31, "world", "bob")]),
    Some(&[(31, "digest", "bob")]),
    Some(&[(31, "ip", "1.2.3.4/33")]),
    Some(&[(31, "nosuch", "x")]),
    Some(&[]),
    None,
];

pub(super) const SCHEMES: [&str; 8] = [
    "digest", "digest", "digest", "digest", "ip", "nosuch", "world", "",
];
pub(super) const SECRETS: [&[u8]; 7] = [
    b"bob:pw",
    b"bob:pw",
    b"ann:other",
    b"nobody",
    b"",
    b"a:b:c",
    b":x",
];
