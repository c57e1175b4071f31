//! Behaviour of the whole core, without any I/O. Numbers and orders were taken from a real
//! ZooKeeper 3.8.0.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::acl::{self, Acl};
use crate::node::Stat;
use crate::proto::{Create, CreateKind, Read, WatchedPaths, Write};
use crate::reply::Part;

const A: ConnId = ConnId(1);
const B: ConnId = ConnId(2);
const C: ConnId = ConnId(3);
const D: ConnId = ConnId(4);
const NOW: Now = Now {
    uptime: Duration::from_secs(1),
    wall_ms: 1_000,
};

fn core() -> Core {
    let mut core = Core::new(
        (Duration::from_secs(1), Duration::from_secs(60)),
        1 << 20,
        0,
    );
    join(&mut core, A);
    join(&mut core, B);
    core
}

fn hello(session: i64, password: &[u8]) -> ConnectRequest {
    let password = Bytes::copy_from_slice(password);
    ConnectRequest {
        last_zxid: 0,
        timeout_ms: 5_000,
        session,
        password,
        knows_read_only: true,
    }
}

fn join(core: &mut Core, conn: ConnId) -> i64 {
    core.connect(conn, &hello(0, &[0; 16]), here(), NOW)
        .unwrap()
        .session
}

fn here() -> Identity {
    Identity::address("127.0.0.1".parse().unwrap())
}

fn create(path: &str, flags: i32) -> Write {
    let acl = vec![Acl::world(acl::ALL)];
    let kind = if flags == 4 {
        CreateKind::Container
    } else {
        CreateKind::WithStat
    };
    Write::Create(Create {
        kind,
        path: path.to_owned(),
        data: Some(Bytes::new()),
        acl,
        flags,
        ttl: -1,
    })
}

fn delete(path: &str) -> Write {
    Write::Delete {
        path: path.to_owned(),
        version: -1,
    }
}

fn set_data(path: &str, version: i32) -> Write {
    Write::SetData {
        path: path.to_owned(),
        data: Some(Bytes::from_static(b"x")),
        version,
    }
}

fn apply(core: &mut Core, conn: ConnId, request: &Request) -> Result<Answer, Code> {
    core.apply(conn, request, NOW).result
}

fn write(core: &mut Core, write: Write) -> Result<Answer, Code> {
    apply(core, A, &Request::Write(write))
}

fn made(core: &mut Core, path: &str, flags: i32) -> String {
    match write(core, create(path, flags)).unwrap() {
        Answer::Created(path, _) => path,
        other => panic!("{other:?}"),
    }
}

fn stat(core: &mut Core, path: &str) -> Stat {
    core.tree().get(path).unwrap().stat()
}

fn get_and_watch(path: &str) -> Request {
    Request::GetData {
        path: path.to_owned(),
        watch: true,
    }
}

fn events(core: &mut Core) -> Vec<(ConnId, EventKind, String)> {
    let event = |effect| match effect {
        Effect::Event { conn, kind, path } => Some((conn, kind, path.to_string())),
        Effect::Close(_) => None,
    };
    core.take_effects().into_iter().filter_map(event).collect()
}

fn parts(answer: Result<Answer, Code>) -> Vec<Part> {
    match answer.unwrap() {
        Answer::Parts(parts) => parts,
        other => panic!("{other:?}"),
    }
}

#[test]
fn numbers_count_every_create_below_the_parent() {
    let mut core = core();
    made(&mut core, "/p", 0);

    assert_eq!(made(&mut core, "/p/x-", 2), "/p/x-0000000000");
    made(&mut core, "/p/plain", 0);
    write(&mut core, delete("/p/plain")).unwrap();
    assert_eq!(made(&mut core, "/p/x-", 3), "/p/x-0000000002");
    assert_eq!(made(&mut core, "/p/", 2), "/p/0000000003");
    assert_eq!(stat(&mut core, "/p").cversion, 5);
}

#[test]
fn the_counter_sticks_and_then_creates_collide() {
    let mut core = core();
    made(&mut core, "/p", 0);
    core.set_sequence("/p", i32::MAX - 1).unwrap();

    assert_eq!(made(&mut core, "/p/x-", 2), "/p/x-2147483646");
    assert_eq!(made(&mut core, "/p/x-", 2), "/p/x-2147483647");
    assert_eq!(write(&mut core, create("/p/x-", 2)), Err(Code::NodeExists));
    write(&mut core, delete("/p/x-2147483647")).unwrap();
    assert_eq!(made(&mut core, "/p/x-", 2), "/p/x-2147483647");
}

