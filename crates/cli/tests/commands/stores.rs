//! The tool on Redis and on PostgreSQL, where it differs: `init`, the settings that `doctor` names,
//! the baseline of `bench`, and what is refused.

use std::time::{Duration, Instant};

use tokio::process::Command;
use tokio::task::spawn_blocking;

use super::{one_line, outcome};
use crate::tool::{finished, lockkeeper};
use testbench::daemon::{self, Daemon};
use testbench::secure::{self, Authority, written};
use testbench::{World, case};

/// A Redis server of its own, on which nobody was before.
async fn empty(settings: &'static [&'static str]) -> Daemon {
    let started = spawn_blocking(|| daemon::redis(settings)).await;
    started.unwrap().unwrap()
}

/// The tool on that server.
fn on(server: &Daemon, world: &World, words: &[&str]) -> Command {
    let mut command = lockkeeper(world);
    command.env_remove("LOCKKEEPER_ZK").args(words);
    command.env(
        "LOCKKEEPER_SERVERS",
        format!("redis://{}", server.address()),
    );
    command
}

#[case(redis)]
async fn a_new_store_serves_at_once_after_init(world: World) {
    let (server, began) = (empty(&[]).await, Instant::now());

    let init = finished(&mut on(&server, &world, &["init"])).await;
    let run = ["run", "a", "--", "echo", "done"];
    let ran = finished(&mut on(&server, &world, &run)).await;

    assert_eq!(init.code, Some(0), "{init:?}");
    assert!(one_line(&init).ends_with("serves locks"), "{init:?}");
    assert_eq!((ran.code, &*ran.stdout), (Some(0), "done\n"), "{ran:?}");
    assert!(began.elapsed() < Duration::from_secs(20), "nobody waited");
}

#[case(redis, within = 120)]
async fn an_empty_store_says_why_it_gives_no_session(world: World) {
    let server = empty(&[]).await;

    let run = ["run", "a", "--", "echo", "done"];
    let ended = finished(&mut on(&server, &world, &run)).await;

    assert_eq!((ended.code, &*ended.stdout), (Some(0), "done\n"));
    let said = one_line(&ended);
    let way_out = said.contains("`lockkeeper init` if it is new");
    assert!(said.contains("gives none for 35s") && way_out, "{said}");
}

#[case(redis)]
async fn the_doctor_names_settings_that_weaken_the_promises(world: World) {
    let server = empty(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]).await;
    finished(&mut on(&server, &world, &["init"])).await;

    let doctor = finished(&mut on(&server, &world, &["doctor"])).await;

    assert_eq!((doctor.code, &*doctor.stderr), (Some(1), ""), "{doctor:?}");
    for setting in ["maxmemory-policy: ", "appendonly: "] {
        assert!(doctor.stdout.contains(setting), "{doctor:?}");
    }
}

#[case(redis)]
async fn the_doctor_finds_nothing_on_the_redis_of_the_compose_file(world: World) {
    let compose = include_str!("../../../../docker/compose.yaml");
    let mut lines = compose.lines().map(str::trim);
    let words = lines.find_map(|line| {
        line.strip_prefix("command: ")
            .filter(|it| it.contains("redis-server"))
    });
    let words: Vec<&str> = serde_json::from_str(words.unwrap()).unwrap();
    let server = spawn_blocking(move || daemon::redis(&words[1..]))
        .await
        .unwrap()
        .unwrap();
    finished(&mut on(&server, &world, &["init"])).await;

    let doctor = finished(&mut on(&server, &world, &["doctor"])).await;

    assert_eq!((doctor.code, &*doctor.stdout), (Some(0), ""), "{doctor:?}");
}

#[case(redis)]
async fn what_only_zookeeper_has_is_refused_and_no_password_is_shown(world: World) {
    let server = ["--servers", "redis://me:secret@127.0.0.1:1"];
    for (words, code) in [
        (&["--acl", "open", "ls"][..], 64),
        (&["run", "--ttl", "9s", "a", "--", "true"], 64),
        (&["--connect-timeout", "1s", "ls"], 69),
    ] {
        let ended = outcome(&world, &[&server[..], words].concat()).await;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(!ended.stderr.contains("secret"), "{ended:?}");
    }
}

