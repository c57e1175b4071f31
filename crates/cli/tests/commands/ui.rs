//! `ui`: what it serves, whom it lets in, and what it costs the servers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::Child;
use tokio::time::{Instant, timeout};

use super::doctor::holder;
use super::{Holder, one_line, outcome, queued, run};
use crate::tool::{finished, lockkeeper};
use testbench::{World, case, eventually};

const SOON: Duration = Duration::from_secs(30);
const TOKEN: &str = "0123456789abcdef";
const WORD: &str = "x-lockkeeper-token";

/// A server of the page, as a process.
struct Ui {
    address: SocketAddr,
    _tool: Child,
}

/// What it answers.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Ui {
    async fn start(world: &World, words: &[&str]) -> Self {
        let mut command = lockkeeper(world);
        command.args(["--json", "ui", "--listen", "127.0.0.1:0"]);
        let mut tool = command.args(words).spawn().unwrap();
        let mut lines = BufReader::new(tool.stdout.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap().expect("it listens");
        let line: Value = serde_json::from_str(&line).unwrap();
        Self {
            address: line["listen"].as_str().unwrap().parse().unwrap(),
            _tool: tool,
        }
    }

    /// Sends a request with these lines of a head, and a body.
    async fn ask(&self, request: &str, head: &[(&str, &str)], body: &str) -> Answer {
        let (mut stream, headers) = self.open(request, head, body).await;
        let status = headers[""].split(' ').nth(1).unwrap().parse().unwrap();
        let length = headers.get("content-length").map(|it| it.parse().unwrap());
        let mut bytes = vec![0; length.unwrap_or_default()];
        stream.read_exact(&mut bytes).await.unwrap();
        let body = String::from_utf8(bytes).unwrap();
        Answer {
            status,
            headers,
            body,
        }
    }

    /// The same up to the body. The status line has no name.
    async fn open(
        &self,
        request: &str,
        head: &[(&str, &str)],
        body: &str,
    ) -> (BufReader<TcpStream>, BTreeMap<String, String>) {
        let mut text = format!("{request} HTTP/1.1\r\ncontent-length: {}\r\n", body.len());
        if !head.iter().any(|(name, _)| *name == "host") {
            text += &format!("host: {}\r\n", self.address);
        }
        for (name, value) in head {
            text += &format!("{name}: {value}\r\n");
        }
        text += &format!("\r\n{body}");
        let mut stream = BufReader::new(TcpStream::connect(self.address).await.unwrap());
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await.unwrap();
            match line.trim_end().split_once(": ") {
                _ if line.trim_end().is_empty() => return (stream, headers),
                Some((name, value)) => headers.insert(name.to_lowercase(), value.to_owned()),
                None => headers.insert(String::new(), line.trim_end().to_owned()),
            };
        }
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path}"), &[], "").await
    }

    /// What a path answers, when it is as it should be.
    async fn eventually<T>(&self, path: &str, is: impl Fn(&Value) -> Option<T>) -> T {
        let ask = || async {
            let answer = self.get(path).await;
            (answer.status == 200).then(|| is(&answer.json())).flatten()
        };
        eventually(path, SOON, ask).await
    }

    /// A page that is open.
    async fn viewer(&self, query: &str) -> Viewer {
        let path = format!("GET /api/events{query}");
        let (stream, headers) = self.open(&path, &[], "").await;
        assert_eq!(headers[""], "HTTP/1.1 200 OK");
        Viewer(stream.lines())
    }

    async fn csrf(&self) -> String {
        let about = self.get("/api/about").await.json();
        about["token"].as_str().unwrap().to_owned()
    }

    /// Orders a removal, with these lines of a head.
    async fn remove(&self, entry: &Value, head: &[(&str, &str)]) -> Answer {
        let order = json!({
            "name": "wanted",
            "node": entry["node"],
            "token": entry["token"],
            "grace_ms": 10_000,
        });
        let head = [&[("content-type", "application/json")], head].concat();
        self.ask("POST /api/break", &head, &order.to_string()).await
    }
}

struct Viewer(Lines<BufReader<TcpStream>>);

