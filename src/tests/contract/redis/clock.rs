//! A server whose clock was ahead, and was set back. What it had written meanwhile lies far ahead.

use super::*;
use crate::link::stored::ByHand;

/// Microseconds from now on, by the server's clock.
async fn in_an_hour(server: &Daemon) -> String {
    let script =
        "local time = redis.call('TIME') return string.format('%.0f', (time[1] + 3600) * 1000000)";
    let told = ask(server, &["EVAL", script, "0"]).await;
    redis::from_redis_value(told).unwrap()
}

#[test]
fn a_clock_that_was_set_back_makes_no_pause_longer() {
    on_redis(&[], async |server| {
        drop(open(&server).await);
        let ahead = in_an_hour(&server).await;
        let since = Instant::now();
        ask(&server, &["HSET", "{lockkeeper}:meta", "g", &ahead]).await;

        for _ in 0..2 {
            let refused = refusal(&server).await;
            assert!(is_recovering(&refused, since), "{refused:?}");
        }
    });
}

#[test]
fn a_clock_that_was_set_back_keeps_no_dead_session() {
    on_redis(&[], async |server| {
        let ours = open(&server).await;
        let way = Relay::to(server.address()).await;
        let through = format!("redis://{}", way.address());
        let target = RedisTarget::new(&through, SESSION_TIMEOUT, false).unwrap();
        let silent = target.open(SOON).await.unwrap();
        let mine = ticket(&*silent, "/t-").await;
        let ahead = in_an_hour(&server).await;

        way.set(Way::Silent);
        let sessions = "{lockkeeper}:sessions";
        for id in [ours.session_id(), silent.session_id()] {
            ask(&server, &["ZADD", sessions, &ahead, &id.to_string()]).await;
        }
        ask(&server, &["HSET", "{lockkeeper}:meta", "r", &ahead]).await;
        let since = Instant::now();
        until("the ticket is gone", async || {
            node(&*ours, &mine).await.is_none()
        })
        .await;

        // It may have asked right before the step, and its deadline may have been right.
        let waited = since.elapsed();
        assert!(waited >= SESSION_TIMEOUT * 2, "{waited:?}");
        assert_eq!(*ours.states().borrow(), SessionState::Connected);
    });
}

/// A timeout after it was first seen, by a clock that steps on meanwhile.
#[test]
fn a_step_forward_after_a_step_back_ends_no_session_at_once() {
    on_redis(&[], async |server| {
        let target = RedisTarget::new(&url(&server), SESSION_TIMEOUT, true).unwrap();
        let ours = ByHand::connect(&target, 7, "secret", 1).await;
        let theirs = ByHand::connect(&target, 8, "secret", 1).await;
        for session in [&ours, &theirs] {
            assert!(session.open().await.contains("Granted"));
        }
        let ahead = in_an_hour(&server).await;
        ask(&server, &["ZADD", "{lockkeeper}:sessions", &ahead, "8"]).await;
        ours.bury(8).await;

        // Less than it is still ahead.
        let step = (SESSION_TIMEOUT.as_micros() * 2).to_string();
        let record = "{lockkeeper}:session:8";
        ask(&server, &["HINCRBY", record, "m", &format!("-{step}")]).await;
        for _ in 0..2 {
            ours.bury(8).await;
        }

        let answered = theirs.touch().await;
        assert!(answered.contains("Done"), "{answered}");
    });
}

/// The end of a pause that was seen ahead is right when the clock is.
#[test]
fn a_clock_that_is_set_right_again_makes_no_pause_shorter() {
    on_redis(&[], async |server| {
        drop(open(&server).await);
        let meta = "{lockkeeper}:meta";
        let ahead = in_an_hour(&server).await;
        ask(&server, &["HSET", meta, "g", &ahead]).await;
        let since = Instant::now();
        assert!(is_recovering(&refusal(&server).await, since));

        let right = ask(&server, &["HGET", meta, "g"]).await;

        let right: String = redis::from_redis_value(right).unwrap();
        assert_eq!(right, ahead);
    });
}

#[test]
fn a_clock_that_was_set_back_keeps_no_empty_directory() {
    on_redis(&[], async |server| {
        let link = open(&server).await;
        link.create("/a", b"", Create::Container).await.unwrap();
        let path = ticket(&*link, "/a/t-").await;
        link.delete(&path).await.unwrap();
        let ahead = in_an_hour(&server).await;

        ask(&server, &["ZADD", "{lockkeeper}:empty", &ahead, "/a"]).await;

        until("it is gone", async || node(&*link, "/a").await.is_none()).await;
    });
}
