//! Hostile crowds: floods of connections, clients that ask and never read, huge tables of watches.
//! Whatever they do, the embedded server's memory stays within what the head of
//! `crates/embedded/src/lib.rs` promises, and whoever behaves is served.
//!
//! The server is the tool's `serve`, a process of its own, and its memory is what the kernel says
//! was the most of it (`VmHWM`), so that nothing in here is counted.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use lockkeeper::Keeper;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};
use zookeeper_client::{Acls, Client, CreateMode};

use crate::tool::heed_signals;
use testbench::wire::Out;
use testbench::{World, case, eventually, words};

/// How long a lock and its release may take while a crowd is there, in a process without
/// optimisation beside other cases.
const SOON: Duration = Duration::from_secs(5);
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// What the allocator may keep beyond what it was asked for, and what the honest clients take.
const SLACK: u64 = 8 * MIB;

const EACH: u64 = 1_000;

#[case(embedded, within = 120)]
async fn a_flood_of_connections_costs_little_and_is_gone_in_time(_: World) {
    const SENT: usize = 20_000;
    let server = Server::start().await;
    let honest = Honest::new(&server).await;

    let half_a_frame = [hello(5_000), begun(SENT, 500_000)].concat();
    let kinds: [(&str, &[u8], usize); 5] = [
        ("silent", b"", 0),
        ("garbage", &[0x7f; 500], 0),
        ("half a hello", &[0, 0, 0, 45, 0, 0], 0),
        ("a hello as long as a frame", &begun(5 * SENT, 900_000), 0),
        ("half a frame", &half_a_frame, SENT),
    ];
    let mut crowd = Vec::new();
    for (kind, bytes, unfinished) in kinds {
        let before = server.peak();
        for _ in 0..EACH {
            crowd.push((kind, said(&server, bytes).await));
        }
        honest.is_served(kind).await;
        server.has_grown_at_most(EACH * (16 * KIB + 2 * unfinished as u64), before, kind);
    }

    // Nobody stays: a hello has ten seconds, and a session that is silent its timeout.
    for (kind, mut stream) in crowd {
        let ended = timeout(Duration::from_secs(30), end_of(&mut stream)).await;
        assert!(ended.is_ok(), "{kind} is still there");
    }
    honest.is_served("after the flood").await;
}

#[case(embedded, within = 120)]
async fn whoever_has_sent_or_read_much_costs_little_later(_: World) {
    const SIZE: usize = 100_000;
    let server = Server::start().await;
    let honest = Honest::new(&server).await;
    honest.write("/much", SIZE).await;
    // What follows a ping is not looked at.
    let mut sends = request(1, 11);
    sends.raw(&[0; SIZE]);
    let mut reads = request(1, 4);
    reads.buffer(Some(b"/much")).flag(false);

    for (kind, asked) in [
        ("has sent much", sends.framed()),
        ("has read much", reads.framed()),
    ] {
        let asked = [hello(60_000), asked].concat();
        let before = server.peak();
        let mut crowd = Vec::new();
        for _ in 0..EACH {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            stream.write_all(&asked).await.unwrap();
            for _ in 0..2 {
                frame(&mut stream).await;
            }
            crowd.push(stream);
        }
        honest.is_served(kind).await;
        server.has_grown_at_most(EACH * 16 * KIB + 5 * SIZE as u64, before, kind);
    }
}

#[case(embedded, within = 120)]
async fn clients_that_ask_and_never_read_are_held_back(_: World) {
    const READERS: u64 = 24;
    const SIZE: usize = 900_000;
    let server = Server::start().await;
    let honest = Honest::new(&server).await;
    honest.write("/big", SIZE).await;
    let before = server.peak();

    let mut asked = hello(60_000);
    for xid in 0..200 {
        let mut get = request(xid, 4);
        get.buffer(Some(b"/big")).flag(false);
        asked.extend(get.framed());
    }
    let mut crowd = Vec::new();
    for _ in 0..READERS {
        crowd.push(said(&server, &asked).await);
    }
    server.is_at_rest().await;
    honest.is_served("beside those who never read").await;

    // A MiB is queued before the next request waits, and the reply that goes beyond it; twice,
    // while it is made and written.
    let most = READERS * (2 * (MIB + SIZE as u64) + 16 * KIB) + 5 * SIZE as u64;
    server.has_grown_at_most(most, before, "never read");
    for stream in &mut crowd {
        let mut first = [0; 1];
        stream.read_exact(&mut first).await.unwrap();
    }
}

