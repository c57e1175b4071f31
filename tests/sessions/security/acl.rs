//! Directories that a stranger has made first, or may write in: a keeper whose access list is
//! narrower uses none of them.

use std::time::Duration;

use lockkeeper::embedded::Op;
use lockkeeper::{Acl, Error, Keeper, KeeperBuilder, SessionEvent, WiderAcl};
use tokio::time::timeout;
use tracing::Level;
use tracing::instrument::WithSubscriber;
use zookeeper_client::{Acls, Client};

use super::{SECRET, SOON, all_below, denied, raw_with};
use testbench::heard::Heard;
use testbench::wire::{Arrival, Out, Wire};
use testbench::{Make, World, case, eventually};

const OPEN: &str = "world:anyone:cdrwa";

fn ours(world: &World) -> KeeperBuilder {
    Keeper::builder(world.connect_string()).credential("digest", SECRET)
}

/// The list of ours, on the wire.
async fn keeper(world: &World) -> Keeper {
    ours(world).connect().await.unwrap()
}

async fn make_open(client: &Client, paths: &[&str]) {
    let options = Make::Persistent.into();
    for path in paths {
        client.create(path, b"", &options).await.unwrap();
    }
}

#[track_caller]
fn wider<T>(outcome: lockkeeper::Result<T>, node: &str) {
    let Err(error) = outcome else {
        panic!("it is used: {node}");
    };
    let Error::WiderAcl { path, allows, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!((&**path, &**allows), (node, OPEN));
    assert!(error.is_refusal() && !error.is_retryable(), "{error}");
    for piece in [node, OPEN, "setAcl", "--no-strict-acl"] {
        assert!(error.to_string().contains(piece), "{error}");
    }
}

/// Writes that the ticket with this identity was granted and released.
async fn forge(client: &Client, directory: &str, token: i64, seq: i32) {
    let mark = format!(r#"{{"lockkeeper_released":{{"czxid":{token},"seq":{seq}}}}}"#);
    client
        .set_data(directory, mark.as_bytes(), None)
        .await
        .unwrap();
}

/// Waits until so many nodes are in there.
async fn has(client: &Client, directory: &str, count: usize) {
    let is_so = || async { client.list_children(directory).await.unwrap().len() == count };
    eventually("the tickets are as expected", SOON, is_so).await;
}

#[case(zookeeper, why = "access lists and credentials")]
async fn a_mark_of_a_stranger_calls_nobody_in(world: World) {
    let stranger = world.zookeeper().await;
    make_open(&stranger, &["/locks", "/locks/vault"]).await;
    let keeper = keeper(&world).await;
    let lock = keeper.mutex("vault").unwrap();

    let held = match timeout(SOON, lock.lock()).await.unwrap() {
        Ok(held) => held,
        refused => {
            wider(refused, "/locks/vault");
            return has(&stranger, "/locks/vault", 0).await;
        }
    };

    // A waiter that gives up between two others is said to have held the lock.
    let between = lock.enqueue().await.unwrap();
    let mut last = lock.enqueue().await.unwrap();
    let waits = timeout(Duration::from_millis(200), last.granted()).await;
    assert!(waits.is_err());
    let path = "/locks/vault/lock-0000000001";
    let stat = stranger.check_stat(path).await.unwrap().unwrap();
    forge(&stranger, "/locks/vault", stat.czxid, 1).await;
    drop(between);
    let second = timeout(SOON, last.granted()).await;
    held.check().await.unwrap();
    panic!("a second holder was let in beside the first: {second:?}");
}

#[case(zookeeper, why = "access lists and credentials")]
async fn no_recipe_uses_a_directory_that_is_open_to_others(world: World) {
    let stranger = world.zookeeper().await;
    make_open(&stranger, &["/locks", "/locks/a", "/locks/b"]).await;
    let keeper = keeper(&world).await;

    for lock in [
        keeper.mutex("a").unwrap(),
        keeper.mutex("a").unwrap().with_linger(SOON),
    ] {
        wider(timeout(SOON, lock.lock()).await.unwrap(), "/locks/a");
        has(&stranger, "/locks/a", 0).await;
        wider(timeout(SOON, lock.try_lock()).await.unwrap(), "/locks/a");
        has(&stranger, "/locks/a", 0).await;
    }
    let both = keeper.rw_lock("a").unwrap();
    wider(timeout(SOON, both.read()).await.unwrap(), "/locks/a");
    wider(timeout(SOON, both.write()).await.unwrap(), "/locks/a");
    let election = keeper.election("a").unwrap();
    wider(
        timeout(SOON, election.campaign("me")).await.unwrap(),
        "/locks/a",
    );
    let several = timeout(SOON, keeper.lock_all(["closed", "b"])).await;
    wider(several.unwrap(), "/locks/b");

    for directory in ["/locks/a", "/locks/b"] {
        has(&stranger, directory, 0).await;
    }
    has(&raw_with(&world, SECRET).await, "/locks/closed", 0).await;
}

#[case(zookeeper, why = "access lists and credentials")]
async fn a_wider_list_is_only_warned_of_on_demand(world: World) {
    make_open(&world.zookeeper().await, &["/locks", "/locks/vault"]).await;
    let heard = Heard::default();

    let work = async {
        let keeper = ours(&world).strict_acl(false).connect().await.unwrap();
        for _ in 0..3 {
            let lock = keeper.mutex("vault").unwrap();
            lock.lock().await.unwrap().release().await.unwrap();
        }
    };
    work.with_subscriber(heard.listener(Level::WARN)).await;

    let text = heard.text();
    assert_eq!(text.matches(OPEN).count(), 1, "{text}");
    assert!(text.contains("/locks/vault"), "{text}");
}

#[case(zookeeper, why = "access lists and credentials")]
async fn a_directory_that_a_stranger_has_made_again_is_refused(world: World) {
    let stranger = world.zookeeper().await;
    make_open(&stranger, &["/locks"]).await;
    let keeper = keeper(&world).await;
    let lock = keeper.mutex("vault").unwrap();
    for _ in 0..2 {
        lock.lock().await.unwrap().release().await.unwrap();
    }

    // As the servers do with an unused container, and any client that may delete in `/locks`.
    stranger.delete("/locks/vault", None).await.unwrap();
    make_open(&stranger, &["/locks/vault"]).await;

    wider(timeout(SOON, lock.lock()).await.unwrap(), "/locks/vault");
}

#[case(zookeeper, why = "access lists and credentials")]
async fn a_list_that_is_widened_while_we_wait_is_refused(world: World) {
    let keeper = keeper(&world).await;
    let lock = keeper.mutex("vault").unwrap();
    let held = lock.lock().await.unwrap();
    let between = lock.enqueue().await.unwrap();
    let mut last = lock.enqueue().await.unwrap();
    let waits = timeout(Duration::from_millis(200), last.granted()).await;
    assert!(waits.is_err());

    let owner = raw_with(&world, SECRET).await;
    let open = Acls::anyone_all();
    let open: Vec<_> = open.iter().cloned().collect();
    owner.set_acl("/locks/vault", &open, None).await.unwrap();
    let path = "/locks/vault/lock-0000000001";
    let stat = owner.check_stat(path).await.unwrap().unwrap();
    forge(&world.zookeeper().await, "/locks/vault", stat.czxid, 1).await;
    drop(between);

    wider(timeout(SOON, last.granted()).await.unwrap(), "/locks/vault");
    held.check().await.unwrap();
    held.release().await.unwrap();
}

#[case(zookeeper, why = "access lists and credentials")]
async fn every_part_of_a_semaphore_is_looked_at(world: World) {
    let maker = ours(&world).persistent_directories(true).connect();
    let maker = maker.await.unwrap();
    let known = maker.semaphore("permits", 2).unwrap();
    known.acquire().await.unwrap().release().await.unwrap();
    let owner = raw_with(&world, SECRET).await;
    let open: Vec<_> = Acls::anyone_all().iter().cloned().collect();

    for part in ["", "/queue", "/held", "/limit"] {
        let path = format!("/locks/permits{part}");
        let (own, _) = owner.get_acl(&path).await.unwrap();
        owner.set_acl(&path, &open, None).await.unwrap();
        let newcomer = keeper(&world).await;
        let fresh = newcomer.semaphore("permits", 2).unwrap();
        for permits in [&known, &fresh] {
            wider(timeout(SOON, permits.acquire()).await.unwrap(), &path);
            // A try that meets the ticket on its way out says that the lock is not free.
            has(&owner, "/locks/permits/queue", 0).await;
            wider(timeout(SOON, permits.try_acquire()).await.unwrap(), &path);
        }
        owner.set_acl(&path, &own, None).await.unwrap();
    }

    known.acquire().await.unwrap().release().await.unwrap();
}

#[case(zookeeper, why = "access lists and credentials")]
async fn nobody_follows_a_leader_where_strangers_may_write(world: World) {
    let stranger = world.zookeeper().await;
    make_open(&stranger, &["/locks", "/locks/lead"]).await;
    let impostor = Keeper::connect(world.connect_string()).await.unwrap();
    let impostor = impostor.election("lead").unwrap();
    let _leads = impostor.campaign("6.6.6.6:80").await.unwrap();
    let keeper = keeper(&world).await;
    let election = keeper.election("lead").unwrap();

    wider(election.leader().await, "/locks/lead");
    let mut observer = election.observe();
    wider(
        timeout(SOON, observer.changed()).await.unwrap(),
        "/locks/lead",
    );
    assert_eq!(observer.borrow(), None);
}

#[case(zookeeper, why = "access lists and credentials")]
async fn a_page_of_the_journal_that_is_open_to_others_is_not_used(world: World) {
    let stranger = world.zookeeper().await;
    make_open(&stranger, &["/locks-journal", "/locks-journal/vault"]).await;
    let keeper = ours(&world).journal(9).connect().await.unwrap();

    let guard = keeper.mutex("vault").unwrap().lock().await.unwrap();
    guard.release().await.unwrap();

    wider(keeper.journal("vault").await, "/locks-journal/vault");
    keeper.close().await;
    let (page, _) = stranger.get_data("/locks-journal/vault").await.unwrap();
    assert!(page.is_empty(), "{page:?}");
}

#[case(zookeeper, why = "access lists and credentials")]
async fn a_credential_alone_keeps_others_out(world: World) {
    let guard = keeper(&world).await;
    let guard = guard.mutex("vault").unwrap().lock().await.unwrap();
    let other = Keeper::builder(world.connect_string()).credential("digest", "other:service");
    let other = other.connect().await.unwrap();
    let nobody = Keeper::connect(world.connect_string()).await.unwrap();

    for theirs in [&other, &nobody] {
        let error = timeout(SOON, theirs.mutex("vault").unwrap().lock()).await;
        let error = error.unwrap().unwrap_err();
        for piece in ["same credential", "a list that names them", "--acl"] {
            assert!(error.to_string().contains(piece), "{error}");
        }
        denied(Err::<(), _>(error), "CREATE", "/locks/vault");
    }
    guard.release().await.unwrap();

    let open = Keeper::builder(world.connect_string()).root("/open");
    let open = open.credential("digest", SECRET).acl(Acl::open());
    let open = open.connect().await.unwrap();
    let _held = open.mutex("window").unwrap().lock().await.unwrap();
    let raw = world.zookeeper().await;
    assert_eq!(raw.list_children("/open/window").await.unwrap().len(), 1);
}

/// A client without `ADMIN` is shown users without hashes.
#[case(zookeeper, why = "access lists and credentials")]
async fn lists_that_hide_digests_are_believed_if_nobody_else_may_read_them(world: World) {
    let plain: Acl = "auth::cdrw".parse().unwrap();
    for _ in 0..2 {
        let keeper = ours(&world).acl(plain.clone()).connect().await.unwrap();
        let guard = keeper.mutex("vault").unwrap().lock().await.unwrap();
        guard.release().await.unwrap();
        keeper.close().await;
    }
    let impostor = Keeper::builder(world.connect_string()).root("/theirs");
    let impostor = impostor.credential("digest", "locksmith:another");
    let both: Acl = "auth::cdrw,world:anyone:cr".parse().unwrap();
    let impostor = impostor.acl(both.clone()).connect().await.unwrap();
    let lock = impostor.mutex("vault").unwrap();
    let _held = lock.lock().await.unwrap();

    let ours = ours(&world).root("/theirs").acl(both);
    let ours = ours.connect().await.unwrap();
    let error = timeout(SOON, ours.mutex("vault").unwrap().lock()).await;
    let error = error.unwrap().unwrap_err();

    let Error::WiderAcl { allows, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(allows, "digest:locksmith:x:cdrw");
}

#[case(zookeeper, why = "access lists and credentials")]
async fn what_is_open_to_others_is_found(world: World) {
    let stranger = world.zookeeper().await;
    make_open(&stranger, &["/locks", "/locks/vault", "/locks-journal"]).await;
    make_open(&stranger, &["/locks-journal/vault"]).await;
    let keeper = keeper(&world).await;
    let guard = keeper.mutex("closed").unwrap().lock().await.unwrap();
    let paths =
        |found: Vec<WiderAcl>| -> Vec<String> { found.into_iter().map(|node| node.path).collect() };

    let found = keeper.wider_acls("vault").await.unwrap();

    assert!(found.iter().all(|node| node.allows == OPEN), "{found:?}");
    assert_eq!(paths(found), ["/locks/vault", "/locks-journal/vault"]);
    for name in ["closed", "never/there"] {
        assert_eq!(keeper.wider_acls(name).await.unwrap(), []);
    }
    let open = Keeper::connect(world.connect_string()).await.unwrap();
    assert_eq!(open.wider_acls("vault").await.unwrap(), []);
    guard.release().await.unwrap();
}

#[case(embedded)]
async fn a_list_is_read_once_for_each_directory(world: World) {
    let server = world.embedded();
    let long = || ours(&world).session_timeout(Duration::from_secs(3600));
    let (first, next) = (
        long().connect().await.unwrap(),
        long().connect().await.unwrap(),
    );
    let reads = async |keeper: &Keeper, name: &str| {
        let before = server.counters();
        let guard = keeper.mutex(name).unwrap().lock().await.unwrap();
        guard.release().await.unwrap();
        server.counters().since(&before).get(Op::GetAcl)
    };

    // The client that makes a directory knows its list.
    assert_eq!(reads(&first, "a").await, 0);
    assert_eq!(reads(&first, "b").await, 0);
    assert_eq!(reads(&first, "a").await, 0);
    // What `auth` stands for is read once.
    assert_eq!(reads(&next, "a").await, 2);
    assert_eq!(reads(&next, "b").await, 1);
    for name in ["a", "b", "a"] {
        assert_eq!(reads(&next, name).await, 0);
    }
}

/// The password that ZooKeeper gives a session: `java.util.Random` of the session's number and a
/// constant of its source.
fn password(session: i64) -> [u8; 16] {
    const FACTOR: i64 = 0x5_DEEC_E66D;
    const MASK: i64 = (1 << 48) - 1;
    let mut state = (session ^ 0xB341_5C00 ^ FACTOR) & MASK;
    let mut password = [0; 16];
    for four in password.chunks_exact_mut(4) {
        state = state.wrapping_mul(FACTOR).wrapping_add(0xB) & MASK;
        let [.., a, b, c, d, _, _] = state.to_be_bytes();
        four.copy_from_slice(&[d, c, b, a]);
    }
    password
}

/// No access list hides a session's number, and nothing but that is needed: `docs/security.md` says
/// so.
#[case(real)]
async fn whoever_sees_a_session_may_end_it(world: World) {
    let keeper = keeper(&world).await;
    let guard = keeper.mutex("vault").unwrap().lock().await.unwrap();
    let stranger = world.zookeeper().await;

    let ticket = format!("/locks/vault/{}", guard.node());
    let session = match stranger.check_stat(&ticket).await {
        Ok(stat) => stat.unwrap().ephemeral_owner,
        // Newer servers do not tell clients that may not read the ticket; `cons` and `dump` show
        // the number as they always did.
        Err(zookeeper_client::Error::NoAuth) => match keeper.session_events().borrow() {
            SessionEvent::Connected { session, .. } => session.into(),
            other => panic!("{other:?}"),
        },
        Err(other) => panic!("{other}"),
    };
    let is_gone = || async {
        // The client comes back on its session at once, and the server cuts the stranger off then;
        // who may try again.
        let mut wire = Wire::dial(world.servers()[0]).await;
        let (mut hello, mut end) = (Out::default(), Out::default());
        hello.int(0).long(0).int(10_000).long(session);
        hello.buffer(Some(&password(session))).flag(false);
        end.int(1).int(-11);
        wire.send(&[hello.framed(), end.framed()].concat()).await;
        while let Arrival::Frame(_) = wire.next().await {}
        let ours = raw_with(&world, SECRET).await;
        all_below(&ours, "/locks/vault").await.len() == 1
    };
    eventually("its ticket is gone", SOON, is_gone).await;
    timeout(2 * SOON, guard.lost()).await.unwrap();
}