impl Viewer {
    /// The next event.
    async fn next(&mut self) -> Value {
        loop {
            let line = self.0.next_line().await.unwrap().expect("it goes on");
            if let Some(data) = line.strip_prefix("data: ") {
                return serde_json::from_str(data).unwrap();
            }
        }
    }

    /// The first event that is as it should be.
    async fn until(&mut self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + SOON;
        loop {
            let event = self.next().await;
            if is(&event) {
                return event;
            }
            assert!(Instant::now() < deadline, "{what}: {event}");
        }
    }
}

fn row(name: &str) -> impl Fn(&Value) -> Option<Value> {
    move |answer| {
        let rows = answer["locks"].as_array()?;
        rows.iter().find(|row| row["name"] == name).cloned()
    }
}

#[case]
async fn ui_shows_what_ls_queue_and_journal_show_as_json(world: World) {
    let holder = holder(&world, &["--journal", "9", "--owner", "txn-7", "orders/42"]).await;
    let mut waiting = run(&world, "orders/42", "true").spawn().unwrap();
    queued(&world, "orders/42", 2).await;
    let ui = Ui::start(&world, &[]).await;

    let row = ui.eventually("/api/locks", row("orders/42")).await;
    let journal = "/api/journal?name=orders/42";
    let is_written = |answer: &Value| answer["entries"].get(0).cloned();
    let hold = ui.eventually(journal, is_written).await;
    let queue = ui.get("/api/queue?name=orders/42").await.json();
    let sessions = ui.get("/api/sessions").await.json();
    let waits = ui.get("/api/waits").await.json();

    let printed = outcome(&world, &["queue", "orders/42", "--json"]).await;
    let mut printed: Value = serde_json::from_str(&printed.stdout).unwrap();
    // The page does not read limits of semaphores.
    for entry in printed.as_array_mut().unwrap() {
        for own in ["limit", "permits_left"] {
            assert_eq!(
                entry.as_object_mut().unwrap().remove(own),
                Some(Value::Null)
            );
        }
    }
    assert_eq!(queue["entries"], printed);
    assert_eq!(
        (&queue["holders"], &queue["waiting"]),
        (&1.into(), &1.into())
    );
    assert_eq!((&row["kind"], &row["waiting"]), (&"lock".into(), &1.into()));
    assert_eq!(row["holder"], printed[0]);
    assert_eq!(
        (&hold["holds"], &hold["owner"]),
        (&true.into(), &"txn-7".into())
    );
    assert_eq!(sessions["all"], 2);
    assert_eq!(sessions["sessions"][0]["holds"], json!(["orders/42"]));
    assert_eq!(sessions["sessions"][1]["waits"], json!(["orders/42"]));
    let root = &waits["trees"][0];
    assert_eq!(
        (&root["owner"], &root["blocked"]),
        (&"txn-7".into(), &1.into())
    );
    assert_eq!(root["holds"][0]["waiters"][0]["pid"], waiting.id().unwrap());
    holder.done().await;
    assert!(waiting.wait().await.unwrap().success());
}

#[case]
async fn a_page_hears_once_of_what_comes_changes_and_goes(world: World) {
    let ui = Ui::start(&world, &[]).await;
    let mut page = ui.viewer("?lock=seen").await;
    let first = page.next().await;
    assert_eq!(
        (&first["whole"], &first["changed"]),
        (&true.into(), &json!([]))
    );

    let holder = Holder::of(&world, "seen").await;
    let names = |event: &Value| event["changed"][0]["name"] == "seen";
    let came = page.until("it comes", names).await;
    assert_eq!(came["whole"], false);
    assert_eq!(came["changed"][0]["holder"]["label"], "sh");
    assert!(came["lock"].is_u64(), "{came}");
    let next = page.next().await;
    assert_eq!(next["changed"], json!([]), "it is told once");
    holder.done().await;
    page.until("it goes", |event| event["gone"] == json!(["seen"]))
        .await;
}