#[test]
fn within_one_transaction_numbers_go_on_below_zero() {
    let mut core = core();
    made(&mut core, "/p", 0);
    core.set_sequence("/p", i32::MAX).unwrap();

    let results = parts(apply(
        &mut core,
        A,
        &Request::Multi(vec![create("/p/x-", 2), create("/p/x-", 2)]),
    ));

    assert_eq!(
        results,
        [
            Part::Created("/p/x-2147483647".into(), None),
            Part::Created("/p/x--2147483648".into(), None)
        ]
    );
    assert_eq!(write(&mut core, create("/p/x-", 2)), Err(Code::NodeExists));
}

#[test]
fn a_failed_transaction_changes_nothing_and_tells_nobody() {
    let mut core = core();
    made(&mut core, "/p", 0);
    made(&mut core, "/p/a", 0);
    apply(&mut core, B, &get_and_watch("/p/a")).unwrap();
    let (before, bytes) = (stat(&mut core, "/p"), core.tree().bytes());

    let writes = vec![
        create("/p/b-", 3),
        set_data("/p/a", -1),
        delete("/p/a"),
        set_data("/nope", -1),
        delete("/p/a"),
    ];
    let results = parts(apply(&mut core, A, &Request::Multi(writes)));

    assert_eq!(results, [0, 0, 0, -101, -2].map(Part::Error));
    assert_eq!(stat(&mut core, "/p"), before);
    assert_eq!(core.tree().bytes(), bytes);
    assert!(events(&mut core).is_empty());
    assert_eq!(made(&mut core, "/p/b-", 2), "/p/b-0000000001");
}

#[test]
fn a_transaction_has_one_zxid_and_a_failed_write_takes_one_too() {
    let mut core = core();
    let start = core.zxid();

    apply(
        &mut core,
        A,
        &Request::Multi(vec![create("/a", 0), create("/b", 0)]),
    )
    .unwrap();
    assert_eq!(
        (stat(&mut core, "/a").czxid, stat(&mut core, "/b").czxid),
        (start + 1, start + 1)
    );
    write(&mut core, create("/a", 0)).unwrap_err();
    assert_eq!(core.zxid(), start + 2);
    apply(&mut core, A, &get_and_watch("/nope")).unwrap_err();
    assert_eq!(core.zxid(), start + 2);
}

#[test]
fn a_transaction_sees_its_own_changes() {
    let mut core = core();

    let writes = vec![
        create("/a", 0),
        create("/a/b", 0),
        set_data("/a/b", 0),
        delete("/a/b"),
        delete("/a"),
    ];
    let results = parts(apply(&mut core, A, &Request::Multi(writes)));

    assert!(
        results.iter().all(|part| !matches!(part, Part::Error(_))),
        "{results:?}"
    );
    assert!(core.tree().get("/a").is_none());
}

#[test]
fn watchers_hear_of_the_node_before_its_parent() {
    let mut core = core();
    made(&mut core, "/p", 0);
    made(&mut core, "/p/a", 0);
    apply(&mut core, B, &get_and_watch("/p/a")).unwrap();
    apply(
        &mut core,
        B,
        &Request::GetChildren {
            path: "/p".into(),
            watch: true,
            with_stat: true,
        },
    )
    .unwrap();

    write(&mut core, delete("/p/a")).unwrap();

    assert_eq!(
        events(&mut core),
        [
            (B, EventKind::Deleted, "/p/a".to_owned()),
            (B, EventKind::ChildrenChanged, "/p".to_owned())
        ]
    );
}

#[test]
fn only_exists_watches_a_node_that_is_not_there() {
    let mut core = core();
    apply(&mut core, B, &get_and_watch("/a")).unwrap_err();
    apply(
        &mut core,
        A,
        &Request::Exists {
            path: "/a".into(),
            watch: true,
        },
    )
    .unwrap_err();

    made(&mut core, "/a", 0);

    assert_eq!(
        events(&mut core),
        [(A, EventKind::Created, "/a".to_owned())]
    );
}

