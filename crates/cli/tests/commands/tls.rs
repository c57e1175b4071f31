//! TLS with a real server: what the tool is told, and what it shows of it.

use std::path::{Path, PathBuf};

use futures_util::future::join_all;
use testbench::secure::{Authority, Secure, written};
use testbench::{World, case};

use crate::tool::finished;

#[case(real, within = 120)]
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
    let tool = |patience, ca: Option<&Path>, identity: Option<&(PathBuf, PathBuf)>| {
        let mut tool = tokio::process::Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
        // The JVM's first handshakes are slow.
        tool.args(["--zk", &server.address, "--connect-timeout", patience]);
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

    let ended = finished(&mut tool("60s", Some(&ca), Some(&ours))).await;

    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(0), "in\n"),
        "{ended:?}"
    );
    assert!(ended.stderr.contains("granted"), "{ended:?}");
    hides(&ended.stderr, &key);
    let mut by_variables = tool("60s", None, None);
    by_variables
        .env("LOCKKEEPER_TLS_CA", &ca)
        .env("LOCKKEEPER_TLS_CERT", &ours.0)
        .env("LOCKKEEPER_TLS_KEY", &ours.1)
        .env("LOCKKEEPER_REQUIRE_TLS", "1");
    let ended = finished(&mut by_variables).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let strangers = [
        ("no certificate of ours", tool("5s", Some(&ca), None)),
        (
            "one that nobody has signed",
            tool("5s", Some(&ca), Some(&theirs)),
        ),
        (
            "an authority that has not signed theirs",
            tool("5s", Some(&other_ca), Some(&ours)),
        ),
        ("no TLS", tool("5s", None, None)),
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
