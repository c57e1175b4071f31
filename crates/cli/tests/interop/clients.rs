//! Other clients: Curator's recipes and kazoo's own tests on the embedded server, and what each
//! side reads of the other one's tickets.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use lockkeeper::embedded::EmbeddedServer;
use lockkeeper::{Dialect, Keeper, QueueEntry};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use super::tools::{java, kazoo, python};
use testbench::keeper;
use testbench::{World, case, eventually};

/// A JVM has started by then, on a machine that compiles beside it.
const SOON: Duration = Duration::from_secs(40);
/// What our programs print when all of Curator's recipes have worked.
const RECIPES: usize = 27;
/// Which of kazoo's tests do not pass, and why.
const DIFFERENCES: &str = include_str!("kazoo.txt");

async fn output(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = output.await.expect("it starts");
    let (out, err) = (output.stdout, output.stderr);
    let [out, err] = [out, err].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{command:?}: {out}\n{err}");
    out
}

#[case(real, within = 200)]
async fn curators_recipes_work_on_both_servers(world: World) {
    let embedded = EmbeddedServer::start().await.unwrap();
    let all = |server: String| async move {
        let mut command = java("Recipes").await;
        output(command.args([&*server, "all"])).await
    };

    let (there, here) = tokio::join!(all(world.connect_string()), all(embedded.connect_string()));

    for said in [there, here] {
        let lines: Vec<&str> = said.lines().collect();
        let worked = lines.iter().filter(|line| line.starts_with("ok "));
        assert_eq!((worked.count(), lines.len()), (RECIPES, RECIPES), "{said}");
    }
}

/// What a line of the list, or of the report, says of a test: its name, and what became of it.
fn test(line: &str) -> (&str, &str) {
    let mut words = line.splitn(3, ' ');
    let (outcome, name) = (words.next().unwrap(), words.next().unwrap_or_default());
    (name, outcome)
}

/// Runs some of kazoo's own tests; what became of each, and what was said meanwhile. A test that
/// hangs ends all of them, and where each thread stood is said.
async fn kazoos(server: &EmbeddedServer, tests: &[String]) -> (BTreeMap<String, String>, String) {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report");
    let mut command = python();
    command
        .args(["-m", "pytest", "-q", "-p", "kazoo_cluster"])
        .args(["-p", "no:cacheprovider", "--pyargs"])
        .args(["-o", "faulthandler_timeout=100"])
        .args(["-o", "faulthandler_exit_on_timeout=true"])
        .args(tests)
        .current_dir(folder.path())
        .env("LOCKKEEPER_SERVER", server.connect_string())
        .env("LOCKKEEPER_REPORT", &report)
        // Some wait longer there, or ask for a version that only their CI knows.
        .env_remove("CI");
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = output.await.unwrap();
    let [said, threads] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let said = said + &threads;
    let report = std::fs::read_to_string(&report).unwrap_or_else(|error| panic!("{error}: {said}"));
    let outcomes = report.lines().map(test);
    let owned = |(name, outcome): (&str, &str)| (name.to_owned(), outcome.to_owned());
    (outcomes.map(owned).collect(), said + &report)
}

/// A test's name, as it is asked for.
fn identifier(name: &str) -> String {
    format!("kazoo.tests.{}", name.replacen(".py", "", 1))
}

/// Takes those away that are on the list; each line of it must name some.
fn strike_out(outcomes: &mut BTreeMap<String, String>) {
    let listed = DIFFERENCES.lines();
    for line in listed.filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (name, outcome) = test(line);
        let before = outcomes.len();
        // A name may be that of a whole file.
        outcomes.retain(|other, theirs| !(other.starts_with(name) && theirs == outcome));
        assert!(outcomes.len() < before, "no such test {outcome}: {name}");
    }
}

