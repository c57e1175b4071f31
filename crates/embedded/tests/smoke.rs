//! The embedded server over TCP: through the real client crate, and through raw sockets that
//! misbehave.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    missing_docs,
    reason = "tests"
)]

use std::future::Future;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use zookeeper_client as zk;
use zookeeper_embedded::{Code, EmbeddedServer, Match, Op};

const PATIENCE: Duration = Duration::from_secs(10);
const OPEN: zk::CreateOptions<'static> =
    zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all());
const TICKET: zk::CreateOptions<'static> =
    zk::CreateMode::EphemeralSequential.with_acls(zk::Acls::anyone_all());
const CONTAINER: zk::CreateOptions<'static> =
    zk::CreateMode::Container.with_acls(zk::Acls::anyone_all());

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("it takes too long")
}

/// Polls until the condition holds.
async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Polls for a while and asserts that the condition holds all the time.
async fn never(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_millis(100);
    while Instant::now() < deadline {
        assert!(!condition(), "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn connect(server: &EmbeddedServer) -> zk::Client {
    let connector = zk::Client::connector().with_session_timeout(Duration::from_secs(20));
    soon(connector.connect(&server.connect_string()))
        .await
        .unwrap()
}

fn id(client: &zk::Client) -> i64 {
    client.session_id().0
}

/// A client that can say anything.
struct Raw(TcpStream);

impl Raw {
    async fn dial(server: &EmbeddedServer) -> Self {
        Self(TcpStream::connect(server.addr()).await.unwrap())
    }

    async fn open(server: &EmbeddedServer) -> Self {
        let mut raw = Self::dial(server).await;
        raw.send(&connect_request(0, 0, &[0; 16])).await;
        raw.frame().await.expect("a connect reply");
        raw
    }

    async fn send(&mut self, body: &[u8]) {
        let mut bytes = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend(body);
        self.0.write_all(&bytes).await.unwrap();
    }

    async fn request(&mut self, op: i32, body: &[&[u8]]) {
        let head = [1i32.to_be_bytes(), op.to_be_bytes()].concat();
        self.send(&[&head[..], &body.concat()].concat()).await;
    }

    async fn frame(&mut self) -> Option<Vec<u8>> {
        let length = soon(self.0.read_u32()).await.ok()?;
        let mut body = vec![0; length as usize];
        soon(self.0.read_exact(&mut body)).await.ok()?;
        Some(body)
    }

    async fn assert_closed(&mut self, why: &str) {
        let mut rest = Vec::new();
        match soon(self.0.read_to_end(&mut rest)).await {
            Ok(_) => assert!(rest.is_empty(), "{why}: answered {rest:?}"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{why}"),
        }
    }
}

fn connect_request(last_zxid: i64, session: i64, password: &[u8]) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend(last_zxid.to_be_bytes());
    body.extend(20_000i32.to_be_bytes());
    body.extend(session.to_be_bytes());
    body.extend(string(password));
    body.push(0);
    body
}

fn string(bytes: &[u8]) -> Vec<u8> {
    [
        &u32::try_from(bytes.len()).unwrap().to_be_bytes()[..],
        bytes,
    ]
    .concat()
}

#[tokio::test]
async fn the_client_crate_can_do_everything_it_offers() {
    let server = EmbeddedServer::start().await.unwrap();
    let client = connect(&server).await;

    let (stat, _) = client.create("/a", b"data", &OPEN).await.unwrap();
    assert_eq!(
        client.get_data("/a").await.unwrap(),
        (b"data".to_vec(), stat)
    );
    assert_eq!(
        client
            .set_data("/a", b"more", Some(0))
            .await
            .unwrap()
            .version,
        1
    );
    assert_eq!(
        client.set_data("/a", b"", Some(0)).await.unwrap_err(),
        zk::Error::BadVersion
    );
    let (_, sequence) = client.create("/a/x-", b"", &TICKET).await.unwrap();
    assert_eq!(sequence.into_i64(), 0);
    client.create("/c", b"", &CONTAINER).await.unwrap();
    let ttl = zk::CreateMode::Persistent
        .with_acls(zk::Acls::anyone_all())
        .with_ttl(Duration::from_secs(60));
    client.create("/ttl", b"", &ttl).await.unwrap();
    let (children, stat) = client.get_children("/a").await.unwrap();
    assert_eq!(
        (children, stat.cversion),
        (vec!["x-0000000000".to_owned()], 1)
    );
    assert_eq!(
        client.list_children("/").await.unwrap(),
        ["a", "c", "ttl", "zookeeper"]
    );
    assert_eq!(
        client.list_ephemerals("/a").await.unwrap(),
        ["/a/x-0000000000"]
    );
    assert_eq!(client.count_descendants_number("/a").await.unwrap(), 1);
    assert_eq!(client.check_stat("/nope").await.unwrap(), None);
    assert_eq!(
        client.delete("/a", None).await.unwrap_err(),
        zk::Error::NotEmpty
    );
    client.sync("/").await.unwrap();
    assert_eq!(client.get_config().await.unwrap().0, b"");
}

#[tokio::test]
async fn transactions_and_multi_reads_answer_part_by_part() {
    let server = EmbeddedServer::start().await.unwrap();
    let client = connect(&server).await;
    client.create("/a", b"1", &OPEN).await.unwrap();

    let mut writer = client.new_multi_writer();
    writer.add_check_version("/a", 0).unwrap();
    writer.add_create("/a/x-", b"", &TICKET).unwrap();
    writer.add_set_data("/a", b"2", None).unwrap();
    assert_eq!(soon(writer.commit()).await.unwrap().len(), 3);
    writer.add_check_version("/a", 0).unwrap();
    writer.add_delete("/a/x-0000000000", None).unwrap();
    let failed = soon(writer.commit()).await.unwrap_err();
    assert!(matches!(
        failed,
        zk::MultiWriteError::OperationFailed {
            index: 0,
            source: zk::Error::BadVersion
        }
    ));
    let mut reader = client.new_multi_reader();
    reader.add_get_data("/a").unwrap();
    reader.add_get_children("/a").unwrap();
    reader.add_get_data("/nope").unwrap();
    let results = soon(reader.commit()).await.unwrap();

    assert!(matches!(&results[0], zk::MultiReadResult::Data { data, .. } if data == b"2"));
    assert!(
        matches!(&results[1], zk::MultiReadResult::Children { children } if children.len() == 1)
    );
    assert!(matches!(
        &results[2],
        zk::MultiReadResult::Error {
            err: zk::Error::NoNode
        }
    ));
}

#[tokio::test]
async fn watches_of_every_kind_reach_the_client() {
    let server = EmbeddedServer::start().await.unwrap();
    let (client, other) = (connect(&server).await, connect(&server).await);
    client.create("/a", b"", &OPEN).await.unwrap();

    let (_, _, data) = client.get_and_watch_data("/a").await.unwrap();
    let (_, exist) = client.check_and_watch_stat("/a/b").await.unwrap();
    let (_, _, children) = client.get_and_watch_children("/a").await.unwrap();
    let mut recursive = client
        .watch("/", zk::AddWatchMode::PersistentRecursive)
        .await
        .unwrap();
    other.set_data("/a", b"x", None).await.unwrap();
    other.create("/a/b", b"", &OPEN).await.unwrap();

    assert_eq!(
        soon(data.changed()).await.event_type,
        zk::EventType::NodeDataChanged
    );
    assert_eq!(
        soon(exist.changed()).await.event_type,
        zk::EventType::NodeCreated
    );
    assert_eq!(
        soon(children.changed()).await.event_type,
        zk::EventType::NodeChildrenChanged
    );
    assert_eq!(soon(recursive.changed()).await.path, "/a");
    assert_eq!(soon(recursive.changed()).await.path, "/a/b");
    drop(recursive);
    eventually("no watch is left", || server.counters().watches == 0).await;
}

#[tokio::test]
async fn digest_lists_shut_others_out() {
    let server = EmbeddedServer::start().await.unwrap();
    let (client, other) = (connect(&server).await, connect(&server).await);
    client.auth("digest", b"bob:pw").await.unwrap();
    let own = zk::CreateMode::Persistent.with_acls(zk::Acls::creator_all());

    client.create("/s", b"", &own).await.unwrap();

    assert_eq!(other.get_data("/s").await.unwrap_err(), zk::Error::NoAuth);
    other.auth("digest", b"bob:pw").await.unwrap();
    assert!(other.get_data("/s").await.is_ok());
    let users = other.list_auth_users().await.unwrap();
    assert!(users.contains(&zk::AuthUser::new("digest", "bob")));
}

#[tokio::test]
async fn a_closed_session_takes_its_ephemerals_at_once() {
    let server = EmbeddedServer::start().await.unwrap();
    let (client, other) = (connect(&server).await, connect(&server).await);
    client
        .create(
            "/e",
            b"",
            &zk::CreateMode::Ephemeral.with_acls(zk::Acls::anyone_all()),
        )
        .await
        .unwrap();
    let (_, _, watcher) = other.get_and_watch_data("/e").await.unwrap();

    drop(client);

    assert_eq!(
        soon(watcher.changed()).await.event_type,
        zk::EventType::NodeDeleted
    );
    eventually("one session is left", || server.counters().sessions == 1).await;
}

#[tokio::test]
async fn a_silent_session_expires_and_a_pinging_one_lives() {
    let timeout = Duration::from_secs(3);
    let server = EmbeddedServer::builder()
        .session_timeouts(timeout, timeout)
        .start()
        .await
        .unwrap();
    let client = connect(&server).await;
    let mut silent = Raw::open(&server).await;
    assert_eq!(server.faults().sessions().len(), 2);

    silent.assert_closed("silent").await;

    let left = server.faults().sessions();
    assert_eq!(
        left.iter().map(|session| session.id).collect::<Vec<_>>(),
        [id(&client)]
    );
}

#[tokio::test]
async fn a_frozen_connection_does_not_see_the_end_of_its_session() {
    let timeout = Duration::from_secs(3);
    let server = EmbeddedServer::builder()
        .session_timeouts(timeout, timeout)
        .start()
        .await
        .unwrap();
    let mut raw = Raw::open(&server).await;
    let session = server.faults().sessions()[0].id;

    assert!(server.faults().freeze(session));
    eventually("the session expires", || {
        server.faults().sessions().is_empty()
    })
    .await;

    let mut byte = [0];
    assert!(
        tokio::time::timeout(Duration::from_millis(100), raw.0.read(&mut byte))
            .await
            .is_err()
    );
    assert!(server.faults().thaw(session));
    raw.assert_closed("thawed").await;
}

#[tokio::test]
async fn malformed_input_closes_its_own_connection_only() {
    let server = EmbeddedServer::start().await.unwrap();
    let client = connect(&server).await;
    let absurd = i32::MAX.to_be_bytes();
    let path = string(b"/");

    for (why, body) in [
        ("short header", vec![0, 0, 0]),
        (
            "truncated create",
            [&1i32.to_be_bytes()[..], &1i32.to_be_bytes(), &path].concat(),
        ),
        (
            "string longer than its frame",
            [&1i32.to_be_bytes()[..], &4i32.to_be_bytes(), &absurd, b"/"].concat(),
        ),
        (
            "absurd list of rights",
            [&1i32.to_be_bytes()[..], &7i32.to_be_bytes(), &path, &absurd].concat(),
        ),
        (
            "absurd set of watches",
            [&[0xff; 4][..], &101i32.to_be_bytes(), &[0; 8], &absurd].concat(),
        ),
        (
            "endless multi",
            [&1i32.to_be_bytes()[..], &14i32.to_be_bytes()].concat(),
        ),
    ] {
        let mut raw = Raw::open(&server).await;
        raw.send(&body).await;
        raw.assert_closed(why).await;
    }
    for (why, bytes) in [
        ("negative", [0xff; 4]),
        ("oversize", [0x7f, 0xff, 0xff, 0xff]),
        ("just over", [0, 0x10, 0, 0]),
    ] {
        let mut raw = Raw::open(&server).await;
        raw.0.write_all(&bytes).await.unwrap();
        raw.assert_closed(why).await;
        let mut raw = Raw::dial(&server).await;
        raw.0.write_all(&bytes).await.unwrap();
        raw.assert_closed(why).await;
    }

    client.create("/a", b"", &OPEN).await.unwrap();
    assert_eq!(server.counters().connections, 1);
}

#[tokio::test]
async fn a_slow_handshake_is_closed_and_bothers_nobody() {
    let server = EmbeddedServer::builder()
        .handshake_timeout(Duration::from_millis(200))
        .start()
        .await
        .unwrap();
    let (mut silent, mut slow) = (Raw::dial(&server).await, Raw::dial(&server).await);
    slow.0.write_all(&[0, 0, 0, 45, 0, 0]).await.unwrap();

    let client = connect(&server).await;
    client.create("/a", b"", &OPEN).await.unwrap();

    silent.assert_closed("silent").await;
    slow.assert_closed("slow").await;
    client.get_data("/a").await.unwrap();
}

#[tokio::test]
async fn a_client_that_never_reads_is_cut_off() {
    let server = EmbeddedServer::builder()
        .max_queued(256 << 10)
        .start()
        .await
        .unwrap();
    let client = connect(&server).await;
    let long = format!("/{}", "x".repeat(20_000));
    client.create(&long, b"", &OPEN).await.unwrap();
    let mut deaf = Raw::open(&server).await;
    deaf.request(106, &[&string(long.as_bytes()), &0i32.to_be_bytes()])
        .await;
    eventually("it watches", || server.counters().watches == 2).await;

    let deadline = Instant::now() + PATIENCE;
    while server.counters().connections == 2 {
        assert!(Instant::now() < deadline);
        client.set_data(&long, b"", None).await.unwrap();
    }

    assert_eq!(server.counters().watches, 0);
    client.get_data(&long).await.unwrap();
}

#[tokio::test]
async fn a_client_that_pipelines_without_reading_is_only_slowed_down() {
    let server = EmbeddedServer::start().await.unwrap();
    let client = connect(&server).await;
    client
        .create("/big", &vec![7; 500_000], &OPEN)
        .await
        .unwrap();
    let mut raw = Raw::open(&server).await;

    for _ in 0..200 {
        raw.request(4, &[&string(b"/big"), &[0]]).await;
    }

    for _ in 0..200 {
        assert_eq!(raw.frame().await.unwrap().len(), 16 + 4 + 500_000 + 68);
    }
}

#[tokio::test]
async fn a_client_that_has_seen_more_is_closed_without_a_word() {
    let server = EmbeddedServer::start().await.unwrap();
    let mut raw = Raw::dial(&server).await;

    raw.send(&connect_request(1_000, 0, &[0; 16])).await;

    raw.assert_closed("ahead").await;
}

#[tokio::test]
async fn words_are_answered_on_the_client_port() {
    let server = EmbeddedServer::start().await.unwrap();
    let client = connect(&server).await;
    client.create("/a", b"", &OPEN).await.unwrap();

    for (word, piece) in [
        ("ruok", "imok"),
        ("srvr", "Mode: standalone\nNode count: 6\n"),
        ("stat", "Clients:\n /127.0.0.1:"),
        ("mntr", "zk_znode_count\t6\n"),
        ("wchs", "Total watches:0"),
        ("wchc", "\n"),
        ("cons", "sid=0x"),
        ("dump", "SessionTracker dump:"),
    ] {
        let mut raw = Raw::dial(&server).await;
        raw.0.write_all(word.as_bytes()).await.unwrap();
        let mut text = String::new();
        soon(raw.0.read_to_string(&mut text)).await.unwrap();
        assert!(text.contains(piece), "{word}: {text}");
    }
}

#[tokio::test]
async fn a_dropped_reply_is_applied_and_its_connection_lost() {
    let server = EmbeddedServer::start().await.unwrap();
    let client = connect(&server).await;

    server
        .faults()
        .on(Match::op(Op::Create).path_prefix("/a"))
        .drop_reply();

    assert!(soon(client.create("/a", b"", &OPEN)).await.is_err());
    assert_eq!(
        soon(client.create("/a", b"", &OPEN)).await.unwrap_err(),
        zk::Error::NodeExists
    );
    assert_eq!(server.faults().armed_rules(), 0);
}

#[tokio::test]
async fn a_held_reply_keeps_all_that_comes_after_it() {
    let server = EmbeddedServer::start().await.unwrap();
    let (client, other) = (connect(&server).await, connect(&server).await);
    let hold = server
        .faults()
        .on(Match::op(Op::Create).path("/a"))
        .hold_reply();

    let create = client.create("/a", b"", &OPEN);
    let read = client.get_data("/a");
    soon(hold.reached()).await;

    assert!(other.get_data("/a").await.is_ok());
    let mut read = std::pin::pin!(read);
    assert!(
        timeout(Duration::from_millis(100), &mut read)
            .await
            .is_err()
    );
    hold.release();
    soon(create).await.unwrap();
    soon(read).await.unwrap();
}

#[tokio::test]
async fn a_stopped_request_is_applied_only_when_let_go() {
    let server = EmbeddedServer::start().await.unwrap();
    let (client, other) = (connect(&server).await, connect(&server).await);
    client.create("/a", b"", &OPEN).await.unwrap();
    let gate = server
        .faults()
        .on(Match::op(Op::Delete).path("/a").session(id(&client)))
        .stop_before();

    let delete = client.delete("/a", None);
    soon(gate.reached()).await;

    assert!(other.get_data("/a").await.is_ok());
    gate.release();
    soon(delete).await.unwrap();
}

#[tokio::test]
async fn an_injected_error_applies_nothing() {
    let server = EmbeddedServer::start().await.unwrap();
    let client = connect(&server).await;
    server
        .faults()
        .on(Match::op(Op::Create))
        .times(2)
        .fail(Code::NoAuth);

    assert_eq!(
        client.create("/a", b"", &OPEN).await.unwrap_err(),
        zk::Error::NoAuth
    );
    assert_eq!(
        client.create("/a", b"", &OPEN).await.unwrap_err(),
        zk::Error::NoAuth
    );
    assert!(client.create("/a", b"", &OPEN).await.is_ok());
}

#[tokio::test]
async fn a_cut_connection_comes_back_with_its_session() {
    let server = EmbeddedServer::start().await.unwrap();
    let client = connect(&server).await;
    let session = id(&client);
    client
        .create(
            "/e",
            b"",
            &zk::CreateMode::Ephemeral.with_acls(zk::Acls::anyone_all()),
        )
        .await
        .unwrap();

    assert!(server.faults().cut(session));

    eventually("it is back", || {
        server
            .faults()
            .sessions()
            .iter()
            .all(|session| session.connected)
    })
    .await;
    let (_, stat) = soon(client.get_data("/e")).await.unwrap();
    assert_eq!(stat.ephemeral_owner, session);
}

#[tokio::test]
async fn an_expired_session_is_told_so() {
    let server = EmbeddedServer::start().await.unwrap();
    let client = connect(&server).await;

    assert!(server.faults().expire_session(id(&client)));

    let mut states = client.state_watcher();
    soon(async { while states.changed().await != zk::SessionState::Expired {} }).await;
    assert!(!server.faults().expire_session(id(&client)));
}

#[tokio::test]
async fn a_frozen_connection_answers_when_thawed() {
    let server = EmbeddedServer::start().await.unwrap();
    let client = connect(&server).await;
    assert!(server.faults().freeze(id(&client)));

    let mut read = std::pin::pin!(client.get_data("/"));
    assert!(
        timeout(Duration::from_millis(100), &mut read)
            .await
            .is_err()
    );
    assert!(server.faults().thaw(id(&client)));

    soon(read).await.unwrap();
}

#[tokio::test]
async fn replies_wait_behind_a_held_event() {
    let server = EmbeddedServer::start().await.unwrap();
    let (client, other) = (connect(&server).await, connect(&server).await);
    client.create("/a", b"", &OPEN).await.unwrap();
    let (_, _, watcher) = client.get_and_watch_data("/a").await.unwrap();
    server.faults().hold_watches();

    other.set_data("/a", b"new", None).await.unwrap();
    let mut read = std::pin::pin!(client.get_data("/a"));
    assert!(
        timeout(Duration::from_millis(100), &mut read)
            .await
            .is_err()
    );
    server.faults().release_watches();

    soon(watcher.changed()).await;
    assert_eq!(soon(read).await.unwrap().0, b"new");
}

#[tokio::test]
async fn delayed_events_come_late() {
    let server = EmbeddedServer::start().await.unwrap();
    let client = connect(&server).await;
    client.create("/a", b"", &OPEN).await.unwrap();
    let (_, _, watcher) = client.get_and_watch_data("/a").await.unwrap();
    server.faults().delay_watches(Duration::from_millis(150));

    let before = Instant::now();
    server.faults().set_data("/a", b"new").unwrap();
    soon(watcher.changed()).await;

    assert!(before.elapsed() >= Duration::from_millis(150));
}

#[tokio::test]
async fn counters_and_zxids_can_be_set() {
    let server = EmbeddedServer::start().await.unwrap();
    let client = connect(&server).await;
    client.create("/q", b"", &OPEN).await.unwrap();
    server.faults().set_sequence("/q", i32::MAX).unwrap();
    server.faults().set_next_zxid(1 << 40);

    let (stat, sequence) = client.create("/q/x-", b"", &TICKET).await.unwrap();

    assert_eq!(
        (stat.czxid, sequence.into_i64()),
        (1 << 40, i64::from(i32::MAX))
    );
    assert_eq!(
        client.create("/q/x-", b"", &TICKET).await.unwrap_err(),
        zk::Error::NodeExists
    );
    assert_eq!(server.faults().set_sequence("/nope", 1), Err(Code::NoNode));
}

#[tokio::test]
async fn containers_are_reaped_on_demand_and_by_time() {
    let server = EmbeddedServer::builder()
        .container_interval(Duration::from_millis(50))
        .start()
        .await
        .unwrap();
    let client = connect(&server).await;
    client.create("/c", b"", &CONTAINER).await.unwrap();
    never("a new container goes", || {
        server.faults().set_data("/c", b"").is_err()
    })
    .await;

    client.create("/c/x", b"", &OPEN).await.unwrap();
    client.delete("/c/x", None).await.unwrap();

    eventually("the container goes", || {
        server.faults().set_data("/c", b"").is_err()
    })
    .await;
    assert_eq!(server.faults().reap_containers(), 0);
}

#[tokio::test]
async fn a_restart_keeps_nodes_and_sessions() {
    let server = EmbeddedServer::start().await.unwrap();
    let client = connect(&server).await;
    client
        .create(
            "/e",
            b"",
            &zk::CreateMode::Ephemeral.with_acls(zk::Acls::anyone_all()),
        )
        .await
        .unwrap();

    server.restart().await.unwrap();
    eventually("it is back", || {
        server
            .faults()
            .sessions()
            .iter()
            .all(|session| session.connected)
    })
    .await;
    assert!(soon(client.get_data("/e")).await.is_ok());

    server.stop().await;
    assert!(TcpStream::connect(server.addr()).await.is_err());
    server.restart().await.unwrap();
    eventually("it is back", || {
        server
            .faults()
            .sessions()
            .iter()
            .all(|session| session.connected)
    })
    .await;
    assert!(soon(client.get_data("/e")).await.is_ok());
}

#[tokio::test]
async fn a_dropped_server_is_gone() {
    let server = EmbeddedServer::start().await.unwrap();
    let (address, mut raw) = (server.addr(), Raw::open(&server).await);

    drop(server);

    raw.assert_closed("dropped").await;
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(address).await.is_ok() {
        assert!(Instant::now() < deadline);
    }
}

#[tokio::test]
async fn counters_and_the_journal_tell_what_happened() {
    let server = EmbeddedServer::start().await.unwrap();
    let client = connect(&server).await;
    client.create("/q", b"", &OPEN).await.unwrap();
    client.create("/q/x-", b"", &TICKET).await.unwrap();
    client.create("/q/x-", b"", &TICKET).await.unwrap();
    let (_, _, watcher) = client.get_and_watch_data("/q/x-0000000000").await.unwrap();
    let before = server.counters();
    server.journal(100);

    client.delete("/q/x-0000000000", None).await.unwrap();
    soon(watcher.changed()).await;

    let spent = server.counters().since(&before);
    assert_eq!(
        (spent.get(Op::Delete), spent.get(Op::Create), spent.events),
        (1, 0, 1)
    );
    assert!(spent.bytes_in > 0 && spent.bytes_out > 0);
    let deleted = server.take_journal();
    assert_eq!(
        (deleted.len(), deleted[0].events, deleted[0].children_left),
        (1, 1, 1)
    );
    let next = deleted[0].next_sibling.clone().unwrap();
    assert_eq!(
        (next.path.as_str(), next.owner_session, next.connected),
        ("/q/x-0000000001", id(&client), true)
    );
}

#[tokio::test]
async fn connections_beyond_the_maximum_are_refused() {
    let server = EmbeddedServer::builder()
        .max_connections(1)
        .start()
        .await
        .unwrap();
    let client = connect(&server).await;

    Raw::dial(&server).await.assert_closed("one too many").await;

    client.get_data("/").await.unwrap();
}
