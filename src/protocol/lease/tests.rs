use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;

const T: Duration = Duration::from_millis(1200);

fn ms(ms: u64) -> Moment {
    Moment::from_millis(ms)
}

/// A lease whose heartbeats were answered 1 ms after they were sent at these moments.
fn after(heartbeats: impl IntoIterator<Item = u64>) -> Lease {
    let mut lease = Lease::new(T, None, ms(0), ms(1));
    for sent in heartbeats {
        lease.answered(ms(sent), ms(sent + 1), By::Any);
    }
    lease
}

#[test]
fn a_new_session_has_a_lease_from_its_handshake() {
    assert_eq!(after([]).valid_until(ms(2)), Some(ms(1080)));
    assert_eq!(
        Lease::new(T, None, ms(0), ms(1081)).valid_until(ms(1081)),
        None,
        "but not after a handshake that took as long as the lease"
    );
}

#[test]
fn regular_beats_keep_a_lease_of_more_than_half_the_timeout() {
    let heartbeats: Vec<u64> = (1..20).map(|heartbeat| heartbeat * 200).collect();
    for count in 3..heartbeats.len() {
        let lease = after(heartbeats[..count].iter().copied());
        let last = heartbeats[count - 1];

        // The anchor is the heartbeat before the last but one: the last one was sent less than a
        // quarter after it was answered.
        assert_eq!(lease.valid_until(ms(last + 1)), Some(ms(last - 400 + 1080)));
    }
}

#[test]
fn row_83_an_answer_proves_older_requests_and_not_itself() {
    // docs/failures.md row 83: the heartbeat at 900 was late; a lease of 900 + 0.6 T would be too
    // long.
    let lease = after([200, 400, 900]);

    assert_eq!(lease.valid_until(ms(901)), Some(ms(400 + 1080)));
}

#[test]
fn row_81_the_first_answer_after_a_silence_begins_no_lease() {
    // docs/failures.md row 81.
    let mut lease = after([200, 400]);
    let end = lease.valid_until(ms(401)).unwrap();

    lease.answered(end + ms(50), end + ms(51), By::Any);
    assert_eq!(lease.valid_until(end + ms(51)), None);
    lease.answered(end + ms(51 + 299), end + ms(352), By::Any);
    assert_eq!(
        lease.valid_until(end + ms(352)),
        None,
        "less than a quarter of the timeout after the first"
    );
    lease.answered(end + ms(51 + 300), end + ms(353), By::Any);
    assert_eq!(
        lease.valid_until(end + ms(353)),
        Some(end + ms(50 + 1080)),
        "two answered requests, a quarter of the timeout apart"
    );
}

#[test]
fn an_answer_at_the_very_end_does_not_save_a_lease() {
    let mut lease = after([200, 400]);
    let end = lease.valid_until(ms(401)).unwrap();

    assert!(lease.valid_until(end - ms(1)).is_some());
    lease.answered(end - ms(200), end, By::Any);
    assert_eq!(lease.valid_until(end), None);
    assert!(!lease.end_if_over(end), "that was told already");
}

#[test]
fn a_lease_ends_once() {
    let mut lease = after([]);

    assert!(!lease.end_if_over(ms(1079)));
    assert!(lease.end_if_over(ms(1080)));
    assert!(!lease.end_if_over(ms(1081)));
}

#[test]
fn a_beat_that_may_begin_a_lease_is_sent_once() {
    let mut lease = after([200]);
    lease.answered(ms(2000), ms(2010), By::Any);
    assert_eq!(lease.next_heartbeat(ms(2000), false), ms(2310));

    assert_eq!(
        lease.next_heartbeat(ms(2310), false),
        ms(2510),
        "and then waited for"
    );
}

#[test]
fn a_declared_tick_makes_the_lease_longer() {
    for (tick, heartbeats_back) in [(None, 3), (Some(ms(240)), 2), (Some(ms(60)), 1)] {
        let mut lease = Lease::new(T, tick, ms(0), ms(1));
        let mut sent = ms(0);
        for _ in 0..10 {
            sent = lease.next_heartbeat(sent, true);
            lease.answered(sent, sent + ms(1), By::Any);
        }

        let anchor = sent - ms(120) * heartbeats_back;
        let end = lease.valid_until(sent + ms(1));
        assert_eq!(end, Some(anchor + ms(1080)), "{tick:?}");
    }
}

