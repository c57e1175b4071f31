//! Who may do what: credentials and access lists, from both sides, and that no secret is shown by
//! anything.

pub(crate) mod acl;
#[cfg(feature = "tls")]
mod tls;

use std::time::Duration;

use lockkeeper::{Acl, Error, Keeper};
use tokio::time::timeout;
use tracing::Level;
use tracing::instrument::WithSubscriber;
use zookeeper_client::{Client, Permission};

use testbench::heard::Heard;
use testbench::{World, case, eventually};

const SOON: Duration = Duration::from_secs(5);
const SECRET: &str = "locksmith:open-sesame-97531";

async fn with(world: &World, secret: &str, acl: Acl) -> Keeper {
    let builder = Keeper::builder(world.connect_string()).credential("digest", secret);
    builder.acl(acl).connect().await.unwrap()
}

fn denied<T>(outcome: lockkeeper::Result<T>, right: &str, piece: &str) {
    let Err(error) = outcome else {
        panic!("it is allowed: {right} on {piece}");
    };
    assert!(error.is_denied(), "{error}");
    let Error::Denied { path, needs, .. } = &error else {
        panic!("{error}");
    };
    assert!(path.contains(piece), "{error}");
    assert_eq!(needs.to_string(), right, "{error}");
    let text = error.to_string();
    assert!(text.contains(right) && text.contains(piece), "{text}");
}

/// All nodes below a path, and itself.
async fn all_below(client: &Client, path: &str) -> Vec<String> {
    let mut found = vec![path.to_owned()];
    let mut at = 0;
    while at < found.len() {
        let parent = found[at].clone();
        for child in client.list_children(&parent).await.unwrap() {
            found.push(format!("{parent}/{child}"));
        }
        at += 1;
    }
    found
}

#[case(zookeeper, why = "access lists and credentials")]
async fn nodes_of_a_creator_keep_others_out(world: World) {
    let ours = with(&world, SECRET, Acl::creator()).await;
    let guard = ours.mutex("vault").unwrap().lock().await.unwrap();
    let before = all_below(&raw_with(&world, SECRET).await, "/locks").await;

    for theirs in [
        Keeper::connect(world.connect_string()).await.unwrap(),
        with(&world, "locksmith:wrong", Acl::creator()).await,
    ] {
        let lock = theirs.mutex("vault").unwrap();
        denied(
            timeout(SOON, lock.lock()).await.unwrap(),
            "CREATE",
            "/locks/vault",
        );
        denied(
            timeout(SOON, lock.try_lock()).await.unwrap(),
            "READ",
            "/locks/vault",
        );
        denied(theirs.queue("vault").await, "READ", "/locks/vault");
        denied(theirs.locks().await, "READ", "/locks");
        let other = theirs.mutex("another").unwrap();
        denied(
            timeout(SOON, other.lock()).await.unwrap(),
            "CREATE",
            "/locks",
        );
        theirs.close().await;
    }

    guard.check().await.unwrap();
    let after = all_below(&raw_with(&world, SECRET).await, "/locks").await;
    assert_eq!(before, after, "nothing is left behind");
    guard.release().await.unwrap();
}

/// What was there already keeps its list: directories that all clients may use, and tickets in them
/// that only some may read.
#[case(zookeeper, why = "access lists and credentials")]
async fn a_ticket_that_may_not_be_read_is_no_missing_one(world: World) {
    let ours = Keeper::builder(world.connect_string()).credential("digest", SECRET);
    let ours = ours.strict_acl(false).connect().await.unwrap();
    let theirs = Keeper::builder(world.connect_string()).persistent_directories(true);
    let theirs = theirs.connect().await.unwrap();
    let lock = theirs.mutex("open").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    let permits = theirs.semaphore("permits", 1).unwrap();
    permits.acquire().await.unwrap().release().await.unwrap();
    let vault = ours.mutex("open").unwrap().lock().await.unwrap();
    let permit = ours.semaphore("permits", 1).unwrap();
    let permit = permit.acquire().await.unwrap();

    // It would seem to have no holder, or a waiter as its holder.
    denied(theirs.queue("open").await, "READ", vault.node());
    denied(
        theirs.queue("permits").await,
        "READ",
        "/locks/permits/held/",
    );
    denied(permits.holders().await, "READ", "/locks/permits/held/");
    let locks = theirs.locks().await.unwrap();
    let seen = locks.iter().map(|lock| (lock.tickets, lock.is_denied));
    assert_eq!(seen.collect::<Vec<_>>(), [(1, false); 2], "{locks:?}");

    assert_eq!(ours.queue("open").await.unwrap().len(), 1);
    assert_eq!(ours.queue("permits").await.unwrap().len(), 1);
    vault.release().await.unwrap();
    permit.release().await.unwrap();
}

#[case(zookeeper, why = "access lists and credentials")]
async fn a_directory_that_may_not_be_read_is_in_the_list(world: World) {
    let ours = with(&world, SECRET, Acl::creator()).await;
    let theirs = Keeper::connect(world.connect_string()).await.unwrap();
    let window = theirs.mutex("window").unwrap().lock().await.unwrap();
    let vault = ours.mutex("vault/deep").unwrap().lock().await.unwrap();

    let locks = theirs.locks().await.unwrap();

    let seen = locks
        .iter()
        .map(|lock| (&*lock.name, lock.tickets, lock.is_denied));
    let expected = [("vault", 0, true), ("window", 1, false)];
    assert_eq!(seen.collect::<Vec<_>>(), expected);
    let all = ours.locks().await.unwrap();
    assert_eq!(all[0].name, "vault/deep");
    assert!(all.iter().all(|lock| !lock.is_denied), "{all:?}");
    window.release().await.unwrap();
    vault.release().await.unwrap();
}

