//! The link with something behind it that opens sessions and then answers whatever it likes.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::error::Error;
use crate::keeper::Keeper;
use crate::link::zookeeper::{BROKEN, Target};
use crate::link::{Create, Fault, Link, Opener, Read, SessionState, Write};

const SOON: Duration = Duration::from_secs(10);
const PING: i32 = -2;

/// Listens and answers each request with this behind a header that is right. Its address.
async fn serve(granted: i32, body: Vec<u8>) -> String {
    serve_counting(granted, body, Arc::default()).await
}

/// As [`serve`], and counts the sessions.
async fn serve_counting(granted: i32, body: Vec<u8>, count: Arc<AtomicUsize>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (body, count) = (body.clone(), Arc::clone(&count));
            // A client that goes is none of its business.
            tokio::spawn(async move { answer(stream, granted, &body, &count).await.ok() });
        }
    });
    address
}

async fn frame(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let length = stream.read_i32().await?;
    if length == i32::from_be_bytes(*b"srvr") {
        return Err(ErrorKind::Unsupported.into());
    }
    let mut request = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut request).await?;
    Ok(request)
}

async fn send(stream: &mut TcpStream, parts: &[&[u8]]) -> std::io::Result<()> {
    let all = parts.concat();
    let length = i32::try_from(all.len()).unwrap().to_be_bytes();
    stream.write_all(&[&length[..], &all].concat()).await
}

async fn answer(
    mut stream: TcpStream,
    granted: i32,
    body: &[u8],
    sessions: &AtomicUsize,
) -> std::io::Result<()> {
    frame(&mut stream).await?;
    sessions.fetch_add(1, Ordering::Relaxed);
    let (session, password) = (0x77_i64.to_be_bytes(), [7; 16]);
    let (version, length) = (0_i32.to_be_bytes(), 16_i32.to_be_bytes());
    let granted = granted.to_be_bytes();
    let opened = [&version[..], &granted, &session, &length, &password, &[0]];
    send(&mut stream, &opened).await?;
    loop {
        let request = frame(&mut stream).await?;
        let xid = request.first_chunk::<4>().copied().unwrap_or_default();
        let body = if i32::from_be_bytes(xid) == PING {
            &[]
        } else {
            body
        };
        let (zxid, error) = (9_i64.to_be_bytes(), 0_i32.to_be_bytes());
        send(&mut stream, &[&xid, &zxid, &error, body]).await?;
    }
}

async fn open(body: Vec<u8>) -> Arc<dyn Link> {
    let target = Target {
        servers: serve(500, body).await,
        session_timeout: Duration::from_millis(500),
        ..Target::default()
    };
    target.open(SOON).await.unwrap()
}

fn ints(all: &[i32]) -> Vec<u8> {
    all.iter().flat_map(|one| one.to_be_bytes()).collect()
}

/// What no server says: too little, too much, lengths that are none.
fn bodies() -> Vec<Vec<u8>> {
    let mut bodies = vec![
        Vec::new(),
        ints(&[0]),
        ints(&[-1]),
        ints(&[i32::MIN]),
        ints(&[1]),
        [&ints(&[1])[..], b"/"].concat(),
        [&ints(&[2])[..], &[0xff, 0xff]].concat(),
        [&ints(&[4])[..], b"/a/l", &[0; 68]].concat(),
        [&ints(&[20])[..], b"/a/lock-000000000000", &[0xff; 68]].concat(),
        [&ints(&[14])[..], b"/a/lock-999999", &[0x80; 68]].concat(),
        vec![0; 200],
        // The header of a result that nobody asked for, and of an error without a code.
        [&ints(&[7])[..], &[0], &ints(&[0, 0])].concat(),
        [&ints(&[-1])[..], &[0], &ints(&[-1])].concat(),
        [&ints(&[-1])[..], &[1], &ints(&[-1])].concat(),
        [&ints(&[1])[..], &[0], &ints(&[0, 0])].concat(),
        [&ints(&[1])[..], &[9], &ints(&[0, 0])].concat(),
    ];
    bodies.push([&ints(&[15])[..], &[0], &ints(&[0, 0]), &[0; 68]].concat());
    bodies
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_answer_of_a_server_ends_whoever_asks() {
    let all = bodies().into_iter().map(|body| async move {
        let link = open(body.clone()).await;
        let writes = [Write::Ephemeral {
            path: "/a/lock-",
            data: b"",
            is_sequential: true,
        }];
        let reads = [Read::Data("/a"), Read::Children("/a")];
        let asked = async {
            link.create("/a/lock-", b"", Create::EphemeralSequential)
                .await
                .ok();
            link.create("/a", b"", Create::Container).await.ok();
            link.multi(&writes).await.ok();
            link.multi_read(&reads).await.ok();
            link.ephemerals("/a").await.ok();
            link.watch("/a").await.map(drop).ok();
            link.watch_children("/a").await.map(drop).ok();
            link.sync("/").await.ok();
            link.delete("/a").await.ok();
        };
        let ended = timeout(SOON, asked).await;
        ended.unwrap_or_else(|_| panic!("no end: {body:?}"));
    });
    futures_util::future::join_all(all).await;
}

#[tokio::test]
async fn an_answer_that_the_client_cannot_read_ends_the_session() {
    let link = open(ints(&[0])).await;

    let made = link.create("/a/lock-", b"", Create::EphemeralSequential);

    assert_eq!(made.await, Err(Fault::Unknown(BROKEN.into())));
    let mut states = link.states();
    let over = states.wait_for(|state| *state == SessionState::Over(BROKEN));
    timeout(SOON, over).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_lock_behind_such_a_server_is_an_error() {
    let address = serve(5000, ints(&[0])).await;
    let keeper = Keeper::connect(address).await.unwrap();

    let lock = keeper.mutex("a").unwrap().with_rejoin(false);
    let locked = timeout(SOON, lock.lock()).await.unwrap();

    let error = locked.unwrap_err();
    assert!(error.to_string().contains(BROKEN), "{error}");
}

#[tokio::test]
async fn a_session_timeout_that_nobody_grants_is_refused_with_its_server() {
    for granted in [0, 1, 9, i32::MAX] {
        let address = serve(granted, Vec::new()).await;

        let connected = timeout(SOON, Keeper::connect(&*address)).await.unwrap();

        let error = connected.unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.contains(&address) && text.contains("granted a session timeout of"),
            "{text}"
        );
    }
}

// It was given a session after the other without a pause.
#[tokio::test]
async fn sessions_that_end_at_once_are_opened_with_pauses() {
    let count = Arc::<AtomicUsize>::default();
    let address = serve_counting(10_000, ints(&[0]), Arc::clone(&count)).await;
    let keeper = Keeper::connect(address).await.unwrap();

    let lock = keeper.mutex("a").unwrap();
    let locked = lock.lock_timeout(Duration::from_secs(2)).await;

    assert!(locked.unwrap_err().is_timeout());
    let count = count.load(Ordering::Relaxed);
    // After 0, 5, 10, 20, 40, 80, 160, 320 and 500 ms, and then each half second.
    assert!((4..=13).contains(&count), "{count} sessions");
}
