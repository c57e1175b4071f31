//! The journal: the holders of a lock, and how each hold ended.

use std::time::{Duration, UNIX_EPOCH};

use futures_util::future::join_all;
use lockkeeper::embedded::{Code, Match, Op};
use lockkeeper::{HoldOutcome, JournalEntry, Keeper, Owner};
use tokio::time::timeout;

use testbench::keeper;
use testbench::{Make, World, case, eventually};

const SOON: Duration = Duration::from_secs(5);

async fn writing(world: &World, holds: usize) -> Keeper {
    let builder = Keeper::builder(world.connect_string()).journal(holds);
    builder.connect().await.unwrap()
}

/// The journal, as soon as it has so many lines with an end.
async fn ended(keeper: &Keeper, name: &str, count: usize) -> Vec<JournalEntry> {
    let read = || async {
        let journal = keeper.journal(name).await.unwrap();
        let ended = journal.iter().filter(|entry| entry.outcome.is_some());
        (ended.count() >= count).then_some(journal)
    };
    eventually("the journal has its lines", SOON, read).await
}

/// Waits until the journal has so many lines, with an end or without one.
async fn begun(keeper: &Keeper, name: &str, count: usize) {
    let read = || async { keeper.journal(name).await.unwrap().len() == count };
    eventually("the journal has its beginnings", SOON, read).await;
}

/// A server of an ensemble that is behind may not know what another keeper wrote, and a journal is
/// read as it is there. A look at the queue lets it catch up.
async fn catch_up(keeper: &Keeper, name: &str) {
    keeper.queue(name).await.unwrap();
}

#[case]
async fn each_hold_has_a_line_with_its_end(world: World) {
    let [a, b] = [writing(&world, 100).await, keeper(&world).await];
    let lock = a.mutex("told").unwrap().with_label("me");
    let released = lock.lock().await.unwrap();
    let token = released.token();
    let begun = || async { b.journal("told").await.unwrap().pop() };
    let begun = eventually("its beginning is written", SOON, begun).await;
    assert_eq!(
        (begun.token, begun.outcome, begun.held),
        (token, None, None)
    );
    tokio::time::sleep(Duration::from_millis(30)).await;
    released.release().await.unwrap();
    drop(lock.lock().await.unwrap());
    let lost = lock.lock().await.unwrap();
    let queue = b.queue("told").await.unwrap();
    assert!(b.evict("told", &queue[0]).await.unwrap());
    assert!(lost.check().await.unwrap_err().is_lost());
    drop(lost);

    let journal = ended(&b, "told", 3).await;

    let endings: Vec<HoldOutcome> = journal
        .iter()
        .filter_map(|entry| entry.outcome.clone())
        .collect();
    assert_eq!(endings[..2], [HoldOutcome::Released, HoldOutcome::Dropped]);
    assert!(
        matches!(&endings[2], HoldOutcome::Lost(why) if why.contains("removed")),
        "{endings:?}"
    );
    assert!(journal.is_sorted_by_key(|entry| entry.token));
    let first = &journal[0];
    assert_eq!(
        (first.token, first.node.as_str()),
        (token, "lock-0000000000")
    );
    assert_eq!(
        (first.label.as_deref(), first.pid),
        (Some("me"), std::process::id())
    );
    assert_eq!(
        (first.kind.as_str(), first.owner.as_deref()),
        ("lock", None)
    );
    assert!(
        first.held.unwrap() >= Duration::from_millis(30),
        "{first:?}"
    );
    assert!(
        first.waited < SOON && first.since > UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        "{first:?}"
    );
}

#[case]
async fn nothing_is_written_unless_it_was_asked_for(world: World) {
    let keeper = keeper(&world).await;

    keeper
        .mutex("quiet")
        .unwrap()
        .lock()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    keeper.close().await;

    let stranger = world.raw().await;
    assert!(
        stranger
            .check_stat("/locks-journal")
            .await
            .unwrap()
            .is_none()
    );
}

#[case]
async fn a_page_keeps_the_last_holds_only(world: World) {
    let keeper = writing(&world, 5).await;
    let lock = keeper.mutex("short").unwrap();
    let mut tokens = Vec::new();
    for _ in 0..12 {
        let guard = lock.lock().await.unwrap();
        tokens.push(guard.token());
        guard.release().await.unwrap();
    }

    let last = || async {
        let journal = keeper.journal("short").await.unwrap();
        assert!(journal.len() <= 5, "{journal:?}");
        let are_over = journal.iter().all(|entry| entry.outcome.is_some());
        let journal: Vec<_> = journal.iter().map(|entry| entry.token).collect();
        are_over && journal == tokens[7..]
    };
    eventually("the last five are there", SOON, last).await;
}

