//! Credentials and access lists on the command line.

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt;
use zookeeper_client::Client;

use super::{Holder, one_line, outcome, run};
use crate::tool::{finished, lockkeeper};
use testbench::{World, case, eventually};

const SOON: Duration = Duration::from_secs(5);
const AUTH: &str = "digest:locksmith:open-sesame-97531";

#[case(zookeeper, why = "a URL has the user and the password of other stores")]
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

#[case(zookeeper, why = "a URL has the user and the password of other stores")]
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

#[case(zookeeper, why = "a URL has the user and the password of other stores")]
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
        rows.iter().map(|row| row[..2].to_vec()).collect::<Vec<_>>(),
        [["NAME", "HOLDER"], ["vault", "(denied)"], ["window", "sh"]],
        "{table:?}"
    );
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let known = ["name", "tickets", "denied", "holders"];
    let known = [0, 1].map(|at: usize| known.map(|field| json[at][field].clone()));
    assert_eq!(
        serde_json::json!(known),
        serde_json::json!([["vault", null, true, null], ["window", 1, false, 1]])
    );
    let said = doctor.stderr.lines().collect::<Vec<_>>();
    assert!(
        said.iter()
            .any(|line| line.contains("not checked") && line.contains("/locks/vault")),
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

#[case(zookeeper, why = "a URL has the user and the password of other stores")]
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

#[case(zookeeper, why = "a URL has the user and the password of other stores")]
async fn a_credential_alone_keeps_others_out_of_what_is_made(world: World) {
    let mut command = run(&world, "vault", "echo ready; read line");
    command.env("LOCKKEEPER_AUTH", AUTH);
    let holder = Holder::start(command.stdin(Stdio::piped())).await;

    let other = finished(lockkeeper(&world).args(["queue", "vault"])).await;

    assert_eq!(other.code, Some(77), "{other:?}");
    assert!(one_line(&other).contains("--acl"), "{other:?}");
    holder.done().await;
    let mut open = lockkeeper(&world);
    open.env("LOCKKEEPER_AUTH", AUTH)
        .env("LOCKKEEPER_ACL", "open")
        .args(["--root", "/open", "run", "window", "--", "true"]);
    let open = finished(&mut open).await;
    assert_eq!(open.code, Some(0), "{open:?}");
    let (acl, _) = world
        .zookeeper()
        .await
        .get_acl("/open/window")
        .await
        .unwrap();
    assert_eq!(acl[0].scheme(), "world");
}

#[case(zookeeper, why = "a URL has the user and the password of other stores")]
async fn a_strangers_directory_is_used_on_demand_only(world: World) {
    let stranger = finished(lockkeeper(&world).args(["run", "vault", "--", "true"])).await;
    assert_eq!(stranger.code, Some(0), "{stranger:?}");
    let with = |more: &[&str]| {
        let mut command = lockkeeper(&world);
        command.env("LOCKKEEPER_AUTH", AUTH).args(more);
        command.args(["run", "vault", "--", "echo", "in"]);
        command
    };

    let refused = finished(&mut with(&[])).await;
    let warned = finished(&mut with(&["--no-strict-acl"])).await;

    assert_eq!(refused.code, Some(64), "{refused:?}");
    for piece in ["/locks/vault", "world:anyone:cdrwa", "--no-strict-acl"] {
        assert!(one_line(&refused).contains(piece), "{refused:?}");
        assert!(warned.stderr.contains(piece), "{warned:?}");
    }
    assert_eq!(
        (warned.code, &*warned.stdout),
        (Some(0), "in\n"),
        "{warned:?}"
    );
}

#[case(zookeeper, why = "a URL has the user and the password of other stores")]
async fn doctor_finds_directories_that_are_open_to_others(world: World) {
    let mut open = run(&world, "window", "echo ready; read line");
    let open = Holder::start(open.stdin(Stdio::piped())).await;
    let mut closed = run(&world, "vault", "echo ready; read line");
    closed.env("LOCKKEEPER_AUTH", AUTH);
    let closed = Holder::start(closed.stdin(Stdio::piped())).await;

    let mut doctor = lockkeeper(&world);
    let doctor = finished(doctor.env("LOCKKEEPER_AUTH", AUTH).arg("doctor")).await;
    let nobody = finished(lockkeeper(&world).arg("doctor")).await;

    assert_eq!(doctor.code, Some(1), "{doctor:?}");
    let rows: Vec<&str> = doctor.stdout.lines().skip(1).collect();
    let [row] = &rows[..] else {
        panic!("{doctor:?}");
    };
    for piece in ["open", "window", "/locks/window", "world:anyone:cdrwa"] {
        assert!(row.contains(piece), "{row}");
    }
    assert_eq!(nobody.code, Some(0), "{nobody:?}");
    open.done().await;
    closed.done().await;
}

#[case(zookeeper, why = "a URL has the user and the password of other stores")]
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

#[case(zookeeper, why = "a URL has the user and the password of other stores")]
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
    let stranger = world.zookeeper().await;
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

#[case]
async fn help_prints_no_value_of_the_environment(world: World) {
    for words in [
        &["--help"] as &[&str],
        &["run", "--help"],
        &["help", "environment"],
        &["man"],
    ] {
        let mut command = lockkeeper(&world);
        command
            .env("LOCKKEEPER_AUTH", AUTH)
            .env("LOCKKEEPER_ACL", "digest:locksmith:97531=:cdrwa");

        let ended = finished(command.args(words)).await;

        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stdout.contains("LOCKKEEPER_ACL"), "{ended:?}");
        assert!(!ended.stdout.contains("97531"), "{ended:?}");
    }
}

