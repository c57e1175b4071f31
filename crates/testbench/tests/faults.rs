//! The test bench itself: each fault of the proxy and of the links really happens.
//!
//! A later case must not pass because nothing was hurt. No lock is used here.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode, Error, SessionState};

use testbench::frames::{Matching, Operation};
use testbench::proxy::{End, Proxies, Proxy, Way};
use testbench::stranger::catch_up;
use testbench::{World, case, eventually};

const SOON: Duration = Duration::from_secs(5);
const A_MOMENT: Duration = Duration::from_millis(150);

/// A plain client by way of the proxies, with this session timeout.
async fn client(proxies: &Proxies, session_timeout: Duration) -> Client {
    Client::connector()
        .with_session_timeout(session_timeout)
        .connect(&proxies.connect_string())
        .await
        .expect("a client connects through the proxies")
}

fn open() -> zookeeper_client::CreateOptions<'static> {
    CreateMode::Persistent.with_acls(Acls::anyone_all())
}

/// Waits until a request is answered.
async fn is_served(client: &Client) {
    let answered = || async { client.check_stat("/").await.is_ok() };
    eventually("requests are answered", Duration::from_secs(10), answered).await;
}

/// Waits until the server has made a node.
async fn is_there(stranger: &Client, path: &str) {
    let made = || async { stranger.check_stat(path).await.unwrap().is_some() };
    eventually("the server has made it", SOON, made).await;
}

#[case]
async fn a_cut_ends_connections_and_the_session_lives_on(world: World) {
    for end in [End::Fin, End::Rst] {
        let proxies = Proxies::before(&world);
        let client = client(&proxies, Duration::from_secs(10)).await;
        let (session, held) = (client.session_id(), proxies.each.iter());
        assert_eq!(held.map(Proxy::connections).sum::<usize>(), 1);

        let mut state = client.state_watcher();
        assert_eq!(proxies.cut(end).await, 1);

        let left = async { while state.changed().await == SessionState::SyncConnected {} };
        timeout(SOON, left).await.expect("the client sees the cut");
        is_served(&client).await;
        assert_eq!(client.session_id(), session);
    }
}

/// A listener that keeps what comes, and a plain connection to it by way of a proxy.
async fn pair() -> (Proxy, TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::of_bytes(listener.local_addr().unwrap()).unwrap();
    let near = TcpStream::connect(proxy.address()).await.unwrap();
    let (far, _) = listener.accept().await.unwrap();
    (proxy, near, far)
}

#[case(embedded)]
async fn a_cut_is_seen_as_it_was_meant(_world: World) {
    for end in [End::Fin, End::Rst] {
        let (proxy, mut near, mut far) = pair().await;
        near.write_all(b"x").await.unwrap();
        assert_eq!(far.read_u8().await.unwrap(), b'x');

        proxy.cut(end).await;

        for side in [&mut near, &mut far] {
            let seen = timeout(SOON, side.read(&mut [0; 8])).await.unwrap();
            match end {
                End::Fin => assert_eq!(seen.unwrap(), 0),
                End::Rst => assert_eq!(
                    seen.unwrap_err().kind(),
                    std::io::ErrorKind::ConnectionReset
                ),
            }
        }
    }
}

#[case(embedded)]
async fn one_side_alone_sees_the_end(_world: World) {
    let (proxy, mut near, mut far) = pair().await;

    proxy.end_towards(Way::ToServer);

    let seen = timeout(SOON, far.read(&mut [0; 8])).await.unwrap();
    assert!(seen.is_err(), "the far side sees a reset: {seen:?}");
    let silence = timeout(A_MOMENT, near.read(&mut [0; 8])).await;
    assert!(silence.is_err(), "the near side sees nothing: {silence:?}");
    assert_eq!(proxy.cut(End::Rst).await, 1);
    assert!(timeout(SOON, near.read(&mut [0; 8])).await.is_ok());
}

#[case]
async fn a_proxy_that_refuses_accepts_again_on_the_same_port(world: World) {
    let mut proxies = Proxies::before(&world);
    let client = client(&proxies, Duration::from_secs(20)).await;
    let address = proxies.each[0].address();

    proxies.refuse().await;
    proxies.cut(End::Rst).await;
    let refused = TcpStream::connect(address).await.unwrap_err();
    let silence = timeout(A_MOMENT, client.check_stat("/")).await;
    proxies.accept().await;

    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    assert!(
        !matches!(silence, Ok(Ok(_))),
        "nobody answered: {silence:?}"
    );
    TcpStream::connect(address).await.unwrap();
    is_served(&client).await;
}

