//! Asking several servers at the same time, and counting what they say.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{Script, cmd};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::connection::Connection;
use super::setnx::millis;
use crate::compat::store::{Acquired, Attempt, StoreResult};
use crate::error::StoreProblem;

/// The type of what was there, the rest of its ttl, and for how many seconds the server runs. All
/// are of one moment and of one process, also where the connection is to a proxy.
static SET: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local kind = redis.call('type', KEYS[1]).ok \
         if kind ~= 'none' then return {kind, redis.call('pttl', KEYS[1]), 0} end \
         local info = redis.call('info', 'server') \
         local age = string.match(info, 'uptime_in_seconds:(%d+)') \
         redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2]) \
         return {kind, 0, tonumber(age or -1)}",
    )
});

/// What one server says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Vote {
    Yes,
    /// It is not the attempt's, and is another client's for so long.
    No(Option<Duration>),
    /// Nothing is known of it, or it cannot be relied on.
    Uncounted(StoreProblem),
}

type Ballot = for<'a> fn(&'a Connection, &'a Attempt) -> BoxFuture<'a, StoreResult<Vote>>;
type Voter = BoxFuture<'static, (Arc<Connection>, Vote)>;

/// A server has so long to answer. Asking and giving back fit into what the caller waits for.
pub(super) fn limit(ttl: Duration) -> Duration {
    (ttl / 10).min(Duration::from_secs(1))
}

/// All servers, asked at the same time. Those that have not answered when it is dropped are heard
/// by a task: what they were asked is done.
pub(super) struct Votes(FuturesUnordered<Voter>);

pub(super) fn ask_all(
    masters: &[Arc<Connection>],
    attempt: &Attempt,
    limit: Duration,
    ballot: Ballot,
) -> Votes {
    let voters = masters.iter().map(|master| {
        let (master, attempt) = (Arc::clone(master), attempt.clone());
        async move {
            let answer = timeout(limit, ballot(&master, &attempt)).await;
            let answer = answer.unwrap_or(Err(StoreProblem::NoAnswer));
            let vote = answer.unwrap_or_else(Vote::Uncounted);
            (master, vote)
        }
        .boxed()
    });
    Votes(voters.collect())
}

impl Votes {
    pub(super) async fn next(&mut self) -> Option<(Arc<Connection>, Vote)> {
        self.0.next().await
    }
}

impl Drop for Votes {
    fn drop(&mut self) {
        if self.0.is_empty() {
            return;
        }
        let mut rest = std::mem::take(&mut self.0);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move { while rest.next().await.is_some() {} });
        }
    }
}

pub(super) fn set<'a>(
    master: &'a Connection,
    attempt: &'a Attempt,
) -> BoxFuture<'a, StoreResult<Vote>> {
    async move {
        let mut script = SET.key(&*attempt.name);
        script.arg(&*attempt.secret).arg(millis(attempt.ttl));
        let (kind, left, age): (String, i64, i64) = master.script(&script).await?;
        match (&*kind, u64::try_from(age)) {
            ("none", Ok(age)) if runs_long_enough(age, attempt.ttl) => Ok(Vote::Yes),
            ("none", Ok(age)) => Ok(Vote::Uncounted(StoreProblem::Unreachable(format!(
                "{} started {age} s ago, and may have forgotten a lock of {:?}",
                master.server(),
                attempt.ttl
            )))),
            ("none", Err(_)) => Err(StoreProblem::WrongServer(
                "it does not tell its uptime".into(),
            )),
            ("string", _) => Ok(Vote::No(left.try_into().ok().map(Duration::from_millis))),
            (other, _) => Err(StoreProblem::OtherContent(format!(
                "the key holds a {other}, and not a lock of this kind"
            ))),
        }
    }
    .boxed()
}

/// The uptime is the difference of two times in whole seconds, so it may be one too long.
fn runs_long_enough(uptime: u64, ttl: Duration) -> bool {
    Duration::from_secs(uptime.saturating_sub(1)) >= ttl
}

pub(super) fn extend<'a>(
    master: &'a Connection,
    attempt: &'a Attempt,
) -> BoxFuture<'a, StoreResult<Vote>> {
    async move { Ok(vote(master.renew(attempt).await?)) }.boxed()
}

pub(super) fn free<'a>(
    master: &'a Connection,
    attempt: &'a Attempt,
) -> BoxFuture<'a, StoreResult<Vote>> {
    async move { Ok(vote(master.release(attempt).await?)) }.boxed()
}

fn vote(is_ours: bool) -> Vote {
    if is_ours { Vote::Yes } else { Vote::No(None) }
}

/// Sets a lock that a majority has where it was lost. It is counted at the next renewal at the
/// earliest. If the lock is released meanwhile, it ends there with its ttl.
pub(super) async fn set_again(master: Arc<Connection>, attempt: Attempt) {
    let mut set = cmd("SET");
    set.arg(&*attempt.name).arg(&*attempt.secret);
    set.arg("NX").arg("PX").arg(millis(attempt.ttl));
    let set = master.call::<Option<()>>(&set);
    if let Ok(Err(problem)) = timeout(limit(attempt.ttl), set).await {
        tracing::debug!(%problem, server = master.server(), "cannot set a lost lock again");
    }
}

