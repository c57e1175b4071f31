//! Credentials and access lists on the command line.

use std::process::Stdio;

use super::{Holder, one_line, run};
use crate::support::World;
use crate::support::process::{finished, lockkeeper};

cases! {
    feature: "cli";
    both:
        a_credential_of_the_environment_keeps_others_out,
        a_credential_of_a_file_is_the_same,
        a_credential_that_is_none_ends_with_64_and_is_not_shown;
}

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
