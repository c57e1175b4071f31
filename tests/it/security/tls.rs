//! TLS with a real server, whose certificates are made here: who is let in, and what the others are told.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use lockkeeper::{Error, Keeper, KeeperBuilder, Tls};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::support::process::finished;
use crate::support::zookeeper::Servers;
use crate::support::{World, ports};

cases! {
    feature: "cli";
    real:
        locks_are_taken_through_tls_with_a_certificate within 120,
        the_tool_speaks_tls within 120;
    embedded:
        certificates_that_make_no_sense_are_refused_and_not_shown;
}

const SOON: Duration = Duration::from_secs(5);

/// An authority, and what it has signed.
struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().pem();
        Self {
            certificate,
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate for this machine, and its key.
    fn sign(&self) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let params = CertificateParams::new(names).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

/// A server that wants certificates of its clients.
struct Secure {
    authority: Authority,
    address: String,
    folder: TempDir,
    _servers: Servers,
}

impl Secure {
    async fn start() -> Self {
        tokio::task::spawn_blocking(|| {
            let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
            let (certificate, key) = authority.sign();
            let own = written(folder.path(), "server.pem", &(key + &certificate));
            let ca = written(folder.path(), "ca.pem", &authority.certificate);
            let port = ports::free(1).unwrap()[0];
            let more = format!(
                "secureClientPort={port}\nserverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
                 ssl.keyStore.location={}\nssl.keyStore.type=PEM\nssl.trustStore.location={}\nssl.trustStore.type=PEM\n\
                 ssl.clientAuth=need\n",
                own.display(),
                ca.display()
            );
            let directly = |members: &[_]| Ok(vec![members.to_vec(); members.len()]);
            let servers = Servers::start_linked(1, &[], &more, directly).unwrap();
            Self {
                authority,
                address: format!("127.0.0.1:{port}"),
                folder,
                _servers: servers,
            }
        })
        .await
        .unwrap()
    }

    fn keeper(&self, tls: Tls) -> KeeperBuilder {
        Keeper::builder(&self.address)
            .tls(tls)
            .connect_timeout(SOON)
    }
}

fn written(folder: &Path, name: &str, text: &str) -> PathBuf {
    let file = folder.join(name);
    fs::write(&file, text).unwrap();
    file
}

async fn locks_are_taken_through_tls_with_a_certificate(_world: World) {
    let server = Secure::start().await;
    let (certificate, key) = server.authority.sign();
    let ca = || Tls::with_ca(&server.authority.certificate);

    let keeper = server
        .keeper(ca().identity(&certificate, &key))
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
        let connecting = timeout(3 * SOON, server.keeper(tls).connect());
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

async fn the_tool_speaks_tls(_world: World) {
    let server = Secure::start().await;
    let file = |name, text: &str| written(server.folder.path(), name, text);
    let ca = server.folder.path().join("ca.pem");
    let (certificate, key) = server.authority.sign();
    let ours = (file("client.pem", &certificate), file("client.key", &key));
    let other = Authority::new();
    let (strange, its_key) = other.sign();
    let theirs = (file("other.pem", &strange), file("other.key", &its_key));
    let other_ca = file("other-ca.pem", &other.certificate);
    let tool = |ca: Option<&Path>, identity: Option<&(PathBuf, PathBuf)>| {
        let mut tool = tokio::process::Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
        tool.args(["--zk", &server.address, "--connect-timeout", "5s"]);
        if let Some(ca) = ca {
            tool.arg("--tls-ca").arg(ca);
        }
        if let Some((certificate, key)) = identity {
            tool.arg("--tls-cert").arg(certificate);
            tool.arg("--tls-key").arg(key);
        }
        tool.args(["run", "safe", "--", "echo", "in"]);
        tool.env("RUST_LOG", "trace");
        tool
    };

    let ended = finished(&mut tool(Some(&ca), Some(&ours))).await;

    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(0), "in\n"),
        "{ended:?}"
    );
    assert!(ended.stderr.contains("granted"), "{ended:?}");
    hides(&ended.stderr, &key);
    let mut by_variables = tool(None, None);
    by_variables
        .env("LOCKKEEPER_TLS_CA", &ca)
        .env("LOCKKEEPER_TLS_CERT", &ours.0)
        .env("LOCKKEEPER_TLS_KEY", &ours.1)
        .env("LOCKKEEPER_REQUIRE_TLS", "1");
    let ended = finished(&mut by_variables).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let strangers = [
        ("no certificate of ours", tool(Some(&ca), None)),
        ("one that nobody has signed", tool(Some(&ca), Some(&theirs))),
        (
            "an authority that has not signed theirs",
            tool(Some(&other_ca), Some(&ours)),
        ),
        ("no TLS", tool(None, None)),
    ];
    join_all(strangers.map(|(whose, mut tool)| {
        let (key, its_key) = (&key, &its_key);
        async move {
            let ended = finished(&mut tool).await;

            assert_eq!(ended.code, Some(69), "{whose}: {ended:?}");
            assert_eq!(ended.stdout, "", "{whose}");
            hides(&ended.stderr, key);
            hides(&ended.stderr, its_key);
        }
    }))
    .await;
}

/// No line of the key is in the text.
fn hides(text: &str, key: &str) {
    let secret = key.lines().filter(|line| !line.starts_with("-----"));
    for line in secret {
        assert!(!text.contains(line), "{text}");
    }
}

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