#[case]
async fn every_kind_of_hold_is_written(world: World) {
    let keeper = writing(&world, 9).await;
    let rw = keeper.rw_lock("kinds").unwrap();
    rw.read().await.unwrap().release().await.unwrap();
    rw.write().await.unwrap().release().await.unwrap();
    let pool = keeper.semaphore("pool", 3).unwrap();
    pool.acquire_many(2).await.unwrap().release().await.unwrap();
    let election = keeper.election("lead").unwrap();
    election
        .campaign("me")
        .await
        .unwrap()
        .resign()
        .await
        .unwrap();
    keeper
        .lock_all(["x", "y"])
        .await
        .unwrap()
        .release()
        .await
        .unwrap();

    let mut kinds = Vec::new();
    for (name, count) in [("kinds", 2), ("pool", 1), ("lead", 1), ("x", 1), ("y", 1)] {
        for entry in ended(&keeper, name, count).await {
            assert_eq!(
                entry.outcome,
                Some(HoldOutcome::Released),
                "{name}: {entry:?}"
            );
            kinds.push(entry.kind.to_string());
        }
    }
    assert_eq!(kinds, ["read", "write", "permit", "lead", "lock", "lock"]);
}

#[case]
async fn holds_of_many_keepers_at_once_are_all_written(world: World) {
    let reader = keeper(&world).await;
    let each = (0..4).map(|_| async {
        let keeper = writing(&world, 100).await;
        let lock = keeper.rw_lock("crowd").unwrap();
        for _ in 0..10 {
            lock.read().await.unwrap().release().await.unwrap();
        }
        keeper.close().await;
    });
    join_all(each).await;
    catch_up(&reader, "crowd").await;

    let journal = reader.journal("crowd").await.unwrap();

    let released = journal
        .iter()
        .filter(|entry| entry.outcome == Some(HoldOutcome::Released));
    assert_eq!((journal.len(), released.count()), (40, 40));
}

#[case]
async fn a_guest_and_a_reader_that_was_a_writer_are_told_right(world: World) {
    let [a, b] = [writing(&world, 9).await, writing(&world, 9).await];
    let owner = Owner::named("txn");
    let outer = a
        .mutex("nested")
        .unwrap()
        .with_owner(&owner)
        .lock()
        .await
        .unwrap();
    let inner = b
        .mutex("nested")
        .unwrap()
        .with_owner(&owner)
        .lock()
        .await
        .unwrap();
    inner.release().await.unwrap();
    outer.release().await.unwrap();
    let nested = ended(&a, "nested", 2).await;
    assert_eq!(nested[0].token, nested[1].token);
    assert_ne!(nested[0].node, nested[1].node);
    assert_ne!(nested[0].ticket, nested[1].ticket);
    assert!(
        nested
            .iter()
            .all(|entry| entry.owner.as_deref() == Some("txn"))
    );

    let writer = a.rw_lock("softer").unwrap().write().await.unwrap();
    let reader = writer.downgrade().await.unwrap();
    reader.release().await.unwrap();
    let softer = ended(&a, "softer", 1).await;
    assert_eq!(softer.len(), 1, "one hold: {softer:?}");
    assert_eq!(softer[0].outcome, Some(HoldOutcome::Released));
}

#[case]
async fn a_reader_that_was_a_writer_tells_its_loss(world: World) {
    let [a, b] = [writing(&world, 9).await, keeper(&world).await];
    let writer = a.rw_lock("softer").unwrap().write().await.unwrap();
    let token = writer.token();
    let reader = writer.downgrade().await.unwrap();
    let queue = b.queue("softer").await.unwrap();
    let [ticket] = &queue[..] else {
        panic!("{queue:?}");
    };
    let is_known = || async {
        let entry = b.journal("softer").await.unwrap().pop();
        entry.is_some_and(|entry| entry.ticket == ticket.token && entry.node == ticket.node)
    };
    eventually("its ticket is written", SOON, is_known).await;

    assert!(b.evict("softer", ticket).await.unwrap());
    assert!(reader.check().await.unwrap_err().is_lost());
    drop(reader);

    let journal = ended(&b, "softer", 1).await;
    assert_eq!((journal.len(), journal[0].token), (1, token));
    assert!(
        matches!(&journal[0].outcome, Some(HoldOutcome::Lost(why)) if why.contains("removed")),
        "{journal:?}"
    );
}

