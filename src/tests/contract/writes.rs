//! Several writes at once: all of them or none.

use std::sync::Arc;

use super::bed::Bed;
use super::{Case, cases, children, directory, ephemeral, node, numbered};
use crate::link::{Code, Fault, Write};

pub(super) const CASES: &[Case] = cases![
    several_writes_name_what_they_made,
    a_refused_write_takes_the_others_back,
    writes_see_those_before_them,
    a_check_changes_nothing,
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
