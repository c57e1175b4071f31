//! What the simulated link does for its caller, in calm and in a storm. No lock is used here.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::tree::Change as Committed;
use super::{Author, Entry, SimOpener, SimWorld};
use crate::link::{Change, Code, Create, Fault, Found, Link, Opener, Read, Watch, Write};

/// Longer than any lag, and nothing in virtual time.
const LONG: Duration = Duration::from_secs(10);

fn virtually<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(future)
}

async fn open(world: &Arc<SimWorld>) -> Arc<dyn Link> {
    SimOpener(Arc::clone(world)).open(LONG).await.unwrap()
}

/// A calm world with two directories, and a session in it.
async fn calm() -> (Arc<SimWorld>, Arc<dyn Link>) {
    let world = SimWorld::new(7, 0, 0);
    world.calm();
    let link = open(&world).await;
    for directory in ["/a", "/b"] {
        let kind = Create::Persistent;
        link.create(directory, b"", kind).await.unwrap();
    }
    (world, link)
}

fn ephemeral(path: &str, is_sequential: bool) -> Write<'_> {
    let data = b"mine";
    Write::Ephemeral {
        path,
        data,
        is_sequential,
    }
}

async fn told(watch: &mut Watch) -> Option<Change> {
    timeout(LONG, watch.changed()).await.ok()
}

