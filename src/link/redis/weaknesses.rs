//! What in a Redis server's configuration weakens the promises.
//!
//! It asks on a connection of its own, and changes nothing. A setting that may not be read is said
//! to be unknown.

use std::collections::HashMap;

use redis::from_redis_value;

use super::connect::OpenConnection;
use crate::error::UnreachableReason;
use crate::link::engine::Weakness;
use crate::link::stored::Ungreeted;
use crate::protocol::epoch::CUT_OFF;

/// The script answers nothing if a replica lags by more whole seconds, whatever the server allows.
const LAG: u64 = CUT_OFF.as_secs() - 1;
const SETTINGS: [&str; 7] = [
    "maxmemory",
    "maxmemory-policy",
    "appendonly",
    "save",
    "min-replicas-to-write",
    "min-replicas-max-lag",
    "repl-backlog-ttl",
];

pub(super) async fn ask(open: &mut OpenConnection) -> Result<Vec<Weakness>, Ungreeted> {
    let replication = open.ask("INFO", &["replication"]).await?;
    let replication: String =
        from_redis_value(replication).map_err(|_| Ungreeted::refusing("it is no Redis server"))?;
    let words = [&["GET"], &SETTINGS[..]].concat();
    let settings = open.ask("CONFIG", &words).await;
    let settings = settings.map_err(|error| match error.reason() {
        UnreachableReason::Refusing(why) => why,
        reason => format!("{reason:?}"),
    });
    let settings =
        settings.and_then(|settings| from_redis_value(settings).map_err(|error| error.to_string()));
    Ok(match settings {
        Ok(settings) => found(&settings, replicas(&replication)),
        // A user without the right to CONFIG, or a provider that hides it.
        Err(error) => vec![Weakness {
            setting: "CONFIG".into(),
            why: format!(
                "the settings of the server may not be read ({error}): check them as docs/engines.md says, or allow +config|get"
            ),
        }],
    })
}

/// What is wrong with these settings. (pure)
fn found(settings: &HashMap<String, String>, replicas: u64) -> Vec<Weakness> {
    let setting = |name: &str| settings.get(name).map_or("", String::as_str);
    let number = |name: &str| setting(name).parse().unwrap_or(0_u64);
    let (policy, lag) = (setting("maxmemory-policy"), number("min-replicas-max-lag"));
    let of = |name: &str, why: String| Weakness {
        setting: name.to_owned(),
        why,
    };

    let mut found = Vec::new();
    if policy != "noeviction" && number("maxmemory") > 0 {
        let why = format!(
            "{policy} removes keys of locks that are held when memory is full, and two clients may hold one: set noeviction"
        );
        found.push(of("maxmemory-policy", why));
    }
    if setting("appendonly") != "yes" && setting("save").is_empty() {
        let why = "nothing is on disk: after a restart all locks are gone, and tokens rise only if the clock did: set yes";
        found.push(of("appendonly", why.into()));
    }
    // With fewer, one that is cut off with a part of its replicas has enough of them.
    if number("min-replicas-to-write") < replicas {
        let why = format!(
            "a primary that is cut off from the replica that takes over goes on granting locks beside it: set {replicas}, as many as there are"
        );
        found.push(of("min-replicas-to-write", why));
    }
    if replicas > 0 && lag == 0 {
        let why = format!(
            "with 0 a primary that is cut off goes on granting locks beside the one that takes over: set {LAG}"
        );
        found.push(of("min-replicas-max-lag", why));
    }
    if replicas > 0 && number("repl-backlog-ttl") > 0 {
        let why = format!(
            "{} s after its last replica has gone, a primary begins another history, and all locks are lost: set 0",
            number("repl-backlog-ttl")
        );
        found.push(of("repl-backlog-ttl", why));
    }
    found
}

fn replicas(replication: &str) -> u64 {
    let mut lines = replication.lines();
    let count = lines.find_map(|line| line.strip_prefix("connected_slaves:"));
    count.map_or(0, |count| count.trim().parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(changed: &[(&str, &str)], replicas: u64) -> Vec<String> {
        let sound = [
            ("maxmemory", "0"),
            ("maxmemory-policy", "noeviction"),
            ("appendonly", "yes"),
            ("save", ""),
            ("min-replicas-to-write", "1"),
            ("min-replicas-max-lag", "2"),
            ("repl-backlog-ttl", "0"),
        ];
        let all = sound.iter().chain(changed);
        let settings = all.map(|&(name, value)| (name.to_owned(), value.to_owned()));
        let replication = format!("role:master\r\nconnected_slaves:{replicas}\r\n");
        let found = found(&settings.collect(), super::replicas(&replication));
        found.into_iter().map(|weakness| weakness.setting).collect()
    }

    #[test]
    fn the_script_answers_for_no_longer_than_is_expected_of_a_primary_that_is_cut_off() {
        let script = crate::link::redis::target::script();
        assert!(script.contains(&format!("local LAG = {LAG}\n")));
    }

    #[test]
    fn each_setting_that_costs_a_promise_is_named_and_no_other() {
        assert!(names(&[], 0).is_empty() && names(&[], 1).is_empty());
        assert_eq!(names(&[], 2), ["min-replicas-to-write"], "one is not all");
        let full = [("maxmemory", "100"), ("maxmemory-policy", "allkeys-lru")];
        assert_eq!(names(&full, 0), ["maxmemory-policy"]);
        // Nothing is ever removed without a limit.
        assert!(names(&full[1..], 0).is_empty());
        assert_eq!(names(&[("appendonly", "no")], 0), ["appendonly"]);
        let snapshots = [("appendonly", "no"), ("save", "3600 1")];
        assert!(names(&snapshots, 0).is_empty());
        let alone = [("min-replicas-to-write", "0")];
        assert!(names(&alone, 0).is_empty(), "there is no replica");
        assert_eq!(names(&alone, 1), ["min-replicas-to-write"]);
        let any = [("min-replicas-max-lag", "0")];
        assert_eq!(names(&any, 1), ["min-replicas-max-lag"]);
        let backlog = [("repl-backlog-ttl", "3600")];
        assert!(names(&backlog, 0).is_empty(), "there is no replica");
        assert_eq!(names(&backlog, 1), ["repl-backlog-ttl"]);
    }
}
