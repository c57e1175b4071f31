//! Nodes: their kinds, numbers, versions and ids.

use std::sync::Arc;

use super::bed::Bed;
use super::{Case, cases, children, directory, ephemeral, node, numbered, ticket};
use crate::link::{Code, Create, Fault, Found, Read, Write};

pub(super) const CASES: &[Case] = cases![
    a_node_is_as_it_was_made,
    what_is_there_is_not_made_again,
    nothing_is_made_below_what_is_missing,
    nothing_is_made_below_a_ticket,
    a_ticket_has_the_number_of_creates_before_it,
    a_tickets_own_answer_tells_of_its_directory,
    a_number_is_never_given_twice,
    a_delete_leaves_no_node_and_no_directory_with_children,
    a_set_raises_the_version,
    a_childs_coming_and_going_is_the_last_change_of_its_directory,
    ids_rise_with_each_transaction,
    a_read_of_several_has_an_answer_for_each,
    ephemerals_are_found_by_their_prefix,
];

async fn a_node_is_as_it_was_made(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let stays = format!("{root}/stays");
    let created = ours.create(&stays, b"\0data\xff", Create::Persistent).await;
    let created = created.unwrap();
    let goes = format!("{root}/goes-");
    let ticket = ours
        .create(&goes, b"", Create::EphemeralSequential)
        .await
        .unwrap();

    let seen = node(&*theirs.link, &stays).await.unwrap();
    assert_eq!(seen.data, b"\0data\xff");
    assert_eq!((seen.czxid, seen.pzxid), (created.czxid, created.czxid));
    assert_eq!((seen.version, seen.owner, seen.num_children), (0, 0, 0));
    let path = format!("{goes}{:010}", ticket.seq);
    let seen = node(&*theirs.link, &path).await.unwrap();
    assert_eq!((seen.czxid, seen.owner), (ticket.czxid, ours.session_id()));
    assert_eq!(ticket.owner, ours.session_id());
    assert_eq!(seen.data, b"");
    assert_ne!(ours.session_id(), 0);
    assert_ne!(ours.session_id(), theirs.session_id());
}

async fn what_is_there_is_not_made_again(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let path = format!("{root}/a");
    let first = ours
        .create(&path, b"first", Create::Container)
        .await
        .unwrap();

    for kind in [Create::Container, Create::Persistent] {
        let again = theirs.create(&path, b"second", kind).await;
        assert_eq!(again, Err(Fault::Answered(Code::NodeExists)));
    }

    let seen = node(&*ours.link, &path).await.unwrap();
    assert_eq!((&seen.data[..], seen.czxid), (&b"first"[..], first.czxid));
}

async fn nothing_is_made_below_what_is_missing(bed: Arc<Bed>) {
    let (ours, _theirs, root) = bed.pair().await;
    let path = format!("{root}/missing/a");
    for kind in [
        Create::Container,
        Create::Persistent,
        Create::EphemeralSequential,
    ] {
        let refused = ours.create(&path, b"", kind).await;
        assert_eq!(refused, Err(Fault::Answered(Code::NoNode)), "{kind:?}");
    }
    assert!(children(&*ours.link, &root).await.is_empty());
}

async fn nothing_is_made_below_a_ticket(bed: Arc<Bed>) {
    let (ours, _theirs, root) = bed.pair().await;
    let mine = ticket(&*ours.link, &format!("{root}/t-")).await;
    for kind in [Create::Persistent, Create::EphemeralSequential] {
        let refused = ours.create(&format!("{mine}/a"), b"", kind).await;
        let is_told = matches!(refused, Err(Fault::Answered(Code::Other(_))));
        assert!(is_told, "{kind:?}: {refused:?}");
    }
    assert!(children(&*ours.link, &mine).await.is_empty());
}

async fn a_ticket_has_the_number_of_creates_before_it(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    directory(&*ours.link, &format!("{root}/plain")).await;
    let (a, b) = (format!("{root}/a-"), format!("{root}/b-"));

    let kind = Create::EphemeralSequential;
    let first = ours.create(&a, b"", kind).await.unwrap();
    let second = theirs.create(&b, b"", kind).await.unwrap();
    let several = ours.multi(&[numbered(&a), numbered(&b)]).await.unwrap();

    assert_eq!((first.seq, second.seq), (1, 2));
    let expected = [format!("{a}0000000003"), format!("{b}0000000004")];
    assert_eq!(several, expected);
    let names = children(&*ours.link, &root).await;
    let expected = [
        "a-0000000001",
        "a-0000000003",
        "b-0000000002",
        "b-0000000004",
        "plain",
    ];
    assert_eq!(names, expected);
}

/// Where the link says that it does: as a read right behind it.
async fn a_tickets_own_answer_tells_of_its_directory(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let path = format!("{root}/queue");
    directory(&*ours.link, &path).await;
    let (data, version) = (b"\0limit\xff", 0);
    let set = Write::Set {
        path: &path,
        data,
        version,
    };
    theirs.multi(&[set]).await.unwrap();
    let (start, kind) = (format!("{path}/a-"), Create::EphemeralSequential);

    for count in 1..=3 {
        let by = if count == 2 { &theirs } else { &ours };
        let created = by.create(&start, b"", kind).await.unwrap();

        let seen = node(&*ours.link, &path).await.unwrap();
        assert_eq!((seen.num_children, seen.version), (count, 1));
        let told = by.link.tells_directory().then(|| Box::new(seen));
        assert_eq!(created.directory, told);
    }
}