#[test]
fn a_client_that_comes_back_is_told_what_it_missed() {
    let mut core = core();
    for path in ["/same", "/changed", "/parent"] {
        made(&mut core, path, 0);
    }
    let seen_zxid = core.zxid();
    write(&mut core, set_data("/changed", -1)).unwrap();
    made(&mut core, "/parent/new", 0);

    let paths = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
    let watched = WatchedPaths {
        seen_zxid,
        data: paths(&["/same", "/changed", "/gone"]),
        exist: paths(&["/same", "/absent"]),
        child: paths(&["/parent", "/same"]),
        ..WatchedPaths::default()
    };
    apply(&mut core, B, &Request::SetWatches(watched)).unwrap();

    let told: Vec<_> = events(&mut core)
        .into_iter()
        .map(|(_, kind, path)| (kind, path))
        .collect();
    assert_eq!(
        told,
        [
            (EventKind::DataChanged, "/changed".to_owned()),
            (EventKind::Deleted, "/gone".to_owned()),
            (EventKind::Created, "/same".to_owned()),
            (EventKind::ChildrenChanged, "/parent".to_owned()),
        ]
    );
    assert_eq!(core.watches().len(), 3);
}

#[test]
fn a_session_takes_its_ephemerals_with_it() {
    let mut core = core();
    let session = core.session_of(A).unwrap();
    made(&mut core, "/e", 1);
    assert_eq!(
        write(&mut core, create("/e/x", 0)),
        Err(Code::NoChildrenForEphemerals)
    );
    apply(&mut core, B, &get_and_watch("/e")).unwrap();

    assert!(core.expire(session));

    assert_eq!(
        core.take_effects(),
        [
            Effect::Event {
                conn: B,
                kind: EventKind::Deleted,
                path: "/e".into()
            },
            Effect::Close(A)
        ]
    );
    assert!(core.tree().get("/e").is_none());
    assert!(!core.expire(session));
    assert!(apply(&mut core, A, &Request::Ping).is_err());
}

#[test]
fn a_session_moves_to_a_new_connection_and_the_old_one_is_closed() {
    let mut core = core();
    let welcome = core.connect(A, &hello(0, &[0; 16]), here(), NOW).unwrap();
    apply(
        &mut core,
        A,
        &Request::Exists {
            path: "/a".into(),
            watch: true,
        },
    )
    .unwrap_err();

    let moved = core
        .connect(
            ConnId(9),
            &hello(welcome.session, &welcome.password),
            here(),
            NOW,
        )
        .unwrap();

    assert_eq!(
        (moved.session, moved.password),
        (welcome.session, welcome.password)
    );
    assert_eq!(core.take_effects(), [Effect::Close(A)]);
    assert_eq!(core.watches().len(), 0);
    assert_eq!(core.conn_of(welcome.session), Some(ConnId(9)));
}

#[test]
fn a_wrong_password_an_unknown_session_and_a_newer_zxid_are_refused() {
    let mut core = core();
    let session = core.session_of(A).unwrap();

    assert_eq!(
        core.connect(ConnId(9), &hello(session, &[1; 16]), here(), NOW)
            .unwrap()
            .session,
        0
    );
    assert_eq!(
        core.connect(ConnId(9), &hello(77, &[0; 16]), here(), NOW)
            .unwrap()
            .session,
        0
    );
    let ahead = ConnectRequest {
        last_zxid: core.zxid() + 1,
        ..hello(0, &[])
    };
    assert_eq!(core.connect(ConnId(9), &ahead, here(), NOW), None);
}

#[test]
fn only_used_and_empty_containers_are_reaped() {
    let mut core = core();
    for path in ["/used", "/new", "/full"] {
        made(&mut core, path, 4);
    }
    made(&mut core, "/used/x", 0);
    write(&mut core, delete("/used/x")).unwrap();
    made(&mut core, "/full/x", 0);

    assert_eq!(core.reap(NOW), 1);

    assert!(core.tree().get("/used").is_none());
    assert!(core.tree().get("/new").is_some() && core.tree().get("/full").is_some());
    assert_eq!(stat(&mut core, "/new").owner, 0);
}

#[test]
fn rights_are_asked_where_the_original_asks_them() {
    let mut core = core();
    let auth = Request::Auth {
        scheme: "digest".into(),
        secret: Bytes::from_static(b"bob:pw"),
    };
    apply(&mut core, A, &auth).unwrap();
    let mine = Acl {
        permissions: acl::ALL,
        scheme: "auth".into(),
        id: String::new(),
    };
    let Write::Create(plain) = create("/s", 0) else {
        panic!()
    };
    write(
        &mut core,
        Write::Create(Create {
            acl: vec![mine],
            ..plain
        }),
    )
    .unwrap();
    made(&mut core, "/s/x", 0);

    let denied = [
        Request::GetData {
            path: "/s".into(),
            watch: false,
        },
        Request::GetChildren {
            path: "/s".into(),
            watch: false,
            with_stat: false,
        },
        Request::GetAcl { path: "/s".into() },
        Request::Write(set_data("/s", 99)),
        Request::Write(create("/s/y", 0)),
        Request::Write(delete("/s/x")),
        Request::SetAcl {
            path: "/s".into(),
            acl: vec![Acl::world(acl::ALL)],
            version: -1,
        },
    ];
    for request in denied {
        assert_eq!(
            apply(&mut core, B, &request),
            Err(Code::NoAuth),
            "{request:?}"
        );
    }
    assert!(
        apply(
            &mut core,
            B,
            &Request::Exists {
                path: "/s".into(),
                watch: false
            }
        )
        .is_ok()
    );
    let reads = Request::MultiRead(vec![Read::Data { path: "/s".into() }]);
    assert_eq!(
        parts(apply(&mut core, B, &reads)),
        [Part::Error(Code::NoAuth as i32)]
    );
    write(&mut core, delete("/s/x")).unwrap();
    assert!(apply(&mut core, B, &Request::Write(delete("/s"))).is_ok());
}

