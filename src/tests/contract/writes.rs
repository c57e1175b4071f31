//! Several writes at once: all of them or none.

use std::sync::Arc;

use super::bed::Bed;
use super::{Case, cases, children, directory, ephemeral, is_quiet, node, numbered, ticket, told};
use crate::link::{Change, Code, Fault, Write};

pub(super) const CASES: &[Case] = cases![
    several_writes_name_what_they_made,
    a_refused_write_takes_the_others_back,
    writes_see_those_before_them,
    a_check_changes_nothing,
    a_ticket_leaves_at_the_version_that_was_seen_or_not_at_all,
    a_ticket_leaves_with_data_for_its_directory,
];

async fn several_writes_name_what_they_made(bed: Arc<Bed>) {
    let (ours, _theirs, root) = bed.pair().await;
    let (a, b) = (format!("{root}/a"), format!("{root}/b"));
    directory(&*ours.link, &a).await;
    directory(&*ours.link, &b).await;
    let (read, plain, stays) = (
        format!("{a}/read-"),
        format!("{b}/plain"),
        format!("{b}/stays"),
    );
    let writes = [
        numbered(&read),
        Write::check(&b),
        ephemeral(&plain, false),
        numbered(&read),
        Write::Create {
            path: &stays,
            data: b"kept",
        },
    ];

    let made = ours.multi(&writes).await.unwrap();

    let expected = [
        format!("{read}0000000000"),
        plain.clone(),
        format!("{read}0000000001"),
        stays.clone(),
    ];
    assert_eq!(made, expected);
    let owner = async |path: &str| node(&*ours.link, path).await.unwrap().owner;
    assert_eq!(owner(&plain).await, ours.session_id());
    assert_eq!(owner(&stays).await, 0);
}

async fn a_refused_write_takes_the_others_back(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let (a, b) = (format!("{root}/a"), format!("{root}/b"));
    directory(&*ours.link, &a).await;
    directory(&*ours.link, &b).await;
    let (taken, place) = (format!("{a}/taken"), format!("{b}/place-"));
    let missing = format!("{root}/c/place-");
    ours.multi(&[ephemeral(&taken, false)]).await.unwrap();
    let (path, version) = (&*b, 4);
    let before = node(&*ours.link, &b).await;

    for (refused, expected) in [
        (ephemeral(&taken, false), Code::NodeExists),
        (numbered(&missing), Code::NoNode),
        (Write::delete(&missing), Code::NoNode),
        (Write::check(&missing), Code::NoNode),
        (Write::Check { path, version }, Code::BadVersion),
        (Write::Delete { path, version }, Code::BadVersion),
        (Write::set(path, b"new", version), Code::BadVersion),
        (Write::delete(&a), Code::NotEmpty),
    ] {
        let writes = [numbered(&place), Write::set(&b, b"new", 0), refused];
        assert_eq!(
            theirs.multi(&writes).await,
            Err(Fault::Refused(2, expected)),
            "{refused:?}"
        );
    }

    assert_eq!(node(&*ours.link, &b).await, before);
    assert!(children(&*ours.link, &b).await.is_empty());
    let made = theirs.multi(&[numbered(&place)]).await.unwrap();
    assert_eq!(made, [format!("{place}0000000000")], "no number is used up");
}

async fn writes_see_those_before_them(bed: Arc<Bed>) {
    let (ours, _theirs, root) = bed.pair().await;
    let path = format!("{root}/a");
    let create = Write::Create {
        path: &path,
        data: b"",
    };

    let twice = [create, create];
    assert_eq!(
        ours.multi(&twice).await,
        Err(Fault::Refused(1, Code::NodeExists))
    );
    let writes = [
        create,
        Write::set(&path, b"one", 0),
        Write::set(&path, b"two", 1),
        Write::delete(&path),
        create,
    ];
    assert!(ours.multi(&writes).await.is_ok());
    let seen = node(&*ours.link, &path).await.unwrap();
    assert_eq!((&seen.data[..], seen.version), (&b""[..], 0));
    let directory = node(&*ours.link, &root).await.unwrap();
    assert_eq!(directory.num_children, 1);
}

