//! Options, variables and files: which one wins, what is refused, and what help says of them.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use super::{Holder, one_line, outcome};
use crate::tool::{Finished, finished, lockkeeper};
use testbench::{World, case};

/// A folder with a file of settings, which only its owner may read.
struct File(TempDir);

impl File {
    fn with(text: &str) -> Self {
        let file = Self(TempDir::new().unwrap());
        fs::create_dir(file.0.path().join("lockkeeper")).unwrap();
        fs::write(file.path(), text).unwrap();
        file.allow(0o600);
        file
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("lockkeeper/lockkeeper.toml")
    }

    fn allow(&self, mode: u32) {
        fs::set_permissions(self.path(), Permissions::from_mode(mode)).unwrap();
    }

    /// The tool where this is the file of its user, and no variable names servers.
    fn tool(&self, world: &World, words: &[&str]) -> Command {
        let mut command = lockkeeper(world);
        command
            .env_remove("LOCKKEEPER_ZK")
            .env_remove("LOCKKEEPER_CONFIG")
            .env("XDG_CONFIG_HOME", self.0.path())
            .args(words);
        command
    }
}

/// What `config --json` says, by option.
async fn in_force(command: &mut Command) -> BTreeMap<String, Value> {
    let ended = finished(command).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let said: Value = serde_json::from_str(&ended.stdout).unwrap();
    let options = said["options"].as_array().unwrap().iter();
    let named = |option: &Value| {
        (
            option["option"].as_str().unwrap().to_owned(),
            option.clone(),
        )
    };
    options.map(named).collect()
}

#[case]
async fn a_file_stands_below_a_variable_and_that_below_an_option(world: World) {
    let file = File::with("root = \"/of-file\"\n\nconnect_timeout = \"7s\"\nrequire_tls = true\n");
    let config = ["config", "--json"];

    let of_file = in_force(&mut file.tool(&world, &config)).await;
    let mut with_variable = file.tool(&world, &config);
    with_variable.env("LOCKKEEPER_ROOT", "/of-variable");
    with_variable.env("LOCKKEEPER_REQUIRE_TLS", "0");
    let of_variable = in_force(&mut with_variable).await;
    let of_option = in_force(with_variable.args(["--root", "/of-option"])).await;

    let from = |said: &BTreeMap<String, Value>, option: &str, key: &str| said[option][key].clone();
    assert_eq!(from(&of_file, "root", "value"), "/of-file");
    assert_eq!(from(&of_file, "root", "line"), 1);
    assert_eq!(
        from(&of_file, "root", "file"),
        file.path().to_str().unwrap()
    );
    assert_eq!(from(&of_file, "connect_timeout", "line"), 3);
    assert_eq!(from(&of_file, "require_tls", "value"), "true");
    assert_eq!(from(&of_file, "read_timeout", "from"), "default");
    assert_eq!(from(&of_file, "read_timeout", "value"), "30s");
    assert_eq!(from(&of_variable, "root", "value"), "/of-variable");
    assert_eq!(from(&of_variable, "root", "variable"), "LOCKKEEPER_ROOT");
    assert_eq!(from(&of_variable, "require_tls", "value"), "false");
    assert_eq!(from(&of_option, "root", "value"), "/of-option");
    assert_eq!(from(&of_option, "root", "from"), "option");
}

