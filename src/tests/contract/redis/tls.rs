//! TLS: which servers are believed, and what is refused before anything is sent.

use std::time::Duration;

use testbench::daemon::{self, Daemon};
use testbench::secure::{self, Authority, Identity};

use super::super::bed::is_on;
use super::{SESSION_TIMEOUT, run};
use crate::{Error, Keeper, KeeperBuilder, Tls};

const FROM_ALL: [&str; 2] = ["--tls-auth-clients", "no"];

fn by(server: &Daemon, tls: Tls) -> KeeperBuilder {
    let url = format!("rediss://127.0.0.1:{}", server.address().port());
    let builder = Keeper::builder(url).tls(tls).new_store(true);
    builder.session_timeout(SESSION_TIMEOUT)
}

/// A lock is taken and released.
async fn works(builder: KeeperBuilder) {
    let keeper = builder.require_tls(true).connect().await.unwrap();
    let guard = keeper.mutex("safe").unwrap().lock().await.unwrap();
    guard.release().await.unwrap();
    keeper.close().await;
}

/// Why there is no keeper, after one try.
async fn refusal(builder: KeeperBuilder) -> String {
    let once = builder.connect_timeout(Duration::ZERO);
    let error = once.connect().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    format!("{error} {error:?}")
}

#[test]
fn only_a_server_that_proves_itself_gets_a_word() {
    if !is_on("redis") {
        return;
    }
    let (ours, other) = (Authority::new(), Authority::new());
    let start = |own: Identity| secure::redis(&ours, &own, &FROM_ALL).unwrap();
    let good = start(ours.sign());
    let elsewhere = start(ours.sign_for(&["elsewhere.example"], 4000));
    let expired = start(ours.sign_for(&["127.0.0.1"], 2020));
    let plain = daemon::redis(&[]).unwrap();
    let ca = || Tls::with_ca(&ours.certificate);
    run(async {
        works(by(&good, ca())).await;

        for (server, tls, word) in [
            (&good, Tls::with_ca(&other.certificate), "UnknownIssuer"),
            (&elsewhere, ca(), "not valid for name"),
            (&expired, ca(), "xpired"),
            (&plain, ca(), "no TLS there"),
        ] {
            let why = refusal(by(server, tls)).await;
            assert!(why.contains(word), "{word}: {why}");
        }
        let in_clear = Keeper::builder(format!("redis://{}", good.address()));
        let why = refusal(in_clear).await;
        assert!(why.contains("no connection"), "{why}");
    });
}

#[test]
fn a_certificate_of_the_client_is_shown_to_a_server_that_wants_one() {
    if !is_on("redis") {
        return;
    }
    let (ours, other) = (Authority::new(), Authority::new());
    let server = secure::redis(&ours, &ours.sign(), &[]).unwrap();
    let ca = || Tls::with_ca(&ours.certificate);
    let ((certificate, key), (strange, its_key)) = (ours.sign(), other.sign());
    run(async {
        works(by(&server, ca().identity(certificate, key))).await;

        for tls in [ca(), ca().identity(strange, &its_key)] {
            let why = refusal(by(&server, tls)).await;
            assert!(why.contains("certificate of the client"), "{why}");
            let secret = its_key.lines().nth(1).unwrap();
            assert!(!why.contains(secret), "{why}");
        }
    });
}

#[test]
fn a_url_and_certificates_that_do_not_go_together_are_refused_before_any_io() {
    let ca = Authority::new().certificate;
    let url = |scheme: &str| {
        let path = if scheme == "rediss" { "" } else { "/main" };
        Keeper::builder(format!("{scheme}://me:secret@nowhere.invalid:1{path}"))
    };
    run(async {
        for (builder, word) in [
            (url("rediss"), "no authority"),
            (url("rediss-sentinel"), "no authority"),
            (
                url("redis-sentinel").tls(Tls::with_ca(&ca)),
                "rediss-sentinel://",
            ),
            (
                Keeper::builder("redis://a").tls(Tls::with_ca(&ca)),
                "rediss://",
            ),
            (url("redis-sentinel").require_tls(true), "TLS is required"),
            (
                url("rediss").tls(Tls::with_ca("no PEM")),
                "no authority to trust",
            ),
            (
                Keeper::builder("rediss://me:secret@a#insecure").tls(Tls::with_ca(&ca)),
                "always verified",
            ),
        ] {
            let shown = format!("{builder:?}");
            let error = builder.connect().await.unwrap_err();
            let text = format!("{error} {error:?} {shown}");
            assert!(error.is_invalid() && text.contains(word), "{text}");
            assert!(!text.contains("secret"), "{text}");
        }
    });
}
