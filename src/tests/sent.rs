//! What is counted before anything is sent, compared with what is sent, byte by byte.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::link::zookeeper::Target;
use crate::link::{Create, Link, Opener, Read, Write, size};
use crate::protocol::acl::Credential;
use crate::{Acl, Keeper, Owner};
use zookeeper_embedded::EmbeddedServer;

const SOON: Duration = Duration::from_secs(20);
const HOUR: Duration = Duration::from_secs(3600);

/// The numbers of requests.
const MULTI: i32 = 14;
const CREATE: i32 = 15;
const CREATE_CONTAINER: i32 = 19;
const MULTI_READ: i32 = 22;
const AUTH: i32 = 100;
const SET_WATCHES: i32 = 101;

/// Passes everything on, and keeps what clients send, frame by frame without the lengths.
#[derive(Clone, Default)]
struct Tap(Arc<Mutex<Vec<Vec<u8>>>>);

impl Tap {
    async fn before(server: SocketAddr) -> (Self, SocketAddr) {
        let tap = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let of_all = tap.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(of_all.clone().pass(client, server));
            }
        });
        (tap, address)
    }

    async fn pass(self, mut client: TcpStream, server: SocketAddr) -> io::Result<()> {
        let mut server = TcpStream::connect(server).await?;
        let (mut from_client, mut to_client) = client.split();
        let (mut from_server, mut to_server) = server.split();
        // Both are closed with whichever ends first.
        tokio::select! {
            copied = copy(&mut from_server, &mut to_client) => copied.map(drop),
            passed = self.pass_frames(&mut from_client, &mut to_server) => passed,
        }
    }

    async fn pass_frames(
        &self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<()> {
        loop {
            let length = from.read_u32().await?;
            let mut frame = vec![0; length as usize];
            from.read_exact(&mut frame).await?;
            to.write_u32(length).await?;
            to.write_all(&frame).await?;
            self.0.lock().unwrap().push(frame);
        }
    }

    /// The frames of requests of this kind.
    fn sent(&self, kind: i32) -> Vec<Vec<u8>> {
        let is_of_kind = |frame: &&Vec<u8>| frame.get(4..8) == Some(&kind.to_be_bytes());
        let frames = self.0.lock().unwrap();
        frames.iter().filter(is_of_kind).cloned().collect()
    }
}

/// The lengths of the frames of these requests.
fn lengths(tap: &Tap, kind: i32) -> Vec<usize> {
    tap.sent(kind).iter().map(Vec::len).collect()
}

#[tokio::test]
async fn every_request_is_as_long_as_it_is_counted() {
    let server = EmbeddedServer::start().await.unwrap();
    let (tap, address) = Tap::before(server.addr()).await;
    let scheme = "digest".to_owned();
    let secret = "us\u{e9}r:password".as_bytes().to_vec();
    let target = |servers: SocketAddr, chroot: &str| Target {
        servers: servers.to_string(),
        chroot: chroot.to_owned(),
        session_timeout: SOON,
        credentials: vec![Credential {
            scheme: scheme.clone(),
            secret: secret.clone(),
        }],
        acl: Acl::open().allow("digest", "\u{e9}:hash", "cr").unwrap(),
        ..Target::default()
    };
    let outside = target(server.addr(), "").open(SOON).await.unwrap();
    let kind = Create::Persistent;
    outside.create("/ch\u{e9}root", b"", kind).await.unwrap();

    for chroot in ["", "/ch\u{e9}root"] {
        tap.0.lock().unwrap().clear();
        let target = target(address, chroot);
        let (link, count) = (target.open(SOON).await.unwrap(), target.envelope());
        let counted = size::credential(&scheme, &secret);
        assert_eq!(lengths(&tap, AUTH), [counted]);

        link.create("/\u{e9}", b"", kind).await.unwrap();
        link.create("/\u{e9}/long", b"data", kind).await.unwrap();
        let counted = [
            count.create("/\u{e9}", b""),
            count.create("/\u{e9}/long", b"data"),
        ];
        assert_eq!(lengths(&tap, CREATE), counted);
        let kind = Create::Container;
        link.create("/container", b"xyz", kind).await.unwrap();
        let counted = [count.create("/container", b"xyz")];
        assert_eq!(lengths(&tap, CREATE_CONTAINER), counted);

        let data = "\u{e9}".as_bytes();
        let (path, version) = ("/one", 0);
        let ephemeral = |path, is_sequential| Write::Ephemeral {
            path,
            data,
            is_sequential,
        };
        let writes = [
            Write::check("/"),
            Write::Create { path, data },
            Write::Set {
                path,
                data: b"",
                version,
            },
            ephemeral("/two", false),
            ephemeral("/lock-", true),
            Write::delete("/two"),
        ];
        link.multi(&writes).await.unwrap();
        link.multi(&writes[..1]).await.unwrap();
        let counted = [count.writes(&writes), count.writes(&writes[..1])];
        assert_eq!(lengths(&tap, MULTI), counted);

        let reads = [
            Read::Data("/"),
            Read::Children("/"),
            Read::Data("/\u{e9}/long"),
        ];
        link.multi_read(&reads).await.unwrap();
        assert_eq!(lengths(&tap, MULTI_READ), [count.reads(&reads)]);
    }
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, waiting).await.expect(what);
}

/// A stranger's ticket in the queue of a lock.
async fn stands(stranger: &dyn Link, lock: &str, start: &str) {
    let directory = format!("/locks/{lock}");
    let kind = Create::Persistent;
    for path in ["/locks", &directory] {
        stranger.create(path, b"", kind).await.ok();
    }
    let path = format!("{directory}/{start}");
    let ticket = Write::Ephemeral {
        path: &path,
        data: b"",
        is_sequential: true,
    };
    stranger.multi(&[ticket]).await.unwrap();
}