#[case(embedded, within = 120)]
async fn one_request_for_far_too_much_is_cut_off(_: World) {
    const SIZE: usize = 900_000;
    let server = Server::start().await;
    let honest = Honest::new(&server).await;
    honest.write("/big", SIZE).await;

    // A quarter of a million times: "tell me when the root is there". It is, which is told at once.
    let mut watches = request(1, 101);
    watches.long(0).count(0).count(250_000);
    for _ in 0..250_000 {
        watches.buffer(Some(b""));
    }
    watches.count(0);
    // Two gigabytes, of a server that queues 32 MiB for a client.
    let mut reads = request(1, 22);
    for _ in 0..2_200 {
        reads.int(4).flag(false).int(-1);
        reads.buffer(Some(b"/big")).flag(false);
    }
    reads.int(-1).flag(true).int(-1);
    let most = 5 * 33 * MIB;
    for (kind, asked, most) in [
        ("events", watches.framed(), 64 * MIB + most),
        ("reads", reads.framed(), most),
    ] {
        let before = server.peak();
        let mut greedy = said(&server, &[hello(60_000), asked].concat()).await;
        let ended = timeout(Duration::from_secs(30), end_of(&mut greedy)).await;

        assert!(ended.is_ok(), "whoever asks for so much is cut off: {kind}");
        honest.is_served(kind).await;
        server.has_grown_at_most(most, before, kind);
    }
}

#[case(embedded, within = 120)]
async fn two_hundred_thousand_watches_cost_what_is_said(_: World) {
    let server = Server::start().await;
    let honest = Honest::new(&server).await;
    let before = server.peak();

    let (crowd, bytes) = watchers(&server, 10, 20_000).await;
    honest.is_served("beside the watchers").await;

    let count = words::wchs(&server.word("wchs").await).watches;
    assert_eq!(count, 200_000);
    // The last thing is the request that sets a tenth of them.
    server.has_grown_at_most(count * 512 + bytes + 5 * bytes / 10, before, "watches");
    drop(crowd);
    eventually("they go with their connections", SOON, async || {
        words::wchs(&server.word("wchs").await).watches == 0
    })
    .await;
}

#[case(embedded, within = 120)]
async fn long_words_that_nobody_reads_take_turns(_: World) {
    const ASKERS: usize = 100;
    let server = Server::start().await;
    let honest = Honest::new(&server).await;
    let (_watchers, _) = watchers(&server, 10, 20_000).await;
    let asked = Instant::now();
    let answer = server.word("wchc").await.len() as u64;
    let pace = asked.elapsed();
    let before = server.peak();

    let mut askers = Vec::new();
    for _ in 0..ASKERS {
        askers.push(said(&server, b"wchc").await);
    }
    server.is_at_rest().await;
    assert_eq!(server.word("ruok").await, "imok");
    honest.is_served("beside those who ask").await;

    server.has_grown_at_most(
        4 * 5 * answer + ASKERS as u64 * 16 * KIB,
        before,
        "long words",
    );
    // Their time is over at last, and others have their turn.
    eventually(
        "it is answered again",
        Duration::from_secs(60),
        async || {
            timeout(Duration::from_secs(1) + 4 * pace, long_word(&server))
                .await
                .is_ok()
        },
    )
    .await;
}

async fn long_word(server: &Server) {
    let mut stream = said(server, b"wchc").await;
    let mut piece = vec![0; 65_536];
    while stream.read(&mut piece).await.unwrap() > 0 {}
}

/// Connections with so many watches each, on nodes that are not there, once all are set; and the
/// bytes of all paths.
async fn watchers(server: &Server, connections: usize, each: usize) -> (Vec<TcpStream>, u64) {
    let mut crowd = Vec::new();
    let mut bytes = 0;
    for connection in 0..connections {
        let mut set = request(1, 101);
        set.long(0).count(0).count(each);
        for number in 0..each {
            let path = format!("/nobody/has/made/this/{connection}/{number}");
            bytes += path.len() as u64;
            set.buffer(Some(path.as_bytes()));
        }
        set.count(0);
        let asked = [hello(60_000), set.framed()].concat();
        let mut stream = said(server, &asked).await;
        for _ in 0..2 {
            frame(&mut stream).await;
        }
        crowd.push(stream);
    }
    (crowd, bytes)
}

/// The tool's server.
struct Server {
    _child: Child,
    process: u32,
    address: SocketAddr,
}

