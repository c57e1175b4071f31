//! The tables of a run, in Markdown.
//!
//! Every cell says something: a figure, or why there is none. It computes nothing but what
//! `results` offers.

mod grid;

use std::fmt::Write;

use crate::goals;
use crate::order::Answer;
use crate::peer::{PAUSE_MS, Peer, Store};
use crate::results::{Results, Row};
use crate::text::{bytes, spread, three, whole};
use grid::{add, by_crowd, cell, header, ratio};

/// The whole page.
pub(crate) fn all(results: &Results) -> String {
    let mut page = format!("# Side by side on {}\n", results.on.title());
    for part in [
        head(results),
        goals_table(results),
        uncontended(results),
        hand_over(results),
        flat(results),
        enqueue(results),
        independent(results),
        linger(results),
        memory(results),
        wire(results),
        process(results),
        not_shared(results),
        versions(results),
    ] {
        page.push('\n');
        page += &part;
    }
    page
}

fn head(results: &Results) -> String {
    let machine = &results.machine;
    let kind = if results.quick {
        "A quick run, which is for seeing that all works: its figures vary. "
    } else {
        ""
    };
    let turns = if results.quick {
        ""
    } else {
        "; a short row is measured three times a round"
    };
    format!(
        "{kind}{} rounds in {} s, begun {}, on {} cores ({}), {} GiB, Linux {}. The servers' data is on {}, where a sync takes {} us. \
         The load before was {}.\n\n\
         A figure is the median of its rounds, with the least and the most in brackets{turns}. A ratio is the median of the ratios of the \
         rounds, in each of which all ran one after the other, with the least and the most.\n",
        results.rounds,
        results.took_s,
        results.at,
        machine.cores,
        machine.cpu,
        three(machine.memory_gib),
        machine.kernel,
        machine.filesystem,
        whole(machine.sync_us),
        machine.load,
    )
}

fn goals_table(results: &Results) -> String {
    let mut text =
        String::from("## Goals\n\n| Lockkeeper's | wanted | found | |\n|---|---|---|---|\n");
    for goal in goals::all(results) {
        let (found, verdict) = match goal.found {
            Some((found, true)) => (found, "reached"),
            Some((found, false)) => (found, "**missed**"),
            None => ("not measured".into(), ""),
        };
        add(&mut text, &[&goal.what, &goal.wanted, &found, verdict]);
    }
    text
}

fn uncontended(results: &Results) -> String {
    let row = Row::Uncontended;
    let mut text = String::from(
        "## Lock and release, alone\n\nMicroseconds for both, one after the other.\n\n\
         | | mean | p50 | p99 | times the baseline | times Lockkeeper |\n|---|---|---|---|---|---|\n",
    );
    for peer in &results.peers {
        let figure = |figure: fn(&Answer) -> Option<f64>| {
            let found = results.spread_of(row, *peer, figure);
            found.map_or_else(String::new, |found| spread(found, whole))
        };
        add(
            &mut text,
            &[
                peer.title(),
                &cell(results, row, *peer),
                &figure(|answer| answer.p50_us),
                &figure(|answer| answer.p99_us),
                &ratio(results, row, *peer, Peer::Baseline),
                &ratio(results, row, *peer, Peer::Lockkeeper),
            ],
        );
    }
    text
}

fn hand_over(results: &Results) -> String {
    let mut text = String::from(
        "## Hand-over\n\nMicroseconds from one grant to the next, every holder releasing at once: the mean. The clock starts when all wait.\n\n",
    );
    text += &by_crowd(results, &results.peers, |row, peer| {
        cell(results, row, peer)
    });
    text += "\nThe same as multiples of Lockkeeper's, and Lockkeeper's of the baseline's:\n\n";
    let mut others = results.peers.clone();
    others.retain(|peer| ![Peer::Lockkeeper, Peer::Baseline].contains(peer));
    others.insert(0, Peer::Lockkeeper);
    text += &by_crowd(results, &others, |row, peer| match peer {
        Peer::Lockkeeper => match ratio(results, row, peer, Peer::Baseline).as_str() {
            "" => String::new(),
            ratio => format!("{ratio} of the baseline"),
        },
        _ => ratio(results, row, peer, Peer::Lockkeeper),
    });
    text += "\nThe slowest hundredth (p99):\n\n";
    text + &by_crowd(results, &results.peers, |row, peer| {
        let found = results.spread_of(row, peer, |answer| answer.p99_us);
        found.map_or_else(String::new, |found| spread(found, whole))
    })
}

