//! What a clock that was set back may cost: nothing that is stored lies further ahead than it may.

use super::*;
use crate::link::stored::ByHand;

const HOUR: i64 = 3_600_000_000;

fn left(refused: &Fault) -> Duration {
    match refused {
        Fault::Answered(Code::Recovering(left)) => *left,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_clock_that_was_set_back_makes_no_pause_longer() {
    on_postgres(async |server| {
        drop(open(&server).await);
        let later = format!(
            "UPDATE lockkeeper.meta SET free = free + {HOUR} + (extract(epoch FROM now()) * 1000000)::bigint"
        );
        run(&server, &later).await;

        let first = left(&open_at(&url(&server), false).await.unwrap_err());
        sleep(SESSION_TIMEOUT).await;
        let second = left(&open_at(&url(&server), false).await.unwrap_err());

        assert!(first <= Duration::from_secs(35), "{first:?}");
        assert!(second + SESSION_TIMEOUT <= first, "{second:?}");
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

            let gone = timeout(SESSION_TIMEOUT * 3, async {
                while !children(&*link, "/a").await.is_empty() {
                    sleep(Duration::from_millis(20)).await;
                }
            });

            assert!(gone.await.is_ok(), "{what}");
        }
    });
}
