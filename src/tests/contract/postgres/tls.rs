//! TLS: which servers are believed, and what is refused before anything is sent.

use std::time::Duration;

use testbench::daemon::Daemon;
use testbench::secure::{self, Authority, Identity};
use tokio::time::timeout;

use super::super::SOON;
use super::super::bed::is_on;
use super::SESSION_TIMEOUT;
use crate::{Error, Keeper, KeeperBuilder, Tls};

const ONLY_TLS: &str = "hostssl all all 127.0.0.1/32 trust";
const ALL: &str = "host all all 127.0.0.1/32 trust";
const WITH_CERTIFICATE: &str = "hostssl all all 127.0.0.1/32 trust clientcert=verify-ca";

fn run(case: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async { timeout(SOON * 6, case).await.expect("it ends") });
}

fn at(server: &Daemon, query: &str) -> KeeperBuilder {
    let url = format!("postgres://postgres@{}/postgres{query}", server.address());
    let builder = Keeper::builder(url).new_store(true);
    builder.session_timeout(SESSION_TIMEOUT)
}

/// A lock is taken by a second session, which is told by a notification.
async fn works(builder: KeeperBuilder) {
    let (holds, waits) = (builder.clone(), builder.clone());
    let holds = holds.require_tls(true).connect().await.unwrap();
    let waits = waits.connect().await.unwrap();
    let guard = holds.mutex("safe").unwrap().lock().await.unwrap();
    let lock = waits.mutex("safe").unwrap();
    let next = tokio::spawn(async move { lock.lock().await.unwrap().release().await.unwrap() });
    guard.release().await.unwrap();
    next.await.unwrap();
    holds.close().await;
    waits.close().await;
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
    if !is_on("postgres") {
        return;
    }
    let (ours, other) = (Authority::new(), Authority::new());
    let start = |own: Identity, lets_in| secure::postgres(&ours, &own, lets_in);
    let (good, _files) = start(ours.sign(), ONLY_TLS);
    let (elsewhere, _files_of_it) = start(ours.sign_for(&["elsewhere.example"], 4000), ALL);
    let (expired, _files_of_that) = start(ours.sign_for(&["127.0.0.1"], 2020), ALL);
    let plain = testbench::daemon::postgres(&[]).unwrap();
    let ca = || Tls::with_ca(&ours.certificate);
    run(async {
        // It is in the URL, or goes without saying where certificates are given.
        for query in ["", "?sslmode=require", "?sslmode=verify-full&wake=poll"] {
            works(at(&good, query).tls(ca())).await;
        }
        super::ready(plain.address()).await;

        for (server, tls, word) in [
            (&good, Tls::with_ca(&other.certificate), "UnknownIssuer"),
            (&elsewhere, ca(), "not valid for name"),
            (&expired, ca(), "xpired"),
            (&plain, ca(), "does not support TLS"),
        ] {
            let why = refusal(at(server, "?sslmode=verify-full").tls(tls)).await;
            assert!(why.contains(word), "{word}: {why}");
        }
        let why = refusal(at(&good, "?sslmode=disable")).await;
        assert!(why.contains("?sslmode=verify-full"), "{why}");
    });
}

#[test]
fn a_certificate_of_the_client_is_shown_to_a_server_that_wants_one() {
    if !is_on("postgres") {
        return;
    }
    let (ours, other) = (Authority::new(), Authority::new());
    let (server, _files) = secure::postgres(&ours, &ours.sign(), WITH_CERTIFICATE);
    let ca = || Tls::with_ca(&ours.certificate);
    let ((certificate, key), (strange, its_key)) = (ours.sign(), other.sign());
    run(async {
        works(at(&server, "").tls(ca().identity(certificate, key))).await;

        let none = at(&server, "").tls(ca()).connect_timeout(Duration::ZERO);
        let error = none.connect().await.unwrap_err();
        assert!(matches!(error, Error::Unauthenticated { .. }), "{error}");
        let tls = ca().identity(strange, &its_key);
        let why = refusal(at(&server, "").tls(tls)).await;
        assert!(why.contains("certificate of the client"), "{why}");
        assert!(!why.contains(its_key.lines().nth(1).unwrap()), "{why}");
    });
}

#[test]
fn a_url_and_certificates_that_do_not_go_together_are_refused_before_any_io() {
    let ca = Authority::new().certificate;
    let url = |query: &str| {
        Keeper::builder(format!(
            "postgres://me:secret@nowhere.invalid:1/base{query}"
        ))
    };
    let tls = || Tls::with_ca(&ca);
    run(async {
        for (builder, word) in [
            (url("?sslmode=require"), "no authority"),
            (url("?sslmode=verify-full"), "no authority"),
            (url("?sslmode=prefer").tls(tls()), "say verify-full"),
            (url("?sslmode=allow"), "say verify-full"),
            (url("?sslmode=verify-ca").tls(tls()), "say verify-full"),
            (url("?sslmode=none"), "`disable`, `require` or"),
            (url("?sslmode=disable").tls(tls()), "sslmode=disable"),
            (url("?sslrootcert=secret").tls(tls()), "`sslrootcert`"),
            (url("?sslnegotiation=direct").tls(tls()), "`sslnegotiation`"),
            (url("?channel_binding=require"), "`channel_binding`"),
            (url("").require_tls(true), "TLS is required"),
            (url("").tls(Tls::with_ca("no PEM")), "no authority to trust"),
            (
                Keeper::builder("postgres://me:secret@%2Fvar%2Frun/base").tls(tls()),
                "a socket of this machine",
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