#[case]
async fn locks_are_where_a_file_says(world: World) {
    let servers = format!(
        "servers = \"{}\"\nroot = \"/of-file\"\n",
        world.connect_string()
    );
    let file = File::with(&servers);
    let mut run = file.tool(
        &world,
        &["run", "a", "--", "sh", "-c", "echo ready; read line"],
    );
    let holder = Holder::start(run.stdin(std::process::Stdio::piped())).await;

    let there = finished(&mut file.tool(&world, &["ls", "--json"])).await;
    let elsewhere = outcome(&world, &["ls", "--json"]).await;
    let mut named = lockkeeper(&world);
    named
        .env("LOCKKEEPER_CONFIG", file.path())
        .args(["ls", "--json"]);
    let named = finished(&mut named).await;

    assert!(there.stdout.contains(r#""name":"a""#), "{there:?}");
    assert_eq!(named.stdout, there.stdout);
    assert_eq!(elsewhere.stdout, "[]\n", "{elsewhere:?}");
    holder.done().await;
}

#[case]
async fn a_wrong_file_ends_with_64_and_one_line_that_names_it(world: World) {
    for (text, says) in [
        (
            "# of ours\nsesion_timeout = \"9s\"\n",
            "line 2: there is no setting sesion_timeout",
        ),
        ("root = 7\n", "line 1: root is a text"),
        ("tick = \"often\"\n", "line 1: tick is refused"),
        ("root = \n", "line 1: "),
    ] {
        let file = File::with(text);

        let ended = finished(&mut file.tool(&world, &["ls"])).await;

        assert_eq!(ended.code, Some(64), "{ended:?}");
        let line = one_line(&ended);
        let named = line.contains(file.path().to_str().unwrap());
        assert!(named && line.contains(says), "{line}");
    }
    for name in ["/no/such/file", "/"] {
        let ended = outcome(&world, &["--config", name, "ls"]).await;

        assert_eq!(ended.code, Some(64), "{ended:?}");
        let line = one_line(&ended);
        assert!(line.contains(name) && line.contains("--config"), "{line}");
    }
}

#[case]
async fn a_secret_in_a_file_that_everybody_may_read_is_said(world: World) {
    for (text, mode, is_said) in [
        ("auth = \"digest:me:97531\"\n", 0o644, true),
        (
            "servers = \"redis+setnx://me:97531@127.0.0.1\"\n",
            0o644,
            true,
        ),
        ("auth = \"digest:me:97531\"\n", 0o640, false),
        ("root = \"/a\"\n", 0o644, false),
    ] {
        let file = File::with(text);
        file.allow(mode);

        let ended = finished(&mut file.tool(&world, &["config"])).await;

        assert_eq!(ended.code, Some(0), "{ended:?}");
        let said = ended
            .stderr
            .contains("every user of this machine can read the secret in");
        assert_eq!(said, is_said, "{mode:o}: {ended:?}");
        assert!(!ended.stdout.contains("97531"), "{ended:?}");
    }
}

#[case]
async fn config_shows_no_secret(world: World) {
    let mut tool = lockkeeper(&world);
    tool.env_remove("LOCKKEEPER_ZK")
        .env(
            "LOCKKEEPER_SERVERS",
            "redis://me:97531@a:1/2?sentinel_password=97531",
        )
        .env("LOCKKEEPER_AUTH", "digest:me:97531")
        .env("LOCKKEEPER_ACL", "digest:me:97531=:cdrwa")
        .args(["config", "--json"]);

    let said = in_force(&mut tool).await;
    let table = finished(tool.env("LOCKKEEPER_SERVERS", "redis+setnx://me:97531@a")).await;

    assert_eq!(said["servers"]["value"], "redis://a:1/2");
    assert_eq!(said["auth"]["value"], "digest:***");
    let all = format!("{said:?}{table:?}");
    assert!(!all.contains("97531"), "{all}");
}

#[case]
async fn a_file_for_zookeeper_does_not_keep_others_from_a_plain_lock(world: World) {
    let file = File::with("servers = \"zk1\"\nsession_timeout = \"20s\"\nacl = \"open\"\n");
    let plain = "redis+setnx://127.0.0.1:1";
    let run = [
        "--connect-timeout",
        "0s",
        "--servers",
        plain,
        "run",
        "a",
        "--",
        "true",
    ];

    let ran = finished(&mut file.tool(&world, &run)).await;
    let config = finished(&mut file.tool(&world, &["config", "--servers", plain])).await;
    let beside = File::with(&format!("acl = \"open\"\nservers = \"{plain}\"\n"));
    let beside = finished(&mut beside.tool(&world, &["run", "a", "--", "true"])).await;

    assert_eq!(ran.code, Some(69), "only the server is missing: {ran:?}");
    let left_out = config.stdout.matches("is left out: ").count();
    assert_eq!(left_out, 2, "{config:?}");
    assert_eq!(beside.code, Some(64), "{beside:?}");
    assert!(
        beside
            .stderr
            .contains("lockkeeper.toml, line 1) is not for redis+setnx"),
        "{beside:?}"
    );
}

#[case]
async fn a_root_that_does_not_exist_is_said(world: World) {
    for (order, code) in [
        (&["queue", "a"][..], 0),
        (&["ls"], 0),
        (&["why", "a"], 0),
        (&["leader", "a"], 0),
        (&["journal", "a"], 0),
        (&["doctor"], 1),
        (&["break", "--yes", "a"], 1),
        (&["resize", "a", "3"], 64),
    ] {
        let lost = outcome(&world, &[&["--root", "/lokcs"][..], order].concat()).await;
        let new = outcome(&world, order).await;

        assert_eq!(lost.code, Some(code), "{lost:?}");
        let said = format!("{}{}", lost.stdout, lost.stderr);
        assert!(said.contains("/lokcs does not exist on ") && said.contains("is --root right?"));
        assert!(!said.contains("nobody"), "{said}");
        // Nobody has taken a lock below the default root either. To look there is no error.
        let is_look = !["break", "resize"].contains(&order[0]);
        assert_eq!(new.code, Some(if is_look { 0 } else { code }), "{new:?}");
        assert!(!format!("{new:?}").contains("is --root right?"), "{new:?}");
    }
    let queue = outcome(&world, &["--root", "/lokcs", "queue", "a", "--json"]).await;
    assert_eq!(queue.stdout, "[]\n");
}

#[case(zookeeper, why = "a chroot")]
async fn a_chroot_is_made_with_create_chroot(world: World) {
    let servers = format!("{}/team/app", world.connect_string());
    let words = ["--servers", &servers, "run", "a", "--", "echo", "in"];

    let missing = outcome(&world, &words).await;
    let made = outcome(&world, &[&["--create-chroot"][..], &words].concat()).await;
    let again = outcome(&world, &words).await;

    assert_eq!(missing.code, Some(69), "{missing:?}");
    assert!(
        one_line(&missing).contains("--create-chroot"),
        "{missing:?}"
    );
    for ran in [made, again] {
        assert_eq!((ran.code, &*ran.stdout), (Some(0), "in\n"), "{ran:?}");
    }
}

#[case(zookeeper, why = "a user of another store may write everywhere")]
async fn a_chroot_that_may_not_be_made_ends_with_77(world: World) {
    let stranger = world.zookeeper().await;
    let read_only = [zookeeper_client::Acl::new(
        zookeeper_client::Permission::READ,
        zookeeper_client::AuthId::anyone(),
    )];
    let options = zookeeper_client::CreateMode::Persistent
        .with_acls(zookeeper_client::Acls::from(&read_only[..]));
    stranger.create("/closed", b"", &options).await.unwrap();
    let servers = format!("{}/closed/app", world.connect_string());

    let ended = outcome(&world, &["--servers", &servers, "--create-chroot", "ls"]).await;

    assert_eq!(ended.code, Some(77), "{ended:?}");
    assert!(one_line(&ended).contains("/closed/app on "), "{ended:?}");
}

#[case]
async fn an_option_stands_before_its_order_and_behind_it_and_nowhere_else(world: World) {
    for words in [
        ["--json", "--root", "/a", "ls"],
        ["ls", "--json", "--root", "/a"],
    ] {
        let ended = outcome(&world, &words).await;
        assert_eq!((ended.code, &*ended.stdout), (Some(0), "[]\n"), "{ended:?}");
    }
    for words in [
        &["--root", "/a", "serve"][..],
        &["serve", "--servers", "a"],
        &["--zk", "a", "man"],
        &["completions", "bash", "--json"],
        &["run", "--json", "a", "--", "true"],
        &["--read-timeout", "1s", "run", "a", "--", "true"],
        &["help", "--tick", "1s"],
    ] {
        let ended = outcome(&world, words).await;
        assert_eq!((ended.code, &*ended.stdout), (Some(64), ""), "{ended:?}");
        assert!(ended.stderr.contains("unexpected argument"), "{ended:?}");
    }
    // A variable is for the orders that have its option, and no concern of the others.
    let mut man = lockkeeper(&world);
    let man = finished(man.env("LOCKKEEPER_TICK", "often").arg("man")).await;
    assert_eq!(man.code, Some(0), "{man:?}");
}

#[case]
async fn short_help_has_a_line_for_each_option(world: World) {
    for order in ["run", "queue", "doctor", "config"] {
        let short = outcome(&world, &[order, "-h"]).await;
        let long = outcome(&world, &[order, "--help"]).await;

        assert!(!short.stdout.contains("[env: "), "{short:?}");
        assert!(
            long.stdout.contains("[env: LOCKKEEPER_SERVERS]"),
            "{long:?}"
        );
        let headings = ["Options:", "Server:", "TLS:", "Access:", "Time:"];
        let places = headings.map(|heading| short.stdout.find(&format!("\n{heading}\n")).unwrap());
        assert!(places.is_sorted(), "{short:?}");
        let server = &short.stdout[places[1]..];
        let options = server.lines().filter(|line| line.starts_with("      --"));
        for option in options {
            assert!(option.chars().count() <= 130, "{option}");
        }
    }
}

#[case]
async fn help_explains_commands_and_topics(world: World) {
    let said = async |words: &[&str]| {
        let ended = outcome(&world, words).await;
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
        ended.stdout
    };

    assert_eq!(said(&["help"]).await, said(&["--help"]).await);
    assert_eq!(said(&["help", "run"]).await, said(&["run", "--help"]).await);
    assert!(said(&["help", "locks"]).await.contains("--permits 1/4"));
    assert!(
        said(&["help", "exit-codes"])
            .await
            .contains("75  not granted")
    );
    let environment = said(&["help", "environment"]).await;
    for variable in ["LOCKKEEPER_NO_STRICT_ACL", "LOCKKEEPER_TOKEN", "RUST_LOG"] {
        assert!(environment.contains(variable), "{environment}");
    }
    let nothing = outcome(&world, &["help", "locsk"]).await;
    assert_eq!(nothing.code, Some(64), "{nothing:?}");
    assert!(one_line(&nothing).contains("run, queue, "), "{nothing:?}");
}

#[case]
async fn usage_names_no_option_that_has_a_value_already(world: World) {
    let mut without_a_name = lockkeeper(&world);
    without_a_name
        .env("LOCKKEEPER_TICK", "2s")
        .args(["run", "--root", "/a"]);

    let ended: Finished = finished(&mut without_a_name).await;

    assert_eq!(ended.code, Some(64), "{ended:?}");
    let usage = ended
        .stderr
        .lines()
        .find_map(|line| line.strip_prefix("Usage: "));
    let usage = usage.unwrap_or_else(|| panic!("{ended:?}"));
    assert!(
        usage.starts_with("lockkeeper run [OPTIONS] NAME CMD"),
        "{usage}"
    );
    assert!(
        !usage.contains("--zk") && !usage.contains("--tick"),
        "{usage}"
    );
}
