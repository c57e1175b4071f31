//! How sessions end, and what they survive.

use std::sync::Arc;

use futures_util::future::try_join_all;
use tokio::time::timeout;

use super::bed::{Bed, Session};
use super::{Case, SOON, cases, children, is_quiet, node, numbered, ticket, told};
use crate::link::{Change, Create, Fault, Link, SessionState, Write};

pub(super) const CASES: &[Case] = cases![
    a_closed_session_takes_its_nodes_along,
    a_session_that_is_open_is_connected,
];

/// With ways between sessions and servers.
pub(super) const ON_SERVERS: &[Case] = cases![
    a_session_that_is_silent_for_its_timeout_is_over,
    a_session_survives_a_cut,
    a_watch_outlives_its_connection,
    many_watches_outlive_their_connection,
    a_watch_tells_of_what_happened_during_a_cut,
    a_watch_of_what_did_not_change_is_quiet_after_a_cut,
    a_cut_request_has_an_unknown_outcome,
];

async fn state(link: &dyn Link, wanted: fn(&SessionState) -> bool) {
    let mut states = link.states();
    let seen = timeout(SOON, states.wait_for(wanted)).await;
    seen.expect("the state").expect("a state");
}

fn is_over(state: &SessionState) -> bool {
    matches!(state, SessionState::Over(_))
}

async fn a_closed_session_takes_its_nodes_along(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let (a, plain) = (format!("{root}/t-"), format!("{root}/plain"));
    let writes = [numbered(&a), super::ephemeral(&plain, false), numbered(&a)];
    ours.multi(&writes).await.unwrap();
    theirs.sync(&root).await.unwrap();
    let (names, mut watch) = theirs.watch_children(&root).await.unwrap();
    assert_eq!(names.len(), 3);
    let (_, mut data) = ours.watch(&root).await.unwrap();
    let mut states = ours.link.states();

    let _way = ours.close();

    assert_eq!(told(&mut watch).await, Change::Changed);
    assert_eq!(told(&mut data).await, Change::SessionOver);
    timeout(SOON, states.wait_for(is_over))
        .await
        .unwrap()
        .unwrap();
    super::until("all are gone", async || {
        children(&*theirs.link, &root).await.is_empty()
    })
    .await;
}

async fn a_session_that_is_open_is_connected(bed: Arc<Bed>) {
    let session = bed.open().await;
    assert!(!session.session_timeout().is_zero());
    assert_eq!(*session.states().borrow(), SessionState::Connected);
}

async fn a_session_that_is_silent_for_its_timeout_is_over(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let mine = ticket(&*ours.link, &format!("{root}/t-")).await;
    theirs.sync(&root).await.unwrap();
    let (_, mut theirs_watch) = theirs.watch(&mine).await.unwrap();
    let (_, mut watch) = ours.watch(&root).await.unwrap();

    ours.silence();
    let unanswered = ours.sync(&root).await;
    assert!(
        matches!(unanswered, Err(Fault::Unknown(_))),
        "{unanswered:?}"
    );
    assert_eq!(told(&mut theirs_watch).await, Change::Deleted);
    // The client learns it as soon as it can ask.
    ours.heal();

    state(&*ours.link, is_over).await;
    assert_eq!(told(&mut watch).await, Change::SessionOver);
    let kind = Create::EphemeralSequential;
    let path = format!("{root}/t-");
    let late = ours.create(&path, b"", kind).await;
    assert!(matches!(late, Err(Fault::Unknown(_))), "{late:?}");
    assert!(children(&*theirs.link, &root).await.is_empty());
}

/// Cuts the way, and opens it again.
async fn reconnect(session: &Session) {
    session.cut();
    state(&*session.link, |state| *state == SessionState::Disconnected).await;
    session.heal();
    state(&*session.link, |state| *state == SessionState::Connected).await;
}

async fn a_session_survives_a_cut(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let mine = ticket(&*ours.link, &format!("{root}/t-")).await;
    let id = ours.session_id();

    reconnect(&ours).await;

    assert_eq!(ours.session_id(), id);
    assert_eq!(node(&*theirs.link, &mine).await.unwrap().owner, id);
    let next = ticket(&*ours.link, &format!("{root}/t-")).await;
    assert_eq!(node(&*theirs.link, &next).await.unwrap().owner, id);
}