#[case(redis, within = 60)]
async fn the_tool_speaks_tls_with_redis(world: World) {
    let authority = Authority::new();
    let ca = authority.certificate.clone();
    let start = move || secure::redis(&authority, &authority.sign(), &["--tls-auth-clients", "no"]);
    let server = spawn_blocking(start).await.unwrap().unwrap();
    let ca = written(server.folder(), "trusted.pem", &ca);
    let address = server.address();
    let tool = |scheme: &str, is_trusting, words: &[&str]| {
        let mut command = on(&server, &world, words);
        command.env(
            "LOCKKEEPER_SERVERS",
            format!("{scheme}://me:secret@{address}"),
        );
        if is_trusting {
            command.env("LOCKKEEPER_TLS_CA", &ca);
        }
        command
    };
    let (run, all) = (
        ["run", "a", "--", "echo", "in"],
        ["ACL", "SETUSER", "me", "on"],
    );
    let mut cli = Command::new("redis-cli");
    cli.args(["--tls", "--cacert"]).arg(&ca);
    cli.args(["-p", &address.port().to_string()]).args(all);
    let made = cli.args([">secret", "~*", "&*", "+@all"]).output().await;
    assert_eq!(made.unwrap().stdout, b"OK\n");

    let init = finished(&mut tool("rediss", true, &["--require-tls", "init"])).await;
    let ran = finished(&mut tool("rediss", true, &run)).await;

    assert_eq!(init.code, Some(0), "{init:?}");
    assert_eq!((ran.code, &*ran.stdout), (Some(0), "in\n"), "{ran:?}");
    for (mut refused, word) in [
        (tool("rediss", false, &run), "--tls-ca"),
        (tool("redis", true, &run), "rediss://"),
        (
            tool("redis", false, &["--require-tls", "ls"]),
            "TLS is required",
        ),
    ] {
        let ended = finished(&mut refused).await;
        assert_eq!(ended.code, Some(64), "{ended:?}");
        assert!(ended.stderr.contains(word), "{ended:?}");
        assert!(!ended.stderr.contains("secret"), "{ended:?}");
    }
}

/// The tool on the server of this world, in a schema in which nobody was before.
fn on_schema(world: &World, more: &str, words: &[&str]) -> Command {
    let mut command = lockkeeper(world);
    command.env_remove("LOCKKEEPER_ZK").args(words);
    command.env(
        "LOCKKEEPER_SERVERS",
        format!("{}_new{more}", world.connect_string()),
    );
    command
}

#[case(postgres)]
async fn a_new_schema_serves_at_once_after_init(world: World) {
    let began = Instant::now();

    let init = finished(&mut on_schema(&world, "", &["init"])).await;
    let run = ["run", "a", "--", "echo", "done"];
    let ran = finished(&mut on_schema(&world, "", &run)).await;

    assert_eq!(init.code, Some(0), "{init:?}");
    assert!(one_line(&init).ends_with("serves locks"), "{init:?}");
    assert_eq!((ran.code, &*ran.stdout), (Some(0), "done\n"), "{ran:?}");
    assert!(began.elapsed() < Duration::from_secs(20), "nobody waited");
}

#[case(postgres, within = 120)]
async fn an_empty_schema_says_why_it_gives_no_session(world: World) {
    let run = ["run", "a", "--", "echo", "done"];
    let ended = finished(&mut on_schema(&world, "", &run)).await;

    assert_eq!((ended.code, &*ended.stdout), (Some(0), "done\n"));
    let said = one_line(&ended);
    let way_out = said.contains("`lockkeeper init` if it is new");
    assert!(said.contains("gives none for 35s") && way_out, "{said}");
}

#[case(postgres)]
async fn the_doctor_names_settings_of_postgresql(world: World) {
    let weak = "&options=-c%20synchronous_commit=off%20-c%20statement_timeout=3900";
    finished(&mut on_schema(&world, "", &["init"])).await;

    let sound = finished(&mut on_schema(&world, "", &["doctor"])).await;
    let doctor = finished(&mut on_schema(&world, weak, &["doctor"])).await;

    assert_eq!((sound.code, &*sound.stdout), (Some(0), ""), "{sound:?}");
    assert_eq!((doctor.code, &*doctor.stderr), (Some(1), ""), "{doctor:?}");
    for setting in ["synchronous_commit: ", "statement_timeout: "] {
        assert!(doctor.stdout.contains(setting), "{doctor:?}");
    }
}

#[case(postgres, alone, within = 120)]
async fn bench_compares_with_bare_commits_and_leaves_no_table(world: World) {
    let quick = [
        "--rounds",
        "1",
        "--waiters",
        "10",
        "--time",
        "50ms",
        "--json",
    ];
    let ended = outcome(&world, &[&["bench"][..], &quick].concat()).await;

    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
    let result: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    for part in ["uncontended", "independent"] {
        assert!(result[part]["ratio"].as_f64().unwrap() > 0.0, "{result}");
    }
    assert_eq!(result["hand_over"][0]["waiters"], 10, "{result}");
    let left = "SELECT tablename FROM pg_tables WHERE schemaname = '%S' AND tablename ^@ 'bench'";
    assert!(world.postgres().ask(left).await.unwrap().is_empty());
}

#[case(postgres)]
async fn what_only_zookeeper_has_is_refused_on_postgresql(world: World) {
    let server = ["--servers", "postgres://me:secret@127.0.0.1:1/base"];
    for (words, code) in [
        (&["--acl", "open", "ls"][..], 64),
        (&["run", "--ttl", "9s", "a", "--", "true"], 64),
        (&["--connect-timeout", "1s", "ls"], 69),
    ] {
        let ended = outcome(&world, &[&server[..], words].concat()).await;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(!ended.stderr.contains("secret"), "{ended:?}");
    }
}
