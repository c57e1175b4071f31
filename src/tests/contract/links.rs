//! The order of one session's requests, and what becomes of those that nobody waits for.

use std::sync::Arc;

use super::bed::Bed;
use super::{Case, cases, children, node, numbered, ticket, told, until};
use crate::link::{Change, Code, Create, Fault, Found, Read};

pub(super) const CASES: &[Case] = cases![
    a_request_is_sent_when_it_is_called,
    requests_are_answered_in_the_order_of_their_calls,
    a_watch_is_armed_before_what_is_called_behind_it,
    a_request_that_nobody_waits_for_is_done,
    a_sync_shows_what_others_have_done,
    one_read_shows_one_moment,
    what_is_larger_than_servers_read_is_not_sent,
];

async fn a_request_is_sent_when_it_is_called(bed: Arc<Bed>) {
    let (ours, _theirs, root) = bed.pair().await;
    let path = format!("{root}/a");
    // Its future is not polled before the read has its answer.
    let create = ours.create(&path, b"", Create::Persistent);
    let read = ours.multi_read(&[Read::Children(&root)]);
    assert_eq!(read.await, Ok(vec![Found::Children(vec!["a".into()])]));
    assert!(create.await.is_ok());
}

async fn requests_are_answered_in_the_order_of_their_calls(bed: Arc<Bed>) {
    let (ours, _theirs, root) = bed.pair().await;
    let path = format!("{root}/t-");
    let creates: Vec<_> = (0..50)
        .map(|_| ours.create(&path, b"", Create::EphemeralSequential))
        .collect();
    for (expected, create) in (0..).zip(creates) {
        assert_eq!(create.await.unwrap().seq, expected);
    }
}

async fn a_watch_is_armed_before_what_is_called_behind_it(bed: Arc<Bed>) {
    let (ours, _theirs, root) = bed.pair().await;
    let mine = ticket(&*ours.link, &format!("{root}/t-")).await;
    // The first one of its session.
    let (watched, gone) = (ours.watch(&mine), ours.delete(&mine));
    let (watched, gone) = tokio::join!(watched, gone);
    gone.unwrap();
    let (_, mut watch) = watched.unwrap();
    assert_eq!(told(&mut watch).await, Change::Deleted);
}

async fn a_request_that_nobody_waits_for_is_done(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let path = format!("{root}/a");
    drop(ours.create(&path, b"", Create::Persistent));
    until("the node is there", async || {
        node(&*theirs.link, &path).await.is_some()
    })
    .await;
    drop(ours.delete(&path));
    until("the node is gone", async || {
        node(&*theirs.link, &path).await.is_none()
    })
    .await;
}

async fn a_sync_shows_what_others_have_done(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    for turn in 0..20 {
        let path = format!("{root}/{turn}");
        ours.create(&path, b"", Create::Persistent).await.unwrap();
        assert!(node(&*theirs.link, &path).await.is_some(), "turn {turn}");
    }
    let missing = format!("{root}/missing");
    let read = theirs.read_behind_sync(&missing, &[Read::Data(&missing)]);
    assert_eq!(read.await, Ok(vec![Found::Failed(Code::NoNode)]));
}

/// A ticket that moves between two directories is in one of them in each read.
async fn one_read_shows_one_moment(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let (a, b) = (format!("{root}/a"), format!("{root}/b"));
    for path in [&a, &b] {
        ours.create(path, b"", Create::Persistent).await.unwrap();
    }
    let mut at = ours.multi(&[numbered(&format!("{a}/t-"))]).await.unwrap();
    theirs.sync(&root).await.unwrap();
    let moves = async {
        for turn in 0..100 {
            let to = format!("{}/t-", if turn % 2 == 0 { &b } else { &a });
            let writes = [numbered(&to), crate::link::Write::delete(&at[0])];
            at = ours.multi(&writes).await.unwrap();
        }
    };
    let reads = async {
        for turn in 0..100 {
            let reads = [Read::Children(&a), Read::Children(&b)];
            let found = theirs.multi_read(&reads).await.unwrap();
            let count = |found: &Found| match found {
                Found::Children(names) => names.len(),
                other => panic!("{other:?}"),
            };
            let seen: usize = found.iter().map(count).sum();
            assert_eq!(seen, 1, "turn {turn}: {found:?}");
        }
    };
    tokio::join!(moves, reads);
}

async fn what_is_larger_than_servers_read_is_not_sent(bed: Arc<Bed>) {
    if !bed.has_ways() {
        // The simulated servers read everything.
        return;
    }
    let (ours, _theirs, root) = bed.pair().await;
    let path = format!("{root}/a");
    let data = vec![b'x'; 2 * 1024 * 1024];
    let refused = ours.create(&path, &data, Create::Persistent).await;
    assert!(matches!(refused, Err(Fault::Answered(Code::TooLarge(_)))));
    assert!(children(&*ours.link, &root).await.is_empty());
}
