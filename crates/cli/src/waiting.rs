//! What is said while `run` and `elect` wait: who holds the lock, and how many wait before us.
//!
//! Invariant: it only reads, and fails nothing. It reads after 1, 2, 4, .. seconds and then once a
//! minute, and only if somebody sees it: on a terminal, or with the log.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::pending;
use std::iter;
use std::time::{Duration, SystemTime};

use console::measure_text_width;
use lockkeeper::{LockKind, QueueEntry};
use tokio::time::sleep;

use crate::queue;
use crate::report;
use crate::run::Source;
use crate::status::{StatusLine, has_log};

/// Between two drawings; the first one comes after such a pause, too.
const BEAT: Duration = Duration::from_secs(1);
/// The longest pause between two reads.
const LONGEST: Duration = Duration::from_secs(60);

/// So many parts of a line may be left out.
const SHORTEST: usize = 3;

/// Tells until it is dropped.
pub(crate) async fn tell<S: Source>(source: &S, names: &[String]) -> Infallible {
    let line = StatusLine::open();
    if line.is_none() && !has_log() {
        return pending().await;
    }
    let seen = RefCell::new(Wait::of(&names.join(", ")));
    let draw = || {
        if let Some(line) = &line {
            line.show(|columns| seen.borrow().fitted(columns, SystemTime::now()));
        }
    };
    let reads = async {
        for pause in pauses() {
            sleep(pause).await;
            if let Some(wait) = look(source, names).await {
                seen.replace(wait);
            }
            match line {
                Some(_) => draw(),
                None => report::say(seen.borrow().whole(SystemTime::now())),
            }
        }
        pending().await
    };
    let drawings = async {
        // The first read comes before them.
        sleep(BEAT).await;
        loop {
            sleep(BEAT).await;
            draw();
        }
    };
    tokio::select! {
        biased;
        never = Box::pin(reads) => never,
        never = drawings => never,
    }
}

/// Before each read.
fn pauses() -> impl Iterator<Item = Duration> {
    // So the reads are 1, 2, 4, .. seconds after the begin.
    let growing = iter::successors(Some(BEAT), |pause| Some((*pause * 2).min(LONGEST)));
    iter::once(BEAT).chain(growing)
}

/// What we wait for, if it can be read: of several locks the first that is not ours yet.
async fn look<S: Source>(source: &S, names: &[String]) -> Option<Wait> {
    let host = gethostname::gethostname().to_string_lossy().into_owned();
    let me = std::process::id();
    let is_mine = |ticket: &QueueEntry| {
        ticket.pid == Some(me) && ticket.host.as_deref() == Some(host.as_str())
    };
    for name in names {
        let queue = source.queue(name).await;
        let queue = queue.inspect_err(|error| tracing::debug!(%error, "cannot see the queue"));
        let queue = queue.ok()?;
        let mine = queue.iter().position(is_mine);
        if mine.is_none_or(|mine| !queue[mine].is_holder) {
            return Some(Wait::seen(name, &queue, mine));
        }
    }
    None
}

/// What we wait for.
#[derive(Debug, Default)]
struct Wait {
    name: String,
    holder: Option<Holder>,
    /// Waiters before us, if our own place is known.
    before: Option<usize>,
}

/// The first of the holders.
#[derive(Debug)]
struct Holder {
    who: String,
    host: Option<String>,
    /// When it took its ticket.
    since: Option<SystemTime>,
    is_leader: bool,
    others: usize,
}

impl Wait {
    fn of(name: &str) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    fn seen(name: &str, queue: &[QueueEntry], mine: Option<usize>) -> Self {
        let is_waiting = |ticket: &&QueueEntry| !ticket.is_holder;
        let mut holders = queue.iter().filter(|ticket| ticket.is_holder);
        Self {
            name: name.into(),
            holder: holders.next().map(|holder| Holder {
                who: who(holder),
                host: holder.host.clone(),
                since: holder.since,
                is_leader: holder.kind == LockKind::Lead,
                others: holders.count(),
            }),
            before: mine.map(|mine| queue[..mine].iter().filter(is_waiting).count()),
        }
    }

