//! Watches: each fires once, for what it watches and nothing else.

use std::sync::Arc;

use super::bed::Bed;
use super::{Case, cases, directory, is_quiet, numbered, ticket, told};
use crate::link::{Change, Code, Fault, Link, Write};

pub(super) const CASES: &[Case] = cases![
    a_watch_tells_of_a_delete,
    a_watch_tells_of_new_data,
    a_watch_of_data_is_deaf_to_children,
    a_watch_of_children_is_deaf_to_data,
    a_watch_of_children_tells_of_each_kind_of_change_once,
    what_is_missing_leaves_no_watch,
    a_watch_is_told_of_its_own_sessions_writes,
    two_watches_on_one_path_are_both_told,
    a_dropped_watch_leaves_the_others,
    a_watch_shows_what_it_watches,
    a_later_look_shows_what_a_watch_told_of,
    a_watch_that_fired_tells_the_same_again,
];

async fn a_watch_tells_of_a_delete(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let mine = ticket(&*ours.link, &format!("{root}/t-")).await;
    theirs.sync(&root).await.unwrap();
    let (_, mut watch) = theirs.watch(&mine).await.unwrap();
    ours.delete(&mine).await.unwrap();
    assert_eq!(told(&mut watch).await, Change::Deleted);
}

async fn a_watch_tells_of_new_data(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let mine = ticket(&*ours.link, &format!("{root}/t-")).await;
    theirs.sync(&root).await.unwrap();
    let (_, mut watch) = theirs.watch(&mine).await.unwrap();
    assert!(is_quiet(&mut watch).await);
    let writes = [Write::set(&mine, b"new", 0), Write::delete(&mine)];
    ours.multi(&writes).await.unwrap();
    // The first of both: a watch is spent then.
    assert_eq!(told(&mut watch).await, Change::Changed);
}

async fn a_watch_of_data_is_deaf_to_children(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let (_, mut watch) = theirs.watch(&root).await.unwrap();
    let mine = ticket(&*ours.link, &format!("{root}/t-")).await;
    ours.delete(&mine).await.unwrap();
    assert!(is_quiet(&mut watch).await);
    ours.multi(&[Write::set(&root, b"new", 0)]).await.unwrap();
    assert_eq!(told(&mut watch).await, Change::Changed);
}

async fn a_watch_of_children_is_deaf_to_data(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let mine = ticket(&*ours.link, &format!("{root}/t-")).await;
    theirs.sync(&root).await.unwrap();
    let (_, mut watch) = theirs.watch_children(&root).await.unwrap();
    let writes = [Write::set(&mine, b"new", 0), Write::set(&root, b"new", 0)];
    ours.multi(&writes).await.unwrap();
    assert!(is_quiet(&mut watch).await);
    ours.delete(&mine).await.unwrap();
    assert_eq!(told(&mut watch).await, Change::Changed);
}

async fn children_of(link: &dyn Link, path: &str) -> (Vec<String>, crate::link::Watch) {
    link.sync(path).await.unwrap();
    link.watch_children(path).await.unwrap()
}

async fn a_watch_of_children_tells_of_each_kind_of_change_once(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let path = format!("{root}/a");
    directory(&*ours.link, &path).await;

    let (names, mut first) = children_of(&*theirs.link, &path).await;
    assert!(names.is_empty());
    let one = ticket(&*ours.link, &format!("{path}/t-")).await;
    assert_eq!(told(&mut first).await, Change::Changed);

    let (names, mut second) = children_of(&*theirs.link, &path).await;
    assert_eq!(names, ["t-0000000000"]);
    ours.delete(&one).await.unwrap();
    assert_eq!(told(&mut second).await, Change::Changed);

    let (_, mut third) = children_of(&*theirs.link, &path).await;
    let (_, mut data) = theirs.watch(&path).await.unwrap();
    ours.delete(&path).await.unwrap();
    assert_eq!(told(&mut third).await, Change::Deleted);
    assert_eq!(told(&mut data).await, Change::Deleted);
}