#[test]
fn an_answer_of_a_server_that_stands_alone_proves_its_own_request() {
    let mut lease = after([200]);

    lease.answered(ms(400), ms(410), By::Standalone);
    assert_eq!(lease.valid_until(ms(410)), Some(ms(400 + 1080)));

    lease.answered(ms(500), ms(510), By::Any);
    let end = lease.valid_until(ms(510));
    assert_eq!(end, Some(ms(400 + 1080)), "the next one may be another");
}

#[test]
fn after_a_silence_one_answer_proves_nothing_whoever_gave_it() {
    // The server may have taken the session out of its queue, and not have come to it yet.
    let mut lease = after([200]);

    for (sent, end) in [(2000, None), (2309, None), (2310, Some(ms(2310 + 1080)))] {
        lease.answered(ms(sent), ms(sent + 10), By::Standalone);
        assert_eq!(lease.valid_until(ms(sent + 10)), end);
    }
}

#[test]
fn an_answer_at_the_very_end_is_too_late_whoever_gave_it() {
    let mut lease = after([200]);
    let end = lease.valid_until(ms(201)).unwrap();

    lease.answered(end - ms(1), end, By::Standalone);
    assert_eq!(lease.valid_until(end), None);
}

#[test]
fn a_silence_is_survived_that_is_shorter_than_the_lease_allows() {
    // The silence begins right before a heartbeat is answered, and its end is met by the first
    // heartbeat after it. A server that stands alone has not said so again by then.
    let long = ms(10_000);
    for (tick, by, survived) in [
        (None, By::Any, 1400),
        (Some(ms(2000)), By::Any, 4000),
        (None, By::Standalone, 6000),
        (Some(ms(2000)), By::Standalone, 6000),
    ] {
        for phase in 0..100 {
            let mut lease = Lease::new(long, tick, ms(0), ms(1));
            let begin = 20_000 + phase * 10;
            let end = begin + survived;
            let mut sent = ms(0);
            while sent < ms(end + 4000) {
                sent = lease.next_heartbeat(sent, true);
                // What is sent in the silence is answered at its end.
                let is_silent = (ms(begin)..ms(end)).contains(&sent);
                let at = if is_silent { ms(end) } else { sent + ms(1) };
                // TERM comes a twentieth before the end.
                let left = lease.valid_until(at).map(|end| end - at);
                let setting = (tick, by);
                assert!(
                    left > Some(ms(500)),
                    "{setting:?} {phase} {sent:?}: {left:?}"
                );
                lease.answered(sent, at, if is_silent { By::Any } else { by });
            }
        }
    }
}

#[test]
fn a_missing_beat_is_noticed_after_two() {
    let lease = after([200, 400]);

    assert!(!lease.is_late(ms(800)));
    assert!(lease.is_late(ms(801)));
}

/// What `tests/sessions/traces.rs` recorded.
#[derive(serde::Deserialize)]
struct Trace {
    timeout_us: u64,
    answered: Vec<(u64, u64)>,
    over_us: u64,
}

// The ticks of these servers were 200 ms.
#[test]
fn no_lease_outlives_a_session_of_a_real_ensemble() {
    let traces = include_str!("../../../tests/sessions/recorded/lease.jsonl");
    for tick in [None, Some(Duration::from_millis(200))] {
        replay(traces, tick, By::Any);
    }
}

#[test]
fn no_lease_outlives_a_session_of_a_real_server_that_stands_alone() {
    let traces = include_str!("../../../tests/sessions/recorded/standalone.jsonl");
    replay(traces, None, By::Standalone);
}

