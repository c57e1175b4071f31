//! Bad input on the way to a session: each kind has its own typed error, with the address, within
//! the connect timeout.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use lockkeeper::{Error, Keeper, UnreachableReason};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use zookeeper_client::{Acl, Acls, AuthId, CreateMode, Permission};

use testbench::keeper;
use testbench::relay::pass_on;
use testbench::stall::Stall;
use testbench::zookeeper::Servers;
use testbench::{World, case, ports};

const LIMIT: Duration = Duration::from_secs(2);

/// Fails to connect, and checks that it was in time.
async fn reasons(connect_string: &str) -> (Vec<(String, UnreachableReason)>, String) {
    let (began, stall) = (Instant::now(), Stall::watch());
    let error = Keeper::builder(connect_string)
        .connect_timeout(LIMIT)
        .connect()
        .await
        .unwrap_err();
    assert!(
        began.elapsed() < LIMIT + Duration::from_secs(1) + stall.longest(),
        "{:?}",
        began.elapsed()
    );
    assert!(error.is_unreachable() && error.is_retryable(), "{error}");
    let text = error.to_string();
    let Error::Unreachable { addresses, .. } = error else {
        panic!("{error}")
    };
    (
        addresses
            .into_iter()
            .map(|failure| (failure.address, failure.reason))
            .collect(),
        text,
    )
}

/// An address at which connections are taken and never answered.
async fn silent() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut taken = Vec::new();
        while let Ok(stream) = listener.accept().await {
            taken.push(stream);
        }
    });
    address
}

/// An address at which a web server listens.
async fn web() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 64];
                if stream.read(&mut request).await.is_ok_and(|count| count > 0) {
                    stream
                        .write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                        .await
                        .ok();
                }
            });
        }
    });
    address
}

/// An address at which a server takes no session at first.
async fn starting(server: SocketAddr, takes: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serves = Instant::now() + takes;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut word = [0; 4];
                if Instant::now() > serves {
                    pass_on(stream, server).await;
                } else if stream.read_exact(&mut word).await.is_ok() && &word == b"srvr" {
                    let answer = b"This ZooKeeper instance is not currently serving requests\n";
                    stream.write_all(answer).await.ok();
                }
            });
        }
    });
    address
}

#[case(zookeeper, why = "how a ZooKeeper server says that it starts")]
async fn a_server_that_starts_is_waited_for(world: World) {
    const TAKES: Duration = Duration::from_secs(1);
    let began = Instant::now();
    let address = starting(world.servers()[0], TAKES).await;

    let keeper = Keeper::builder(format!("{address}{}", world.chroot()))
        .connect()
        .await
        .unwrap();

    assert!(began.elapsed() > TAKES, "{:?}", began.elapsed());
    keeper.close().await;

    let never = starting(world.servers()[0], Duration::from_secs(3600)).await;
    let (reasons, _) = reasons(&never).await;
    assert!(
        matches!(&reasons[..], [(_, UnreachableReason::NotServing)]),
        "{reasons:?}"
    );
}

#[case]
async fn a_first_connect_waits_for_servers_that_are_not_there_yet(world: World) {
    const TAKES: Duration = Duration::from_millis(1500);
    let (socket, address) = ports::refusing().unwrap();
    let (server, began) = (world.servers()[0], Instant::now());
    tokio::spawn(async move {
        tokio::time::sleep(TAKES).await;
        let listener = socket.listen(8).unwrap();
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(pass_on(stream, server));
        }
    });

    let keeper = Keeper::builder(world.connect_string_at(&[address]))
        .connect()
        .await
        .unwrap();

    assert!(began.elapsed() >= TAKES, "{:?}", began.elapsed());
    keeper.close().await;
}

#[case]
async fn a_connect_timeout_of_zero_is_one_try(_world: World) {
    let (_socket, address) = ports::refusing().unwrap();
    let began = Instant::now();

    let connected = Keeper::builder(address.to_string())
        .connect_timeout(Duration::ZERO)
        .connect()
        .await;

    let Error::Unreachable {
        addresses, waited, ..
    } = connected.unwrap_err()
    else {
        panic!("nobody listens there");
    };
    assert!(
        matches!(addresses[0].reason, UnreachableReason::Refused(_)),
        "{addresses:?}"
    );
    assert!(waited <= began.elapsed() && waited < LIMIT, "{waited:?}");
}

#[case]
async fn a_port_that_refuses_is_named(_world: World) {
    let (_socket, address) = ports::refusing().unwrap();
    let address = address.to_string();

    let (reasons, text) = reasons(&address).await;

    assert!(
        matches!(&reasons[..], [(a, UnreachableReason::Refused(_))] if *a == address),
        "{reasons:?}"
    );
    assert!(text.contains(&address), "{text}");
}

#[case]
async fn a_name_that_does_not_resolve_is_named(_world: World) {
    let (reasons, text) = reasons("no-such-host.invalid:2181").await;

    assert!(
        matches!(&reasons[..], [(_, UnreachableReason::NotResolved(_))]),
        "{reasons:?}"
    );
    assert!(text.contains("no-such-host.invalid:2181"), "{text}");
}