#[tokio::test]
async fn no_watch_is_sent_that_was_not_counted() {
    let server = EmbeddedServer::builder()
        .session_timeouts(Duration::from_secs(1), HOUR)
        .start()
        .await
        .unwrap();
    let chroot = format!("/{}", "c".repeat(100));
    let open = async |chroot: &str| {
        let target = Target {
            servers: server.addr().to_string(),
            chroot: chroot.to_owned(),
            session_timeout: HOUR,
            ..Target::default()
        };
        target.open(SOON).await.unwrap()
    };
    let kind = Create::Persistent;
    open("").await.create(&chroot, b"", kind).await.unwrap();
    let stranger = open(&chroot).await;
    let (tap, address) = Tap::before(server.addr()).await;
    let connect = async |address: SocketAddr| {
        let builder = Keeper::builder(format!("{address}{chroot}")).session_timeout(HOUR);
        builder.connect().await.unwrap()
    };
    let (near, far) = (connect(address).await, connect(server.addr()).await);

    // Behind strangers' tickets, the second with the longest id.
    let id = Uuid::new_v4();
    stands(&*stranger, "curators", &format!("_c_{id}-lock-")).await;
    stands(&*stranger, "longest", &format!("_c_{}-lock-", id.urn())).await;
    stands(&*stranger, "writers", &format!("_c_{id}-__WRIT__")).await;
    let curators = near.mutex("curators").unwrap();
    let longest = near.mutex("longest").unwrap();
    let writers = near.rw_lock("writers").unwrap();
    // Behind a guest of another owner.
    let owner = Owner::new();
    let theirs = far.mutex("owned").unwrap().with_owner(&owner);
    let _host = theirs.lock().await.unwrap();
    let _guest = theirs.lock().await.unwrap();
    let owned = near.mutex("owned").unwrap();
    let set = near.multi_lock(["free", "owned"]).unwrap();
    // Listens, asks, and follows leaders.
    let guard = near.mutex("mine").unwrap().lock().await.unwrap();
    let _asked = far.mutex("asked").unwrap().lock().await.unwrap();
    let entry = near.queue("asked").await.unwrap().remove(0);
    stands(&*stranger, "led", &format!("_c_{id}-latch-")).await;
    let (mut led, mut empty) = (
        near.election("led").unwrap().observe(),
        near.election("empty").unwrap().observe(),
    );
    // Waits for permits, first in the queue and second, and lingers.
    let _permit = far
        .semaphore("permits", 1)
        .unwrap()
        .acquire()
        .await
        .unwrap();
    let permits = near.semaphore("permits", 1).unwrap();
    let lingers = near.mutex("lingers").unwrap().with_linger(HOUR);
    let _lingering = lingers.lock().await.unwrap();
    tokio::spawn({
        let near = near.clone();
        async move {
            tokio::join!(
                async { drop(curators.lock().await) },
                async { drop(longest.lock().await) },
                async { drop(writers.read().await) },
                async { drop(owned.lock().await) },
                async { drop(set.lock().await) },
                async { drop(guard.revoked().await) },
                async { drop(near.revoke("asked", &entry, HOUR).await) },
                async { while led.changed().await.is_ok() {} },
                async { while empty.changed().await.is_ok() {} },
                async { drop(permits.acquire().await) },
                async { drop(permits.acquire().await) },
            )
        }
    });
    // Each a path of its own, but for the observers and the head, which watch two.
    const WATCHES: u64 = 15;
    let mut watches = 0;
    let all_watch = timeout(SOON, async {
        while watches != WATCHES {
            sleep(Duration::from_millis(5)).await;
            watches = server.counters().watches;
        }
    });
    let all_watch = all_watch.await;
    assert!(all_watch.is_ok(), "{watches} watches");
    let counted = near.watched_bytes();

    server.faults().cut_all();
    until("they are sent again", || !tap.sent(SET_WATCHES).is_empty()).await;

    let sent = tap.sent(SET_WATCHES);
    assert_eq!(sent.len(), 1, "in one request");
    // The header, a transaction number and the lengths of three lists are there once.
    let header = 4 + 4 + 8 + 3 * 4;
    let bytes = sent[0].len() - header;
    assert!(counted >= bytes, "{counted} counted, {bytes} sent");
    // Not much more either: what is not known yet may be a name of fifty bytes more.
    assert!(
        counted <= bytes + 50 * 15,
        "{counted} counted, {bytes} sent"
    );
}

#[tokio::test]
async fn a_holder_that_does_not_linger_watches_nothing() {
    let server = EmbeddedServer::start().await.unwrap();
    let keeper = Keeper::connect(server.connect_string()).await.unwrap();
    let lingering = keeper.mutex("watched").unwrap().with_linger(HOUR);
    let undone = lingering.clone().with_linger(Duration::ZERO);
    let owned = lingering.clone().with_owner(&Owner::new());

    for lock in [&undone, &owned] {
        let guard = lock.lock().await.unwrap();
        assert_eq!(keeper.watched_bytes(), 0, "{lock:?}");
        guard.release().await.unwrap();
    }
    let mut place = lingering.enqueue().await.unwrap();
    let guard = place.granted().await.unwrap();
    assert_eq!(keeper.watched_bytes(), 0, "a place does not linger");
    guard.release().await.unwrap();

    let _guard = lingering.lock().await.unwrap();
    assert!(keeper.watched_bytes() > 0, "it watches for others");
}
