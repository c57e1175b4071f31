//! `queue` and `ls` on terminals of several widths, what `ls` leaves out, and `resize`.

use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::terminal::Shell;
use super::{Holder, one_line, outcome, queued};
use crate::tool::lockkeeper;
use testbench::stranger::{Make, Stranger};
use testbench::{World, case, eventually};

const HOUR: u64 = 60 * 60;
const DAY: u64 = 24 * HOUR;
/// Far from the next change of what is shown of a time.
const HALF_AN_HOUR: u64 = HOUR / 2;
const SOON: Duration = Duration::from_secs(30);
/// What no terminal may get: it clears the screen, colours, turns text round, and adds a line.
const EVIL: &str = "x\u{1b}[2J\u{9b}31m\u{202e}\ny";
const EVIL_AS_SHOWN: &str = "x\\u{1b}[2J\\u{9b}31m\\u{202e} y";

/// A ticket as the library writes it, of a process that is far away.
fn ticket(label: &str, host: &str, pid: u32, seconds: u64) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    json!({
        "host": host,
        "pid": pid,
        "label": label,
        "attempt": "00000000-0000-0000-0000-000000000001",
        "at": (now.as_secs() - seconds) * 1000,
    })
}

/// The same with one thing more.
fn with(ticket: Value, field: &str, value: impl Into<Value>) -> Value {
    let mut ticket = ticket;
    ticket[field] = value.into();
    ticket
}

/// Puts tickets into a directory, which is made.
async fn put(stranger: &Stranger, directory: &str, start: &str, tickets: &[Value]) {
    let directory = format!("/locks/{directory}");
    stranger.mkdir(&directory, &Make::Persistent).await.unwrap();
    for ticket in tickets {
        let path = format!("{directory}/{start}");
        let data = ticket.to_string();
        let made = stranger.create(&path, data.as_bytes(), &Make::EphemeralSequential);
        made.await.unwrap();
    }
}

async fn store(stranger: &Stranger, semaphore: &str, limit: &[u8]) {
    let directory = format!("/locks/{semaphore}");
    let made = stranger.mkdir(&directory, &Make::Persistent);
    made.await.unwrap();
    let path = format!("{directory}/limit");
    let made = stranger.create(&path, limit, &Make::Persistent);
    made.await.unwrap();
}

/// What a terminal of so many columns shows of an order.
async fn picture(world: &World, columns: usize, words: &str) -> String {
    let script =
        format!("unset COLUMNS; stty rows 50 cols {columns}; $L {words}; echo; echo code $?");
    let shell = Shell::start(world, &script);
    shell.line("code ").await;
    let screen = shell.screen();
    let (picture, _) = screen.split_once("\n\ncode ").unwrap();
    picture.to_owned()
}

/// The picture with the same in each row of a column that is not the last one.
fn masked(picture: &str, head: &str) -> String {
    // What is two columns wide has something behind it, as on the screen.
    const BEHIND: char = '\0';
    let spread = |line: &str| {
        let wide = |c: char| console::measure_text_width(&c.to_string()) == 2;
        let behind = |c: char| wide(c).then_some(BEHIND);
        let chars = line.chars();
        chars
            .flat_map(|c| [Some(c), behind(c)])
            .flatten()
            .collect::<Vec<char>>()
    };
    let heads = picture.lines().find(|line| line.contains(head)).unwrap();
    let begin = heads.find(head).unwrap();
    let width = heads[begin + head.len()..]
        .find(|c: char| c != ' ')
        .unwrap()
        + head.len();
    let line = |line: &str| {
        let line = spread(line);
        if line.len() < begin + width {
            return line
                .into_iter()
                .filter(|c| *c != BEHIND)
                .collect::<String>();
        }
        let (before, rest) = line.split_at(begin);
        let cell = if rest.starts_with(&spread(head)) {
            head
        } else {
            "#"
        };
        let cell = format!("{cell:width$}  ", width = head.len());
        let parts = [before, &spread(&cell), &rest[width..]].concat();
        parts.into_iter().filter(|c| *c != BEHIND).collect()
    };
    picture
        .lines()
        .map(line)
        .collect::<Vec<String>>()
        .join("\n")
}

