//! Words that do not go together: options for one lock beside several names, and what a kind of
//! lock has nothing for.
//!
//! Invariant: no word is left out in silence. What a plain lock does not have is refused by its
//! name, also if a variable says it, and so is what ZooKeeper does not have. Settings belong to the
//! servers of their file: those that an option or a variable chooses in their place do without
//! what they have nothing for.

use lockkeeper::LockName;

use super::place::{Place, refused};
use super::settings::{Origin, Settings};
use super::told::Told;
use super::{Elect, Order, Run};

/// A promise is not left out.
const REQUIRE_TLS: &str = "require_tls";

/// What plain locks do not have: the id of an argument, and why or what has it.
const NOT_PLAIN: &[(&str, &str)] = &[
    ("root", "it has no nodes to put locks below"),
    ("create_chroot", "only ZooKeeper has chroots"),
    ("dialect", "only locks on ZooKeeper have dialects"),
    ("auth", "its user and password stand in its URL"),
    ("auth_file", "its user and password stand in its URL"),
    ("acl", "only ZooKeeper has access lists"),
    ("no_strict_acl", "only ZooKeeper has access lists"),
    ("tls_ca", "plain locks have no TLS"),
    ("tls_cert", "plain locks have no TLS"),
    ("tls_key", "plain locks have no TLS"),
    (
        REQUIRE_TLS,
        "plain locks have no TLS: LOCKKEEPER_REQUIRE_TLS=0 does without it",
    ),
    (
        "session_timeout",
        "it has no session: --ttl says how long its lock outlives a crash",
    ),
    ("tick", "only ZooKeeper has ticks: see --ttl"),
    (
        "shared",
        "it excludes everybody, and locks with a queue have readers",
    ),
    ("permits", "semaphores need a queue, and it has none"),
    ("journal", "only locks with a queue have a journal"),
    ("label", "it has no queue that shows a label"),
];

/// What a coordinator on another store does not have: the id of an argument, and why.
const OF_ZOOKEEPER: &[(&str, &str)] = &[
    ("create_chroot", "only ZooKeeper has chroots"),
    ("dialect", "only locks on ZooKeeper have dialects"),
    ("auth", "its user and password stand in its URL"),
    ("auth_file", "its user and password stand in its URL"),
    ("acl", "only ZooKeeper has access lists"),
    ("no_strict_acl", "only ZooKeeper has access lists"),
    ("tick", "only ZooKeeper has ticks"),
];

/// What the orders need that no plain lock has.
fn need(order: &Order) -> Option<&'static str> {
    match order {
        Order::Run(_) | Order::Serve(_) | Order::Completions(_) | Order::Man(_) => None,
        Order::Config(_) | Order::Help(_) => None,
        Order::Queue(_) | Order::Elect(_) | Order::Leader(_) | Order::Why(_) => Some("a queue"),
        Order::Break(_) => Some("a queue of tickets"),
        Order::Resize(_) => Some("a queue for its permits"),
        Order::Ls(_) => Some("a list of its locks"),
        Order::Journal(_) => Some("a journal"),
        Order::Doctor(_) => Some("queues and sessions"),
        Order::Bench(_) => Some("an ensemble"),
        Order::Init => Some("an epoch"),
        #[cfg(feature = "ui")]
        Order::Ui(_) => Some("queues and sessions"),
    }
}

/// Refuses options for one lock beside several names, and what is a command rather than a name.
pub(super) fn check_names(order: &Order) -> Result<(), clap::Error> {
    let Order::Run(run) = order else {
        return Ok(());
    };
    let alone = [
        (run.shared, "--shared"),
        (run.permits.is_some(), "--permits"),
        (run.owner.is_some(), "--owner"),
    ];
    let is_several = run.names.len() > 1;
    let mut names = run.names.iter().filter(|_| is_several);
    if let Some(word) = names.find(|name| LockName::new(name).is_err()) {
        return Err(refused(format!(
            "{word:?} is no name of a lock: a command with a `--` of its own needs one before it"
        )));
    }
    match alone.iter().find(|(is_given, _)| *is_given && is_several) {
        Some((_, option)) => Err(refused(format!(
            "{option} is for one lock, and several were given"
        ))),
        None => Ok(()),
    }
}