fn replay(traces: &str, tick: Option<Duration>, by: By) {
    let (mut count, mut leases, mut closest) = (0, 0, f64::MAX);
    for line in traces.lines() {
        let trace: Trace = serde_json::from_str(line).unwrap();
        let timeout = Duration::from_micros(trace.timeout_us);
        let mut answered = trace
            .answered
            .iter()
            .map(|(sent, at)| (Duration::from_micros(*sent), Duration::from_micros(*at)));
        let (sent, at) = answered.next().unwrap();
        let mut lease = Lease::new(timeout, tick, sent, at);
        let over = Duration::from_micros(trace.over_us);
        for (sent, at) in answered {
            lease.answered(sent, at, by);
            if let Some(end) = lease.valid_until(at) {
                assert!(end <= over, "until {end:?} in {line}");
                closest = closest.min((over - end).div_duration_f64(timeout));
                leases += 1;
            }
        }
        count += 1;
    }
    assert!(count > 200 && leases > 1000, "{count} {leases}");
    assert!(
        closest < 0.5,
        "the traces come close enough to prove something"
    );
}

/// Servers as those of ZooKeeper 3.8 are, which end a session at the first multiple of their
/// tick after the timeout.
#[derive(Debug)]
struct Servers {
    tick: u64,
    kind: Kind,
    expires: u64,
}

#[derive(Debug)]
enum Kind {
    /// The client is connected to a follower, which notes who asked something. The leader pings
    /// it every half tick, learns from the answer who did, and counts each of these sessions
    /// from then on.
    Ensemble {
        /// How long the leader's ping and its answer are on the way.
        ping: u64,
        is_noted: bool,
        next_ping: u64,
    },
    /// It counts from each request. Once a session is due, it takes so long to mark it as
    /// closing, and answers until then.
    Standalone { slow: u64 },
}

impl Kind {
    fn ensemble(ping: u64, next_ping: u64) -> Self {
        Self::Ensemble {
            ping,
            is_noted: false,
            next_ping,
        }
    }
}

impl Servers {
    fn new(tick: u64, kind: Kind) -> Self {
        let mut servers = Self {
            tick,
            kind,
            expires: 0,
        };
        servers.touch(0);
        servers
    }

    fn touch(&mut self, now: u64) {
        let end = now + u64::try_from(T.as_millis()).unwrap();
        self.expires = self.expires.max((end / self.tick + 1) * self.tick);
    }

    /// Goes on to a moment at which the client's request arrives, or says when the session
    /// ended before.
    fn go_on(&mut self, now: u64) -> Result<(), u64> {
        while let Kind::Ensemble {
            ping,
            is_noted,
            next_ping,
        } = &mut self.kind
        {
            let (asked, told) = (*next_ping, *next_ping + *ping);
            if now < asked {
                break;
            }
            *next_ping += self.tick / 2;
            if self.expires <= told {
                return Err(self.expires);
            }
            if std::mem::take(is_noted) {
                self.touch(told);
            }
        }
        let is_due = self.expires <= now;
        match &mut self.kind {
            Kind::Ensemble { .. } if is_due => return Err(self.expires),
            Kind::Ensemble { is_noted, .. } => *is_noted = true,
            Kind::Standalone { slow } if self.expires + *slow <= now => {
                return Err(self.expires + *slow);
            }
            Kind::Standalone { .. } if is_due => {}
            Kind::Standalone { .. } => self.touch(now),
        }
        Ok(())
    }

    /// Starts again as something else: whoever has a session then has it for a whole timeout.
    fn restart(&mut self, now: u64, kind: Kind) -> Result<(), u64> {
        if self.expires <= now {
            return Err(self.expires);
        }
        self.kind = kind;
        self.touch(now);
        Ok(())
    }

    /// Nothing is asked any more; a follower may also be cut from its leader, which hears no
    /// more of what it has noted.
    fn end(&mut self, is_cut: bool) -> u64 {
        if is_cut {
            return self.expires;
        }
        match self.kind {
            Kind::Standalone { .. } => self.expires,
            Kind::Ensemble { .. } => self.go_on(u64::MAX / 2).unwrap_err(),
        }
    }
}

/// Runs many cases; the least that a lease was over before its session, in milliseconds.
fn least<S: Strategy>(of: S, case: impl Fn(S::Value) -> (Option<Moment>, u64)) -> i64 {
    let least = std::cell::Cell::new(i64::MAX);
    let config = ProptestConfig {
        source_file: Some(file!()),
        ..ProptestConfig::with_cases(4000)
    };
    let run = TestRunner::new(config).run(&of, |case_| {
        let (furthest, over) = case(case_);
        let furthest = furthest.map_or(0, |end| i64::try_from(end.as_millis()).unwrap());
        let slack = i64::try_from(over).unwrap() - furthest;
        prop_assert!(slack >= 0, "until {furthest} but over at {over}");
        least.set(least.get().min(slack));
        Ok(())
    });
    run.unwrap_or_else(|why| panic!("{why}"));
    least.get()
}

