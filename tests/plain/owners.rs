//! Owners, on the kinds that let them in again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lockkeeper::Owner;
use lockkeeper::compat::{Acquired, Attempt, PlainMutex, PlainStore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::bed::{Bed, TTL};

crate::cases![
    ["redis+redisson", "postgres+row", "mysql+row"]
    an_owner_enters_again_and_its_last_guard_frees_the_lock,
    all_guards_of_an_owner_are_told_of_a_loss,
    a_lost_guard_of_an_owner_takes_nothing_from_the_others,
    two_owners_exclude_each_other_whatever_their_names,
    a_request_that_came_twice_counts_once,
    a_shorter_ttl_takes_nothing_from_a_longer_one,
    a_crashed_process_of_an_owner_keeps_the_lock_for_a_ttl,
    owners_count_exactly,
    a_thread_of_java_is_no_owner,
];

async fn owned(bed: &Bed, name: &str, owner: &Owner) -> PlainMutex<dyn PlainStore> {
    bed.lock(name).await.with_owner(owner).unwrap()
}

fn attempt(name: &str, secret: &str, ttl: Duration, owner: &Owner) -> Attempt {
    Attempt {
        name: name.into(),
        secret: secret.into(),
        ttl,
        owner: Some(owner.clone()),
        seen: Default::default(),
        turn: Default::default(),
    }
}

const ONE: &str = "0e8b5f308d3f4c5a9a1b6c1f5c1d2e31";
const TWO: &str = "0e8b5f308d3f4c5a9a1b6c1f5c1d2e32";

async fn an_owner_enters_again_and_its_last_guard_frees_the_lock(bed: Arc<Bed>, name: String) {
    let owner = Owner::named("job/7");
    let (here, there) = (
        owned(&bed, &name, &owner).await,
        owned(&bed, &name, &owner).await,
    );
    let stranger = bed.lock(&name).await;
    for last in 0..3 {
        let mut guards = Vec::new();
        for lock in [&here, &here, &there] {
            let entered = timeout(TTL / 2, lock.lock()).await;
            guards.push(entered.expect("at once").unwrap());
        }
        let tokens: Vec<_> = guards.iter().map(|guard| guard.token_if_any()).collect();
        assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
        sleep(TTL + TTL / 4).await;
        let kept = guards.remove(last);
        for guard in guards {
            assert!(guard.is_held());
            guard.release().await.unwrap();
            assert!(kept.is_held());
            kept.check().await.unwrap();
            assert!(stranger.try_lock().await.unwrap().is_none());
        }
        kept.release().await.unwrap();
        let next = stranger.try_lock().await.unwrap().expect("it is free");
        assert!(tokens[0].is_none() || next.token_if_any() > tokens[0]);
        assert!(here.try_lock().await.unwrap().is_none(), "it has no owner");
        next.release().await.unwrap();
    }
}

async fn all_guards_of_an_owner_are_told_of_a_loss(bed: Arc<Bed>, name: String) {
    let owner = Owner::new();
    let mut guards = Vec::new();
    for _ in 0..3 {
        guards.push(owned(&bed, &name, &owner).await.lock().await.unwrap());
    }
    bed.remove(&name).await;
    let next = bed.lock(&name).await.try_lock().await.unwrap();
    let next = next.expect("it is free");
    for guard in guards {
        let lost = timeout(TTL, guard.lost()).await.expect("at the renewal");
        assert!(lost.is_lost(), "{lost}");
        assert!(guard.release().await.unwrap_err().is_lost());
    }
    next.check().await.unwrap();
    next.release().await.unwrap();
}

/// A loss is final, also where another guard of the owner keeps the lock.
async fn a_lost_guard_of_an_owner_takes_nothing_from_the_others(bed: Arc<Bed>, name: String) {
    let owner = Owner::new();
    let keeper = bed.keeper().await;
    let paused = attempt(&name, ONE, TTL, &owner);
    let taken = keeper.store().acquire(&paused).await.unwrap();
    assert!(matches!(taken, Acquired::Yes { .. }));
    let guard = owned(&bed, &name, &owner).await.lock().await.unwrap();
    sleep(TTL * 2).await;

    keeper.store().release(&paused).await.unwrap();

    assert!(!keeper.store().renew(&paused).await.unwrap());
    guard.check().await.unwrap();
    assert!(bed.lock(&name).await.try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
    let next = bed.lock(&name).await.try_lock().await.unwrap();
    next.expect("it is free").release().await.unwrap();
}

async fn two_owners_exclude_each_other_whatever_their_names(bed: Arc<Bed>, name: String) {
    let names = [
        "a", "A", "a ", "a\nb", "b", "\nb", "1", "owner/a", "+", "é", "e\u{301}",
    ];
    for name_of_holder in names {
        let holder = owned(&bed, &name, &Owner::named(name_of_holder)).await;
        let guard = holder.lock().await.unwrap();
        for other in names.iter().filter(|other| **other != name_of_holder) {
            let other = owned(&bed, &name, &Owner::named(other)).await;
            let entered = other.try_lock().await.unwrap();
            assert!(entered.is_none(), "{other:?} beside {name_of_holder:?}");
        }
        let again = holder.try_lock().await.unwrap();
        again.expect("the same owner").release().await.unwrap();
        guard.release().await.unwrap();
    }
    let longest = Owner::named("n".repeat(1024));
    let guard = owned(&bed, &name, &longest).await.lock().await.unwrap();
    guard.release().await.unwrap();
    for bad in ["", "\0", &"n".repeat(1025)] {
        let lock = bed.lock(&name).await;
        let error = lock.with_owner(&Owner::named(bad)).unwrap_err();
        assert!(error.is_invalid(), "{error}");
    }
}

/// So an answer that was lost never leaves the lock held.
async fn a_request_that_came_twice_counts_once(bed: Arc<Bed>, name: String) {
    let (owner, keeper) = (Owner::new(), bed.keeper().await);
    let store = keeper.store();
    let (one, two) = (
        attempt(&name, ONE, TTL * 5, &owner),
        attempt(&name, TWO, TTL * 5, &owner),
    );
    for asked in [&one, &two, &two, &one] {
        let taken = store.acquire(asked).await.unwrap();
        assert!(matches!(taken, Acquired::Yes { .. }));
    }
    assert!(store.release(&one).await.unwrap());
    assert!(!store.release(&one).await.unwrap());
    assert!(store.renew(&two).await.unwrap());
    assert!(bed.lock(&name).await.try_lock().await.unwrap().is_none());
    assert!(store.release(&two).await.unwrap());
    let next = bed.lock(&name).await.try_lock().await.unwrap();
    next.expect("it is free").release().await.unwrap();
}

async fn a_shorter_ttl_takes_nothing_from_a_longer_one(bed: Arc<Bed>, name: String) {
    let (owner, keeper) = (Owner::new(), bed.keeper().await);
    let store = keeper.store();
    let (long, short) = (
        attempt(&name, ONE, TTL * 5, &owner),
        attempt(&name, TWO, TTL / 2, &owner),
    );
    store.acquire(&long).await.unwrap();
    store.acquire(&short).await.unwrap();
    for _ in 0..2 {
        assert!(store.renew(&short).await.unwrap());
    }
    sleep(TTL).await;
    assert!(bed.lock(&name).await.try_lock().await.unwrap().is_none());
    assert!(store.release(&short).await.unwrap());
    assert!(store.release(&long).await.unwrap());
}

async fn a_crashed_process_of_an_owner_keeps_the_lock_for_a_ttl(bed: Arc<Bed>, name: String) {
    let (owner, keeper) = (Owner::new(), bed.keeper().await);
    let crashed = attempt(&name, ONE, TTL, &owner);
    keeper.store().acquire(&crashed).await.unwrap();
    let guard = owned(&bed, &name, &owner).await.lock().await.unwrap();
    sleep(TTL).await;
    let begun = Instant::now();
    guard.release().await.unwrap();
    // The store cannot know that the crashed holder is gone.
    assert!(bed.lock(&name).await.try_lock().await.unwrap().is_none());

    let next = bed.lock(&name).await.lock().await.unwrap();

    assert!(begun.elapsed() < TTL + TTL / 2, "{:?}", begun.elapsed());
    next.release().await.unwrap();
}

async fn owners_count_exactly(bed: Arc<Bed>, name: String) {
    let inside = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let mut tasks = JoinSet::new();
    for task in 0..6 {
        let (ours, owner) = (task % 2, Owner::named(format!("owner {}", task % 2)));
        let lock = owned(&bed, &name, &owner).await;
        let short = (Duration::from_millis(1), Duration::from_millis(20));
        let (lock, inside) = (
            lock.with_poll(short.0, short.1).unwrap(),
            Arc::clone(&inside),
        );
        tasks.spawn(async move {
            for _ in 0..10 {
                let outer = lock.lock().await.unwrap();
                inside[ours].fetch_add(1, Ordering::SeqCst);
                let inner = lock.lock().await.unwrap();
                outer.release().await.unwrap();
                sleep(Duration::from_millis(1)).await;
                assert_eq!(inside[1 - ours].load(Ordering::SeqCst), 0);
                inside[ours].fetch_sub(1, Ordering::SeqCst);
                inner.release().await.unwrap();
                sleep(Duration::from_millis(5)).await;
            }
        });
    }
    let all = timeout(Duration::from_secs(40), tasks.join_all()).await;
    all.expect("each gets its turn");
    let next = bed.lock(&name).await.lock_timeout(TTL).await.unwrap();
    next.release().await.unwrap();
}

/// By the script of `RLock.lock` in Java.
async fn a_thread_of_java_is_no_owner(bed: Arc<Bed>, name: String) {
    if bed.kind != "redis+redisson" {
        return;
    }
    let theirs = redis::Script::new(
        "if ((redis.call('exists', KEYS[1]) == 0) or \
         (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then \
         redis.call('hincrby', KEYS[1], ARGV[2], 1); \
         redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; \
         return redis.call('pttl', KEYS[1]);",
    );
    let thread = "0e8b5f30-8d3f-4c5a-9a1b-6c1f5c1d2e3f:42";
    let mut redis = bed.redis().await;
    let lock = owned(&bed, &name, &Owner::named("42")).await;
    let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
    let mut lock_of_java = theirs.key(&name);
    lock_of_java.arg(2000).arg(thread);
    for guard in [outer, inner] {
        let left: Option<i64> = lock_of_java.invoke_async(&mut redis).await.unwrap();
        assert!(left.is_some_and(|left| left > 0), "{left:?}");
        guard.release().await.unwrap();
    }
    let left: Option<i64> = lock_of_java.invoke_async(&mut redis).await.unwrap();
    assert_eq!(left, None, "Java has it");
    assert!(lock.try_lock().await.unwrap().is_none());
    bed.remove(&name).await;
}
