//! What a command sees of its plain lock, and when it does not run.

use std::sync::Arc;

use crate::bed::Bed;
use crate::tool::{finished, lockkeeper, run};

crate::cases![
    the_command_sees_its_lock_and_its_code_is_passed_on,
    a_held_lock_is_not_granted_in_time,
    a_ttl_that_the_store_cannot_count_is_wrong_usage,
    an_owner_runs_again_within_its_command_where_the_kind_is_reentrant,
    no_password_is_shown,
];

async fn the_command_sees_its_lock_and_its_code_is_passed_on(bed: Arc<Bed>, name: String) {
    let url = bed.url().await;
    let script = "echo $LOCKKEEPER_NAME; echo ${LOCKKEEPER_NODE-none}; echo ${LOCKKEEPER_TOKEN-none}; \
                  echo ${LOCKKEEPER_SERVERS-none}; exit 7";
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let mut command = run(&url, &["--unset-auth"], &name, script);
        // As of a lock around this one.
        command
            .env("LOCKKEEPER_NODE", "lock-0000000001")
            .env("LOCKKEEPER_TOKEN", "1");
        let ended = finished(&mut command).await;
        let lines: Vec<&str> = ended.stdout.lines().collect();

        assert_eq!((ended.code, &*ended.stderr), (Some(7), ""), "{ended:?}");
        assert_eq!([lines[0], lines[1], lines[3]], [&*name, "none", "none"]);
        tokens.push(lines[2].parse::<u64>().ok());
        let guard = bed.lock(&name).await.try_lock().await.unwrap();
        guard.expect("it is free").release().await.unwrap();
    }
    let has_token = bed.keeper().await.store().capabilities().has_token;
    let rises = matches!(tokens[..], [Some(a), Some(b)] if a < b);
    assert_eq!(rises, has_token, "{tokens:?}");
    assert!(has_token || tokens == [None, None], "{tokens:?}");
}

async fn a_held_lock_is_not_granted_in_time(bed: Arc<Bed>, name: String) {
    let url = bed.url().await;
    let guard = bed.lock(&name).await.lock().await.unwrap();
    for options in [&["--no-wait"] as &[&str], &["--wait", "300ms"]] {
        let ended = finished(&mut run(&url, options, &name, "echo ran")).await;
        assert_eq!((ended.code, &*ended.stdout), (Some(75), ""), "{ended:?}");
        assert!(ended.stderr.contains(&name), "{ended:?}");
    }
    guard.check().await.unwrap();
    let mut waiting = run(&url, &["--wait", "60s"], &name, "echo ran");
    let waiting = tokio::spawn(async move { finished(&mut waiting).await });
    guard.release().await.unwrap();
    let ended = waiting.await.unwrap();
    assert_eq!(ended.stdout, "ran\n", "{ended:?}");
    let next = bed.lock(&name).await.try_lock().await.unwrap();
    next.expect("it is free").release().await.unwrap();
}

async fn a_ttl_that_the_store_cannot_count_is_wrong_usage(bed: Arc<Bed>, name: String) {
    let url = bed.url().await;
    for ttl in ["1us", "25h"] {
        let ended = finished(&mut run(&url, &["--ttl", ttl], &name, "echo ran")).await;
        assert_eq!((ended.code, &*ended.stdout), (Some(64), ""), "{ended:?}");
        assert!(ended.stderr.contains("ttl"), "{ended:?}");
    }
}

async fn an_owner_runs_again_within_its_command_where_the_kind_is_reentrant(
    bed: Arc<Bed>,
    name: String,
) {
    let url = bed.url().await;
    let again = format!("{} run --no-wait --owner", env!("CARGO_BIN_EXE_lockkeeper"));
    let script = format!("{again} me {name} -- echo me; {again} you {name} -- echo you");
    let ended = finished(&mut run(&url, &["--owner", "me"], &name, &script)).await;
    if bed.keeper().await.store().capabilities().is_reentrant {
        assert_eq!(
            (ended.code, &*ended.stdout),
            (Some(75), "me\n"),
            "{ended:?}"
        );
    } else {
        assert_eq!((ended.code, &*ended.stdout), (Some(64), ""), "{ended:?}");
        assert!(ended.stderr.contains("is not reentrant"), "{ended:?}");
    }
}

async fn no_password_is_shown(bed: Arc<Bed>, name: String) {
    // Where nobody listens.
    let servers = match bed.kind {
        "redis+redlock" => "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
        kind if kind.starts_with("redis") || kind.starts_with("memcached") => "127.0.0.1:1",
        _ => "127.0.0.1:1/db",
    };
    let url = format!("{}://me:hunter2@{servers}", bed.kind);
    for (words, codes) in [
        (&["run", "--connect-timeout", "0s"] as &[&str], [69, 64]),
        (&["run", "--connect-timeout", "700ms"], [69, 64]),
        (&["run", "--shared"], [64, 64]),
        (&["run", "--help"], [0, 0]),
        (&["elect"], [64, 64]),
    ] {
        let mut command = lockkeeper(&url);
        command.env("RUST_LOG", "trace").args(words);
        let ended = finished(command.args([&*name, "--", "true"])).await;

        let text = format!("{words:?}: {ended:?}");
        assert!(!text.contains("hunter2"), "{text}");
        // memcached has no users without a server that asks for one, and says so.
        assert!(
            ended.code.is_some_and(|code| codes.contains(&code)),
            "{text}"
        );
    }
}