#[test]
fn a_watcher_that_may_not_read_a_node_hears_nothing_of_it() {
    let mut core = core();
    let private = Acl {
        permissions: acl::ALL,
        scheme: "digest".into(),
        id: "bob:x".into(),
    };
    apply(
        &mut core,
        B,
        &Request::Exists {
            path: "/s".into(),
            watch: true,
        },
    )
    .unwrap_err();
    let Write::Create(plain) = create("/s", 0) else {
        panic!()
    };

    write(
        &mut core,
        Write::Create(Create {
            acl: vec![private],
            ..plain
        }),
    )
    .unwrap();

    assert!(events(&mut core).is_empty());
    assert_eq!(core.watches().len(), 0);
}

#[test]
fn the_journal_tells_who_came_next() {
    let mut core = core();
    made(&mut core, "/q", 0);
    made(&mut core, "/q/lock-", 3);
    apply(&mut core, B, &Request::Write(create("/q/lock-", 3))).unwrap();
    made(&mut core, "/q/other-", 2);
    apply(&mut core, B, &get_and_watch("/q/lock-0000000000")).unwrap();
    core.start_journal(10);

    let multi = Request::Multi(vec![set_data("/q", -1), delete("/q/lock-0000000000")]);
    apply(&mut core, A, &multi).unwrap();
    apply(&mut core, B, &Request::Write(delete("/q/lock-0000000001"))).unwrap();

    let deleted = core.take_journal();
    let next = deleted[0].next_sibling.clone().unwrap();
    assert_eq!(
        (
            deleted[0].in_multi,
            deleted[0].events,
            deleted[0].children_left
        ),
        (true, 1, 2)
    );
    assert_eq!(
        (next.path.as_str(), next.connected),
        ("/q/lock-0000000001", true)
    );
    assert_eq!(next.owner_session, core.session_of(B).unwrap());
    assert_eq!(
        (deleted[1].in_multi, deleted[1].next_sibling.clone()),
        (false, None)
    );
    assert!(core.take_journal().is_empty());
}

fn some_write() -> impl Strategy<Value = Write> {
    let path = prop_oneof![
        Just("/a"),
        Just("/b"),
        Just("/a/x"),
        Just("/a/y"),
        Just("/a/x/z"),
        Just("bad"),
        Just("/")
    ];
    (path, 0..4usize, 0..5i32, -1..2i32).prop_map(|(path, what, flags, version)| match what {
        0 | 1 => create(path, flags),
        2 => delete(path),
        _ => set_data(path, version),
    })
}

proptest! {
    #[test]
    fn a_transaction_does_all_or_nothing(
        before in proptest::collection::vec(some_write(), 0..12),
        writes in proptest::collection::vec(some_write(), 1..8),
    ) {
        let mut whole = core();
        let mut single = core();
        for one in before {
            let (left, right) = (write(&mut whole, one.clone()), write(&mut single, one));
            prop_assert_eq!(left, right);
        }
        let untouched = format!("{:?}", dump(&whole));

        let results = parts(apply(&mut whole, A, &Request::Multi(writes.clone())));

        if results.iter().any(|part| matches!(part, Part::Error(_))) {
            prop_assert_eq!(format!("{:?}", dump(&whole)), untouched);
        } else {
            for one in writes {
                prop_assert!(write(&mut single, one).is_ok());
            }
            let names = |core: &Core| dump(core).into_iter().map(|(path, stat)| (path, stat.version, stat.cversion)).collect::<Vec<_>>();
            prop_assert_eq!(names(&whole), names(&single));
        }
    }
}