async fn three_in_a_queue(stranger: &Stranger) {
    let tickets = [
        ticket("report.sh", "db-7", 4271, 5 * DAY + 3 * HOUR + HALF_AN_HOUR),
        ticket(
            "rebuild the indexes",
            "db-9",
            977,
            2 * DAY + HOUR + HALF_AN_HOUR,
        ),
        with(
            ticket(
                "夜間レポート",
                "batch-12.eu.example",
                4_194_304,
                DAY + 2 * HOUR + HALF_AN_HOUR,
            ),
            "owner",
            "txn-42",
        ),
    ];
    put(stranger, "nightly", "lock-", &tickets).await;
}

#[case(
    zookeeper,
    why = "the widths of tokens and sessions are the store's own"
)]
async fn queue_fits_a_terminal_of_120_columns(world: World) {
    let stranger = world.raw().await;
    three_in_a_queue(&stranger).await;

    let wide = masked(&picture(&world, 120, "queue nightly").await, "TOKEN");

    assert_eq!(wide, include_str!("pictures/queue-120.txt").trim_end());
}

#[case]
async fn queue_fits_a_terminal_of_80_and_40_columns(world: World) {
    let stranger = world.raw().await;
    three_in_a_queue(&stranger).await;

    let usual = picture(&world, 80, "queue nightly").await;
    let narrow = picture(&world, 40, "queue nightly").await;
    let told = "queue nightly >/dev/null; COLUMNS=40 $L queue nightly";
    let told = picture(&world, 120, told).await;

    assert_eq!(usual, include_str!("pictures/queue-80.txt").trim_end());
    assert_eq!(narrow, include_str!("pictures/queue-40.txt").trim_end());
    assert_eq!(told, narrow);
}

#[case]
async fn an_election_shows_values_and_a_semaphore_what_is_left(world: World) {
    let stranger = world.raw().await;
    let age = DAY + HOUR + HALF_AN_HOUR;
    let candidate =
        |value: &str, pid| with(ticket("serve.sh", "web-1.eu", pid, age), "value", value);
    let candidates = [candidate("10.0.0.7:80", 11), candidate("10.0.0.8:8080", 12)];
    put(&stranger, "api", "latch-", &candidates).await;
    store(&stranger, "render", b"4").await;
    let user = |pid, permits| {
        with(
            ticket("render-frames.sh", "gpu-3.eu.exa", pid, age),
            "permits",
            permits,
        )
    };
    put(&stranger, "render/held", "permit-2-", &[user(21, 2)]).await;
    put(&stranger, "render/held", "permit-1-", &[user(22, 1)]).await;
    put(&stranger, "render/queue", "lock-", &[user(23, 2)]).await;

    for (words, columns, expected) in [
        ("queue api", 80, include_str!("pictures/election-80.txt")),
        ("queue api", 40, include_str!("pictures/election-40.txt")),
        (
            "queue render",
            80,
            include_str!("pictures/semaphore-80.txt"),
        ),
        (
            "queue render",
            40,
            include_str!("pictures/semaphore-40.txt"),
        ),
    ] {
        let seen = picture(&world, columns, words).await;
        assert_eq!(seen, expected.trim_end(), "{words} at {columns}");
    }
    let json = outcome(&world, &["queue", "render", "--json"]).await;
    let json: Vec<Value> = serde_json::from_str(&json.stdout).unwrap();
    for user in &json {
        assert_eq!([&user["limit"], &user["permits_left"]], [4, 1], "{user}");
    }
    let json = outcome(&world, &["queue", "api", "--json"]).await;
    let json: Vec<Value> = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json[0]["value"], "10.0.0.7:80");
    assert_eq!(json[0]["limit"], Value::Null);
}

#[case]
async fn a_semaphore_that_nobody_uses_says_what_it_has(world: World) {
    store(&world.raw().await, "render", b"4").await;

    let table = outcome(&world, &["queue", "render"]).await;

    assert_eq!((table.code, &*table.stdout), (Some(0), ""));
    let said = "lockkeeper: nobody holds or waits for render; 4 of 4 permits left";
    assert_eq!(one_line(&table), said);
}

