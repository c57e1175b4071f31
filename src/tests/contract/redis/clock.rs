//! A server whose clock was ahead, and was set back. What it had written meanwhile lies far ahead.

use super::*;

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

        // It may have asked right before the step.
        let waited = since.elapsed();
        assert!(waited >= SESSION_TIMEOUT, "{waited:?}");
        assert_eq!(*ours.states().borrow(), SessionState::Connected);
    });
}