#[case]
async fn a_black_hole_swallows_until_it_is_healed(world: World) {
    let proxies = Proxies::before(&world);
    let client = client(&proxies, Duration::from_secs(20)).await;
    let stranger = world.zookeeper().await;

    proxies.black_hole(Way::Both);
    let mut create = Box::pin(client.create("/late", b"", &open()));
    let silence = timeout(A_MOMENT, &mut create).await;
    let mut new = TcpStream::connect(proxies.each[0].address()).await.unwrap();
    new.write_all(b"ruok").await.unwrap();
    let unanswered = timeout(A_MOMENT, new.read(&mut [0; 8])).await;
    let unmade = stranger.check_stat("/late").await.unwrap();
    proxies.heal();

    assert!(silence.is_err(), "{silence:?}");
    assert!(unanswered.is_err(), "{unanswered:?}");
    assert!(unmade.is_none(), "nothing reached the server");
    timeout(SOON, create)
        .await
        .unwrap()
        .expect("what was held back comes out late");
}

#[case]
async fn a_black_hole_in_one_direction_lets_the_other_pass(world: World) {
    let proxies = Proxies::before(&world);
    let stranger = world.zookeeper().await;
    for (way, path, is_made) in [
        (Way::ToServer, "/there", false),
        (Way::ToClient, "/back", true),
    ] {
        let client = client(&proxies, Duration::from_secs(20)).await;
        proxies.black_hole(way);

        let silence = timeout(A_MOMENT, client.create(path, b"", &open())).await;

        assert!(silence.is_err(), "{silence:?}");
        if is_made {
            is_there(&stranger, path).await;
        } else {
            catch_up(&stranger).await.unwrap();
            assert!(stranger.check_stat(path).await.unwrap().is_none());
        }
        proxies.heal();
        is_served(&client).await;
    }
}

#[case]
async fn a_delay_is_added_to_each_direction(world: World) {
    let proxies = Proxies::before(&world);
    let client = client(&proxies, Duration::from_secs(20)).await;
    for (way, least) in [(Way::ToServer, 60), (Way::ToClient, 60), (Way::Both, 120)] {
        proxies.delay(Way::Both, Duration::ZERO);
        proxies.delay(way, Duration::from_millis(60));

        let began = Instant::now();
        client.check_stat("/").await.unwrap();

        assert!(
            began.elapsed() >= Duration::from_millis(least),
            "{way:?}: {:?}",
            began.elapsed()
        );
    }
}

#[case]
async fn sessions_survive_one_byte_segments(world: World) {
    let proxies = Proxies::before(&world);
    let plain = client(&proxies, Duration::from_secs(20)).await;
    let writes = || -> u64 {
        let each = proxies.each.iter();
        each.map(|proxy| proxy.writes(Way::ToServer)).sum()
    };
    let before = writes();
    plain.create("/whole", b"", &open()).await.unwrap();
    let whole = writes() - before;

    proxies
        .each
        .iter()
        .for_each(|proxy| proxy.byte_by_byte(true));
    let chopped = client(&proxies, Duration::from_secs(20)).await;
    let before = writes();
    chopped.create("/chopped", b"", &open()).await.unwrap();

    assert!(whole <= 3, "a request is one write, besides pings: {whole}");
    assert!(writes() - before > 40, "{}", writes() - before);
}

#[case]
async fn one_reply_is_held_with_what_follows_it(world: World) {
    let proxies = Proxies::before(&world);
    let stranger = world.zookeeper().await;
    let client = client(&proxies, Duration::from_secs(20)).await;
    let creates = || Matching::op(Operation::CREATE).path("/held");
    let holds: Vec<_> = proxies
        .each
        .iter()
        .map(|proxy| proxy.hold_reply(creates()))
        .collect();

    client.create("/other", b"", &open()).await.unwrap();
    let mut create = Box::pin(client.create("/held", b"", &open()));
    assert!(timeout(A_MOMENT, &mut create).await.is_err());
    let behind = timeout(A_MOMENT, client.check_stat("/")).await;
    let reached = holds.iter().map(|hold| Box::pin(hold.reached()));
    timeout(SOON, futures_util::future::select_all(reached))
        .await
        .expect("the server has answered");
    catch_up(&stranger).await.unwrap();
    let is_made = stranger.check_stat("/held").await.unwrap().is_some();
    drop(holds);

    assert!(is_made && behind.is_err(), "{is_made} {behind:?}");
    timeout(SOON, create).await.unwrap().unwrap();
    is_served(&client).await;
}