#[case(real, within = 600)]
async fn kazoos_own_tests_pass_on_the_embedded_server_but_for_those_on_the_list(_world: World) {
    let server = EmbeddedServer::start().await.unwrap();

    let (mut outcomes, mut said) = kazoos(&server, &["kazoo.tests".to_owned()]).await;
    let unfinished = outcomes
        .iter()
        .filter(|(_, outcome)| *outcome == "unfinished");
    let unfinished: Vec<String> = unfinished.map(|(name, _)| identifier(name)).collect();
    if !unfinished.is_empty() {
        // Many wait for each other without a limit. One may hang once, and says where.
        println!("a test hangs: {said}");
        let (rest, more) = kazoos(&server, &unfinished).await;
        outcomes.extend(rest);
        said += &more;
    }

    let count = |wanted: &str| {
        outcomes
            .values()
            .filter(|outcome| *outcome == wanted)
            .count()
    };
    let [passed, failed, skipped] = ["passed", "failed", "skipped"].map(count);
    println!(
        "kazoo's own tests on the embedded server: {passed} passed, {failed} failed, {skipped} skipped"
    );
    // Of this version of kazoo: what is skipped by a whole file hides no more than that.
    assert_eq!((outcomes.len(), skipped), (493, 181), "{said}");
    outcomes.retain(|_, outcome| outcome != "passed");
    strike_out(&mut outcomes);
    if outcomes.is_empty() {
        return;
    }
    // Some of them have bounds on time, and the machine may be busy: those are asked once more,
    // without the others.
    let again: Vec<String> = outcomes.keys().map(|name| identifier(name)).collect();
    println!("once more: {again:?}");
    let asked = again.len();
    let (mut outcomes, again) = kazoos(&server, &again).await;
    assert_eq!(outcomes.len(), asked, "{again}");
    outcomes.retain(|_, outcome| outcome != "passed");
    assert!(
        outcomes.is_empty(),
        "not on the list: {outcomes:?}: {said}\n{again}"
    );
}

/// Another program that stands in a queue.
struct Standing {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Standing {
    async fn start(command: &mut Command) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self { child, lines }
    }

    async fn line(&mut self) -> String {
        let line = timeout(SOON, self.lines.next_line()).await;
        line.expect("a line in time").unwrap().expect("a line")
    }

    /// Lets it leave.
    async fn done(mut self) {
        drop(self.child.stdin.take());
        let ended = timeout(SOON, self.child.wait()).await;
        assert!(ended.expect("it ends").unwrap().success());
    }
}

async fn curator(server: &str, words: &[&str]) -> Command {
    let mut command = java("Recipes").await;
    command.arg(server).args(words);
    command
}

async fn queued(keeper: &Keeper, name: &str, count: usize) -> Vec<QueueEntry> {
    let all = || async { keeper.queue(name).await.unwrap().len() == count };
    eventually("all stand in the queue", SOON, all).await;
    keeper.queue(name).await.unwrap()
}