fn heartbeats() -> impl Strategy<Value = Vec<(u8, u64, u64, u64)>> {
    prop::collection::vec((0..2_u8, 0..1500_u64, 0..60_u64, 0..60_u64), 1..80)
}

/// docs/failures.md, invariant S2b, against every rhythm of heartbeats, pauses and pings: whatever
/// was answered, the lease is over when the leader ends the session, also where the follower is
/// cut from it.
#[test]
fn no_lease_outlives_its_session() {
    let of = (
        (20..=600_u64, 0..20_u64, 0..300_u64),
        any::<[bool; 2]>(),
        prop::sample::select(vec![120_u64, 200]),
        heartbeats(),
    );
    let least = least(
        of,
        |((tick, ping, phase), [is_declared, is_cut], rhythm, heartbeats)| {
            // With a declared tick the ping's way is what the lag has beyond half of it.
            let ping = if is_declared {
                ping.min(tick / 20)
            } else {
                ping
            };
            let mut servers = Servers::new(tick, Kind::ensemble(ping, phase.min(tick / 2)));
            let declared = is_declared.then_some(ms(tick));
            let mut lease = Lease::new(T, declared, ms(0), ms(0));
            let (mut now, mut furthest) = (0, lease.valid_until(ms(0)));
            for (kind, gap, there, back) in heartbeats {
                // Mostly regular heartbeats; sometimes the process sleeps.
                now += if kind == 0 { rhythm } else { gap };
                if let Err(over) = servers.go_on(now + there) {
                    return (furthest, over);
                }
                lease.answered(ms(now), ms(now + there + back), By::Any);
                now += there + back;
                furthest = furthest.max(lease.valid_until(ms(now)));
            }
            (furthest, servers.end(is_cut))
        },
    );
    assert!(
        least < 150,
        "the cases come close enough to prove something"
    );
}

/// The same at a server that stands alone and says so sooner or later, and is started again as
/// one of an ensemble, and back.
#[test]
fn no_lease_outlives_its_session_at_a_server_that_stands_alone() {
    let of = (
        (20..=600_u64, 0..20_u64, 0..280_u64),
        any::<bool>(),
        prop::sample::select(vec![120_u64, 200]),
        prop::collection::vec((0..20_u8, 1..20_usize), 1..20),
        heartbeats(),
    );
    let least = least(
        of,
        |((tick, ping, slow), is_cut, rhythm, stays, heartbeats)| {
            let mut servers = Servers::new(tick, Kind::Standalone { slow });
            let mut lease = Lease::new(T, None, ms(0), ms(0));
            let (mut now, mut furthest) = (0, lease.valid_until(ms(0)));
            // How many requests until it has said what it is, and until it is started again.
            let mut stays = stays.into_iter().cycle();
            let (mut unproved, mut stay) = stays.next().unwrap();
            for (kind, gap, there, back) in heartbeats {
                now += if kind == 0 { rhythm } else { gap };
                if stay == 0 {
                    let kind = match servers.kind {
                        Kind::Standalone { .. } => Kind::ensemble(ping, now + tick / 3),
                        Kind::Ensemble { .. } => Kind::Standalone { slow },
                    };
                    if let Err(over) = servers.restart(now, kind) {
                        return (furthest, over);
                    }
                    (unproved, stay) = stays.next().unwrap();
                }
                stay -= 1;
                if let Err(over) = servers.go_on(now + there) {
                    return (furthest, over);
                }
                let by = match servers.kind {
                    Kind::Standalone { .. } if unproved == 0 => By::Standalone,
                    _ => By::Any,
                };
                unproved = unproved.saturating_sub(1);
                lease.answered(ms(now), ms(now + there + back), by);
                now += there + back;
                furthest = furthest.max(lease.valid_until(ms(now)));
            }
            (furthest, servers.end(is_cut))
        },
    );
    assert!(
        least < 150,
        "the cases come close enough to prove something"
    );
}