#[case]
async fn a_lock_beside_what_is_named_as_a_limit_has_none(world: World) {
    let stranger = world.raw().await;
    let age = HOUR;
    put(&stranger, "a/limit", "lock-", &[ticket("x", "h", 1, age)]).await;

    let empty = outcome(&world, &["queue", "a"]).await;
    let below = outcome(&world, &["queue", "a/limit"]).await;

    assert_eq!(one_line(&empty), "lockkeeper: nobody holds or waits for a");
    assert_eq!(below.stdout.lines().count(), 2, "{below:?}");
}

#[case]
async fn queue_watch_fits_again_when_the_terminal_is_resized(world: World) {
    let stranger = world.raw().await;
    three_in_a_queue(&stranger).await;
    let script = "unset COLUMNS; stty rows 50 cols 120; \
                  $L queue nightly --watch & read x; stty cols 40; read x";
    let mut shell = Shell::start(&world, script);
    is_drawn(&shell, "  KIND").await;

    shell.types("\n");

    // A line of air is below the title.
    let narrow = include_str!("pictures/queue-40.txt").trim_end();
    is_drawn(&shell, &narrow.replacen('\n', "\n\n", 1)).await;
}

/// Waits until this is on the screen, whatever its colours.
async fn is_drawn(shell: &Shell, expected: &str) {
    let is_drawn = || async { console::strip_ansi_codes(&shell.screen()).contains(expected) };
    eventually("the picture is drawn", SOON, is_drawn).await;
}

/// Thirty locks, of which each third has waiters.
async fn thirty(stranger: &Stranger) {
    for lock in 0..30_u64 {
        let age = (lock % 20 + 2) * DAY + HOUR + HALF_AN_HOUR;
        let label = ["refund", "import customers", "会計"][lock as usize % 3];
        let host = format!("worker-{}", lock % 4);
        let holder = ticket(label, &host, 1000 + lock as u32, age);
        let waiters = if lock % 3 == 0 { lock / 3 } else { 0 };
        let waiter = ticket("next", "worker-9", 77, DAY);
        let mut tickets = vec![holder];
        tickets.extend((0..waiters).map(|_| waiter.clone()));
        put(stranger, &format!("orders/{lock:02}"), "lock-", &tickets).await;
    }
}

#[case(within = 120)]
async fn ls_of_thirty_locks_fits_a_terminal_of_120_80_and_40_columns(world: World) {
    let stranger = world.raw().await;
    thirty(&stranger).await;

    for (columns, expected) in [
        (120, include_str!("pictures/ls-120.txt")),
        (80, include_str!("pictures/ls-80.txt")),
        (40, include_str!("pictures/ls-40.txt")),
    ] {
        let seen = picture(&world, columns, "ls").await;
        let (title, table) = seen.split_once('\n').expect(&seen);

        assert_eq!(table, expected.trim_end(), "{columns}");
        let counts = "locks in use below /locks on ";
        assert!(title.starts_with(counts), "{title}");
        assert!(title.ends_with(": 30, held: 30, waiters: 45"), "{title}");
    }
}

/// The names that `ls` shows with these words.
async fn listed(world: &World, words: &[&str]) -> Vec<String> {
    let listed = outcome(world, &[&["ls", "--json"], words].concat()).await;
    let locks: Vec<Value> = serde_json::from_str(&listed.stdout).unwrap();
    let name = |lock: &Value| lock["name"].as_str().unwrap().to_owned();
    locks.iter().map(name).collect()
}

