//! What in a PostgreSQL server's configuration weakens the promises.
//!
//! It asks on a connection of its own, and changes nothing. Everybody may read these settings.

use std::collections::HashMap;

use tokio_postgres::Client;

use super::problem::ungreeted;
use crate::link::engine::Weakness;
use crate::link::stored::Ungreeted;

/// As this user has them. Times are in milliseconds. Some are not there in older versions.
const SETTINGS: &str = "SELECT name, setting FROM pg_settings WHERE name IN \
     ('fsync', 'full_page_writes', 'synchronous_commit', 'synchronous_standby_names', \
     'statement_timeout', 'transaction_timeout', 'idle_session_timeout') \
     UNION ALL SELECT 'standbys', count(*)::text FROM pg_stat_replication \
     WHERE coalesce(state, 'streaming') IN ('catchup', 'streaming')";
/// A function of ours waits so long for a row, and needs some time beside that.
const LONGEST_STATEMENT: u64 = 4_000;

pub(super) async fn ask(client: &Client, is_straight: bool) -> Result<Vec<Weakness>, Ungreeted> {
    let rows = client.query_typed(SETTINGS, &[]).await;
    let rows = rows.map_err(|error| ungreeted(&error))?;
    let settings = rows.iter().filter_map(|row| {
        let (name, setting) = (row.try_get(0).ok()?, row.try_get(1).ok()?);
        Some((name, setting))
    });
    Ok(found(&settings.collect(), is_straight))
}

/// What each costs, and what to set.
const WHY: [(&str, &str); 8] = [
    (
        "fsync",
        "a crash of the machine may destroy the database, or take committed locks and tokens back in silence: set on",
    ),
    (
        "full_page_writes",
        "a crash of the machine may leave pages half written, and locks with them: set on",
    ),
    (
        "synchronous_commit",
        "a crash loses the last commits that were answered, and tokens rise after it only if the clock did: set on",
    ),
    (
        "synchronous_standby_names",
        "a primary that is cut off from its standbys goes on granting locks beside the one that takes over: name a standby, with synchronous_commit on",
    ),
    (
        "statement_timeout",
        "a heartbeat or a release that waits for a row is cancelled, and locks are lost early: set 0 or 4s and more for this user",
    ),
    (
        "transaction_timeout",
        "a heartbeat or a release that waits for a row ends its connection, and locks are lost early: set 0 or 4s and more for this user",
    ),
    (
        "idle_session_timeout",
        "the server ends connections of sessions that are only waiting: set 0 for this user",
    ),
    (
        "pooler",
        "a pooler is between: waiters ask for their turn up to 100 times a second instead of being told, and each session asks one thing at a time. Name the server itself, without wake=poll",
    ),
];

/// What is wrong with these settings. (pure)
fn found(settings: &HashMap<String, String>, is_straight: bool) -> Vec<Weakness> {
    let setting = |name: &str| settings.get(name).map_or("", String::as_str);
    let number = |name: &str| setting(name).parse().unwrap_or(0_u64);
    let is_weak = |name: &str| match name {
        "pooler" => !is_straight,
        "statement_timeout" | "transaction_timeout" => {
            (1..LONGEST_STATEMENT).contains(&number(name))
        }
        "idle_session_timeout" => number(name) > 0,
        "synchronous_standby_names" => {
            let is_local = matches!(setting("synchronous_commit"), "off" | "local");
            number("standbys") > 0 && (setting(name).is_empty() || is_local)
        }
        _ => setting(name) == "off",
    };
    let weak = WHY.iter().filter(|(name, _)| is_weak(name));
    let weak = weak.map(|&(name, why)| Weakness {
        setting: name.to_owned(),
        why: why.to_owned(),
    });
    weak.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(changed: &[(&str, &str)], is_straight: bool) -> Vec<String> {
        let sound = [
            ("fsync", "on"),
            ("full_page_writes", "on"),
            ("synchronous_commit", "on"),
            ("synchronous_standby_names", ""),
            ("statement_timeout", "0"),
            ("standbys", "0"),
        ];
        let all = sound.iter().chain(changed);
        let settings = all.map(|&(name, value)| (name.to_owned(), value.to_owned()));
        let found = found(&settings.collect(), is_straight);
        found.into_iter().map(|weakness| weakness.setting).collect()
    }

    #[test]
    fn each_setting_that_costs_a_promise_is_named_and_no_other() {
        assert!(names(&[], true).is_empty());
        for (name, value) in [
            ("fsync", "off"),
            ("full_page_writes", "off"),
            ("synchronous_commit", "off"),
            ("statement_timeout", "3999"),
            ("transaction_timeout", "3999"),
            ("idle_session_timeout", "60000"),
        ] {
            assert_eq!(names(&[(name, value)], true), [name]);
        }
        assert!(names(&[("statement_timeout", "4000")], true).is_empty());
        assert!(names(&[("synchronous_commit", "remote_apply")], true).is_empty());
        assert_eq!(names(&[], false), ["pooler"]);
    }

    #[test]
    fn a_standby_is_sound_when_commits_wait_for_it() {
        let (one, named) = (("standbys", "1"), ("synchronous_standby_names", "*"));
        assert_eq!(names(&[one], true), [named.0]);
        assert!(names(&[one, named], true).is_empty());
        let local = ("synchronous_commit", "local");
        assert_eq!(names(&[one, named, local], true), [named.0]);
    }
}
