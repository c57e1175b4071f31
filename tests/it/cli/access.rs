//! Credentials and access lists on the command line.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use zookeeper_client::Client;

use super::{Holder, one_line, run};
use crate::support::process::{finished, lockkeeper};
use crate::support::{World, eventually};

cases! {
    feature: "cli";
    both:
        a_credential_of_the_environment_keeps_others_out,
        a_credential_of_a_file_is_the_same,
        what_may_not_be_read_is_said,
        whatever_bench_makes_has_the_list,
        a_credential_that_is_none_ends_with_64_and_is_not_shown,
        a_credential_is_in_no_log_no_title_and_no_node;
}

const SOON: Duration = Duration::from_secs(5);
const AUTH: &str = "digest:locksmith:open-sesame-97531";

async fn a_credential_of_the_environment_keeps_others_out(world: World) {
    let mut command = run(&world, "vault", "echo ready; read line");
    command
        .env("LOCKKEEPER_AUTH", AUTH)
        .env("LOCKKEEPER_ACL", "auth::cdrwa");
    let holder = Holder::start(command.stdin(Stdio::piped())).await;

    let other =
        finished(lockkeeper(&world).args(["run", "vault", "--no-wait", "--", "true"])).await;

    assert_eq!(other.code, Some(77), "{other:?}");
    assert!(one_line(&other).contains("READ"), "{other:?}");
    let mut same = lockkeeper(&world);
    same.env("LOCKKEEPER_AUTH", AUTH)
        .args(["run", "vault", "--no-wait", "--", "true"]);
    let same = finished(&mut same).await;
    assert_eq!(
        same.code,
        Some(75),
        "it sees that the lock is taken: {same:?}"
    );
    holder.done().await;
}

async fn a_credential_of_a_file_is_the_same(world: World) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("auth");
    std::fs::write(&file, format!("{AUTH}\n# of the locksmith\n")).unwrap();
    let mut command = lockkeeper(&world);
    command
        .arg("--auth-file")
        .arg(&file)
        .args(["--acl", "auth::cdrwa"]);
    command.args(["run", "vault", "--", "true"]);

    let ended = finished(&mut command).await;

    assert_eq!(ended.code, Some(0), "{ended:?}");
    let other = finished(lockkeeper(&world).args(["queue", "vault"])).await;
    assert_eq!(other.code, Some(77), "{other:?}");
}

async fn what_may_not_be_read_is_said(world: World) {
    let mut open = run(&world, "window", "echo ready; read line");
    let open = Holder::start(open.stdin(Stdio::piped())).await;
    let mut closed = run(&world, "vault", "echo ready; read line");
    closed
        .env("LOCKKEEPER_AUTH", AUTH)
        .env("LOCKKEEPER_ACL", "auth::cdrwa");
    let closed = Holder::start(closed.stdin(Stdio::piped())).await;

    let table = finished(lockkeeper(&world).arg("ls")).await;
    let json = finished(lockkeeper(&world).args(["ls", "--json"])).await;
    let doctor = finished(lockkeeper(&world).arg("doctor")).await;
    let why = finished(lockkeeper(&world).args(["why", "vault"])).await;

    let rows: Vec<Vec<&str>> = table
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows,
        [["TICKETS", "NAME"], ["denied", "vault"], ["1", "window"]],
        "{table:?}"
    );
    assert_eq!(
        json.stdout.trim(),
        r#"[{"name":"vault","tickets":null},{"name":"window","tickets":1}]"#
    );
    let said = doctor.stderr.lines().collect::<Vec<_>>();
    assert!(
        said.iter()
            .any(|line| line.contains("not looked at") && line.contains("/locks/vault")),
        "{doctor:?}"
    );
    assert!(
        said.last()
            .unwrap()
            .contains("the other locks below /locks"),
        "{doctor:?}"
    );
    assert_eq!(why.code, Some(77), "{why:?}");
    assert!(one_line(&why).contains("/locks/vault"), "{why:?}");
    open.done().await;
    closed.done().await;
}