async fn what_is_missing_leaves_no_watch(bed: Arc<Bed>) {
    let (ours, _theirs, root) = bed.pair().await;
    let path = format!("{root}/missing");
    let missing = Fault::Answered(Code::NoNode);
    assert_eq!(ours.watch(&path).await.unwrap_err(), missing);
    assert_eq!(ours.watch_children(&path).await.unwrap_err(), missing);
    directory(&*ours.link, &path).await;
    // The watches that are asked for now are the only ones.
    let (_, mut data) = ours.watch(&path).await.unwrap();
    ours.delete(&path).await.unwrap();
    assert_eq!(told(&mut data).await, Change::Deleted);
}

async fn a_watch_is_told_of_its_own_sessions_writes(bed: Arc<Bed>) {
    let (ours, _theirs, root) = bed.pair().await;
    let mine = ticket(&*ours.link, &format!("{root}/t-")).await;
    let (_, mut data) = ours.watch(&mine).await.unwrap();
    let (_, mut children) = ours.watch_children(&root).await.unwrap();
    ours.delete(&mine).await.unwrap();
    assert_eq!(told(&mut data).await, Change::Deleted);
    assert_eq!(told(&mut children).await, Change::Changed);
}

async fn two_watches_on_one_path_are_both_told(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let mine = ticket(&*ours.link, &format!("{root}/t-")).await;
    theirs.sync(&root).await.unwrap();
    let (_, mut first) = theirs.watch(&mine).await.unwrap();
    let (_, mut second) = theirs.watch(&mine).await.unwrap();
    ours.delete(&mine).await.unwrap();
    assert_eq!(told(&mut first).await, Change::Deleted);
    assert_eq!(told(&mut second).await, Change::Deleted);
}

async fn a_dropped_watch_leaves_the_others(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let (_, dropped) = theirs.watch_children(&root).await.unwrap();
    let (_, mut children) = theirs.watch_children(&root).await.unwrap();
    let (_, mut data) = theirs.watch(&root).await.unwrap();
    drop(dropped);
    theirs.sync(&root).await.unwrap();
    let path = format!("{root}/t-");
    let writes = [numbered(&path), Write::set(&root, b"new", 0)];
    ours.multi(&writes).await.unwrap();
    assert_eq!(told(&mut children).await, Change::Changed);
    assert_eq!(told(&mut data).await, Change::Changed);
}

async fn a_watch_shows_what_it_watches(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let mine = ticket(&*ours.link, &format!("{root}/t-")).await;
    theirs.sync(&root).await.unwrap();
    let (seen, _watch) = theirs.watch(&mine).await.unwrap();
    assert_eq!(
        (&seen.data[..], seen.owner),
        (&b"mine"[..], ours.session_id())
    );
    let (names, _watch) = theirs.watch_children(&root).await.unwrap();
    assert_eq!(names, ["t-0000000000"]);
}

async fn a_later_look_shows_what_a_watch_told_of(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    for turn in 0..20 {
        let mine = ticket(&*ours.link, &format!("{root}/t-")).await;
        theirs.sync(&root).await.unwrap();
        let (_, mut watch) = theirs.watch(&mine).await.unwrap();
        ours.delete(&mine).await.unwrap();
        assert_eq!(told(&mut watch).await, Change::Deleted);
        // Without a sync: the event came from the prefix that is read now.
        let asked = theirs.watch(&mine).await.map(|(node, _)| node);
        assert_eq!(asked, Err(Fault::Answered(Code::NoNode)), "turn {turn}");
    }
}

async fn a_watch_that_fired_tells_the_same_again(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let mine = ticket(&*ours.link, &format!("{root}/t-")).await;
    theirs.sync(&root).await.unwrap();
    let (_, mut watch) = theirs.watch(&mine).await.unwrap();
    ours.multi(&[Write::set(&mine, b"new", 0)]).await.unwrap();
    assert_eq!(told(&mut watch).await, Change::Changed);
    ours.delete(&mine).await.unwrap();
    assert_eq!(told(&mut watch).await, Change::Changed);
}