/// Leaves out what files say for other servers than the chosen ones.
pub(super) fn leave_out(place: &Place, origin: &Origin, settings: &mut Settings) {
    let not_there = match place {
        Place::ZooKeeper(_) => &[],
        Place::Store { .. } => OF_ZOOKEEPER,
        Place::Plain { .. } => NOT_PLAIN,
    };
    for (id, why) in not_there {
        let is_for_them = matches!(origin, Origin::File { .. }) && settings.is_beside_servers(id);
        if !is_for_them && *id != REQUIRE_TLS {
            settings.leave_out(id, why);
        }
    }
}

/// Refuses a certificate without its key, or without an authority to trust.
pub(super) fn check_tls(told: &Told<'_>) -> Result<(), clap::Error> {
    for (id, other) in [
        ("tls_cert", "tls_key"),
        ("tls_key", "tls_cert"),
        ("tls_cert", "tls_ca"),
    ] {
        if let (Some(word), None) = (told.saying(id), told.saying(other)) {
            let other = other.replace('_', "-");
            return Err(refused(format!("{word} needs --{other}")));
        }
    }
    Ok(())
}

/// Refuses times that contradict each other.
pub(super) fn check_times(order: &Order) -> Result<(), clap::Error> {
    let (Order::Run(Run { work, .. }) | Order::Elect(Elect { work, .. })) = order else {
        return Ok(());
    };
    match (work.hold_at_least, work.hold_at_most) {
        (Some(least), Some(most)) if least > most => {
            Err(refused("--hold-at-least is longer than --hold-at-most"))
        }
        _ => Ok(()),
    }
}

/// Refuses what the chosen store or kind of lock has nothing for.
pub(super) fn check_place(
    order: &Order,
    place: &Place,
    told: &Told<'_>,
) -> Result<(), clap::Error> {
    if let (Place::ZooKeeper(_) | Place::Store { .. }, Order::Run(Run { ttl: Some(_), .. })) =
        (place, order)
    {
        let why = "--ttl is for plain locks: with a queue it is --session-timeout";
        return Err(refused(why));
    }
    match place {
        Place::ZooKeeper(_) if matches!(order, Order::Init) => Err(refused(
            "`init` is for another store (--servers redis://host:6379): ZooKeeper keeps what it has committed, so it needs none",
        )),
        Place::ZooKeeper(_) => Ok(()),
        Place::Store { engine, url } => {
            check_options(OF_ZOOKEEPER, engine, told)?;
            let is_bench = matches!(order, Order::Bench(_));
            if is_bench && (told.saying("tls_ca").is_some() || !names_one_in_clear(url)) {
                let why = "`bench` measures raw operations on one server without TLS: name it with redis:// or postgres://";
                return Err(refused(why));
            }
            Ok(())
        }
        Place::Plain { kind, .. } => check_plain(kind, order, told),
    }
}

/// Whether a URL names one server, and no TLS.
fn names_one_in_clear(url: &str) -> bool {
    let is_known_to_others = url.starts_with("rediss") || url.contains("sentinel://");
    let mut modes = url.match_indices("sslmode=");
    !is_known_to_others && modes.all(|(at, _)| url[at..].starts_with("sslmode=disable"))
}

fn check_plain(kind: &str, order: &Order, told: &Told<'_>) -> Result<(), clap::Error> {
    if let Some(need) = need(order) {
        let word = order.word();
        return Err(refused(format!(
            "`{word}` needs {need}, and {kind} has none: use ZooKeeper, redis:// or postgres://"
        )));
    }
    check_options(NOT_PLAIN, kind, told)?;
    match order {
        Order::Run(run) if run.names.len() > 1 => Err(refused(format!(
            "several locks are not for {kind}: they are taken together with queues only"
        ))),
        _ => Ok(()),
    }
}