    /// All that is known.
    fn whole(&self, now: SystemTime) -> String {
        self.line(now, 0)
    }

    /// As much as fits.
    fn fitted(&self, columns: usize, now: SystemTime) -> String {
        let mut lines = (0..SHORTEST).map(|left_out| self.line(now, left_out));
        let fits = |line: &String| measure_text_width(line) <= columns;
        let fitted = lines.find(fits);
        fitted.unwrap_or_else(|| self.line(now, SHORTEST))
    }

    /// Without so many parts: the host goes first, then the holder's name, then the first words.
    fn line(&self, now: SystemTime, left_out: usize) -> String {
        let mut line = match left_out {
            SHORTEST => self.name.clone(),
            _ => format!("waiting for {}", self.name),
        };
        if let Some(holder) = &self.holder {
            line += if holder.is_leader { ": led" } else { ": held" };
            if left_out < 2 {
                line += &format!(" by {}", holder.who);
            }
            if let (Some(host), 0) = (&holder.host, left_out) {
                line += &format!(" on {host}");
            }
            if let Some(since) = holder.since {
                line += &format!(" for {}", queue::ago(since, now));
            }
            match holder.others {
                0 => {}
                1 => line += " and another one",
                others => line += &format!(" and {others} others"),
            }
        }
        match self.before {
            None => {}
            Some(0) => line += ", you are next",
            Some(before) => line += &format!(", {before} before you"),
        }
        line
    }
}

fn who(ticket: &QueueEntry) -> String {
    match (&ticket.label, ticket.pid) {
        (Some(label), _) if !label.is_empty() => label.clone(),
        (_, Some(pid)) => format!("process {pid}"),
        _ => format!("another program ({})", ticket.node),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(before: usize, others: usize) -> (Wait, SystemTime) {
        let now = SystemTime::now();
        let holder = Holder {
            who: "report.sh".into(),
            host: Some("db-7".into()),
            since: now.checked_sub(Duration::from_secs(300)),
            is_leader: false,
            others,
        };
        let wait = Wait {
            holder: Some(holder),
            before: Some(before),
            ..Wait::of("nightly")
        };
        (wait, now)
    }

    #[test]
    fn it_says_who_holds_for_how_long_and_how_many_are_before_us() {
        let line = |before, others| {
            let (wait, now) = wait(before, others);
            wait.whole(now)
        };

        assert_eq!(
            line(2, 0),
            "waiting for nightly: held by report.sh on db-7 for 5m, 2 before you"
        );
        assert_eq!(
            line(0, 3),
            "waiting for nightly: held by report.sh on db-7 for 5m and 3 others, you are next"
        );
        // A plain lock has no queue.
        let plain = Wait::seen("a", &[], None);
        assert_eq!(plain.whole(SystemTime::now()), "waiting for a");
    }

    #[test]
    fn a_narrow_terminal_gets_what_matters() {
        let (wait, now) = wait(2, 0);
        for (columns, line) in [
            (
                67,
                "waiting for nightly: held by report.sh on db-7 for 5m, 2 before you",
            ),
            (
                66,
                "waiting for nightly: held by report.sh for 5m, 2 before you",
            ),
            (50, "waiting for nightly: held for 5m, 2 before you"),
            (46, "waiting for nightly: held for 5m, 2 before you"),
            (45, "nightly: held for 5m, 2 before you"),
            (10, "nightly: held for 5m, 2 before you"),
        ] {
            assert_eq!(wait.fitted(columns, now), line, "{columns}");
        }
    }

    #[test]
    fn the_servers_are_asked_six_times_in_the_first_minute_and_then_once() {
        let mut at = Duration::ZERO;
        let reads = pauses().map(|pause| {
            at += pause;
            at.as_secs()
        });
        let reads: Vec<u64> = reads.take(9).collect();

        assert_eq!(reads, [1, 2, 4, 8, 16, 32, 64, 124, 184]);
    }
}
