//! Rows that another program has locked for long. They hold up work, and end no session.

use std::iter::repeat_with;

use futures_util::future::{join_all, select_all};

use super::*;

/// Of the sessions here: they would be over long before the rows are free.
pub(super) const LASTS: Duration = Duration::from_secs(10);
const HELD_UP: Duration = Duration::from_secs(25);

async fn waits_for_a_row(looks: &tokio_postgres::Client) {
    until("a ticket waits", async || {
        let waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        !looks.query(waiting, &[]).await.unwrap().is_empty()
    })
    .await;
}

/// A lock is held while another program has all rows, and its session is cut off for a moment.
/// `watching`: so many wait for it before that, and `asking` from then on.
async fn stays_held_through_a_cut(server: &Daemon, watching: usize, asking: usize) {
    let way = Relay::to(server.address()).await;
    let through = format!("postgres://postgres@{}/postgres", way.address());
    let builder = Keeper::builder(through).session_timeout(LASTS);
    let keeper = builder.new_store(true).connect().await.unwrap();
    let lock = keeper.mutex("orders/42").unwrap();
    let guard = lock.lock().await.unwrap();
    let (other, looks) = (client(server).await, client(server).await);
    let mut turns = repeat_with(|| {
        let lock = lock.clone();
        tokio::spawn(async move { lock.lock().await.unwrap().release().await })
    });
    let mut next: Vec<_> = turns.by_ref().take(watching).collect();
    until("they watch", async || {
        let watches = looks.query("SELECT FROM lockkeeper.watches", &[]);
        watches.await.unwrap().len() == watching
    })
    .await;
    let rows = "BEGIN; SELECT FROM lockkeeper.nodes WHERE dir <> '' OR name <> '' FOR UPDATE";
    other.batch_execute(rows).await.unwrap();
    next.extend(turns.take(asking));
    waits_for_a_row(&looks).await;

    way.set(Way::Refusing);
    sleep(QUIET).await;
    way.set(Way::Open);
    let lost = timeout(HELD_UP, guard.lost()).await;

    assert!(lost.is_err(), "it is held");
    other.batch_execute("COMMIT").await.unwrap();
    guard.release().await.unwrap();
    for next in next {
        next.await.unwrap().unwrap();
    }
    keeper.close().await;
}

/// Heartbeats go on after a reconnect, too.
#[test]
fn a_lock_is_held_through_a_cut_while_another_program_has_its_rows() {
    on_postgres(async |server| stays_held_through_a_cut(&server, 0, 100).await);
}

/// What is asked then for each heartbeat finds no room among them.
#[test]
fn a_lock_is_held_through_a_cut_while_more_requests_wait_than_are_under_way() {
    on_postgres(async |server| stays_held_through_a_cut(&server, 0, 300).await);
}

/// The new connection arms it again.
#[test]
fn a_watch_of_a_locked_row_holds_up_no_reconnect() {
    on_postgres(async |server| stays_held_through_a_cut(&server, 1, 1).await);
}

/// With so many, each heartbeat reads tickets, too.
#[test]
fn a_thousand_locks_are_held_while_another_program_has_a_row() {
    on_postgres(async |server| {
        let builder = Keeper::builder(url(&server)).session_timeout(LASTS);
        let keeper = builder.new_store(true).connect().await.unwrap();
        let held = (0..1000).map(|number| {
            let lock = keeper.mutex(format!("held/{number}")).unwrap();
            async move { lock.lock().await.unwrap() }
        });
        let held = join_all(held).await;
        let elsewhere = keeper.mutex("elsewhere").unwrap();
        elsewhere.lock().await.unwrap().release().await.unwrap();
        let (other, looks) = (client(&server).await, client(&server).await);
        let row = "BEGIN; SELECT FROM lockkeeper.nodes WHERE name LIKE '%elsewhere%' FOR UPDATE";
        other.batch_execute(row).await.unwrap();
        let asking = repeat_with(|| {
            let lock = elsewhere.clone();
            tokio::spawn(async move { lock.lock().await.map(drop) })
        });
        let asking: Vec<_> = asking.take(20).collect();
        waits_for_a_row(&looks).await;

        let lost = select_all(held.iter().map(|guard| Box::pin(guard.lost())));
        let lost = timeout(HELD_UP, lost).await;

        assert!(lost.is_err(), "all are held");
        other.batch_execute("COMMIT").await.unwrap();
        for asking in asking {
            asking.await.unwrap().unwrap();
        }
        drop(held);
        keeper.close().await;
    });
}
