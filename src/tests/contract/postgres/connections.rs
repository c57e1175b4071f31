//! The connections of a session: what each waits for, and how it ends.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::*;
use crate::link::SessionState;

/// A plan is made once for all sessions, and the index has owned nodes only.
#[test]
fn the_nodes_of_a_session_are_found_by_their_index() {
    on_postgres(async |server| {
        let link = open(&server).await;
        let mine = ticket(&*link, "/t-").await;
        let looks = client(&server).await;

        assert_eq!(link.ephemerals("/t-").await.unwrap(), [mine]);

        until("the index is counted", async || {
            let used = "SELECT FROM pg_stat_user_indexes \
                        WHERE indexrelname = 'nodes_of_owner' AND idx_scan > 0";
            !looks.query(used, &[]).await.unwrap().is_empty()
        })
        .await;
    });
}

/// A server that starts connections and then answers nothing. The crate says goodbye only once
/// nothing is awaited.
#[test]
fn a_connect_that_is_given_up_leaves_no_connection() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("postgres://me@{}/base", listener.local_addr().unwrap());
        let (taken, left) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (all, ended) = (Arc::clone(&taken), Arc::clone(&left));
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                all.fetch_add(1, Ordering::Relaxed);
                let ended = Arc::clone(&ended);
                tokio::spawn(async move {
                    // The user is let in, and the server is ready.
                    let ready = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";
                    socket.write_all(ready).await.unwrap();
                    tokio::io::copy(&mut socket, &mut tokio::io::sink())
                        .await
                        .ok();
                    ended.fetch_add(1, Ordering::Relaxed);
                });
            }
        });

        for _ in 0..5 {
            let target = PostgresTarget::new(&url, SESSION_TIMEOUT, true).unwrap();
            target.open(QUIET).await.unwrap_err();
        }

        assert!(taken.load(Ordering::Relaxed) >= 10);
        until("all have ended", async || {
            left.load(Ordering::Relaxed) == taken.load(Ordering::Relaxed)
        })
        .await;
    });
}

/// For how long the kernel still waits before it asks whether the other side is there, for each
/// connection with the server: for both of its ends, if they are on this machine.
fn waits_before_it_asks(server: &Daemon) -> Vec<Option<Duration>> {
    let port = format!(":{:04X}", server.address().port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let sockets = table.lines().map(|line| line.split_whitespace().collect());
    let with_it = sockets.filter(|socket: &Vec<&str>| {
        let is_established = socket.get(3) == Some(&"01");
        is_established && socket[1..3].iter().any(|at| at.ends_with(&port))
    });
    let waits = with_it.map(|socket| {
        let (kind, hundredths) = socket[5].split_once(':')?;
        let hundredths = u64::from_str_radix(hundredths, 16).ok()?;
        // The second kind of timer is the one that asks.
        (kind == "02").then(|| Duration::from_millis(hundredths * 10))
    });
    waits.collect()
}

/// A relay would answer in its client's place, so this looks at what both kernels were told.
#[test]
fn neither_side_keeps_a_connection_whose_other_end_has_vanished() {
    on_postgres(async |server| {
        let link = open(&server).await;
        link.create("/a", b"", Create::Persistent).await.unwrap();
        let (_, _watch) = link.watch("/a").await.unwrap();

        until(
            "heartbeats, work and the listener are looked at",
            async || {
                let waits = waits_before_it_asks(&server);
                let is_short =
                    |wait: &Option<Duration>| wait.is_some_and(|wait| wait <= SESSION_TIMEOUT);
                waits.len() == 6 && waits.iter().all(is_short)
            },
        )
        .await;
    });
}

/// What is set on the connections of a session, as a trigger sees it that stands on its row.
pub(super) async fn settings_seen(server: &Daemon, url: &str, setting: &str) -> Vec<String> {
    let client = client(server).await;
    let see = format!(
        "CREATE TABLE public.seen (setting text); \
         CREATE FUNCTION public.see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         INSERT INTO public.seen VALUES (current_setting('{setting}')); RETURN new; END $$; \
         CREATE TRIGGER see BEFORE INSERT OR UPDATE ON lockkeeper.sessions FOR EACH ROW EXECUTE FUNCTION public.see()"
    );
    client.batch_execute(&see).await.unwrap();
    let link = open_at(url, true).await.unwrap();
    link.sync("/").await.unwrap();
    drop(link);
    let rows = client.query("SELECT DISTINCT setting FROM public.seen", &[]);
    let seen = rows.await.unwrap().iter().map(|row| row.get(0)).collect();
    client
        .batch_execute("DROP TABLE public.seen; DROP FUNCTION public.see CASCADE")
        .await
        .unwrap();
    seen
}

#[test]
fn a_vanished_client_is_given_up_after_a_session_timeout_or_as_the_url_says() {
    on_postgres(async |server| {
        drop(open(&server).await);
        let setting = "tcp_user_timeout";

        let ours = settings_seen(&server, &url(&server), setting).await;
        let theirs = format!("{}?options=-c%20{setting}%3D7000", url(&server));
        let theirs = settings_seen(&server, &theirs, setting).await;

        assert_eq!(ours, ["2000"]);
        assert_eq!(theirs, ["7000"]);
    });
}

/// The names of two servers in one URL: heartbeats go to the first again, and the listener is at
/// the second still.
#[test]
fn a_listener_at_another_server_is_not_used() {
    on_postgres(async |second| {
        let first = tokio::task::spawn_blocking(|| daemon::postgres(&[]).unwrap());
        let first = first.await.unwrap();
        ready(first.address()).await;
        let (way, other) = (
            Relay::to(first.address()).await,
            Relay::to(second.address()).await,
        );
        let both = format!(
            "postgres://postgres@{},{}/postgres",
            way.address(),
            other.address()
        );
        let target = PostgresTarget::new(&both, SESSION_TIMEOUT, true).unwrap();
        way.set(Way::Refusing);
        let before = timeout(SOON, async {
            loop {
                // Until the port is closed.
                let link = target.open(SOON).await.unwrap();
                let at = "SELECT FROM lockkeeper.sessions";
                let table = client(&second).await.query(at, &[]).await;
                if table.is_ok_and(|rows| !rows.is_empty()) {
                    break link;
                }
            }
        });
        let _before = before.await.unwrap();
        way.set(Way::Open);
        let theirs = open(&first).await;

        let ours = timeout(SOON, async {
            loop {
                if let Ok(link) = target.open(SOON).await {
                    theirs.create("/a", b"", Create::Persistent).await.ok();
                    if node(&*link, "/a").await.is_some() {
                        break link;
                    }
                }
            }
        });
        let ours = ours.await.expect("a session at the first");
        let mine = ticket(&*theirs, "/a/t-").await;
        let (_, mut watch) = ours.watch(&mine).await.unwrap();
        theirs.delete(&mine).await.unwrap();

        assert_eq!(told(&mut watch).await, Change::Deleted);
    });
}

/// An address in front of a server.
struct Front {
    address: SocketAddr,
    /// Ends the connections that are there.
    cut: watch::Sender<()>,
    refuses_work: Arc<AtomicBool>,
    refused: Arc<AtomicUsize>,
}

impl Front {
    async fn of(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (cut, cuts) = watch::channel(());
        let front = Self {
            address: listener.local_addr().unwrap(),
            cut,
            refuses_work: Arc::default(),
            refused: Arc::default(),
        };
        let (refuses, refused) = (Arc::clone(&front.refuses_work), Arc::clone(&front.refused));
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (mut cuts, refuses) = (cuts.clone(), Arc::clone(&refuses));
                cuts.mark_unchanged();
                let refused = Arc::clone(&refused);
                tokio::spawn(async move {
                    let len = client.read_u32().await.unwrap();
                    let mut start = vec![0; len as usize - 4];
                    client.read_exact(&mut start).await.unwrap();
                    let is_work = String::from_utf8_lossy(&start).contains("plan_cache_mode");
                    if is_work && refuses.load(Ordering::Relaxed) {
                        refused.fetch_add(1, Ordering::Relaxed);
                        return;
                    }
                    let mut server = TcpStream::connect(server).await.unwrap();
                    server.write_u32(len).await.unwrap();
                    server.write_all(&start).await.unwrap();
                    tokio::select! {
                        _ = cuts.changed() => {}
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                    }
                });
            }
        });
        front
    }
}

