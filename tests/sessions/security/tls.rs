//! TLS with a real server, whose certificates are made here: who is let in, and what the others are
//! told.

use std::time::Duration;

use futures_util::future::join_all;
use lockkeeper::{Error, Keeper, KeeperBuilder, Tls};
use tokio::time::timeout;

use testbench::secure::{Authority, Secure};
use testbench::{World, case};

const SOON: Duration = Duration::from_secs(5);

/// Asks that server.
fn asking(server: &Secure, tls: Tls) -> KeeperBuilder {
    let builder = Keeper::builder(&server.address);
    builder.tls(tls).connect_timeout(SOON)
}

#[case(real, within = 120)]
async fn locks_are_taken_through_tls_with_a_certificate(_world: World) {
    let server = Secure::start().await;
    let (certificate, key) = server.authority.sign();
    let ca = || Tls::with_ca(&server.authority.certificate);

    let keeper = asking(&server, ca().identity(&certificate, &key))
        // The JVM's first handshakes are slow.
        .connect_timeout(12 * SOON)
        .connect()
        .await
        .unwrap();
    let guard = keeper.mutex("safe").unwrap().lock().await.unwrap();
    guard.release().await.unwrap();
    keeper.close().await;

    let other = Authority::new();
    let (strange, its_key) = other.sign();
    let strangers = [
        (ca(), "no certificate of ours"),
        (
            ca().identity(&strange, &its_key),
            "one that nobody has signed",
        ),
        (
            Tls::with_ca(&other.certificate).identity(&certificate, &key),
            "an authority that has not signed theirs",
        ),
    ];
    // Each is tried for the whole connect timeout.
    join_all(strangers.map(|(tls, whose)| {
        let connecting = timeout(3 * SOON, asking(&server, tls).connect());
        let its_key = &its_key;
        async move {
            let error = connecting.await.expect(whose).unwrap_err();
            assert!(
                matches!(error, Error::Unreachable { .. }),
                "{whose}: {error}"
            );
            assert!(error.to_string().contains("TLS"), "{whose}: {error}");
            assert!(!error.to_string().contains(its_key), "{error}");
        }
    }))
    .await;
    // Without TLS, at the port where it is spoken.
    let plain = Keeper::builder(&server.address).connect_timeout(SOON / 5);
    let error = timeout(3 * SOON, plain.connect())
        .await
        .unwrap()
        .unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
}

#[case(embedded)]
async fn certificates_that_make_no_sense_are_refused_and_not_shown(world: World) {
    let (_, key) = Authority::new().sign();
    let good = Authority::new().certificate;
    for tls in [
        Tls::with_ca("no PEM"),
        Tls::with_ca(&good).identity("no PEM", "no key"),
        Tls::with_ca(&good).identity(&good, "no key"),
        Tls::with_ca("").identity(&good, &key),
    ] {
        assert!(!format!("{tls:?}").contains("PRIVATE"), "{tls:?}");

        let builder = Keeper::builder(world.connect_string()).tls(tls);
        let error = builder.connect().await.unwrap_err();

        assert!(error.is_invalid(), "{error}");
        assert!(!error.to_string().contains("PRIVATE"), "{error}");
    }
}