fn flat(results: &Results) -> String {
    let mut text = String::from(
        "## Many and few\n\nLockkeeper's hand-over to so many waiters, as a multiple of its own to 100, right after it.\n\n\
         | waiters | times those at 100 |\n|---|---|\n",
    );
    for waiters in &results.crowds {
        if let Some(growth) = results.growth(*waiters) {
            add(&mut text, &[whole(*waiters as f64), spread(growth, three)]);
        }
    }
    text
}

fn enqueue(results: &Results) -> String {
    let text = "## Queueing up\n\nMilliseconds from the first waiter's call until all wait.\n\n";
    let table = by_crowd(results, &results.peers, |row, peer| {
        let found = results.spread_of(row, peer, |answer| answer.enqueue_ms);
        found.map_or_else(String::new, |found| spread(found, three))
    });
    text.to_owned() + &table
}

fn independent(results: &Results) -> String {
    let row = Row::Independent;
    let mut text = String::from(
        "## 64 locks at once\n\nLocks taken and released in a second by 64 tasks of one client, each with a lock of its own.\n\n\
         | | a second | times the baseline | times Lockkeeper |\n|---|---|---|---|\n",
    );
    for peer in &results.peers {
        let (baseline, ours) = (
            ratio(results, row, *peer, Peer::Baseline),
            ratio(results, row, *peer, Peer::Lockkeeper),
        );
        add(
            &mut text,
            &[peer.title(), &cell(results, row, *peer), &baseline, &ours],
        );
    }
    text
}

fn linger(results: &Results) -> String {
    let found = cell(results, Row::Linger, Peer::Lockkeeper);
    format!(
        "## One lock that lingers\n\nLockkeeper's, taken and released by two tasks of one process while nobody else asks: {found} a second. It asks the \
         server for nothing meanwhile, so there is nobody beside it.\n"
    )
}

fn memory(results: &Results) -> String {
    let mut shown = results.peers.clone();
    shown.retain(|peer| results.memory.iter().any(|memory| memory.peer == *peer));
    let mut crowds = results.crowds.clone();
    crowds.retain(|waiters| {
        results
            .memory
            .iter()
            .any(|memory| memory.waiters == *waiters)
    });
    if shown.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "## Memory for each waiter\n\nGrowth of a fresh process's resident anonymous memory (heap and stacks, no code) while they queue up. Who has a JVM or Node is not \
         here: their memory says how their heaps were sized. Nor are the baselines: they have no tasks but those of the measurement.\n\n| waiters |",
    );
    header(&mut text, shown.iter().map(|peer| peer.title()));
    for waiters in crowds {
        let cells = shown.iter().map(|peer| {
            let found = results.memory_of(*peer, waiters);
            found.map_or_else(|| "not run".into(), |found| spread(found, bytes))
        });
        add(
            &mut text,
            &[vec![whole(waiters as f64)], cells.collect()].concat(),
        );
    }
    text
}

fn wire(results: &Results) -> String {
    let mut text = String::from(
        "## On the wire\n\nCounted by a relay in a pass that is not timed, for one operation. Requests and notifications are frames of ZooKeeper's \
         protocol, without pings, and are not counted elsewhere; what looks whether all wait is in them.\n\n\
         | | operation | requests | notifications | bytes to the server | bytes from it |\n|---|---|---|---|---|---|\n",
    );
    for crossing in &results.crossings {
        let traffic = crossing.traffic;
        let frames = |total| match crossing.peer.server(results.on) {
            Store::ZooKeeper => format!("{:.1}", crossing.each(total)),
            _ => "not counted".into(),
        };
        let mut title = crossing.title();
        if !crossing.is_whole() {
            title += " (not all did)";
        }
        add(
            &mut text,
            &[
                crossing.peer.title(),
                &title,
                &frames(traffic.requests),
                &frames(traffic.notifications),
                &whole(crossing.each(traffic.bytes_up)),
                &whole(crossing.each(traffic.bytes_down)),
            ],
        );
    }
    text
}

