//! What a clock that is set back may cost. What is stored then lies further ahead than it may, and
//! is stored anew once it has done so for a whole pause or timeout: the clock may be right again
//! before that.

use super::*;
use crate::link::stored::ByHand;

const HOUR: i64 = 3_600_000_000;

/// As long as nobody gets a session in a new history.
const PAUSE: Duration = Duration::from_secs(35);

fn left(refused: &Fault) -> Duration {
    match refused {
        Fault::Answered(Code::Recovering(left)) => *left,
        other => panic!("{other:?}"),
    }
}

/// All that is stored, as a clock sees it that was set back by so many seconds.
async fn set_back(server: &Daemon, seconds: i64) {
    for stored in [
        "meta SET free = free",
        "meta SET due = due",
        "meta SET ahead = ahead",
        "sessions SET deadline = deadline",
        "sessions SET marked = marked",
        "sessions SET ahead = ahead",
    ] {
        run(
            server,
            &format!("UPDATE lockkeeper.{stored} + {}", seconds * 1_000_000),
        )
        .await;
    }
}

async fn grace(server: &Daemon) -> Duration {
    left(&open_at(&url(server), false).await.unwrap_err())
}

#[test]
fn a_clock_that_was_set_back_makes_the_pause_twice_as_long_at_most() {
    on_postgres(async |server| {
        drop(open(&server).await);
        let later = format!(
            "UPDATE lockkeeper.meta SET free = free + {HOUR} + (extract(epoch FROM now()) * 1000000)::bigint"
        );
        run(&server, &later).await;

        let first = grace(&server).await;
        sleep(SESSION_TIMEOUT).await;
        let second = grace(&server).await;
        // A whole pause has passed since the first.
        run(
            &server,
            "UPDATE lockkeeper.meta SET ahead = ahead - 35000000",
        )
        .await;
        let third = grace(&server).await;
        sleep(SESSION_TIMEOUT).await;
        let fourth = grace(&server).await;

        assert!(first <= PAUSE * 2, "{first:?}");
        assert!(second + SESSION_TIMEOUT <= first, "{second:?}");
        assert!(third <= PAUSE, "{third:?}");
        assert!(fourth + SESSION_TIMEOUT <= third, "{fourth:?}");
    });
}

#[test]
fn a_clock_that_is_set_back_for_a_moment_cuts_no_pause() {
    on_postgres(async |server| {
        drop(open(&server).await);
        let soon = "UPDATE lockkeeper.meta SET free = (extract(epoch FROM now()) * 1000000)::bigint + 30000000";
        run(&server, soon).await;
        let since = Instant::now();

        set_back(&server, 20).await;
        grace(&server).await;
        set_back(&server, -20).await;

        let left = grace(&server).await;
        let all = left + since.elapsed();
        assert!(all >= Duration::from_secs(29), "{left:?}");
    });
}

/// It has just sent a heartbeat, and says nothing more.
#[test]
fn a_clock_that_is_set_back_for_a_moment_ends_no_session_before_its_lease() {
    on_postgres(async |server| {
        let link = open(&server).await;
        link.create("/a", b"", Create::Persistent).await.unwrap();
        let looks = client(&server).await;
        let lasts = SESSION_TIMEOUT * 2;
        let target = PostgresTarget::new(&url(&server), lasts, true).unwrap();
        let silent = ByHand::connect(&target, 1, "secret", 1).await;
        silent.open().await;
        silent.create("/a/t-", Create::EphemeralSequential).await;
        let since = Instant::now();
        silent.touch().await;

        set_back(&server, 5).await;
        let due = "SELECT due FROM lockkeeper.meta";
        let before: i64 = looks.query_one(due, &[]).await.unwrap().get(0);
        until("somebody has looked for the dead", async || {
            let now: i64 = looks.query_one(due, &[]).await.unwrap().get(0);
            now != before
        })
        .await;
        set_back(&server, -5).await;

        until("its ticket is gone", async || {
            children(&*link, "/a").await.is_empty()
        })
        .await;
        // A busy machine sees the end late, and never early.
        let lasted = since.elapsed();
        assert!(lasted >= lasts * 9 / 10, "its lease lasts: {lasted:?}");
    });
}

#[test]
fn a_session_that_died_before_the_clock_was_set_back_is_found() {
    on_postgres(async |server| {
        let link = open(&server).await;
        link.create("/a", b"", Create::Persistent).await.unwrap();
        for (id, what) in [
            (1, "meta SET due = due"),
            (2, "sessions SET deadline = deadline"),
            (3, "sessions SET deadline = 1, marked = deadline"),
        ] {
            let target = PostgresTarget::new(&url(&server), SESSION_TIMEOUT, true).unwrap();
            let silent = ByHand::connect(&target, id, "secret", 1).await;
            silent.open().await;
            silent.create("/a/t-", Create::EphemeralSequential).await;
            assert_eq!(children(&*link, "/a").await.len(), 1);
            let of = if what.starts_with("meta") {
                ""
            } else {
                " WHERE id = "
            };
            let id = if of.is_empty() {
                String::new()
            } else {
                id.to_string()
            };
            run(
                &server,
                &format!("UPDATE lockkeeper.{what} + {HOUR}{of}{id}"),
            )
            .await;

            // One timeout until it is taken for dead, and one more until that has begun.
            let gone = timeout(SESSION_TIMEOUT * 5, async {
                while !children(&*link, "/a").await.is_empty() {
                    sleep(Duration::from_millis(20)).await;
                }
            });

            assert!(gone.await.is_ok(), "{what}");
        }
    });
}
