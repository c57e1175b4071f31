//! The link with a server behind it, in a part of the tree of its own. No lock is used here.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::link::zookeeper::Target;
use crate::link::{Change, Code, Create, Fault, Found, Link, Opener, Read, Watch, Write};
use zookeeper_embedded::EmbeddedServer;

const SOON: Duration = Duration::from_secs(5);
const CHROOT: &str = "/part";

async fn open(server: &EmbeddedServer, chroot: &str) -> Arc<dyn Link> {
    let target = Target {
        servers: server.addr().to_string(),
        chroot: chroot.to_owned(),
        session_timeout: SOON,
        ..Target::default()
    };
    target.open(SOON).await.unwrap()
}

/// A server, and a session whose root has two directories.
async fn serve() -> (EmbeddedServer, Arc<dyn Link>) {
    let server = EmbeddedServer::start().await.unwrap();
    let outside = open(&server, "").await;
    outside
        .create(CHROOT, b"", Create::Persistent)
        .await
        .unwrap();
    let link = open(&server, CHROOT).await;
    for directory in ["/a", "/b"] {
        let kind = Create::Persistent;
        link.create(directory, b"", kind).await.unwrap();
    }
    (server, link)
}

fn ephemeral(path: &str, is_sequential: bool) -> Write<'_> {
    let data = b"mine";
    Write::Ephemeral {
        path,
        data,
        is_sequential,
    }
}

async fn told(watch: &mut Watch) -> Change {
    timeout(SOON, watch.changed()).await.unwrap()
}

#[tokio::test]
async fn a_multi_names_what_it_made_as_its_caller_knows_it() {
    let (_server, link) = serve().await;
    let writes = [
        ephemeral("/a/read-", true),
        Write::check("/b"),
        ephemeral("/b/plain", false),
        ephemeral("/a/read-", true),
        Write::Create {
            path: "/b/stays",
            data: b"",
        },
    ];
    let expected = |first: u32| {
        let read = |number| format!("/a/read-{number:010}");
        vec![
            read(first),
            "/b/plain".to_owned(),
            read(first + 1),
            "/b/stays".to_owned(),
        ]
    };

    let made = link.multi(&writes).await;
    assert_eq!(made, Ok(expected(0)));
    let refused = link.multi(&writes).await;
    assert_eq!(refused, Err(Fault::Refused(2, Code::NodeExists)));
    let away = [Write::delete("/b/plain"), Write::delete("/b/stays")];
    assert_eq!(link.multi(&away).await, Ok(Vec::new()));
    assert_eq!(link.multi(&writes).await, Ok(expected(2)));

    let reads = ["/a/read-0000000000", "/b/plain", "/b/stays"].map(Read::Data);
    let found = link.multi_read(&reads).await.unwrap();
    let owner = |found: &Found| match found {
        Found::Node(node) => node.owner,
        other => panic!("{other:?}"),
    };
    let ours = link.session_id();
    let owners: Vec<i64> = found.iter().map(owner).collect();
    assert_eq!(owners, [ours, ours, 0]);
}

#[tokio::test]
async fn a_child_watch_tells_of_the_children_and_of_the_end_of_their_directory() {
    let (_server, link) = serve().await;

    let (names, mut first) = link.watch_children("/a").await.unwrap();
    assert!(names.is_empty());
    link.multi(&[ephemeral("/a/one", false)]).await.unwrap();
    assert_eq!(told(&mut first).await, Change::Changed);
    let (names, mut second) = link.watch_children("/a").await.unwrap();
    assert_eq!(names, ["one"]);
    link.delete("/a/one").await.unwrap();
    assert_eq!(told(&mut second).await, Change::Changed);
    let (_, mut third) = link.watch_children("/a").await.unwrap();
    let (_, mut data) = link.watch("/a").await.unwrap();
    link.delete("/a").await.unwrap();
    assert_eq!(told(&mut third).await, Change::Deleted);
    assert_eq!(told(&mut data).await, Change::Deleted);

    let missing = link.watch_children("/a").await;
    assert_eq!(missing.unwrap_err(), Fault::Answered(Code::NoNode));
}

// The client crate asks for one watch of a kind on a path, however many wait for it.
#[tokio::test]
async fn a_child_watch_that_is_dropped_leaves_the_others() {
    let (_server, link) = serve().await;
    let (_, dropped) = link.watch_children("/a").await.unwrap();
    let (_, mut children) = link.watch_children("/a").await.unwrap();
    let (_, mut data) = link.watch("/a").await.unwrap();

    drop(dropped);
    let (_, last) = link.watch_children("/b").await.unwrap();
    drop(last);
    link.sync("/").await.unwrap();
    link.multi(&[
        ephemeral("/a/one", false),
        Write::Set {
            path: "/a",
            data: b"new",
            version: 0,
        },
    ])
    .await
    .unwrap();

    assert_eq!(told(&mut children).await, Change::Changed);
    assert_eq!(told(&mut data).await, Change::Changed);
}

#[tokio::test]
async fn the_end_of_the_session_ends_a_child_watch() {
    let (server, link) = serve().await;
    let (_, mut watch) = link.watch_children("/a").await.unwrap();

    server.faults().expire_session(link.session_id());

    assert_eq!(told(&mut watch).await, Change::SessionOver);
}

#[tokio::test]
async fn a_child_watch_outlives_its_connection() {
    let (server, link) = serve().await;
    let (_, mut watch) = link.watch_children("/a").await.unwrap();
    let other = open(&server, CHROOT).await;

    server.faults().cut(link.session_id());
    other.multi(&[ephemeral("/a/one", false)]).await.unwrap();

    assert_eq!(told(&mut watch).await, Change::Changed);
}