async fn children(link: &dyn Link, path: &str) -> Vec<String> {
    link.sync(path).await.unwrap();
    match &link.multi_read(&[Read::Children(path)]).await.unwrap()[..] {
        [Found::Children(children)] => children.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_multi_makes_ephemerals_in_several_directories_and_names_them() {
    virtually(async {
        let (world, link) = calm().await;

        let paths = link
            .multi(&[
                ephemeral("/a/read-", true),
                Write::check("/b"),
                ephemeral("/b/plain", false),
                ephemeral("/a/read-", true),
                Write::delete("/b/plain"),
                Write::Create {
                    path: "/b/stays",
                    data: b"",
                },
            ])
            .await;

        let expected = [
            "/a/read-0000000000",
            "/b/plain",
            "/a/read-0000000001",
            "/b/stays",
        ];
        assert_eq!(paths.unwrap(), expected);
        let tree = world.tree();
        let own = ["/a/read-0000000000", "/a/read-0000000001"];
        assert_eq!(tree.of_session(link.session_id()), own);
        assert_eq!(tree.get(own[0]).unwrap().data, b"mine");
        assert_eq!(tree.get("/b/stays").unwrap().owner, 0);
    });
}

#[test]
fn a_refused_write_takes_all_others_of_its_multi_back() {
    virtually(async {
        let (_world, link) = calm().await;
        link.multi(&[ephemeral("/a/taken", false)]).await.unwrap();
        let stale = 4;
        let (path, version) = ("/b", stale);
        for (refused, expected) in [
            (ephemeral("/a/taken", false), Code::NodeExists),
            (ephemeral("/c/place-", true), Code::NoNode),
            (Write::Check { path, version }, Code::BadVersion),
            (Write::Delete { path, version }, Code::BadVersion),
            (Write::delete("/a"), Code::NotEmpty),
            (
                ephemeral("/a/taken/child", false),
                Code::Other("ephemeral nodes have no children".into()),
            ),
        ] {
            let writes = [ephemeral("/b/place-", true), refused];
            assert_eq!(
                link.multi(&writes).await,
                Err(Fault::Refused(1, expected)),
                "{refused:?}"
            );
        }

        assert!(children(&*link, "/b").await.is_empty());
        let made = link.multi(&[ephemeral("/b/place-", true)]).await;
        let first = vec!["/b/place-0000000000".to_owned()];
        assert_eq!(made, Ok(first), "no number was used up");
    });
}

#[test]
fn all_ephemerals_end_with_their_session() {
    virtually(async {
        let (world, link) = calm().await;
        let other = open(&world).await;
        let writes = [ephemeral("/a/place-", true), ephemeral("/a/plain", false)];
        link.multi(&writes).await.unwrap();
        other.sync("/a").await.unwrap();
        let (names, mut watch) = other.watch_children("/a").await.unwrap();
        assert_eq!(names.len(), 2);

        drop(link);

        assert_eq!(told(&mut watch).await, Some(Change::Changed));
        assert!(children(&*other, "/a").await.is_empty());
    });
}

#[test]
fn a_child_watch_tells_once_of_whatever_comes_or_goes() {
    virtually(async {
        let (world, link) = calm().await;
        let other = open(&world).await;
        let watch = async || {
            other.sync("/a").await.unwrap();
            other.watch_children("/a").await.unwrap()
        };
        let (path, data, version) = ("/a", b"new".as_slice(), 0);
        let set = Write::Set {
            path,
            data,
            version,
        };

        let (names, mut first) = watch().await;
        assert!(names.is_empty());
        link.multi(&[set, ephemeral("/b/elsewhere", false)])
            .await
            .unwrap();
        assert_eq!(told(&mut first).await, None, "its own data, another place");
        link.multi(&[ephemeral("/a/one", false)]).await.unwrap();
        assert_eq!(told(&mut first).await, Some(Change::Changed));

        let (names, mut second) = watch().await;
        assert_eq!(names, ["one"]);
        link.delete("/a/one").await.unwrap();
        assert_eq!(told(&mut second).await, Some(Change::Changed));

        let ((_, mut third), (_, mut data)) = (watch().await, other.watch("/a").await.unwrap());
        link.delete("/a").await.unwrap();
        assert_eq!(told(&mut third).await, Some(Change::Deleted));
        assert_eq!(told(&mut data).await, Some(Change::Deleted));
        assert_eq!(world.watch_count(), 0);
    });
}

#[test]
fn a_data_watch_is_deaf_to_children() {
    virtually(async {
        let (_world, link) = calm().await;
        let (_, mut watch) = link.watch("/a").await.unwrap();

        link.multi(&[ephemeral("/a/one", false)]).await.unwrap();

        assert_eq!(told(&mut watch).await, None);
    });
}

#[test]
fn no_child_watch_stays_where_none_is_wanted() {
    virtually(async {
        let (world, link) = calm().await;

        let missing = link.watch_children("/missing").await;
        assert_eq!(missing.unwrap_err(), Fault::Answered(Code::NoNode));
        assert_eq!(world.watch_count(), 0);
        let armed = link.watch_children("/a").await.unwrap();
        assert_eq!(world.watch_count(), 1);
        drop(armed);
        assert_eq!(world.watch_count(), 0, "a dropped watch is taken back");
        // Nobody waits for the answer any more.
        drop(link.watch_children("/a"));
        sleep(LONG).await;
        assert_eq!(world.watch_count(), 0, "an unwanted answer is taken back");
        let (_, mut watch) = link.watch_children("/a").await.unwrap();
        drop(link);
        assert_eq!(told(&mut watch).await, Some(Change::SessionOver));
    });
}

#[test]
fn in_a_storm_a_multi_happens_as_a_whole_or_not_at_all() {
    let (mut lost, mut kept_quiet) = (0, 0);
    for seed in 0..300 {
        virtually(async {
            let world = SimWorld::new(seed, 0, 50);
            let link = open(&world).await;
            let directories = [
                Write::Create {
                    path: "/a",
                    data: b"",
                },
                Write::Create {
                    path: "/b",
                    data: b"",
                },
            ];
            link.multi(&directories).await.ok();
            let writes = [ephemeral("/a/place-", true), ephemeral("/b/place-", true)];
            let answer = link.multi(&writes).await;
            // What is on its way arrives.
            sleep(LONG).await;

            let mut made = Vec::new();
            for (_, entry) in world.entries() {
                if let Entry::Commit {
                    author: Author::Session(_),
                    changes,
                    ..
                } = entry
                {
                    let paths = changes.iter().map(Committed::path);
                    made.push(paths.map(str::to_owned).collect::<Vec<_>>());
                }
            }
            let places = ["/a/place-0000000000", "/b/place-0000000000"];
            let is_made = made.iter().any(|paths| *paths == places);
            assert!(
                made.iter()
                    .all(|paths| *paths == ["/a", "/b"] || *paths == places),
                "seed {seed}: {made:?}"
            );
            match answer {
                Ok(paths) => assert!(is_made && paths == places, "seed {seed}: {paths:?}"),
                Err(Fault::Refused(at, code)) => {
                    assert_eq!((is_made, at, code), (false, 0, Code::NoNode))
                }
                Err(Fault::Unknown(_)) if is_made => kept_quiet += 1,
                Err(Fault::Unknown(_)) => lost += 1,
                Err(other) => panic!("seed {seed}: {other:?}"),
            }
        });
    }
    assert!(
        lost > 0 && kept_quiet > 0,
        "requests are lost ({lost}), and answers ({kept_quiet})"
    );
}

#[test]
fn in_a_storm_a_child_watch_tells_in_the_end() {
    let (mut changed, mut over, mut stale) = (0, 0, 0);
    for seed in 0..300 {
        virtually(async {
            let world = SimWorld::new(seed, 0, 8);
            let (ours, theirs) = (open(&world).await, open(&world).await);
            let kind = Create::Persistent;
            ours.create("/a", b"", kind).await.ok();
            ours.sync("/").await.ok();
            let sent = (ours.watch_children("/a"), theirs.sync("/"));
            let (Ok((names, mut watch)), _) = (sent.0.await, sent.1.await) else {
                return;
            };
            assert!(names.is_empty());
            let place = [Write::Create {
                path: "/a/place",
                data: b"",
            }];
            if theirs.multi(&place).await.is_err() {
                return;
            }
            stale += usize::from(children_now(&*ours).await == Some(0));

            match told(&mut watch).await {
                Some(Change::Changed) => changed += 1,
                Some(Change::SessionOver) => over += 1,
                other => panic!("seed {seed}: {other:?}"),
            }
        });
    }
    assert!(
        changed > 0 && over > 0 && stale > 0,
        "{changed} changed, {over} over, {stale} stale"
    );
}

/// How many children this session's server knows, without a sync.
async fn children_now(link: &dyn Link) -> Option<usize> {
    let found = link.multi_read(&[Read::Children("/a")]).await.ok()?;
    match &found[..] {
        [Found::Children(children)] => Some(children.len()),
        _ => None,
    }
}