#[case]
async fn a_hold_that_ends_outside_the_runtime_is_written(world: World) {
    // While the beginning is being written the end goes with it, which is no matter of who ends it:
    // not so in one of so many rounds.
    const ROUNDS: usize = 5;
    let [a, b] = [writing(&world, 99).await, keeper(&world).await];
    let lock = a.mutex("far").unwrap();
    for round in 0..ROUNDS {
        let dropped = lock.lock().await.unwrap();
        begun(&b, "far", 2 * round + 1).await;
        std::thread::spawn(move || drop(dropped)).join().unwrap();

        let released = lock.lock().await.unwrap();
        begun(&b, "far", 2 * round + 2).await;
        let elsewhere = || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            let runtime = builder.enable_all().build().unwrap();
            // It ends at once, and with it what it would still have to do.
            runtime.block_on(released.release())
        };
        let elsewhere = tokio::task::spawn_blocking(elsewhere).await;
        elsewhere.unwrap().unwrap();
    }

    let journal = ended(&b, "far", 2 * ROUNDS).await;
    let endings: Vec<_> = journal.into_iter().filter_map(|it| it.outcome).collect();
    assert_eq!(
        endings,
        vec![[HoldOutcome::Dropped, HoldOutcome::Released]; ROUNDS].concat()
    );
}

#[case]
async fn a_hold_that_outlives_its_keeper_has_ended_with_it(world: World) {
    let [a, b] = [writing(&world, 9).await, keeper(&world).await];
    let guard = a.mutex("late").unwrap().lock().await.unwrap();
    let lost = a.mutex("lost").unwrap().lock().await.unwrap();
    let queue = b.queue("lost").await.unwrap();
    assert!(b.evict("lost", &queue[0]).await.unwrap());
    assert!(lost.check().await.unwrap_err().is_lost());

    a.close().await;
    catch_up(&b, "late").await;

    for (name, why) in [("late", "keeper was closed"), ("lost", "removed")] {
        let journal = b.journal(name).await.unwrap();
        assert_eq!(journal.len(), 1, "{journal:?}");
        let ending = journal[0].outcome.as_ref();
        assert!(
            matches!(ending, Some(HoldOutcome::Lost(said)) if said.contains(why)),
            "{name}: {ending:?}"
        );
    }
    drop([guard, lost]);
}

#[case]
async fn another_programs_data_is_left_alone(world: World) {
    let (keeper, stranger) = (writing(&world, 9).await, world.raw().await);
    let persistent = Make::Persistent;
    stranger.mkdir("/locks-journal", &persistent).await.unwrap();
    let theirs = stranger.create("/locks-journal/taken", b"theirs", &persistent);
    theirs.await.unwrap();

    keeper
        .mutex("taken")
        .unwrap()
        .lock()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let error = keeper.journal("taken").await.unwrap_err();
    keeper.close().await;

    assert!(error.to_string().contains("another program"), "{error}");
    let (data, _) = stranger.get_data("/locks-journal/taken").await.unwrap();
    assert_eq!(data, b"theirs");
}

#[case]
async fn close_writes_what_is_left(world: World) {
    let [a, b] = [writing(&world, 100).await, keeper(&world).await];
    let names: Vec<String> = (0..20).map(|at| format!("left/{at}")).collect();
    for name in &names {
        drop(a.mutex(name.as_str()).unwrap().lock().await.unwrap());
    }

    a.close().await;
    catch_up(&b, &names[0]).await;

    for name in &names {
        let journal = b.journal(name.as_str()).await.unwrap();
        assert_eq!(journal[0].outcome, Some(HoldOutcome::Dropped), "{name}");
    }
}

#[case(embedded)]
async fn no_call_waits_for_the_journal(world: World) {
    let keeper = writing(&world, 9).await;
    let faults = world.embedded().faults();
    let page = Match::op(Op::Multi).path_contains("locks-journal/slow");
    faults.on(page).times(20).fail(Code::SessionMoved);
    let lock = keeper.mutex("slow").unwrap();

    for _ in 0..3 {
        let guard = timeout(SOON, lock.lock()).await.unwrap().unwrap();
        timeout(SOON, guard.release()).await.unwrap().unwrap();
    }
    assert!(faults.armed_rules() > 0, "nothing is written yet");

    ended(&keeper, "slow", 3).await;
}