#[case(real, within = 180)]
async fn who_stands_in_a_queue_is_read_on_both_sides(world: World) {
    let (server, keeper) = (world.connect_string(), keeper(&world).await);
    let lock = keeper.mutex("lock").unwrap().with_label("ours");
    let guard = lock.lock().await.unwrap();
    let mut stand = curator(&server, &["stand", "selector", "/locks/lock", "their-id"]).await;
    let mut theirs = Standing::start(&mut stand).await;

    // Both see both, in the order of the queue.
    let queue = queued(&keeper, "lock", 2).await;
    assert_eq!(
        (queue[0].label.as_deref(), queue[0].is_holder),
        (Some("ours"), true)
    );
    assert_eq!(
        (queue[1].value.as_deref(), queue[1].is_holder),
        (Some("their-id"), false)
    );
    assert_eq!((&queue[1].host, queue[1].pid), (&None, None));
    let seen = output(&mut curator(&server, &["list", "mutex", "/locks/lock"]).await).await;
    let nodes: Vec<String> = queue
        .iter()
        .map(|entry| format!("/locks/lock/{}", entry.node))
        .collect();
    assert_eq!(seen.lines().collect::<Vec<_>>(), nodes);
    let seen = output(&mut curator(&server, &["list", "selector", "/locks/lock"]).await).await;
    let [first, second] = seen.lines().collect::<Vec<_>>()[..] else {
        panic!("two stand: {seen}");
    };
    assert!(
        first.starts_with("leader {") && first.contains(r#""label":"ours""#),
        "{seen}"
    );
    assert_eq!(second, "waits their-id");
    guard.release().await.unwrap();
    assert_eq!(theirs.line().await, "in");
    theirs.done().await;

    let election = keeper.election("election").unwrap();
    let mut stand = curator(&server, &["stand", "latch", "/locks/election", "their-id"]).await;
    let mut theirs = Standing::start(&mut stand).await;
    assert_eq!(theirs.line().await, "in");
    let standing = tokio::spawn({
        let election = election.clone();
        async move { election.campaign("our-value").await.unwrap() }
    });
    let queue = queued(&keeper, "election", 2).await;
    let values: Vec<_> = queue.iter().map(|entry| entry.value.as_deref()).collect();
    assert_eq!(values, [Some("their-id"), Some("our-value")]);
    assert_eq!(election.leader().await.unwrap().unwrap().value, "their-id");
    let seen = output(&mut curator(&server, &["list", "latch", "/locks/election"]).await).await;
    let [first, second] = seen.lines().collect::<Vec<_>>()[..] else {
        panic!("two stand: {seen}");
    };
    assert_eq!(first, "leader their-id");
    assert!(
        second.starts_with("waits {") && second.contains(r#""value":"our-value""#),
        "{seen}"
    );
    theirs.done().await;
    let leading = timeout(SOON, standing).await.unwrap().unwrap();
    leading.resign().await.unwrap();
}

#[case(real, within = 180)]
async fn who_stands_in_kazoos_queue_is_read_on_both_sides(world: World) {
    let server = world.connect_string();
    let builder = Keeper::builder(&server).dialect(Dialect::Kazoo);
    let keeper = builder.connect().await.unwrap();
    let guard = keeper
        .mutex("lock")
        .unwrap()
        .with_label("ours")
        .lock()
        .await
        .unwrap();
    let mut theirs =
        Standing::start(kazoo("standing.py").args([&server, "stand", "/locks/lock", "their-id"]))
            .await;

    let queue = queued(&keeper, "lock", 2).await;
    assert_eq!(
        (queue[0].label.as_deref(), queue[0].is_holder),
        (Some("ours"), true)
    );
    assert_eq!(
        (queue[1].value.as_deref(), queue[1].is_holder),
        (Some("their-id"), false)
    );
    let seen = output(kazoo("standing.py").args([&server, "list", "/locks/lock"])).await;
    let [first, second] = seen.lines().collect::<Vec<_>>()[..] else {
        panic!("two stand: {seen}");
    };
    assert!(first.contains(r#""label":"ours""#), "{seen}");
    assert_eq!(second, "their-id");
    guard.release().await.unwrap();
    assert_eq!(theirs.line().await, "in");
    theirs.done().await;
}

#[case(real, within = 180)]
async fn each_asks_the_other_one_for_its_lock(world: World) {
    let (server, keeper) = (world.connect_string(), keeper(&world).await);
    let lock = keeper.mutex("asked").unwrap();
    let guard = lock.lock().await.unwrap();
    let node = format!("/locks/asked/{}", guard.node());
    let mut stand = curator(&server, &["stand", "revocable", "/locks/asked", "-"]).await;
    let mut theirs = Standing::start(&mut stand).await;
    queued(&keeper, "asked", 2).await;

    // Curator asks us.
    let mut asking = curator(&server, &["revoke", &node]).await;
    let (_, heard) = tokio::join!(output(&mut asking), timeout(SOON, guard.revoked()));
    heard.expect("in time").unwrap();
    guard.release().await.unwrap();
    assert_eq!(theirs.line().await, "in");

    // We ask Curator.
    let queue = keeper.queue("asked").await.unwrap();
    assert!(keeper.revoke("asked", &queue[0], SOON).await.unwrap());
    assert_eq!(theirs.line().await, "asked");
    theirs.done().await;
}
