//! What is absent where: `protocol/` is pure, and a few acts that invariants rest on are written in
//! one place each.
//!
//! It reads the sources as text. Circles between folders are looked for by
//! `cargo run -p lockkeeper-testbench --bin figures`.

use std::fs;
use std::path::Path;

/// Every source file below `folder` with its path below `src` and its text, without comments and
/// tests.
fn files(folder: &str) -> Vec<(String, String)> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut folders = vec![source.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(&source).unwrap().to_str().unwrap();
            if path.is_dir() && name != "tests" {
                folders.push(path);
            } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
                found.push((name.to_owned(), code(&fs::read_to_string(&path).unwrap())));
            }
        }
    }
    assert!(found.len() > 8, "the sources are read");
    found
}

/// Up to the test module, which stands last in a file.
fn code(text: &str) -> String {
    let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = text.lines();
    let lines = lines.filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

fn those_with(folder: &str, words: &[&str]) -> Vec<String> {
    let files = files(folder).into_iter();
    let files = files.filter(|(_, code)| words.iter().any(|word| code.contains(word)));
    let mut names: Vec<String> = files.map(|(name, _)| name).collect();
    names.sort();
    names
}

#[test]
fn the_protocol_has_no_io_no_clock_and_no_log() {
    let words = [
        "async ",
        "await",
        "tokio",
        "Instant::now",
        concat!("SystemTime", "::now"),
        "tracing",
        "std::fs",
        "std::net::Tcp",
        "crate::link::",
        "crate::session::",
        "crate::queue::",
        "crate::guard::",
        "crate::recipes::",
        "crate::keeper::",
    ];

    assert_eq!(those_with("protocol", &words), [""; 0]);
}

#[test]
fn the_client_crate_is_named_behind_the_link_only() {
    let named = those_with("", &["zookeeper_client"]);

    assert!(
        named.iter().all(|name| name.starts_with("link/zookeeper/")),
        "{named:?}"
    );
}

#[test]
fn a_ticket_is_deleted_by_the_janitor_or_in_exchange_for_another() {
    let elsewhere = |words: &[&str]| {
        let mut named = those_with("", words);
        named.retain(|name| !name.starts_with("link/"));
        named
    };

    // By its identity, where the store can compare that.
    assert_eq!(
        elsewhere(&[".delete_ticket(", "Write::DeleteTicket"]),
        ["queue/place/exchange.rs", "session/janitor.rs"]
    );
    assert_eq!(
        elsewhere(&[".delete(", "Write::Delete {", "Write::delete("]),
        [
            // What the user names.
            "guard/fenced.rs",
            // Servers refuse a directory with a ticket in it.
            "queue/directory.rs",
            // A limit of ours that came beside a lock.
            "queue/permits/limit.rs",
            // The empty directory behind the last ticket.
            "session/janitor.rs",
        ]
    );
}

#[test]
fn a_watch_is_armed_where_its_bytes_are_counted() {
    let armed = those_with("", &["link.watch(", "link.watch_children("]);

    assert_eq!(armed, ["session/watching.rs"]);
}

#[test]
fn a_lock_for_a_moment_is_a_latch() {
    // A watch is in one that is never locked.
    assert_eq!(
        those_with("", &["PoisonError"]),
        ["latch.rs", "link/change.rs"]
    );
}