impl Server {
    async fn start() -> Self {
        allow_many_connections();
        heed_signals();
        let mut child = Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
            .args(["serve", "--listen", "127.0.0.1:0"])
            // All of the flood comes from one address.
            .args(["--max-client-connections", "0"])
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap().unwrap();
        let address = line.strip_prefix("listening on ").unwrap();
        Self {
            process: child.id().unwrap(),
            address: address.parse().unwrap(),
            _child: child,
        }
    }

    /// The most memory that it has had, in bytes.
    fn peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process)).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap();
        let kib: u64 = line.split_whitespace().next().unwrap().parse().unwrap();
        kib * KIB
    }

    /// Fails if it has needed more than this since then.
    fn has_grown_at_most(&self, most: u64, before: u64, why: &str) {
        let (grown, most) = ((self.peak() - before) / KIB, (most + SLACK) / KIB);
        println!("flood: {why}: {grown} KiB of {most} KiB");
        assert!(
            grown <= most,
            "{why}: {grown} KiB, and at most {most} are said"
        );
    }

    /// The time that it was given, in ticks.
    fn worked(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process)).unwrap();
        let (_, after_name) = stat.rsplit_once(')').unwrap();
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        fields[11..13]
            .iter()
            .map(|field| field.parse::<u64>().unwrap())
            .sum()
    }

    /// Waits until it has nothing to do but its ticks.
    async fn is_at_rest(&self) {
        eventually(
            "the server is at rest",
            Duration::from_secs(60),
            async || {
                let before = self.worked();
                sleep(Duration::from_millis(500)).await;
                self.worked() - before <= 5
            },
        )
        .await;
    }

    async fn word(&self, word: &str) -> String {
        words::word(self.address, word).await
    }
}

/// As many descriptors as this process may have: the server inherits them.
fn allow_many_connections() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised).unwrap();
    assert!(
        limit.maximum.is_none_or(|most| most >= 8_000),
        "these cases need 8000 descriptors: ulimit -Hn says {:?}",
        limit.maximum
    );
}

/// A client that behaves.
struct Honest {
    keeper: Keeper,
    raw: Client,
    servers: String,
}

impl Honest {
    async fn new(server: &Server) -> Self {
        let servers = server.address.to_string();
        let honest = Self {
            keeper: Keeper::connect(&servers).await.unwrap(),
            raw: Client::connect(&servers).await.unwrap(),
            servers,
        };
        honest.is_served("before anybody else").await;
        honest
    }

    /// A lock and its release, by whoever is there already and by whoever comes now.
    async fn is_served(&self, when: &str) {
        let began = Instant::now();
        self.lock(&self.keeper).await;
        let first = began.elapsed();
        let newcomer = Keeper::connect(&self.servers).await.unwrap();
        self.lock(&newcomer).await;
        newcomer.close().await;
        assert!(
            first < SOON && began.elapsed() < 2 * SOON,
            "{when}: a lock takes {first:?}, and {:?} with a new session",
            began.elapsed()
        );
    }

    async fn lock(&self, keeper: &Keeper) {
        let guard = keeper.mutex("honest").unwrap().lock().await.unwrap();
        guard.release().await.unwrap();
    }

    async fn write(&self, path: &str, size: usize) {
        let mode = CreateMode::Persistent.with_acls(Acls::anyone_all());
        self.raw.create(path, &vec![7; size], &mode).await.unwrap();
    }
}

/// A connection that has said something, and takes little at once. The server may end it before it
/// has said all.
async fn said(server: &Server, bytes: &[u8]) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut stream = socket.connect(server.address).await.unwrap();
    stream.write_all(bytes).await.unwrap_or_default();
    stream
}

/// Reads one frame, whatever is in it.
async fn frame(stream: &mut TcpStream) {
    let length = stream.read_u32().await.unwrap();
    stream
        .read_exact(&mut vec![0; length as usize])
        .await
        .unwrap();
}

/// Reads until the server has ended the connection.
async fn end_of(stream: &mut TcpStream) {
    while stream.read(&mut [0; 4_096]).await.unwrap_or(0) > 0 {}
}

fn hello(timeout_ms: i32) -> Vec<u8> {
    let mut out = Out::default();
    out.int(0).long(0).int(timeout_ms).long(0);
    out.buffer(Some(&[0; 16])).flag(false);
    out.framed()
}

/// The first bytes of a frame that says it is so long.
fn begun(bytes: usize, length: i32) -> Vec<u8> {
    [&length.to_be_bytes()[..], &vec![0; bytes]].concat()
}

/// The start of a request.
fn request(xid: i32, code: i32) -> Out {
    let mut out = Out::default();
    out.int(xid).int(code);
    out
}