#[case]
async fn ls_chooses_and_sorts(world: World) {
    let stranger = world.raw().await;
    let of = |seconds| ticket("job", "h", 1, seconds);
    let minute = 60;
    for (name, tickets) in [
        ("jobs/a", &[of(HOUR), of(minute)][..]),
        ("jobs/b", &[of(minute)]),
        ("jobs/eu/c", &[of(2 * HOUR), of(minute), of(minute)]),
        ("other", &[of(3 * HOUR)]),
    ] {
        put(&stranger, name, "lock-", tickets).await;
    }
    store(&stranger, "render", b"1").await;
    let waiter = with(of(4 * HOUR), "permits", 1);
    put(&stranger, "render/queue", "lock-", &[waiter]).await;
    let foreign = Make::EphemeralSequential;
    stranger
        .mkdir("/locks/theirs", &Make::Persistent)
        .await
        .unwrap();
    let made = stranger.create("/locks/theirs/lock-", b"10.0.0.7", &foreign);
    made.await.unwrap();

    for (words, expected) in [
        (&["jobs/*"][..], &["jobs/a", "jobs/b"][..]),
        (&["jobs/**"], &["jobs/a", "jobs/b", "jobs/eu/c"]),
        (&["jobs"], &["jobs/a", "jobs/b", "jobs/eu/c"]),
        (&["*"], &["other", "render", "theirs"]),
        (&["**/c", "ren*"], &["jobs/eu/c", "render"]),
        (&["--held", "[or]*"], &["other"]),
        (
            &["--longer-than", "59m"],
            &["jobs/a", "jobs/eu/c", "other", "render"],
        ),
        (&["--longer-than", "90m", "--held"], &["jobs/eu/c", "other"]),
        (
            &["--sort", "waiting"],
            &["jobs/eu/c", "jobs/a", "render", "jobs/b", "other", "theirs"],
        ),
        (
            &["--sort", "age"],
            &["render", "other", "jobs/eu/c", "jobs/a", "jobs/b", "theirs"],
        ),
        (&["none/*"], &[]),
    ] {
        assert_eq!(listed(&world, words).await, expected, "{words:?}");
    }
    let none = outcome(&world, &["ls", "none/*"]).await;
    assert_eq!((none.code, &*none.stdout), (Some(0), ""));
    let said = "lockkeeper: no lock in use below /locks matches";
    assert_eq!(one_line(&none), said);
    for (pattern, why) in [("/jobs", "no '/' at an end"), ("jobs/b**", "wildcards")] {
        let refused = outcome(&world, &["ls", pattern]).await;
        assert_eq!(refused.code, Some(64), "{refused:?}");
        assert!(refused.stderr.contains(why), "{refused:?}");
    }
}

/// No character of it steers a terminal, and what was written is seen.
fn is_visible(text: &str, shown: &[&str]) {
    let steers = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
    assert!(!text.contains(steers), "{text:?}");
    for shown in shown {
        assert!(text.contains(shown), "{shown} in {text}");
    }
}

#[case]
async fn no_column_of_a_table_lets_others_steer_the_terminal(world: World) {
    let stranger = world.raw().await;
    for (column, evil) in [
        ("LABEL", ticket(EVIL, "h", 1, DAY)),
        ("HOST", ticket("l", EVIL, 1, DAY)),
        ("OWNER", with(ticket("l", "h", 1, DAY), "owner", EVIL)),
        ("VALUE", with(ticket("l", "h", 1, DAY), "value", EVIL)),
        // Another library's data.
        ("VALUE", Value::Null),
    ] {
        let name = format!("evil/{column}\u{202e}/{}", evil.is_null());
        let start = if column == "VALUE" { "latch-" } else { "lock-" };
        if evil.is_null() {
            let directory = format!("/locks/{name}");
            stranger.mkdir(&directory, &Make::Persistent).await.unwrap();
            let path = format!("{directory}/{start}");
            let made = stranger.create(&path, EVIL.as_bytes(), &Make::EphemeralSequential);
            made.await.unwrap();
        } else {
            put(&stranger, &name, start, &[evil]).await;
        }
        let order = format!("queue '{name}'");
        for columns in [400, 120] {
            let seen = picture(&world, columns, &order).await;
            let at = seen.lines().nth(1).unwrap().find(column).unwrap();
            let row = seen.lines().nth(2).unwrap();
            let cell: String = row.chars().skip(at).take(12).collect();

            is_visible(&seen, &["evil/", "\\u{202e}/"]);
            assert_eq!(cell, EVIL_AS_SHOWN[..12], "{column}: {seen}");
            assert_eq!(seen.lines().count(), 3, "{seen}");
        }
        let table = outcome(&world, &["queue", &name]).await;
        is_visible(&table.stdout, &[EVIL_AS_SHOWN]);
        let json = outcome(&world, &["queue", &name, "--json"]).await;
        is_visible(&json.stdout, &["\\u001b[2J"]);
        let list = outcome(&world, &["ls", &name]).await;
        is_visible(&list.stdout, &["\\u{202e}/"]);
        if column != "OWNER" {
            is_visible(&list.stdout, &[EVIL_AS_SHOWN]);
        }
        if column != "OWNER" && start == "latch-" {
            let leader = outcome(&world, &["leader", &name]).await;
            is_visible(&leader.stdout, &[EVIL_AS_SHOWN]);
        }
    }
    let seen = picture(&world, 400, "ls evil").await;
    is_visible(&seen, &[EVIL_AS_SHOWN]);
    assert_eq!(seen.lines().count(), 7, "{seen}");
}