fn check_options(
    refused_ones: &[(&str, &str)],
    kind: &str,
    told: &Told<'_>,
) -> Result<(), clap::Error> {
    for (id, why) in refused_ones {
        if let Some(word) = told.saying(id) {
            return Err(refused(format!("{word} is not for {kind}: {why}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Arguments;

    const REDIS: &str = "redis+setnx://me:secret@a:1";

    fn read(words: &str) -> Result<Arguments, String> {
        let words = format!("lockkeeper {words}");
        Arguments::read(words.split(' '), &[]).map_err(|error| error.to_string())
    }

    #[test]
    fn what_a_plain_lock_does_not_have_is_refused_by_name() {
        for option in [
            "--shared",
            "--permits 1/2",
            "--journal 9",
            "--label x",
            "--root /locks",
            "--create-chroot",
            "--dialect kazoo",
            "--auth digest:a:b",
            "--auth-file f",
            "--acl open",
            "--no-strict-acl",
            "--tls-ca f",
            "--require-tls",
            "--session-timeout 10s",
            "--tick 2s",
        ] {
            let (word, _) = option.split_once(' ').unwrap_or((option, ""));
            // Before and after the word of the order, where it may stand there.
            let line = format!("--servers {REDIS} run {option} a -- true");
            let error = read(&line).unwrap_err();
            let says = format!("{word} is not for redis+setnx: ");
            assert!(
                error.contains(&says) && !error.contains("secret"),
                "{error}"
            );
        }
        let error = read(&format!("--servers {REDIS} --root /x run a -- true")).unwrap_err();
        assert!(error.contains("--root is not for"), "{error}");
        let error = read(&format!("--servers {REDIS} run a b -- true")).unwrap_err();
        assert!(error.contains("several locks are not for"), "{error}");
        let all = "--ttl 5s --owner me --wait 1s --grace 1s --wait-group --unset-auth \
                   --hold-at-least 1s --hold-at-most 1min";
        let plain = read(&format!(
            "run --servers {REDIS} --connect-timeout 3s {all} a -- true"
        ));
        assert!(plain.is_ok(), "{}", plain.unwrap_err());
    }

    #[test]
    fn zookeeper_has_no_ttl_and_is_never_declared_new() {
        let error = read("--servers zk1:1 run --ttl 5s a -- true").unwrap_err();
        assert!(error.contains("--session-timeout"), "{error}");
        let error = read("--servers zk1:1 init").unwrap_err();
        assert!(error.contains("keeps what it has committed"), "{error}");
    }

    #[test]
    #[cfg(feature = "redis")]
    fn what_is_of_zookeeper_is_refused_by_name_on_another_store() {
        const STORE: &str = "redis://me:secret@a:1";
        for (id, _) in OF_ZOOKEEPER {
            let option = format!("--{}", id.replace('_', "-"));
            let value = match *id {
                "no_strict_acl" | "create_chroot" => "",
                "dialect" => " kazoo",
                "auth" => " digest:a:b",
                "acl" => " open",
                "tick" => " 2s",
                _ => " f",
            };
            let error = read(&format!("--servers {STORE} {option}{value} ls")).unwrap_err();
            assert!(error.contains(" is not for Redis: "), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        let error = read(&format!("--servers {STORE} run --ttl 5s a -- true")).unwrap_err();
        assert!(error.contains("is for plain locks"), "{error}");
        for order in [
            "run --shared a -- true",
            "run --permits 1/2 --journal 9 a -- true",
            "run --root /x --session-timeout 9s --label l a b -- true",
            "elect a -- true",
            "leader a",
            "queue a",
            "why a",
            "break a",
            "resize a 2",
            "journal a",
            "ls",
            "doctor",
            "init",
            "bench",
        ] {
            let read = read(&format!("--servers {STORE} {order}"));
            assert!(read.is_ok(), "{order}: {}", read.unwrap_err());
        }
    }

    #[test]
    #[cfg(all(feature = "postgres", feature = "redis"))]
    fn a_bench_is_on_one_server_without_tls() {
        for (server, is_read) in [
            ("redis://a", true),
            ("postgres://a/b?sslmode=disable", true),
            ("rediss://a", false),
            ("redis-sentinel://a/main", false),
            ("redis+sentinel://a/main", false),
            ("postgres://a/b?sslmode=verify-full", false),
            ("postgres://a/b --tls-ca f", false),
        ] {
            let read = read(&format!("--servers {server} bench"));
            assert_eq!(read.is_ok(), is_read, "{server}");
            let says = read.is_err_and(|error| error.contains("without TLS"));
            assert_eq!(says, !is_read, "{server}");
        }
    }

    #[test]
    fn an_order_that_needs_a_queue_is_refused_on_a_plain_lock() {
        for order in [
            "elect a -- true",
            "leader a",
            "queue a",
            "why a",
            "break a",
            "resize a 2",
            "journal a",
            "ls",
            "doctor",
            "bench",
            "init",
        ] {
            let error = read(&format!("--servers {REDIS} {order}")).unwrap_err();
            let (word, _) = order.split_once(' ').unwrap_or((order, ""));
            let starts = error.contains(&format!("`{word}` needs "));
            let ends = error.contains("redis+setnx has none: use ZooKeeper");
            assert!(starts && ends && !error.contains("secret"), "{error}");
        }
    }
}