fn process(results: &Results) -> String {
    let mut text = String::from(
        "## In the process\n\nOf the drivers in Rust, for one operation of the same pass, with what the measurement itself needs. A wait is a thread that \
         has nothing more to do until it is woken.\n\n\
         | | operation | allocations | bytes allocated | waits |\n|---|---|---|---|---|\n",
    );
    for crossing in &results.crossings {
        let answer = crossing.outcome.measured();
        let Some(spent) = answer.and_then(|answer| answer.spent) else {
            continue;
        };
        add(
            &mut text,
            &[
                crossing.peer.title(),
                &crossing.title(),
                &whole(crossing.each(spent.allocations)),
                &whole(crossing.each(spent.allocated_bytes)),
                &format!("{:.1}", crossing.each(spent.waits)),
            ],
        );
    }
    text
}

fn not_shared(results: &Results) -> String {
    let mut text = String::from("## What the rows do not share\n\n");
    let these: &[&str] = match results.on {
        Store::Redis => &ON_REDIS,
        Store::Postgres => &ON_POSTGRES,
        Store::ZooKeeper | Store::Etcd => &ON_ZOOKEEPER,
    };
    for line in these {
        // It cannot fail: a string takes everything.
        writeln!(text, "- {line}").unwrap_or_default();
    }
    text + &format!(
        "- Servers and clients share the cores of one machine and meet over loopback: the figures are more of computing than of a network.\n\
         - The next one of a session asks right behind the release, so Lockkeeper's waiters, which are all of one process, wait for no \
         notification.\n\
         - Whoever waits by asking again does so after {PAUSE_MS} ms, in no order.\n\
         - With 1, 10 and 100 waiters a round is the mean of 100, 20 and 5 queues (etcd: 60, 20 and 5). A measurement of more than {} s was \
         given up.\n",
        results.limit_s
    )
}

const ON_ZOOKEEPER: [&str; 6] = [
    "**etcd** is one node that syncs to disk, and each of its waiters has a lease, made before the clock starts.",
    "**ZooKeeper** is one server that syncs to disk, the same for all of its clients. On an ensemble every write costs more for all of \
     them, so their ratios say more than their figures.",
    "**The baseline** is no lock: the fewest raw operations of the client crate, with no error handled. **The pipelined baseline** sends \
     them as early as Lockkeeper: the read right behind the create, and the next one's right behind a release.",
    "**Lockkeeper** sets `TCP_NODELAY` on its connections, as Curator's and kazoo's clients do; the client crate does not, so the \
     baselines and its own lock go without. With 64 locks, its reads of one moment go in one request.",
    "**The client crate's lock** is released by an awaited delete, because its guard can only be dropped.",
    "**Curator** and **kazoo** block, so each of their waiters is a thread; the others' are tasks. All wait when each has its watch at the \
     server; Lockkeeper and the baselines, when each has the answer to it.",
];

const ON_REDIS: [&str; 5] = [
    "**Redis** is one server with `appendfsync everysec`, the same for all.",
    "**The baseline** is no fair lock: alone it is `SET NX PX` and a compare-and-delete, without a queue. A crowd of its has a list, a \
     script that joins, one that leaves and tells the next, and a read.",
    "**SET NX**, **redis-py**, **node-redlock** and **Redisson** have no order. A lease of theirs that ends while its holder is at \
     work lets a second one in, and their holder is not told.",
    "**python-redis-lock** waits in a `BLPOP`, a connection for each waiter. **Redisson** is told by a subscription.",
    "The waiters of Python and Java are threads, those of Node and Rust are tasks. All wait when each was refused once, or blocks at \
     the server (python-redis-lock), or waits to be told (Redisson).",
];

const ON_POSTGRES: [&str; 4] = [
    "**PostgreSQL** is one server with durable commits, the same for all.",
    "**The baseline** is no fair lock: alone it is the insert and the delete of a row, each a commit. A crowd of its has numbered rows, a \
     notification for the next one, and a read.",
    "**The advisory lock** commits nothing to disk, has no token, and ends with its connection. It is waited for at the server.",
    "**The advisory lock**, **the unique row** and **FOR UPDATE** have a connection for each waiter, opened before the clock starts. \
     Lockkeeper has one for its session.",
];

fn versions(results: &Results) -> String {
    let mut text = String::from("## Versions\n\n");
    for (what, version) in &results.versions {
        // It cannot fail: a string takes everything.
        writeln!(text, "- {what}: {version}").unwrap_or_default();
    }
    text
}