/// The names of two servers in one URL: heartbeats are at the first, and work would be at the
/// second. Its history is another one, which would be the end of the session.
#[test]
fn work_at_another_server_ends_no_session() {
    on_postgres(async |second| {
        let first = tokio::task::spawn_blocking(|| daemon::postgres(&[]).unwrap());
        let first = first.await.unwrap();
        ready(first.address()).await;
        drop(open(&second).await);
        let front = Front::of(first.address()).await;
        let (at, other) = (front.address, second.address());
        let both = format!("postgres://postgres@{at},{other}/postgres");
        let target = PostgresTarget::new(&both, Duration::from_secs(10), true).unwrap();
        let link = target.open(SOON).await.unwrap();
        let mine = ticket(&*link, "/t-").await;

        front.refuses_work.store(true, Ordering::Relaxed);
        front.cut.send_replace(());
        until("work is refused", async || {
            front.refused.load(Ordering::Relaxed) > 0
        })
        .await;
        let asked = link.multi_read(&[Read::Data(&mine)]);
        sleep(QUIET).await;
        front.refuses_work.store(false, Ordering::Relaxed);

        assert!(matches!(&*asked.await.unwrap(), [Found::Node(_)]));
        assert_eq!(*link.states().borrow(), SessionState::Connected);
    });
}

/// The kernel takes no such times for its questions.
#[test]
fn a_session_of_a_day_connects() {
    on_postgres(async |server| {
        let day = Duration::from_secs(24 * 3600);
        let builder = Keeper::builder(url(&server)).session_timeout(day);

        let keeper = builder.new_store(true).connect().await.unwrap();

        keeper.close().await;
    });
}

/// The next connection would never hear of it.
#[test]
fn an_earlier_connection_that_polls_takes_no_event_of_the_next_one() {
    on_postgres(async |server| {
        drop(open(&server).await);
        let client = client(&server).await;
        let moved = "INSERT INTO lockkeeper.sessions VALUES (7, 'secret', 'now', 1, 1, 2); \
                     INSERT INTO lockkeeper.events VALUES (7, 'x1')";
        client.batch_execute(moved).await.unwrap();

        for (connection, events) in [(1, 0), (2, 1)] {
            let poll = format!("SELECT lockkeeper.poll(7, {connection})");
            let polled = client.query(&poll, &[]).await.unwrap();
            assert_eq!(polled.len(), events, "{connection}");
        }
    });
}