#[case(embedded)]
async fn a_line_whose_answer_is_lost_is_written_once(world: World) {
    let keeper = writing(&world, 9).await;
    let faults = world.embedded().faults();
    let lock = keeper.mutex("twice").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    ended(&keeper, "twice", 1).await;
    faults
        .on(Match::op(Op::Multi).path_contains("locks-journal/twice"))
        .times(2)
        .drop_reply();

    let guard = lock.lock().await.unwrap();
    // A hold that ends before its beginning is written is one line in one request.
    begun(&keeper, "twice", 2).await;
    guard.release().await.unwrap();

    let journal = ended(&keeper, "twice", 2).await;
    assert_eq!(journal.len(), 2, "{journal:?}");
    assert_eq!(faults.armed_rules(), 0, "both answers were lost");
}

#[case(embedded)]
async fn a_close_that_is_dropped_while_the_journal_is_written_closes(world: World) {
    let keeper = writing(&world, 9).await;
    let page = Match::op(Op::Multi).path_contains("locks-journal/never");
    world
        .embedded()
        .faults()
        .on(page)
        .times(1_000)
        .fail(Code::SessionMoved);
    let lock = keeper.mutex("never").unwrap();
    let guard = lock.lock().await.unwrap();

    let closing = timeout(Duration::from_millis(100), keeper.close()).await;

    assert!(closing.is_err(), "there is something to be written");
    assert!(guard.release().await.unwrap_err().is_lost());
    assert!(lock.lock().await.unwrap_err().is_closed());
}

#[case(embedded)]
async fn a_release_that_a_close_meets_is_a_release(world: World) {
    let [a, b] = [writing(&world, 9).await, keeper(&world).await];
    let guard = a.mutex("met").unwrap().lock().await.unwrap();
    begun(&b, "met", 1).await;
    let its_end = Match::op(Op::Multi).path_contains("locks/met");
    let hold = world.embedded().faults().on(its_end).stop_before();
    let releasing = tokio::spawn(guard.release());
    timeout(SOON, hold.reached())
        .await
        .expect("it is being released");

    let mut closing = std::pin::pin!(a.close());
    let closed = timeout(Duration::from_millis(100), &mut closing).await;
    assert!(closed.is_err(), "a release is under way");
    hold.release();
    timeout(2 * SOON, closing).await.expect("it is closed");

    releasing.await.unwrap().unwrap();
    let journal = ended(&b, "met", 1).await;
    assert_eq!(journal[0].outcome, Some(HoldOutcome::Released));
}

#[case(embedded)]
async fn what_ends_in_an_outage_is_written_after_it(world: World) {
    let second = Duration::from_secs(1);
    let builder = Keeper::builder(world.connect_string()).journal(9);
    let builder = builder.session_timeout(second).connect_timeout(second);
    let keeper = builder.connect().await.unwrap();
    let guard = keeper.mutex("out").unwrap().lock().await.unwrap();
    begun(&keeper, "out", 1).await;

    let server = world.embedded();
    server.stop().await;
    timeout(SOON, guard.lost()).await.unwrap();
    drop(guard);
    // Longer than the keeper tries to get another session.
    tokio::time::sleep(3 * second).await;
    server.restart().await.unwrap();

    let reader = testbench::keeper(&world).await;
    let journal = ended(&reader, "out", 1).await;
    assert!(
        matches!(&journal[0].outcome, Some(HoldOutcome::Lost(_))),
        "{journal:?}"
    );
}

#[case]
async fn holds_that_follow_each_other_fast_share_their_writes(world: World) {
    let keeper = writing(&world, 2000).await;
    let lock = keeper.mutex("fast").unwrap();
    for _ in 0..300 {
        drop(lock.lock().await.unwrap());
    }
    ended(&keeper, "fast", 300).await;

    let page = world
        .raw()
        .await
        .check_stat("/locks-journal/fast")
        .await
        .unwrap();
    let writes = page.unwrap().version;
    assert!(
        writes < 600,
        "{writes} writes for 300 holds with two lines each"
    );
}