async fn whatever_bench_makes_has_the_list(world: World) {
    let mut command = lockkeeper(&world);
    command
        .args(["--auth", AUTH, "--acl", "auth::cdrwa", "bench"])
        .args(["--rounds", "1", "--waiters", "10", "--time", "50ms"]);
    let connector = Client::connector().with_auth("digest", b"locksmith:open-sesame-97531");
    let client = connector.connect(&world.connect_string()).await.unwrap();
    let mut bench = Box::pin(finished(&mut command));
    let mut seen = BTreeMap::new();

    let ended = loop {
        tokio::select! {
            ended = &mut bench => break ended,
            () = look(&client, &mut seen) => {}
        }
    };

    assert_eq!(ended.code, Some(0), "{ended:?}");
    for (node, schemes) in &seen {
        assert_eq!(schemes, &["digest"], "{node}");
    }
    for piece in ["/locks", "/in-use", "/lock-"] {
        let is_there = seen.keys().any(|node| node.contains(piece));
        assert!(is_there, "{piece}: {:?}", seen.keys());
    }
    assert!(
        !client
            .list_children("/")
            .await
            .unwrap()
            .contains(&"locks".into())
    );
}

/// Adds what is there now, and the schemes of its lists.
async fn look(client: &Client, seen: &mut BTreeMap<String, Vec<String>>) {
    let mut todo = vec!["/locks".to_owned()];
    while let Some(path) = todo.pop() {
        // It may go at any moment.
        let Ok((acl, _)) = client.get_acl(&path).await else {
            continue;
        };
        let children = client.list_children(&path).await.unwrap_or_default();
        todo.extend(children.iter().map(|child| format!("{path}/{child}")));
        let schemes = acl.iter().map(|entry| entry.scheme().to_owned());
        seen.insert(path, schemes.collect());
    }
}

async fn a_credential_that_is_none_ends_with_64_and_is_not_shown(world: World) {
    for auth in ["hunter2", "digest:", ":hunter2"] {
        let mut command = lockkeeper(&world);
        command.env("LOCKKEEPER_AUTH", auth).args(["-vvv", "ls"]);

        let ended = finished(&mut command).await;

        assert_eq!(ended.code, Some(64), "{ended:?}");
        assert!(ended.stderr.contains("digest:user:password"), "{ended:?}");
        assert!(!ended.stderr.contains("hunter2"), "{ended:?}");
    }
    let missing = finished(lockkeeper(&world).args(["--auth-file", "/no/such/file", "ls"])).await;
    assert_eq!(missing.code, Some(64), "{missing:?}");
    assert!(one_line(&missing).contains("/no/such/file"), "{missing:?}");
    let list = finished(lockkeeper(&world).args(["--acl", "everybody", "ls"])).await;
    assert_eq!(list.code, Some(64), "{list:?}");
    assert!(list.stderr.contains("world:anyone:cdrwa"), "{list:?}");
}

async fn a_credential_is_in_no_log_no_title_and_no_node(world: World) {
    let secret = AUTH.rsplit(':').next().unwrap();
    let mut command = run(&world, "vault", "echo ready; read line");
    command
        .env("LOCKKEEPER_AUTH", AUTH)
        .env("LOCKKEEPER_ACL", "auth::cdrwa,world:anyone:r")
        .env("LOCKKEEPER_JOURNAL", "9")
        .env("RUST_LOG", "trace");
    let mut holder = Holder::start(command.stdin(Stdio::piped())).await;
    let mut log = holder.tool.stderr.take().unwrap();
    let title = std::fs::read(format!("/proc/{}/cmdline", holder.pid())).unwrap();
    let stranger = world.raw().await;
    let (ticket, _) = stranger
        .get_data("/locks/vault/lock-0000000000")
        .await
        .unwrap();
    let page = || async { stranger.get_data("/locks-journal/vault").await.ok() };
    let (page, _) = eventually("the journal is written", SOON, page).await;
    holder.done().await;

    let mut logged = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut log, &mut logged)
        .await
        .unwrap();
    assert!(
        logged.contains("granted") && logged.contains("zookeeper_client"),
        "{logged}"
    );
    for bytes in [title, ticket, page, logged.into_bytes()] {
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains(secret), "{text}");
    }
}
