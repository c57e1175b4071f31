//! The house's floors: who may import whom, and what is absent where. `ARCHITECTURE.md` says why.
//!
//! It reads the sources as text, so it sees imports and names, not meaning.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    missing_docs,
    reason = "tests"
)]

use std::fs;
use std::path::{Path, PathBuf};

/// Files without I/O, clocks or logs: time and bytes are arguments.
const PURE: &[&str] = &[
    "name.rs",
    "token.rs",
    "brief.rs",
    "error.rs",
    "queue/ticket.rs",
    "queue/rule.rs",
    "queue/mark.rs",
    "queue/walk.rs",
    "queue/permits.rs",
    "queue/vigil.rs",
    "queue/journal/entry.rs",
    "access.rs",
    "tls.rs",
    "owner.rs",
    "session/lease.rs",
    "link/size.rs",
];

/// Modules by floor, the lowest first: each may use its own floor and those below.
const FLOORS: &[&[&str]] = &[
    &[
        "error",
        "name",
        "token",
        "brief",
        "queue::ticket",
        "queue::rule",
        "queue::mark",
        "queue::walk",
        "queue::permits",
        "queue::vigil",
        "queue::journal::entry",
        "access",
        "tls",
        "owner",
        "session::lease",
    ],
    &["latch"],
    &["link", "meter"],
    &["session"],
    &["queue"],
    &[
        "holders", "cohort", "stint", "tenure", "fenced", "proclaim", "guard",
    ],
    &["door", "conversion", "linger"],
    &[
        "mutex",
        "rwlock",
        "semaphore",
        "multi",
        "election",
        "keeper",
    ],
];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Files that are compiled for tests only: links that are simulated or served, and what stands on them; what is sent, byte by byte; and
/// what fuzz targets claim.
const FOR_TESTS: &[&str] = &[
    "fuzzing",
    "link/simulated",
    "link/zookeeper/served",
    "link/zookeeper/hostile",
    "sent",
    "simulation",
    "exhaustive",
];

/// Every source file with its path below `src` and its text without comments and tests.
fn files() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![source()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let name = path
                    .strip_prefix(source())
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned();
                if !FOR_TESTS.iter().any(|start| name.starts_with(start)) {
                    found.push((name, code(&fs::read_to_string(&path).unwrap())));
                }
            }
        }
    }
    assert!(found.len() > 30, "the sources are read");
    found
}