fn dump(core: &Core) -> Vec<(String, Stat)> {
    let mut found = Vec::new();
    let mut pending = vec!["/".to_owned()];
    while let Some(path) = pending.pop() {
        let node = core.tree().get(&path).unwrap();
        pending.extend(
            node.children
                .iter()
                .map(|name| crate::path::join(&path, name)),
        );
        found.push((path, node.stat()));
    }
    found
}

fn ephemerals(core: &mut Core, conn: ConnId) -> usize {
    let request = Request::GetEphemerals {
        prefix: "/".to_owned(),
    };
    match apply(core, conn, &request).unwrap() {
        Answer::Children(paths, _) => paths.len(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_that_lags_behind_catches_up_with_a_sync() {
    let mut core = core();
    let welcome = core.connect(C, &hello(0, &[0; 16]), here(), NOW).unwrap();
    let mut again = hello(welcome.session, &welcome.password);
    assert!(core.lag_at_next_connection(welcome.session));
    let node = Request::Write(create("/late", 1));
    apply(&mut core, C, &node).unwrap();
    assert_eq!(ephemerals(&mut core, C), 1, "the old server knows");

    again.last_zxid = core.zxid();
    assert!(
        core.connect(D, &again, here(), NOW).is_none(),
        "it refuses whoever has seen more"
    );
    again.last_zxid = 0;
    core.connect(D, &again, here(), NOW).unwrap();
    assert_eq!(ephemerals(&mut core, D), 0);
    let sync = Request::Sync {
        path: "/".to_owned(),
    };
    apply(&mut core, D, &sync).unwrap();

    assert_eq!(ephemerals(&mut core, D), 1);
}

#[test]
fn a_server_that_forgets_gives_another_session_once() {
    let mut core = core();
    let welcome = core.connect(C, &hello(0, &[0; 16]), here(), NOW).unwrap();
    let again = hello(welcome.session, &welcome.password);
    assert!(core.replace_at_next_connection(welcome.session));

    let other = core.connect(D, &again, here(), NOW).unwrap().session;
    let own = core.connect(D, &again, here(), NOW).unwrap().session;

    assert_ne!(other, welcome.session);
    assert_eq!(own, welcome.session);
}

#[test]
fn the_nodes_of_a_session_may_outlive_it() {
    let mut core = core();
    let session = join(&mut core, C);
    apply(&mut core, C, &Request::Write(create("/left", 1))).unwrap();

    assert!(core.expire_without_its_nodes(session));

    assert!(core.sessions.get(session).is_none());
    assert_eq!(stat(&mut core, "/left").owner, session);
    let czxid = stat(&mut core, "/left").czxid;
    assert_eq!(core.ephemerals_of(session), [("/left".to_owned(), czxid)]);
    assert_eq!(core.remove_ephemerals_of(session, NOW), 1);
    assert!(core.tree().get("/left").is_none());
}

#[test]
fn a_read_of_far_more_than_can_be_sent_is_not_gathered() {
    let mut core = core();
    let mut big = create("/big", 0);
    if let Write::Create(create) = &mut big {
        create.data = Some(Bytes::from(vec![7; 100_000]));
    }
    write(&mut core, big).unwrap();
    made(&mut core, "/big/child", 0);
    let reads =
        |read: fn(String) -> Read, count| Request::MultiRead(vec![read("/big".to_owned()); count]);
    let data = |path| Read::Data { path };
    let children = |path| Read::Children { path };

    // The reply limit is 1 MiB.
    let mut gathered = |request: Request| parts(apply(&mut core, A, &request)).len();
    assert_eq!(gathered(reads(data, 10)), 10);
    assert_eq!(gathered(reads(data, 1_000)), 11);
    assert_eq!(gathered(reads(children, 1_000)), 1_000);
    assert_eq!(gathered(reads(children, 200_000)), (1 << 20) / 9 + 1);
}

#[test]
fn a_connection_cannot_pile_up_identities() {
    let mut core = core();
    let mut prove = |user: String| {
        let auth = Request::Auth {
            scheme: "digest".to_owned(),
            secret: Bytes::from(user),
        };
        core.apply(A, &auth, NOW)
    };

    for user in 0..100 {
        assert_eq!(prove(format!("{user}:secret")).result, Ok(Answer::Empty));
    }
    let long = prove("x".repeat(MOST_IDENTITIES));

    assert_eq!(long.result, Err(Code::AuthFailed));
    assert!(long.is_last);
    assert!((100..2_000).any(|user| prove(format!("{user}:secret")).is_last));
    assert_eq!(
        prove("7:secret".to_owned()).result,
        Ok(Answer::Empty),
        "it is proved already"
    );
}