async fn raw_with(world: &World, secret: &str) -> Client {
    let connector = Client::connector().with_auth("digest", secret.as_bytes());
    connector.connect(&world.connect_string()).await.unwrap()
}

#[case(zookeeper, why = "access lists and credentials")]
async fn whoever_proves_the_same_shares_the_locks(world: World) {
    let [a, b] = [
        with(&world, SECRET, Acl::creator()).await,
        with(&world, SECRET, Acl::creator()).await,
    ];
    let held = a.mutex("shared").unwrap().lock().await.unwrap();
    let mut next = b.mutex("shared").unwrap().enqueue().await.unwrap();
    assert_eq!(b.queue("shared").await.unwrap().len(), 2);

    held.release().await.unwrap();

    let next = timeout(SOON, next.granted()).await.unwrap().unwrap();
    next.release().await.unwrap();
}

#[case(zookeeper, why = "access lists and credentials")]
async fn others_may_look_where_a_list_says_so(world: World) {
    let acl = Acl::creator().allow("world", "anyone", "r").unwrap();
    let ours = with(&world, SECRET, acl).await;
    let theirs = Keeper::connect(world.connect_string()).await.unwrap();
    let guard = ours.mutex("window").unwrap().lock().await.unwrap();

    let seen = || async { theirs.queue("window").await.unwrap().len() == 1 };
    eventually("the queue is seen", SOON, seen).await;
    let queue = theirs.queue("window").await.unwrap();
    let lock = theirs.mutex("window").unwrap();
    denied(
        timeout(SOON, lock.lock()).await.unwrap(),
        "CREATE",
        "/locks/window",
    );
    denied(
        theirs.evict("window", &queue[0]).await,
        "DELETE",
        "/locks/window",
    );
    denied(
        theirs.revoke("window", &queue[0], SOON).await,
        "WRITE",
        "/locks/window",
    );

    guard.check().await.unwrap();
    guard.release().await.unwrap();
}

#[case(zookeeper, why = "access lists and credentials")]
async fn every_kind_of_node_has_the_list(world: World) {
    let builder = Keeper::builder(world.connect_string()).credential("digest", SECRET);
    let ours = builder
        .acl(Acl::creator())
        .journal(3)
        .connect()
        .await
        .unwrap();
    let held = (
        ours.mutex("kinds/mutex").unwrap().lock().await.unwrap(),
        ours.rw_lock("kinds/both")
            .unwrap()
            .write()
            .await
            .unwrap()
            .downgrade()
            .await
            .unwrap(),
        ours.semaphore("kinds/permits", 2)
            .unwrap()
            .acquire()
            .await
            .unwrap(),
        ours.election("kinds/lead")
            .unwrap()
            .campaign("me")
            .await
            .unwrap(),
        ours.lock_all(["kinds/one", "kinds/two"]).await.unwrap(),
    );
    held.3.proclaim("me again").await.unwrap();

    let client = raw_with(&world, SECRET).await;
    let page = || async { client.get_acl("/locks-journal/kinds/mutex").await.is_ok() };
    eventually("the journal is written", SOON, page).await;
    let mut nodes = all_below(&client, "/locks").await;
    nodes.extend(all_below(&client, "/locks-journal").await);

    assert!(nodes.len() > 15, "{nodes:?}");
    for node in nodes {
        let (acl, _) = client.get_acl(&node).await.unwrap();
        let [only] = &acl[..] else {
            panic!("{node}: {acl:?}");
        };
        assert_eq!(
            (only.permission(), only.scheme()),
            (Permission::ALL, "digest"),
            "{node}"
        );
        assert!(only.id().starts_with("locksmith:"), "{node}");
    }
    drop(held);
}

#[case(zookeeper, why = "access lists and credentials")]
async fn a_scheme_that_the_servers_do_not_know_is_said(world: World) {
    let builder = Keeper::builder(world.connect_string()).credential("no-such-scheme", "x");

    let connecting = builder.connect_timeout(SOON).connect();
    let error = timeout(2 * SOON, connecting).await.unwrap().unwrap_err();

    assert!(error.is_denied() && !error.is_unreachable(), "{error}");
    assert!(error.to_string().contains("credential"), "{error}");
}

#[case(zookeeper, why = "access lists and credentials")]
async fn a_list_that_needs_a_credential_is_refused_without_one(world: World) {
    let builder = Keeper::builder(world.connect_string()).acl(Acl::creator());

    let error = builder.connect().await.unwrap_err();

    assert!(error.is_invalid(), "{error}");
    assert!(error.to_string().contains("credential"), "{error}");
}

#[case(zookeeper, why = "access lists and credentials")]
async fn nothing_shows_a_secret(world: World) {
    let heard = Heard::default();
    let secret = SECRET.split_once(':').unwrap().1;
    let work = async {
        let builder = Keeper::builder(world.connect_string())
            .credential("digest", SECRET)
            .acl(Acl::creator());
        let mut shown = format!("{builder:?}");
        let keeper = builder.connect().await.unwrap();
        let lock = keeper.mutex("secret").unwrap();
        let guard = lock.lock().await.unwrap();
        shown += &format!("{keeper:?} {lock:?} {guard:?}");
        let client = raw_with(&world, SECRET).await;
        for node in all_below(&client, "/locks").await {
            let (data, _) = client.get_data(&node).await.unwrap();
            shown += &String::from_utf8_lossy(&data);
        }
        guard.release().await.unwrap();
        keeper.close().await;
        shown
    };
    let shown = work.with_subscriber(heard.listener(Level::TRACE)).await;

    let logged = heard.text();
    assert!(logged.contains("granted"), "the log is there: {logged}");
    for text in [shown, logged] {
        assert!(!text.contains(secret), "{text}");
    }
}