#[case]
async fn a_silent_port_is_named_within_the_connect_timeout(_world: World) {
    let (reasons, text) = reasons(&silent().await).await;

    assert!(
        matches!(&reasons[..], [(_, UnreachableReason::Silent)]),
        "{reasons:?}"
    );
    assert!(text.contains("silent"), "{text}");
}

#[case]
async fn a_server_that_is_not_zookeeper_is_named(_world: World) {
    let (reasons, text) = reasons(&web().await).await;

    assert!(
        matches!(&reasons[..], [(_, UnreachableReason::NotZooKeeper)]),
        "{reasons:?}"
    );
    assert!(text.contains("not a ZooKeeper server"), "{text}");
}

#[case(zookeeper, why = "a connect string of several addresses")]
async fn each_address_has_its_own_reason_and_one_good_one_is_enough(world: World) {
    let (_socket, refusing) = ports::refusing().unwrap();
    let (refusing, web, silent) = (refusing.to_string(), web().await, silent().await);

    let (reasons, text) = reasons(&format!("{refusing},{web},{silent}")).await;
    let good = Keeper::connect(format!("{refusing},{}", world.connect_string()))
        .await
        .unwrap();

    assert_eq!(
        reasons
            .iter()
            .map(|(address, _)| address)
            .collect::<Vec<_>>(),
        [&refusing, &web, &silent]
    );
    assert!(
        text.contains("no connection")
            && text.contains("not a ZooKeeper")
            && text.contains("silent"),
        "{text}"
    );
    good.mutex("good")
        .unwrap()
        .lock()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[case(zookeeper, why = "a chroot")]
async fn a_chroot_that_does_not_exist_is_named(world: World) {
    let began = Instant::now();

    let error = Keeper::connect(format!("{}/missing", world.connect_string()))
        .await
        .unwrap_err();

    assert!(
        matches!(error, Error::ChrootMissing { .. }) && error.is_unreachable(),
        "{error}"
    );
    let text = error.to_string();
    assert!(
        text.contains("/missing") && text.contains(&world.servers()[0].to_string()),
        "{text}"
    );
    assert!(began.elapsed() < LIMIT);
}

#[case(zookeeper, why = "a chroot")]
async fn a_chroot_is_made_where_that_is_wanted(world: World) {
    let builder = || Keeper::builder(format!("{}/team/app", world.connect_string()));

    let keeper = builder().create_chroot(true).connect().await.unwrap();
    let guard = keeper.mutex("a").unwrap().lock().await.unwrap();

    // It is there from now on, for everybody.
    let other = builder().create_chroot(true).connect().await.unwrap();
    let third = builder().connect().await.unwrap();
    for keeper in [&other, &third] {
        assert_eq!(keeper.queue("a").await.unwrap()[0].token, guard.token());
    }
    let stranger = world.zookeeper().await;
    let (_, stat) = stranger.get_data("/team/app").await.unwrap();
    assert_eq!(stat.ephemeral_owner, 0, "it stays");
}

#[case(zookeeper, why = "access lists and credentials")]
async fn a_directory_without_permission_is_named(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let read_only = [Acl::new(Permission::READ, AuthId::anyone())];
    stranger
        .zookeeper()
        .create(
            "/locks",
            b"",
            &CreateMode::Persistent.with_acls(Acls::new(&read_only)),
        )
        .await
        .unwrap();

    let error = keeper.mutex("denied").unwrap().lock().await.unwrap_err();

    assert!(error.is_denied() && !error.is_retryable(), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("/locks/denied") && text.contains(&world.servers()[0].to_string()),
        "{text}"
    );
}

#[case]
async fn a_lock_works_below_any_root(world: World) {
    for root in ["/", "/deep/er/locks"] {
        let keeper = Keeper::builder(world.connect_string())
            .root(root)
            .connect()
            .await
            .unwrap();
        let guard = keeper.mutex("a/b").unwrap().lock().await.unwrap();

        assert_eq!(keeper.locks().await.unwrap()[0].name, "a/b", "{root}");
        guard.release().await.unwrap();
    }
}

#[case(real, within = 90)]
async fn a_server_without_quorum_is_named(_world: World) {
    let servers = tokio::task::spawn_blocking(|| Servers::start(3))
        .await
        .unwrap()
        .unwrap();
    let address = servers.addresses()[0].to_string();
    let servers = tokio::task::spawn_blocking(move || {
        let mut servers = servers;
        servers.kill(1);
        servers.kill(2);
        servers
    })
    .await
    .unwrap();

    // The member that is left needs a moment to notice; until then it may still give sessions.
    let mut seen = None;
    for _ in 0..50 {
        let attempt = Keeper::builder(&address)
            .connect_timeout(LIMIT)
            .connect()
            .await;
        match attempt {
            Err(Error::Unreachable { addresses, .. })
                if matches!(addresses[0].reason, UnreachableReason::NotServing) =>
            {
                seen = Some(());
                break;
            }
            other => drop(other),
        }
    }

    assert!(seen.is_some(), "a server without quorum says so");
    tokio::task::spawn_blocking(move || drop(servers))
        .await
        .unwrap();
}