#[case(zookeeper, why = "a URL has the user and the password of other stores")]
async fn the_command_sees_no_credential_with_unset_auth(world: World) {
    for (option, seen) in [(None, AUTH), (Some("--unset-auth"), "unset")] {
        let mut command = lockkeeper(&world);
        command
            .env("LOCKKEEPER_AUTH", AUTH)
            .args(["--acl", "auth::cdrwa", "run"])
            .args(option)
            .args(["vault", "--", "sh", "-c", "echo ${LOCKKEEPER_AUTH-unset}"]);

        let ended = finished(&mut command).await;

        assert_eq!((ended.code, ended.stdout.trim()), (Some(0), seen));
    }
}

/// A URL may have a password, and a connect string of ZooKeeper has none.
#[case]
async fn the_command_sees_no_url_with_unset_auth(world: World) {
    let servers = world.connect_string();
    let left = if servers.contains("://") {
        "unset"
    } else {
        &servers
    };
    for (option, seen) in [(None, &*servers), (Some("--unset-auth"), left)] {
        let mut command = lockkeeper(&world);
        command.arg("run").args(option).args([
            "vault",
            "--",
            "sh",
            "-c",
            "echo ${LOCKKEEPER_ZK-unset}",
        ]);

        let ended = finished(&mut command).await;

        assert_eq!((ended.code, ended.stdout.trim()), (Some(0), seen));
    }
}

const IN_CLEAR: &str = "the credential crosses the network in clear";

#[case(zookeeper, why = "a URL has the user and the password of other stores")]
async fn a_credential_in_clear_is_said_once_beyond_this_machine(world: World) {
    let far = ["--zk", "no-such-host.invalid", "--connect-timeout", "1s"];
    for words in [&["ls"] as &[&str], &["-v", "ls"], &["bench"]] {
        let mut command = lockkeeper(&world);
        command.env("LOCKKEEPER_AUTH", AUTH).args(far).args(words);

        let ended = finished(&mut command).await;

        let said = ended
            .stderr
            .matches("credential crosses the network")
            .count();
        assert_eq!((ended.code, said), (Some(69), 1), "{ended:?}");
    }
    let mut without = lockkeeper(&world);
    let without = finished(without.args(far).arg("ls")).await;
    assert!(!without.stderr.contains(IN_CLEAR), "{without:?}");
    let mut here = lockkeeper(&world);
    let here = finished(here.env("LOCKKEEPER_AUTH", AUTH).arg("ls")).await;
    assert_eq!(
        (here.code, here.stderr.contains(IN_CLEAR)),
        (Some(0), false)
    );
}

#[case(zookeeper, why = "a URL has the user and the password of other stores")]
async fn nothing_is_sent_without_tls_where_it_is_required(world: World) {
    let option = finished(lockkeeper(&world).args(["--require-tls", "ls"])).await;
    let variable = |value: &'static str| {
        let mut command = lockkeeper(&world);
        command.env("LOCKKEEPER_REQUIRE_TLS", value).arg("ls");
        command
    };
    let set = finished(&mut variable("1")).await;
    let not_set = finished(&mut variable("false")).await;

    for ended in [option, set] {
        assert_eq!(ended.code, Some(64), "{ended:?}");
        assert!(one_line(&ended).contains("TLS is required"), "{ended:?}");
    }
    assert_eq!(not_set.code, Some(0), "{not_set:?}");
}