async fn a_watch_outlives_its_connection(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let (_, mut children) = ours.watch_children(&root).await.unwrap();
    let (_, mut data) = ours.watch(&root).await.unwrap();

    reconnect(&ours).await;
    let path = format!("{root}/t-");
    let writes = [numbered(&path), Write::set(&root, b"new", 0)];
    theirs.multi(&writes).await.unwrap();

    assert_eq!(told(&mut children).await, Change::Changed);
    assert_eq!(told(&mut data).await, Change::Changed);
}

/// So many that some stores arm them again in several requests.
async fn many_watches_outlive_their_connection(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let path = format!("{root}/t-");
    let mut tickets = Vec::new();
    for _ in 0..5 {
        let hundred = vec![numbered(&path); 100];
        tickets.extend(theirs.multi(&hundred).await.unwrap());
    }
    ours.sync(&root).await.unwrap();
    let watched = tickets.iter().map(|ticket| ours.watch(ticket));
    let watched = try_join_all(watched).await.unwrap();
    let mut watches: Vec<_> = watched.into_iter().map(|(_, watch)| watch).collect();

    let delete = async |tickets: &[String]| {
        let deletes: Vec<_> = tickets.iter().map(|ticket| Write::delete(ticket)).collect();
        theirs.multi(&deletes).await.unwrap();
    };

    ours.cut();
    state(&*ours.link, |state| *state == SessionState::Disconnected).await;
    for hundred in tickets[200..].chunks(100) {
        delete(hundred).await;
    }
    ours.heal();
    state(&*ours.link, |state| *state == SessionState::Connected).await;
    delete(&tickets[..100]).await;
    delete(&tickets[100..200]).await;

    for watch in &mut watches {
        assert_eq!(told(watch).await, Change::Deleted);
    }
}

async fn a_watch_tells_of_what_happened_during_a_cut(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let theirs_ticket = ticket(&*theirs.link, &format!("{root}/t-")).await;
    let second = ticket(&*theirs.link, &format!("{root}/t-")).await;
    ours.sync(&root).await.unwrap();
    let (_, mut deleted) = ours.watch(&theirs_ticket).await.unwrap();
    let (_, mut set) = ours.watch(&second).await.unwrap();
    let (_, mut children) = ours.watch_children(&root).await.unwrap();

    ours.cut();
    state(&*ours.link, |state| *state == SessionState::Disconnected).await;
    let writes = [
        Write::delete(&theirs_ticket),
        Write::set(&second, b"new", 0),
    ];
    theirs.multi(&writes).await.unwrap();
    ours.heal();

    assert_eq!(told(&mut deleted).await, Change::Deleted);
    assert_eq!(told(&mut set).await, Change::Changed);
    assert_eq!(told(&mut children).await, Change::Changed);
}

async fn a_watch_of_what_did_not_change_is_quiet_after_a_cut(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let mine = ticket(&*theirs.link, &format!("{root}/t-")).await;
    ours.sync(&root).await.unwrap();
    let (_, mut data) = ours.watch(&mine).await.unwrap();
    let (_, mut children) = ours.watch_children(&root).await.unwrap();

    reconnect(&ours).await;

    assert!(is_quiet(&mut data).await);
    assert!(is_quiet(&mut children).await);
}

async fn a_cut_request_has_an_unknown_outcome(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    ours.cut();
    state(&*ours.link, |state| *state == SessionState::Disconnected).await;
    let path = format!("{root}/a");
    let create = ours.create(&path, b"", Create::Persistent);
    ours.heal();
    let create = create.await;
    state(&*ours.link, |state| *state == SessionState::Connected).await;
    // Whatever the answer is, it tells no lie.
    let is_there = node(&*theirs.link, &path).await.is_some();
    match create {
        Ok(_) => assert!(is_there),
        Err(Fault::Unknown(_)) => {}
        other => panic!("{other:?}"),
    }
}