/// Holds one of two permits.
async fn one_of_two(world: &World) -> Holder {
    let mut command = lockkeeper(world);
    command.args(["run", "--permits", "1/2", "render", "--", "sh", "-c"]);
    command.arg("echo ready; read line");
    Holder::start(command.stdin(Stdio::piped())).await
}

#[case]
async fn resize_gives_a_semaphore_another_limit(world: World) {
    let holder = one_of_two(&world).await;
    let mut waiting = lockkeeper(&world);
    waiting.args(["run", "--permits", "2/2", "render", "--", "true"]);
    let mut waiting = waiting.spawn().unwrap();
    queued(&world, "render", 2).await;

    let resized = outcome(&world, &["resize", "render", "3"]).await;
    let code = waiting.wait().await.unwrap().code();
    let json = outcome(&world, &["resize", "render", "5", "--json"]).await;

    assert_eq!((resized.code, &*resized.stdout), (Some(0), ""));
    let said = "lockkeeper: the limit of render is 3; it was 2";
    assert_eq!(one_line(&resized), said);
    assert_eq!(code, Some(0), "there are enough permits for the waiter now");
    assert_eq!(json.stdout, "{\"before\":3,\"limit\":5}\n");
    let queue = outcome(&world, &["queue", "render", "--json"]).await;
    let queue: Value = serde_json::from_str(&queue.stdout).unwrap();
    assert_eq!([&queue[0]["limit"], &queue[0]["permits_left"]], [5, 4]);
    holder.done().await;
}

#[case]
async fn resize_refuses_what_is_no_semaphore_and_what_is_no_limit(world: World) {
    let holder = Holder::of(&world, "job").await;
    let none = outcome(&world, &["resize", "nothing", "2"]).await;
    let lock = outcome(&world, &["resize", "job", "2"]).await;

    assert_eq!(none.code, Some(64), "{none:?}");
    let said = "lockkeeper: nothing is no semaphore: no limit is stored there";
    assert!(one_line(&none).starts_with(said), "{none:?}");
    assert_eq!(lock.code, Some(64), "{lock:?}");
    let said = "lockkeeper: job is no semaphore: lock-0000000000 is there, which is ";
    assert!(one_line(&lock).starts_with(said), "{lock:?}");
    for (limit, why) in [
        ("0", "at least one permit"),
        ("-1", "'-1'"),
        ("x", "number of permits"),
    ] {
        let refused = outcome(&world, &["resize", "nothing", limit]).await;
        assert_eq!(refused.code, Some(64), "{refused:?}");
        assert!(refused.stderr.contains(why), "{refused:?}");
    }
    let nothing = outcome(&world, &["queue", "nothing", "--json"]).await;
    assert_eq!(nothing.stdout, "[]\n");
    let refused = outcome(&world, &["resize", "nothing", "2"]).await;
    assert_eq!(refused.code, Some(64), "the first one stored nothing");
    holder.done().await;
}