#[case(zookeeper, why = "a URL has the user and the password of other stores")]
async fn the_files_of_tls_are_named_by_the_environment(world: World) {
    let there = "/dev/null/no-file";
    for (missing, others) in [
        ("LOCKKEEPER_TLS_CA", &[] as &[&str]),
        (
            "LOCKKEEPER_TLS_CERT",
            &["LOCKKEEPER_TLS_CA", "LOCKKEEPER_TLS_KEY"],
        ),
        (
            "LOCKKEEPER_TLS_KEY",
            &["LOCKKEEPER_TLS_CA", "LOCKKEEPER_TLS_CERT"],
        ),
    ] {
        let mut command = lockkeeper(&world);
        command.env(missing, there).arg("ls");
        for other in others {
            command.env(other, "/etc/passwd");
        }

        let ended = finished(&mut command).await;

        assert_eq!(ended.code, Some(64), "{ended:?}");
        assert!(one_line(&ended).contains(there), "{missing}: {ended:?}");
    }
}

#[case(zookeeper, why = "a URL has the user and the password of other stores")]
async fn a_secret_that_everybody_may_read_is_said(world: World) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("auth");
    std::fs::write(&file, AUTH).unwrap();
    for (mode, is_said) in [(0o600, false), (0o640, false), (0o644, true)] {
        std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();

        let ended = outcome(
            &world,
            &["--auth-file", file.to_str().unwrap(), "ls", "--json"],
        )
        .await;

        assert_eq!(ended.code, Some(0), "{ended:?}");
        let said = ended
            .stderr
            .contains("every user of this machine can read the secret in ");
        assert_eq!(said, is_said, "{mode:o}: {ended:?}");
    }
}

#[case(zookeeper, why = "a URL has the user and the password of other stores")]
async fn a_secret_of_a_pipe_is_read_once(world: World) {
    let mut command = lockkeeper(&world);
    command
        .args(["--auth-file", "/dev/stdin", "--acl", "auth::cdrwa", "bench"])
        .args([
            "--rounds",
            "1",
            "--waiters",
            "1",
            "--time",
            "50ms",
            "--json",
        ])
        .stdin(Stdio::piped());
    let mut tool = command.spawn().unwrap();
    let mut pipe = tool.stdin.take().unwrap();
    pipe.write_all(AUTH.as_bytes()).await.unwrap();
    drop(pipe);

    let ended = tool.wait_with_output().await.unwrap();

    let stderr = String::from_utf8(ended.stderr).unwrap();
    assert_eq!((ended.status.code(), &*stderr), (Some(0), ""));
}

#[case(zookeeper, why = "a URL has the user and the password of other stores")]
async fn a_file_that_never_ends_is_refused(world: World) {
    let folder = tempfile::tempdir().unwrap();
    let long = folder.path().join("long");
    File::create(&long).unwrap().set_len((1 << 20) + 1).unwrap();
    for (file, why) in [
        ("/dev/zero", "neither a file nor a pipe"),
        ("/dev", "neither a file nor a pipe"),
        (long.to_str().unwrap(), "longer than 1 MiB"),
    ] {
        for option in ["--auth-file", "--tls-ca"] {
            let ended = outcome(&world, &[option, file, "ls"]).await;

            assert_eq!(ended.code, Some(64), "{ended:?}");
            let line = one_line(&ended);
            assert!(line.contains(file) && line.contains(why), "{line}");
        }
    }
}

#[case(zookeeper, why = "a URL has the user and the password of other stores")]
async fn a_pipe_that_nobody_writes_into_can_be_interrupted(world: World) {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let mut command = lockkeeper(&world);
    command.arg("--auth-file").arg(&pipe);
    let mut tool = command.args(["run", "a", "--", "true"]).spawn().unwrap();
    let pid = tool.id().unwrap();
    let listens = || async {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
        caught & (1 << (Signal::SIGINT as u64 - 1)) != 0
    };
    eventually("it listens for signals", SOON, listens).await;

    kill(Pid::from_raw(pid as i32), Signal::SIGINT).unwrap();

    assert_eq!(tool.wait().await.unwrap().code(), Some(130));
}