/// The votes so far.
#[derive(Debug)]
pub(super) struct Tally {
    of: usize,
    yes: usize,
    no: usize,
    left: Option<Duration>,
    uncounted: Vec<StoreProblem>,
}

impl Tally {
    pub(super) fn new(of: usize) -> Self {
        Self {
            of,
            yes: 0,
            no: 0,
            left: None,
            uncounted: Vec::new(),
        }
    }

    pub(super) fn count(&mut self, vote: Vote) {
        match vote {
            Vote::Yes => self.yes += 1,
            Vote::No(left) => {
                self.no += 1;
                self.left = self.left.into_iter().chain(left).min();
            }
            Vote::Uncounted(why) => self.uncounted.push(why),
        }
    }

    fn majority(&self) -> usize {
        self.of / 2 + 1
    }

    pub(super) fn has_any(&self) -> bool {
        self.yes > 0
    }

    pub(super) fn has_majority(&self) -> bool {
        self.yes >= self.majority()
    }

    /// No majority can be for it, and that is because of another client: so many say no, or a
    /// majority is counted and some of it say no.
    pub(super) fn is_taken(&self) -> bool {
        let possible = self.of - self.no - self.uncounted.len();
        let is_clear = self.no > 0 && self.yes + self.no >= self.majority();
        self.is_denied() || (is_clear && possible < self.majority())
    }

    /// So many servers say no that those without an answer cannot make a majority.
    pub(super) fn is_denied(&self) -> bool {
        self.of - self.no < self.majority()
    }

    /// Why there is no grant: another client has it or some of it, or too few can be counted.
    pub(super) fn refused(self) -> StoreResult<Acquired> {
        if self.is_taken() {
            return Ok(Acquired::No { left: self.left });
        }
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        let mut why: Vec<String> = self.uncounted.iter().map(ToString::to_string).collect();
        why.sort_unstable();
        why.dedup();
        Err(StoreProblem::Unreachable(format!(
            "{} of {} servers can be counted, which is no majority: {}",
            self.yes + self.no,
            self.of,
            why.join("; ")
        )))
    }

    /// What a server refuses that does not pass.
    pub(super) fn refusal(&self) -> Option<StoreProblem> {
        let mut problems = self.uncounted.iter();
        problems.find(|problem| !problem.is_passing()).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(of: usize, votes: &[Vote]) -> Tally {
        let mut tally = Tally::new(of);
        for vote in votes {
            tally.count(vote.clone());
        }
        tally
    }

    #[test]
    fn a_majority_is_of_all_servers_and_not_of_those_that_answer() {
        let young = || Vote::Uncounted(StoreProblem::Unreachable("young".into()));
        for (of, votes, has, taken, denied) in [
            (3, vec![Vote::Yes], false, false, false),
            (3, vec![Vote::Yes, Vote::Yes], true, false, false),
            (3, vec![Vote::Yes, young(), young()], false, false, false),
            (3, vec![Vote::No(None), Vote::No(None)], false, true, true),
            (4, vec![Vote::Yes, Vote::Yes], false, false, false),
            (4, vec![Vote::No(None), Vote::No(None)], false, true, true),
            (
                5,
                vec![Vote::Yes, Vote::Yes, young(), young()],
                false,
                false,
                false,
            ),
            (5, vec![Vote::Yes, Vote::Yes, Vote::Yes], true, false, false),
        ] {
            let tally = tally(of, &votes);
            assert_eq!(tally.has_majority(), has, "{tally:?}");
            assert_eq!(tally.is_taken(), taken, "{tally:?}");
            assert_eq!(tally.is_denied(), denied, "{tally:?}");
        }
    }

    #[test]
    fn a_server_must_run_for_a_ttl_to_be_counted() {
        let ttl = Duration::from_millis(2_000);
        assert_eq!(
            [0, 2, 3].map(|age| runs_long_enough(age, ttl)),
            [false, false, true]
        );
        assert!(!runs_long_enough(3, ttl + Duration::from_millis(1)));
    }

    #[test]
    fn taken_and_too_few_are_told_apart() {
        let ms = Duration::from_millis;
        let young = || Vote::Uncounted(StoreProblem::Unreachable("young".into()));
        let taken = tally(3, &[Vote::No(Some(ms(9))), Vote::No(Some(ms(4))), young()]);
        assert_eq!(taken.refused(), Ok(Acquired::No { left: Some(ms(4)) }));
        let split = tally(4, &[Vote::Yes, Vote::Yes, Vote::No(None), Vote::No(None)]);
        assert_eq!(split.refused(), Ok(Acquired::No { left: None }));
        for votes in [
            vec![Vote::Yes, young(), young()],
            vec![Vote::No(None), young(), young()],
        ] {
            let few = tally(3, &votes).refused().unwrap_err();
            assert!(
                few.is_passing() && few.to_string().contains("1 of 3"),
                "{few}"
            );
        }
    }
}