#[case]
async fn one_reply_is_dropped(world: World) {
    let proxies = Proxies::before(&world);
    let stranger = world.zookeeper().await;
    let client = client(&proxies, Duration::from_secs(20)).await;
    for proxy in &proxies.each {
        proxy.drop_reply(Matching::op(Operation::CREATE).path("/dropped"));
    }

    let mut create = Box::pin(client.create("/dropped", b"", &open()));
    assert!(timeout(A_MOMENT, &mut create).await.is_err());

    is_there(&stranger, "/dropped").await;
    assert_eq!(
        proxies.each.iter().map(Proxy::armed).sum::<usize>(),
        proxies.each.len() - 1
    );
    // The client matches replies by their number, so the others go on; this one ends with the
    // connection.
    client.check_stat("/").await.unwrap();
    assert!(timeout(A_MOMENT, &mut create).await.is_err());
    proxies.cut(End::Rst).await;
    timeout(SOON, create).await.unwrap().unwrap_err();
}

#[case]
async fn a_connection_is_cut_in_place_of_one_reply(world: World) {
    let proxies = Proxies::before(&world);
    let stranger = world.zookeeper().await;
    let client = client(&proxies, Duration::from_secs(20)).await;
    let session = client.session_id();
    for proxy in &proxies.each {
        proxy.cut_at_reply(Matching::op(Operation::CREATE).path("/lost"));
    }

    let lost = timeout(SOON, client.create("/lost", b"", &open())).await;

    let error = lost.expect("the client sees the cut").unwrap_err();
    assert!(
        matches!(error, Error::Custom(_) | Error::ConnectionLoss),
        "{error}"
    );
    catch_up(&stranger).await.unwrap();
    assert!(stranger.check_stat("/lost").await.unwrap().is_some());
    is_served(&client).await;
    assert_eq!(client.session_id(), session);
}

#[case]
async fn one_reply_is_given_twice(world: World) {
    let proxies = Proxies::before(&world);
    let client = client(&proxies, Duration::from_secs(20)).await;
    for proxy in &proxies.each {
        proxy.duplicate_reply(Matching::op(Operation::EXISTS));
    }
    let mut state = client.state_watcher();

    client.check_stat("/").await.unwrap();

    // A reply to nothing: the client leaves the connection.
    timeout(SOON, state.changed())
        .await
        .expect("the client sees a second reply");
    is_served(&client).await;
}

#[case]
async fn a_session_is_swapped_on_its_return(world: World) {
    let proxies = Proxies::before(&world);
    let client = client(&proxies, Duration::from_secs(20)).await;
    let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    let (old, _) = client.create("/old", b"", &ephemeral).await.unwrap();

    for proxy in &proxies.each {
        proxy.swap_next_session();
    }
    proxies.cut(End::Rst).await;
    is_served(&client).await;

    assert_eq!(proxies.each.iter().map(Proxy::swapped).sum::<usize>(), 1);
    let (new, _) = client.create("/new", b"", &ephemeral).await.unwrap();
    assert_ne!(old.ephemeral_owner, new.ephemeral_owner);
    let left = world.zookeeper().await.check_stat("/old").await.unwrap();
    assert!(left.is_some(), "the old session lives on, with its nodes");
}

#[case]
async fn four_letter_words_pass_the_proxy(world: World) {
    let proxies = Proxies::before(&world);
    let mut asking = TcpStream::connect(proxies.each[0].address()).await.unwrap();

    asking.write_all(b"ruok").await.unwrap();
    let mut answer = String::new();
    timeout(SOON, asking.read_to_string(&mut answer))
        .await
        .expect("the server ends the connection")
        .unwrap();

    assert_eq!(answer, "imok");
}
