//! Words that do not go together: options for one lock beside several names, and what a kind of
//! lock has nothing for.
//!
//! Invariant: no word is left out in silence. What a plain lock does not have is refused by its
//! name, also if a variable says it, and so is what ZooKeeper does not have.

use clap::ArgMatches;
use clap::parser::ValueSource;

use super::place::{Place, refused};
use super::{Arguments, Order};

/// What plain locks do not have: the id of an argument, and why or what has it.
const NOT_PLAIN: &[(&str, &str)] = &[
    ("root", "only ZooKeeper has nodes to put locks below"),
    ("dialect", "only locks on ZooKeeper have dialects"),
    ("auth", "its user and password stand in its URL"),
    ("auth_file", "its user and password stand in its URL"),
    ("acl", "only ZooKeeper has access lists"),
    ("no_strict_acl", "only ZooKeeper has access lists"),
    ("tls_ca", "only connections to ZooKeeper have TLS"),
    ("tls_cert", "only connections to ZooKeeper have TLS"),
    ("tls_key", "only connections to ZooKeeper have TLS"),
    ("require_tls", "only connections to ZooKeeper have TLS"),
    (
        "session_timeout",
        "it has no session: --ttl says how long its lock outlives a crash",
    ),
    ("tick", "only ZooKeeper has ticks: see --ttl"),
    (
        "shared",
        "it excludes everybody, and read locks are on ZooKeeper",
    ),
    ("permits", "semaphores are on ZooKeeper"),
    ("journal", "only locks on ZooKeeper have a journal"),
    (
        "label",
        "it has no queue that shows a label, and ZooKeeper has one",
    ),
];

/// What the orders need that no plain lock has.
fn need(order: &Order) -> Option<&'static str> {
    match order {
        Order::Run(_) | Order::Serve(_) | Order::Completions(_) | Order::Man(_) => None,
        Order::Queue(_) | Order::Elect(_) | Order::Leader(_) | Order::Why(_) => Some("a queue"),
        Order::Break(_) => Some("a queue of tickets"),
        Order::Ls(_) => Some("a list of its locks"),
        Order::Journal(_) => Some("a journal"),
        Order::Doctor(_) => Some("queues and sessions"),
        Order::Bench(_) => Some("an ensemble"),
    }
}

/// Refuses options for one lock beside several names.
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
    match alone.iter().find(|(is_given, _)| *is_given && is_several) {
        Some((_, option)) => Err(refused(format!(
            "{option} is for one lock, and several were given"
        ))),
        None => Ok(()),
    }
}

/// Refuses what the chosen kind of lock has nothing for.
pub(super) fn check_place(arguments: &Arguments, matches: &ArgMatches) -> Result<(), clap::Error> {
    let order = &arguments.order;
    let kind = match (&arguments.server.place, order) {
        (Place::Plain { kind, .. }, _) => kind,
        (Place::ZooKeeper(_), Order::Run(run)) if run.ttl.is_some() => {
            let why = "--ttl is for plain locks: on ZooKeeper it is --session-timeout";
            return Err(refused(why));
        }
        (Place::ZooKeeper(_), _) => return Ok(()),
    };
    if let Some(need) = need(order) {
        let word = order.word();
        return Err(refused(format!(
            "`{word}` needs {need}, and {kind} has none: use ZooKeeper"
        )));
    }
    for (id, why) in NOT_PLAIN {
        if let Some(word) = given(id, matches) {
            return Err(refused(format!("{word} is not for {kind}: {why}")));
        }
    }
    match order {
        Order::Run(run) if run.names.len() > 1 => Err(refused(format!(
            "several locks are not for {kind}: they are taken together on ZooKeeper only"
        ))),
        _ => Ok(()),
    }
}

/// How the user has said it, if at all.
fn given(id: &str, matches: &ArgMatches) -> Option<String> {
    let (_, matches) = matches.subcommand()?;
    let source = matches.value_source(id)?;
    // A flag has a source also when its variable says no.
    if matches!(matches.try_get_one::<bool>(id), Ok(Some(false))) {
        return None;
    }
    let option = format!("--{}", id.replace('_', "-"));
    match source {
        ValueSource::CommandLine => Some(option),
        ValueSource::EnvVariable => {
            let variable = id.replace("no_strict_", "").to_uppercase();
            Some(format!("{option} (LOCKKEEPER_{variable})"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REDIS: &str = "redis+setnx://me:secret@a:1";

    fn read(words: &str) -> Result<Arguments, String> {
        let words = format!("lockkeeper {words}");
        Arguments::read(words.split(' ')).map_err(|error| error.to_string())
    }

    #[test]
    fn what_a_plain_lock_does_not_have_is_refused_by_name() {
        for option in [
            "--shared",
            "--permits 1/2",
            "--journal 9",
            "--label x",
            "--root /locks",
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
        let all = "--ttl 5s --owner me --wait 1s --grace 1s --wait-group --unset-auth";
        let plain = read(&format!(
            "run --servers {REDIS} --connect-timeout 3s {all} a -- true"
        ));
        assert!(plain.is_ok(), "{}", plain.unwrap_err());
    }

    #[test]
    fn zookeeper_has_no_ttl() {
        let error = read("--servers zk1:1 run --ttl 5s a -- true").unwrap_err();
        assert!(error.contains("--session-timeout"), "{error}");
    }

    #[test]
    fn an_order_that_needs_a_queue_is_refused_on_a_plain_lock() {
        for order in [
            "elect a -- true",
            "leader a",
            "queue a",
            "why a",
            "break a",
            "journal a",
            "ls",
            "doctor",
            "bench",
        ] {
            let error = read(&format!("--servers {REDIS} {order}")).unwrap_err();
            let (word, _) = order.split_once(' ').unwrap_or((order, ""));
            let starts = error.contains(&format!("`{word}` needs "));
            let ends = error.contains("redis+setnx has none: use ZooKeeper");
            assert!(starts && ends && !error.contains("secret"), "{error}");
        }
        for order in ["serve", "man", "completions bash"] {
            assert!(read(&format!("--servers {REDIS} {order}")).is_ok());
        }
    }
}
