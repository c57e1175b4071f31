//! The statements of other programs, beside our guards: they hold and we wait, and the reverse.

use std::sync::Arc;

use lockkeeper::compat::sql::{AdvisoryLock, SpringLock};
use mysql_async::prelude::Queryable;

use crate::bed::{Bed, Case};
use crate::sql::url;

pub const CASES: &[&[Case]] = &[
    crate::cases![if |kind| kind.ends_with("+shedlock") || kind.ends_with("+spring");
        a_peer_with_a_table_waits_for_us_and_we_for_it,
    ],
    crate::cases![if |kind| kind.ends_with("+advisory") || kind.ends_with("+getlock");
        a_peer_with_a_session_waits_for_us_and_we_for_it,
    ],
];

/// What a Java client sends to take a lock for 10 s, and to free it. A statement that takes nothing
/// is followed by the next one.
fn statements(kind: &str, name: &str) -> (Vec<String>, String) {
    let key = SpringLock::key(name);
    match kind {
        "postgres+shedlock" => (
            vec![format!(
                "INSERT INTO shedlock(name, lock_until, locked_at, locked_by) VALUES('{name}', \
                 timezone('utc', CURRENT_TIMESTAMP) + make_interval(secs => 10.0), \
                 timezone('utc', CURRENT_TIMESTAMP), 'java') ON CONFLICT (name) DO UPDATE SET \
                 lock_until = timezone('utc', CURRENT_TIMESTAMP) + make_interval(secs => 10.0), \
                 locked_at = timezone('utc', CURRENT_TIMESTAMP), locked_by = 'java' \
                 WHERE shedlock.name = '{name}' \
                 AND shedlock.lock_until <= timezone('utc', CURRENT_TIMESTAMP)"
            )],
            format!(
                "UPDATE shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP) \
                 WHERE name = '{name}' AND locked_by = 'java'"
            ),
        ),
        "mysql+shedlock" => (
            vec![
                format!(
                    "INSERT IGNORE INTO shedlock(name, lock_until, locked_at, locked_by) \
                     VALUES('{name}', TIMESTAMPADD(MICROSECOND, 10000000, UTC_TIMESTAMP(3)), \
                     UTC_TIMESTAMP(3), 'java')"
                ),
                format!(
                    "UPDATE shedlock SET \
                     lock_until = TIMESTAMPADD(MICROSECOND, 10000000, UTC_TIMESTAMP(3)), \
                     locked_at = UTC_TIMESTAMP(3), locked_by = 'java' \
                     WHERE name = '{name}' AND lock_until <= UTC_TIMESTAMP(3)"
                ),
            ],
            format!(
                "UPDATE shedlock SET lock_until = UTC_TIMESTAMP(3) \
                 WHERE name = '{name}' AND locked_by = 'java'"
            ),
        ),
        _ => {
            let (now, before, ignore) = match kind.starts_with("postgres") {
                true => (
                    "timezone('utc', now())",
                    "timezone('utc', now()) - interval '10 s'",
                    ("", " ON CONFLICT DO NOTHING"),
                ),
                false => (
                    "UTC_TIMESTAMP(6)",
                    "UTC_TIMESTAMP(6) - INTERVAL 10 SECOND",
                    ("IGNORE ", ""),
                ),
            };
            (
                vec![
                    format!(
                        "UPDATE INT_LOCK SET CLIENT_ID='java', CREATED_DATE={now} WHERE \
                         REGION='DEFAULT' AND LOCK_KEY='{key}' \
                         AND (CLIENT_ID='java' OR CREATED_DATE<{before})"
                    ),
                    format!(
                        "INSERT {}INTO INT_LOCK (REGION, LOCK_KEY, CLIENT_ID, CREATED_DATE) \
                         VALUES ('DEFAULT', '{key}', 'java', {now}){}",
                        ignore.0, ignore.1
                    ),
                ],
                format!(
                    "DELETE FROM INT_LOCK WHERE REGION='DEFAULT' AND LOCK_KEY='{key}' \
                     AND CLIENT_ID='java'"
                ),
            )
        }
    }
}

async fn a_peer_with_a_table_waits_for_us_and_we_for_it(bed: Arc<Bed>, name: String) {
    let (take, free) = statements(bed.kind, &name);
    let database = bed.database();
    let try_take = || async {
        for statement in &take {
            if database.execute(statement).await > 0 {
                return true;
            }
        }
        false
    };
    let lock = bed.lock(&name).await;

    let guard = lock.lock().await.unwrap();
    assert!(!try_take().await, "it is ours");
    database.execute(&free).await;
    guard.check().await.unwrap();
    guard.release().await.unwrap();

    assert!(try_take().await, "we have freed it");
    assert!(lock.try_lock().await.unwrap().is_none());
    assert_eq!(database.execute(&free).await, 1);
    let guard = lock.try_lock().await.unwrap().expect("it is free");
    guard.release().await.unwrap();
}

async fn a_peer_with_a_session_waits_for_us_and_we_for_it(bed: Arc<Bed>, name: String) {
    let lock = bed.lock(&name).await;
    let guard = lock.lock().await.unwrap();
    if bed.kind.starts_with("postgres") {
        let url = url("postgres", bed.database().server());
        let opened = tokio_postgres::connect(&url, tokio_postgres::NoTls).await;
        let (client, connection) = opened.unwrap();
        tokio::spawn(connection);
        let key = format!("('x' || substr(md5('{name}'), 1, 16))::bit(64)::bigint");
        let sql = format!("SELECT {key}, pg_try_advisory_lock({key})");
        let row = client.query_one(&sql, &[]).await.unwrap();
        assert_eq!(row.get::<_, i64>(0), AdvisoryLock::key(&name));
        assert!(!row.get::<_, bool>(1), "it is ours");
        guard.release().await.unwrap();
        let row = client.query_one(&sql, &[]).await.unwrap();
        assert!(row.get::<_, bool>(1), "we have freed it");
        assert!(lock.try_lock().await.unwrap().is_none());
        let sql = format!("SELECT pg_advisory_unlock({key})");
        client.query_one(&sql, &[]).await.unwrap();
    } else {
        let mut conn = bed.database().conn().await;
        let sql = format!("SELECT GET_LOCK('{name}', 0)");
        assert_eq!(conn.query_first::<u8, _>(&sql).await.unwrap(), Some(0));
        guard.release().await.unwrap();
        assert_eq!(conn.query_first::<u8, _>(&sql).await.unwrap(), Some(1));
        assert!(lock.try_lock().await.unwrap().is_none());
        let sql = format!("SELECT RELEASE_LOCK('{name}')");
        conn.query_drop(sql).await.unwrap();
    }
    let guard = lock.try_lock().await.unwrap().expect("it is free");
    guard.release().await.unwrap();
}