#[case]
async fn a_deadlock_is_found_and_marked_in_both_locks(world: World) {
    let one = holder(&world, &["--owner", "txn-1", "a"]).await;
    let other = holder(&world, &["--owner", "txn-2", "b"]).await;
    let mut waits = Vec::new();
    for (owner, name) in [("txn-1", "b"), ("txn-2", "a")] {
        let words = ["run", "--owner", owner, name, "--", "true"];
        waits.push(lockkeeper(&world).args(words).spawn().unwrap());
        queued(&world, name, 2).await;
    }
    let ui = Ui::start(&world, &[]).await;

    let is_found = |answer: &Value| {
        let circle = answer["deadlocks"].get(0)?.as_array()?;
        Some(
            circle
                .iter()
                .map(|step| step["who"].clone())
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(
        ui.eventually("/api/waits", is_found).await,
        ["txn-1", "txn-2"]
    );
    let rows = ui.get("/api/locks").await.json();
    assert_eq!(rows["locks"][0]["deadlock"], true);
    assert_eq!(rows["locks"][1]["deadlock"], true);
    let is_told = |answer: &Value| {
        let mut findings = answer["findings"].as_array()?.iter();
        findings
            .find(|finding| finding["finding"] == "deadlock")
            .cloned()
    };
    let finding = ui.eventually("/api/doctor", is_told).await;
    assert_eq!(finding["locks"], json!(["a", "b"]));
    drop(waits);
    one.done().await;
    other.done().await;
}

#[case(embedded)]
async fn nothing_is_loaded_from_elsewhere_and_nothing_else_runs(world: World) {
    let ui = Ui::start(&world, &[]).await;

    let page = ui.get("/").await;
    let missing = ui.get("/api/nothing").await;

    for answer in [&page, &missing, &ui.get("/main.js").await] {
        let rules = &answer.headers["content-security-policy"];
        for rule in [
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
        ] {
            assert!(rules.contains(rule), "{rules}");
        }
        assert!(!rules.contains("unsafe"), "{rules}");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
    }
    assert_eq!((page.status, missing.status), (200, 404));
    assert!(!page.body.contains("://"), "{}", page.body);
    let scripts = page.body.matches("<script").count();
    let files = page.body.matches("<script type=\"module\" src=\"/").count();
    assert_eq!((scripts, files), (1, 1), "no script stands in the page");
    assert!(!page.body.contains("style=") && !page.body.contains("<style"));
}

#[case(embedded)]
async fn a_name_that_only_leads_here_is_refused(world: World) {
    let ui = Ui::start(&world, &["--host", "locks.example.com"]).await;

    for (host, status) in [
        ("evil.example", 403),
        ("localhost.evil.example:80", 403),
        ("localhost:7411", 200),
        ("locks.example.com", 200),
    ] {
        let answer = ui.ask("GET /api/locks", &[("host", host)], "").await;
        assert_eq!(answer.status, status, "{host}: {answer:?}");
    }
    let other = Ui::start(&world, &[]).await;
    let head = [("host", "locks.example.com")];
    let refused = other.ask("GET /", &head, "").await;
    assert_eq!(refused.status, 403);
    assert!(refused.body.contains("--host"), "{refused:?}");
}

#[case(embedded)]
async fn ui_beyond_this_machine_needs_a_token_or_a_proxy(world: World) {
    let folder = TempDir::new().unwrap();
    let short = folder.path().join("short");
    std::fs::write(&short, "secret\n").unwrap();
    let short = short.to_str().unwrap();

    for listen in ["0.0.0.0:0", "[::]:0"] {
        let refused = outcome(&world, &["ui", "--listen", listen]).await;
        assert_eq!(refused.code, Some(64), "{refused:?}");
        assert!(one_line(&refused).contains("--token-file"), "{refused:?}");
    }
    let weak = outcome(&world, &["ui", "--token-file", short]).await;
    assert_eq!(weak.code, Some(64));
    assert!(weak.stderr.contains("16 characters"), "{weak:?}");
    let mut both = lockkeeper(&world);
    both.args(["ui", "--token-file", short, "--proxy-header", "x-user"]);
    assert_eq!(finished(&mut both).await.code, Some(64));
}

#[case(embedded)]
async fn only_those_who_know_the_token_come_in(world: World) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
    let words = ["--token-file", file.to_str().unwrap(), "--metrics", "*"];
    let ui = Ui::start(&world, &words).await;
    let bearer = format!("Bearer {TOKEN}");

    for path in [
        "/api/locks",
        "/api/about",
        "/api/events",
        "/metrics",
        "/api/nothing",
    ] {
        let request = format!("GET {path}");
        let stranger = ui.ask(&request, &[], "").await;
        let wrong = ui.ask(
            &request,
            &[("authorization", "Bearer 0123456789abcdee")],
            "",
        );
        assert_eq!((stranger.status, wrong.await.status), (401, 401), "{path}");
    }
    let known = ui
        .ask("GET /api/locks", &[("authorization", &bearer)], "")
        .await;
    assert_eq!(known.status, 200);
    let login = ui.get("/").await;
    assert!(login.body.contains("action=\"/login\""), "{login:?}");
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let wrong = ui.ask("POST /login", &form, "token=guess").await;
    assert!(!wrong.headers.contains_key("set-cookie"), "{wrong:?}");
    let right = ui
        .ask("POST /login", &form, &format!("token={TOKEN}"))
        .await;
    let cookie = right.headers["set-cookie"].split(';').next().unwrap();
    assert!(!cookie.contains(TOKEN), "{cookie}");
    let page = ui.ask("GET /", &[("cookie", cookie)], "").await;
    assert!(page.body.contains("/main.js"), "{page:?}");
}

#[case(embedded)]
async fn a_proxy_says_whom_it_has_let_in(world: World) {
    let ui = Ui::start(&world, &["--proxy-header", "X-User"]).await;

    let stranger = ui.get("/api/locks").await;
    let known = ui.ask("GET /api/locks", &[("x-user", "ann")], "").await;

    assert_eq!((stranger.status, known.status), (403, 200));
}

#[case]
async fn a_page_asks_the_holder_before_it_removes_the_ticket(world: World) {
    let script = "trap 'exit 3' TERM; echo ready; while :; do sleep 0.1; done";
    let mut holder = Holder::start(&mut run(&world, "wanted", script)).await;
    let ui = Ui::start(&world, &["--allow-break"]).await;
    let entry = |answer: &Value| answer["entries"].get(0).cloned();
    let entry = ui.eventually("/api/queue?name=wanted", entry).await;
    let word = ui.csrf().await;

    let removed = ui.remove(&entry, &[(WORD, &word)]).await;
    let again = ui.remove(&entry, &[(WORD, &word)]).await;

    assert_eq!(removed.status, 200, "{removed:?}");
    let answer = removed.json();
    assert_eq!(answer["removed"], true);
    let steps = answer["steps"].to_string();
    assert!(
        steps.contains("is asked to release wanted, for 10s"),
        "{steps}"
    );
    assert!(steps.contains("has gone from the queue"), "{steps}");
    assert_eq!(holder.code().await, Some(3), "its command's own");
    assert_eq!(again.status, 409, "{again:?}");
}

#[case]
async fn a_removal_goes_on_when_its_page_has_gone(world: World) {
    let script = "trap '' TERM; echo ready; while :; do sleep 0.1; done";
    let mut holder = Holder::start(&mut run(&world, "wanted", script)).await;
    let ui = Ui::start(&world, &["--allow-break"]).await;
    let entry = |answer: &Value| answer["entries"].get(0).cloned();
    let entry = ui.eventually("/api/queue?name=wanted", entry).await;
    let order = json!({
        "name": "wanted",
        "node": entry["node"],
        "token": entry["token"],
        "grace_ms": 1_000,
    });
    let word = ui.csrf().await;
    let head = [(WORD, &*word), ("content-type", "application/json")];

    let order = order.to_string();
    let removed = ui.ask("POST /api/break", &head, &order);
    let removed = timeout(Duration::from_millis(500), removed).await;

    assert!(removed.is_err(), "the holder has its time: {removed:?}");
    let is_removed = || async { super::tickets(&world, "wanted").await == 0 };
    eventually("its ticket is removed", SOON, is_removed).await;
    assert_eq!(holder.code().await, Some(70), "its lock was lost");
}

#[case]
async fn who_sends_nothing_is_cut_off(world: World) {
    let ui = Ui::start(&world, &[]).await;
    let head = async {
        let mut stream = TcpStream::connect(ui.address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
    };
    let body = async {
        let mut stream = BufReader::new(TcpStream::connect(ui.address).await.unwrap());
        let begin = format!(
            "POST /login HTTP/1.1\r\nhost: {}\r\ncontent-length: 5\r\n{WORD}: {}\r\n\r\n",
            ui.address,
            ui.csrf().await
        );
        stream.write_all(begin.as_bytes()).await.unwrap();
        let mut status = String::new();
        stream.read_line(&mut status).await.unwrap();
        status
    };

    let ended = timeout(SOON, async { tokio::join!(head, body) }).await;

    let ((), status) = ended.expect("both end");
    assert!(status.contains(" 408 "), "{status}");
}

#[case]
async fn nothing_is_removed_by_a_page_that_only_reads_or_by_one_from_elsewhere(world: World) {
    let holder = Holder::of(&world, "wanted").await;
    let reads = Ui::start(&world, &[]).await;
    let ui = Ui::start(&world, &["--allow-break"]).await;
    let entry = |answer: &Value| answer["entries"].get(0).cloned();
    let entry = ui.eventually("/api/queue?name=wanted", entry).await;
    let (word, theirs) = (ui.csrf().await, reads.csrf().await);
    let origin = format!("http://{}", ui.address);

    let refused = reads.remove(&entry, &[(WORD, &theirs)]).await;
    assert_eq!(refused.status, 403);
    assert!(refused.body.contains("--allow-break"), "{refused:?}");
    for head in [
        &[][..],
        &[(WORD, theirs.as_str())],
        &[(WORD, &word), ("origin", "http://evil.example")],
        &[(WORD, &word), ("origin", "null")],
        &[
            (WORD, &word),
            ("origin", &origin),
            ("sec-fetch-site", "cross-site"),
        ],
    ] {
        assert_eq!(ui.remove(&entry, head).await.status, 403, "{head:?}");
    }
    let mut other = entry.clone();
    other["token"] = 1.into();
    let other = ui
        .remove(&other, &[(WORD, &word), ("origin", &origin)])
        .await;
    assert_eq!(other.status, 409, "{other:?}");
    assert_eq!(super::tickets(&world, "wanted").await, 1);
    holder.done().await;
}

#[case]
async fn what_is_asked_wrongly_is_refused_as_json(world: World) {
    let ui = Ui::start(&world, &["--allow-break"]).await;
    for path in [
        "/api/queue",
        "/api/queue?name=",
        "/api/queue?name=a&count=-1",
        "/api/journal?name=/a",
        "/api/events?doctor=2",
    ] {
        let refused = ui.get(path).await;

        assert_eq!(refused.status, 400, "{path}: {refused:?}");
        assert!(refused.json()["error"].is_string(), "{path}: {refused:?}");
    }
    let origin = format!("http://{}", ui.address);
    let word = ui.csrf().await;
    let refused = ui
        .remove(&json!({ "node": 5 }), &[(WORD, &word), ("origin", &origin)])
        .await;
    assert!(refused.json()["error"].is_string(), "{refused:?}");
}

/// Takes many locks in one transaction.
async fn many(world: &World, prefix: &str, count: usize) -> Holder {
    let names: Vec<String> = (0..count)
        .map(|number| format!("{prefix}{number}"))
        .collect();
    let mut command = lockkeeper(world);
    command.arg("run").args(&names);
    command.args(["--", "sh", "-c", "echo ready; read line"]);
    Holder::start(command.stdin(Stdio::piped())).await
}

/// The requests of so many looks at the servers, as one viewer hears of them, and their time.
async fn cost(world: &World, viewer: &mut Viewer, looks: u32) -> (f64, Duration) {
    viewer.next().await;
    let (before, began) = (world.embedded().counters(), Instant::now());
    for _ in 0..looks {
        viewer.next().await;
    }
    let asked = world.embedded().counters().since(&before).requests();
    (asked as f64, began.elapsed())
}

#[case(embedded, within = 120)]
async fn fifty_viewers_cost_the_servers_no_more_than_one(world: World) {
    const LOOKS: u32 = 5;
    let holder = many(&world, "held/", 20).await;
    let ui = Ui::start(&world, &[]).await;
    let mut one = ui.viewer("?lock=held/1").await;
    let is_read = |event: &Value| !event["round_ms"].is_null();
    one.until("all queues are read", is_read).await;

    let (alone, _) = cost(&world, &mut one, LOOKS).await;
    let mut others = Vec::new();
    for _ in 0..49 {
        others.push(ui.viewer("?lock=held/1").await);
    }
    for other in &mut others {
        other.next().await;
    }
    let (together, _) = cost(&world, &mut one, LOOKS).await;

    println!("requests of {LOOKS} looks at 20 locks: {alone} with a viewer, {together} with 50");
    // A journal that is due, and beats of the session.
    assert!(together <= alone + 20.0, "{together} and {alone}");
    assert!(
        alone >= f64::from(20 * LOOKS),
        "each look reads all: {alone}"
    );
    drop(holder);
}

#[case(embedded, within = 120)]
async fn the_servers_get_no_more_requests_a_second_than_allowed(world: World) {
    let holder = many(&world, "held/", 100).await;
    let ui = Ui::start(&world, &["--requests", "60"]).await;
    let mut page = ui.viewer("").await;
    let is_read = |event: &Value| !event["round_ms"].is_null();
    let whole = page.until("all queues are read", is_read).await;

    let (asked, long) = cost(&world, &mut page, 5).await;

    let rate = asked / long.as_secs_f64();
    println!(
        "{rate:.0} requests a second of 60, a round in {} ms",
        whole["round_ms"]
    );
    assert!(rate <= 60.0, "{asked} requests in {long:?}");
    assert!(whole["round_ms"].as_u64() > Some(3000), "{whole}");
    drop(holder);
}

#[case(embedded, within = 120)]
async fn it_reads_slower_when_nobody_looks(world: World) {
    let holder = many(&world, "held/", 20).await;
    let ui = Ui::start(&world, &["--metrics", "*"]).await;
    let mut page = ui.viewer("").await;
    page.next().await;
    let age = |text: &str| {
        let line = text
            .lines()
            .find(|line| line.starts_with("lockkeeper_ui_read_age_seconds "))?;
        line.split(' ').nth(1)?.parse::<f64>().ok()
    };
    let scrape = || async { age(&ui.get("/metrics").await.body) };
    assert!(scrape().await < Some(5.0), "somebody looks");

    drop(page);

    // A scrape is no look.
    let is_slow = || async { scrape().await.is_some_and(|age| age > 7.0) };
    eventually("it reads slower", SOON, is_slow).await;
    let mut page = ui.viewer("").await;
    page.next().await;
    let is_fast = || async { scrape().await.is_some_and(|age| age < 2.0) };
    eventually("somebody came", Duration::from_secs(5), is_fast).await;
    drop(holder);
}

#[case]
async fn metrics_show_the_locks_that_were_chosen(world: World) {
    let holder = Holder::of(&world, "orders/42").await;
    let other = Holder::of(&world, "other").await;
    let without = Ui::start(&world, &[]).await;
    let ui = Ui::start(&world, &["--metrics", "orders/*"]).await;
    ui.eventually("/api/locks", row("orders/42")).await;

    let is_shown = || async {
        let text = ui.get("/metrics").await.body;
        text.contains("lockkeeper_lock_holders{lock=\"orders/42\"} 1\n")
            .then_some(text)
    };
    let text = eventually("the lock is shown", SOON, is_shown).await;

    assert!(
        text.contains("lockkeeper_lock_waiters{lock=\"orders/42\"} 0\n"),
        "{text}"
    );
    assert!(
        text.contains("lockkeeper_ui_up 1\n") && !text.contains("\"other\""),
        "{text}"
    );
    let refused = without.get("/metrics").await;
    assert_eq!(refused.status, 404);
    assert!(refused.body.contains("--metrics"), "{refused:?}");
    holder.done().await;
    other.done().await;
}

#[case]
async fn labels_of_others_steer_no_terminal_that_shows_the_json(world: World) {
    let label = "\u{1b}[2J<script>alert(1)</script>\u{202e}";
    let holder = holder(&world, &["--label", label, "wanted"]).await;
    let ui = Ui::start(&world, &[]).await;

    ui.eventually("/api/locks", row("wanted")).await;
    let answer = ui.get("/api/queue?name=wanted").await;

    assert!(!answer.body.contains(['\u{1b}', '\u{202e}']), "{answer:?}");
    assert_eq!(answer.json()["entries"][0]["label"], label);
    assert_eq!(answer.headers["content-type"], "application/json");
    holder.done().await;
}