/// The code alone: no comments, and nothing from the test module on, which stands last in a file.
fn code(text: &str) -> String {
    // A module that has a file of its own is no end.
    let tests = text.match_indices("\n#[cfg(test)]\nmod ");
    let end = tests.map(|(at, _)| at).find(|at| {
        let head = text[at + 1..].lines().nth(1).unwrap_or_default();
        head.ends_with('{')
    });
    let text = &text[..end.unwrap_or(text.len())];
    let text = text.split("\n#[cfg(all(test").next().unwrap();
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn offenders(is_bad: impl Fn(&str, &str) -> bool) -> Vec<String> {
    files()
        .into_iter()
        .filter(|(name, code)| is_bad(name, code))
        .map(|(name, _)| name)
        .collect()
}

#[test]
fn the_client_crate_is_named_behind_the_link_only() {
    let mut named = offenders(|_, code| code.contains("zookeeper_client"));
    named.sort();

    assert_eq!(named, ["link/zookeeper.rs", "link/zookeeper/standalone.rs"]);
}

#[test]
fn pure_files_have_no_io_no_clock_and_no_log() {
    for pure in PURE {
        assert!(
            source().join(pure).exists(),
            "{pure} is in the list but not in the house"
        );
    }
    let words = [
        "async ",
        "tokio",
        "Instant::",
        "SystemTime",
        "tracing",
        "std::fs",
        "std::net::Tcp",
    ];

    let bad = offenders(|name, code| {
        PURE.contains(&name) && words.iter().any(|word| code.contains(word))
    });

    assert!(bad.is_empty(), "{bad:?}");
}

#[test]
fn imports_go_down_the_floors_only() {
    let file_of = |module: &str| module.replace("::", "/");
    let pure_files: Vec<String> = FLOORS[0]
        .iter()
        .map(|module| format!("{}.rs", file_of(module)))
        .collect();
    for (floor, modules) in FLOORS.iter().enumerate() {
        let above: Vec<&str> = FLOORS[floor + 1..].concat();
        for module in *modules {
            let (file, folder) = (
                format!("{}.rs", file_of(module)),
                format!("{}/", file_of(module)),
            );
            let bad = offenders(|name, code| {
                let is_of_module = name == file || name.starts_with(&folder);
                // The pure files of the queue are on the lowest floor, for everybody.
                let is_on_floor =
                    is_of_module && (floor == 0 || !pure_files.iter().any(|pure| pure == name));
                let code = FLOORS[0].iter().fold(code.to_owned(), |code, pure| {
                    code.replace(&format!("crate::{pure}"), "")
                });
                is_on_floor
                    && above
                        .iter()
                        .any(|module| code.contains(&format!("crate::{module}::")))
            });
            assert!(bad.is_empty(), "{module} uses a floor above it: {bad:?}");
        }
    }
}

#[test]
fn recipes_know_no_other_recipe_and_no_node() {
    let recipes = [
        "mutex.rs",
        "rwlock.rs",
        "semaphore.rs",
        "multi.rs",
        "election.rs",
    ];
    let words = ["crate::link", "crate::session", "children", "Watch"];

    let bad = offenders(|name, code| {
        recipes.contains(&name) && words.iter().any(|word| code.contains(word))
    });

    assert!(bad.is_empty(), "{bad:?}");
}

#[test]
fn the_client_crate_is_the_one_that_was_looked_through() {
    const TESTED: &str = "0.11.2";
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.lock");
    let lock = fs::read_to_string(lock).unwrap();

    let (_, rest) = lock.split_once("name = \"zookeeper-client\"\n").unwrap();
    let version = rest.lines().next().unwrap();

    assert_eq!(
        version,
        format!("version = {TESTED:?}"),
        "another version of the client crate: look at how it begins and ends sessions (`link/zookeeper.rs`), its timeouts and the \
         order of its tries (`pacer.rs`), the bytes of its watches after a reconnect (`WATCHED_LIMIT`), one watch of a kind on a path \
         (`served.rs`), its sockets (`nodelay.rs`) and what it makes of replies (`hostile.rs`); run the suite on an ensemble, and say here \
         what was tested"
    );
}

#[test]
fn what_is_short_is_a_latch() {
    let mut locks = offenders(|_, code| code.contains("PoisonError"));
    locks.sort();

    // A watch is in one that is never locked.
    assert_eq!(locks, ["latch.rs", "link/mod.rs"]);
}

#[test]
fn one_drop_reaches_the_wire() {
    // The others give back a number of bytes, leave a list, pass a hold on, look at the clock, count down, write a log line, or
    // leave a note for somebody else to write.
    let drops = offenders(|_, code| code.contains("impl Drop for"));

    let mut expected = [
        "cohort.rs",
        "holders.rs",
        "linger.rs",
        "queue/journal.rs",
        "meter.rs",
        "queue/place.rs",
        "session/ending.rs",
        "session/mod.rs",
        "session/pool.rs",
        "session/pulse.rs",
        "session/roll.rs",
        "session/watching.rs",
        "stint.rs",
    ]
    .map(String::from)
    .to_vec();
    let mut seen = drops;
    seen.sort();
    expected.sort();
    assert_eq!(seen, expected);
}

#[test]
fn only_the_janitor_a_place_and_a_directory_delete() {
    let deletes = offenders(|_, code| {
        [".delete(", "Write::Delete {", "Write::delete("]
            .iter()
            .any(|word| code.contains(word))
    });

    let mut seen: Vec<String> = deletes
        .into_iter()
        // What sends it, and what counts its bytes.
        .filter(|name| !["link/zookeeper.rs", "link/size.rs"].contains(&name.as_str()))
        .collect();
    seen.sort();
    assert_eq!(
        seen,
        [
            "fenced.rs",
            "queue/directory.rs",
            // In exchange for another one.
            "queue/place.rs",
            // A limit of ours that came beside a lock.
            "queue/supply.rs",
            "session/janitor.rs"
        ]
    );
}

#[test]
fn a_watch_is_armed_only_where_its_bytes_are_counted() {
    let words = ["link.watch(", "link.watch_children("];
    let armed = offenders(|_, code| words.iter().any(|word| code.contains(word)));

    assert_eq!(armed, ["session/watching.rs"]);
}

#[test]
fn every_file_says_what_it_is() {
    let missing: Vec<String> = files()
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| {
            !fs::read_to_string(source().join(name))
                .unwrap()
                .starts_with("//!")
        })
        .collect();

    assert!(missing.is_empty(), "{missing:?}");
}