async fn a_check_changes_nothing(bed: Arc<Bed>) {
    let (ours, _theirs, root) = bed.pair().await;
    let before = node(&*ours.link, &root).await;
    let (path, version) = (&*root, 0);

    let checked = [Write::check(&root), Write::Check { path, version }];
    assert_eq!(ours.multi(&checked).await, Ok(Vec::new()));

    assert_eq!(node(&*ours.link, &root).await, before);
}

async fn a_ticket_leaves_at_the_version_that_was_seen_or_not_at_all(bed: Arc<Bed>) {
    let (ours, _theirs, root) = bed.pair().await;
    let (path, below) = (format!("{root}/a"), format!("{root}/a/b"));
    directory(&*ours.link, &path).await;
    directory(&*ours.link, &below).await;
    let mine = ticket(&*ours.link, &format!("{path}/t-")).await;
    let before = node(&*ours.link, &path).await;
    let gone = format!("{path}/gone");
    let (missing, fresh) = (format!("{root}/c"), format!("{root}/c/t-"));

    for (directory, version, ticket, expected) in [
        (&path, 4, &mine, Fault::Refused(0, Code::BadVersion)),
        (&missing, 0, &fresh, Fault::Refused(0, Code::NoNode)),
        (&path, 0, &gone, Fault::Refused(1, Code::NoNode)),
        (&root, 0, &path, Fault::Refused(1, Code::NotEmpty)),
    ] {
        let check = Write::Check {
            path: directory,
            version,
        };
        for first in [check, Write::set(directory, b"mark", version)] {
            let czxid = node(&*ours.link, ticket).await.map_or(0, |node| node.czxid);
            let gone = Write::DeleteTicket {
                path: ticket,
                czxid,
            };
            let left = ours.multi(&[first, gone]).await;
            assert_eq!(left, Err(expected.clone()), "{first:?}, {ticket}");
        }
    }

    assert_eq!(node(&*ours.link, &path).await, before);
    assert!(node(&*ours.link, &mine).await.is_some());
}

async fn a_ticket_leaves_with_data_for_its_directory(bed: Arc<Bed>) {
    let (ours, theirs, root) = bed.pair().await;
    let mark = [Some(&b"mark"[..]), None];
    for (round, mark) in (0..).zip(mark) {
        let mine = ticket(&*ours.link, &format!("{root}/t-")).await;
        let before = node(&*theirs.link, &root).await.unwrap();
        let (_, mut of_data) = theirs.watch(&root).await.unwrap();
        let (_, mut of_children) = theirs.watch_children(&root).await.unwrap();
        let (_, mut of_mine) = theirs.watch(&mine).await.unwrap();
        let czxid = node(&*theirs.link, &mine).await.unwrap().czxid;
        let (path, version) = (&*root, round);
        let first = mark.map_or(Write::Check { path, version }, |mark| {
            Write::set(path, mark, version)
        });

        let left = ours.multi(&[first, Write::DeleteTicket { path: &mine, czxid }]);
        assert_eq!(left.await, Ok(Vec::new()));

        assert_eq!(told(&mut of_mine).await, Change::Deleted);
        assert_eq!(told(&mut of_children).await, Change::Changed);
        if mark.is_some() {
            assert_eq!(told(&mut of_data).await, Change::Changed);
        } else {
            assert!(is_quiet(&mut of_data).await);
        }
        let after = node(&*ours.link, &root).await.unwrap();
        assert_eq!((&after.data[..], after.version), (&b"mark"[..], 1));
        assert_eq!(after.num_children, 0);
        assert!(after.pzxid > before.pzxid);
        assert_eq!(node(&*ours.link, &mine).await, None);
    }
}