async fn a_number_is_never_given_twice(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let path = format!("{root}/t-");
    let first = ticket(&*ours.link, &path).await;
    ours.delete(&first).await.unwrap();

    let second = ticket(&*theirs.link, &path).await;

    assert_eq!(second, format!("{path}0000000001"));
}

async fn a_delete_leaves_no_node_and_no_directory_with_children(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let (a, below) = (format!("{root}/a"), format!("{root}/a/b"));
    directory(&*ours.link, &a).await;
    directory(&*ours.link, &below).await;

    assert_eq!(ours.delete(&a).await, Err(Fault::Answered(Code::NotEmpty)));
    // Any session may remove what another one made.
    assert_eq!(theirs.delete(&below).await, Ok(()));
    assert_eq!(
        theirs.delete(&below).await,
        Err(Fault::Answered(Code::NoNode))
    );
    assert_eq!(ours.delete(&a).await, Ok(()));
    assert!(node(&*ours.link, &a).await.is_none());
    assert!(children(&*theirs.link, &root).await.is_empty());
}

async fn a_set_raises_the_version(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let path = format!("{root}/t-");
    let path = ticket(&*ours.link, &path).await;
    let before = node(&*ours.link, &path).await.unwrap();

    ours.multi(&[Write::set(&path, b"one", 0)]).await.unwrap();
    let stale = theirs.multi(&[Write::set(&path, b"two", 0)]).await;
    theirs
        .multi(&[Write::set(&path, b"three", 1)])
        .await
        .unwrap();

    assert_eq!(stale, Err(Fault::Refused(0, Code::BadVersion)));
    let after = node(&*ours.link, &path).await.unwrap();
    assert_eq!((&after.data[..], after.version), (&b"three"[..], 2));
    assert_eq!((after.czxid, after.owner), (before.czxid, before.owner));
}

async fn a_childs_coming_and_going_is_the_last_change_of_its_directory(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let made = node(&*ours.link, &root).await.unwrap();
    let path = format!("{root}/t-");
    let kind = Create::EphemeralSequential;
    let ticket = ours.create(&path, b"", kind).await.unwrap();

    let with = node(&*theirs.link, &root).await.unwrap();
    assert_eq!((with.pzxid, with.num_children), (ticket.czxid, 1));
    let path = format!("{path}{:010}", ticket.seq);
    ours.multi(&[Write::set(&path, b"new", 0)]).await.unwrap();
    let set = node(&*theirs.link, &root).await.unwrap();
    assert_eq!(set, with, "a child's data are not its directory's");
    ours.delete(&path).await.unwrap();
    let without = node(&*theirs.link, &root).await.unwrap();

    assert_eq!(without.num_children, 0);
    assert!(without.pzxid > with.pzxid);
    assert_eq!((without.czxid, without.version), (made.czxid, 0));
}

async fn ids_rise_with_each_transaction(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let path = format!("{root}/t-");
    let mut last = 0;
    for turn in 0..20 {
        let session = if turn % 2 == 0 { &ours } else { &theirs };
        let kind = Create::EphemeralSequential;
        let created = session.create(&path, b"", kind).await.unwrap();
        assert!(created.czxid > last, "{} after {last}", created.czxid);
        last = created.czxid;
    }
    // What one transaction makes has one id.
    let (a, b) = (format!("{root}/a"), format!("{root}/b"));
    let writes = [ephemeral(&a, false), ephemeral(&b, false)];
    ours.multi(&writes).await.unwrap();
    let a = node(&*ours.link, &a).await.unwrap();
    let b = node(&*ours.link, &b).await.unwrap();
    assert_eq!(a.czxid, b.czxid);
    assert!(a.czxid > last);
}

async fn a_read_of_several_has_an_answer_for_each(bed: Arc<Bed>) {
    let (ours, _theirs, root) = bed.pair().await;
    let mine = ticket(&*ours.link, &format!("{root}/t-")).await;
    let missing = format!("{root}/missing");
    let reads = [
        Read::Data(&mine),
        Read::Children(&missing),
        Read::Children(&root),
        Read::Data(&missing),
        Read::Data(&root),
    ];

    let found = ours.multi_read(&reads).await.unwrap();

    assert_eq!(found.len(), reads.len());
    assert!(matches!(&found[0], Found::Node(node) if node.owner == ours.session_id()));
    assert_eq!(found[1], Found::Failed(Code::NoNode));
    let name = mine.rsplit('/').next().unwrap().to_owned();
    assert_eq!(found[2], Found::Children(vec![name]));
    assert_eq!(found[3], Found::Failed(Code::NoNode));
    assert!(matches!(&found[4], Found::Node(node) if node.num_children == 1));
}

async fn ephemerals_are_found_by_their_prefix(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let (a, b) = (format!("{root}/a"), format!("{root}/b"));
    directory(&*ours.link, &a).await;
    directory(&*ours.link, &b).await;
    let first = ticket(&*ours.link, &format!("{a}/one-")).await;
    let second = ticket(&*ours.link, &format!("{a}/two-")).await;
    let elsewhere = ticket(&*ours.link, &format!("{b}/one-")).await;
    theirs.sync(&root).await.unwrap();
    ticket(&*theirs.link, &format!("{a}/one-")).await;

    let below = async |prefix: &str| {
        let mut paths = ours.ephemerals(prefix).await.unwrap();
        paths.sort_unstable();
        paths
    };
    assert_eq!(below(&a).await, [&*first, &second]);
    assert_eq!(below(&format!("{a}/two-")).await, [&*second]);
    assert_eq!(below(&root).await, [&*first, &second, &elsewhere]);
    ours.delete(&second).await.unwrap();
    assert_eq!(below(&a).await, [&*first]);
}
