use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};

use super::request::HeartbeatAnswer;
use super::state::CheckedTicket;
use super::task::{DEAF, Rounds};
use super::*;
use crate::latch::Listener;
use crate::link::{Code, Fault, Found};
use crate::metrics::MetricsTable;
use crate::protocol::lease::By;
use crate::session::ending::EndNotifier;

const T: Duration = Duration::from_millis(1200);

fn ms(ms: u64) -> Moment {
    Moment::from_millis(ms)
}

/// A clock that goes on by a step each time it is read.
#[derive(Debug, Default)]
struct Steps {
    now: AtomicU64,
    step: AtomicU64,
}

impl Clock for Steps {
    fn now(&self) -> Moment {
        let step = self.step.load(Ordering::Relaxed);
        ms(self.now.fetch_add(step, Ordering::Relaxed))
    }

    fn until(&self, _moment: Moment) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// A heartbeat without a task, of a session that was opened at 0, and the senders that keep the
/// session alive.
struct Alive {
    heartbeat: Arc<Heartbeat>,
    clock: Arc<Steps>,
    _end_notifier: EndNotifier,
    _states: watch::Sender<SessionState>,
    closing: watch::Sender<bool>,
}

impl Alive {
    fn new() -> Self {
        let clock = Arc::new(Steps::default());
        let (_states, states) = watch::channel(SessionState::Connected);
        let (closing, is_closing) = watch::channel(false);
        let (ending, _end_notifier) = EndListener::new(states.clone(), is_closing);
        let heartbeat = Arc::new(Heartbeat {
            clock: Arc::<Steps>::clone(&clock),
            strength: LeaseStrength::Quorum,
            ending,
            states,
            state: Latch::new(HeartbeatState::new(Lease::new(T, None, ms(0), ms(0)))),
            leased: watch::Sender::new(true),
            tickets: AtomicUsize::new(0),
            reconnects: AtomicU64::new(1),
            recognised: AtomicU64::new(0),
            is_named: false,
        });
        Self {
            heartbeat,
            clock,
            _end_notifier,
            _states,
            closing,
        }
    }

    fn at(&self, now: u64, step: u64) {
        self.clock.now.store(now, Ordering::Relaxed);
        self.clock.step.store(step, Ordering::Relaxed);
    }

    fn begin_hold(&self, number: i64) -> LeaseEntry {
        let path = format!("/locks/{number}/lock-0000000000").into();
        self.heartbeat
            .try_begin_hold(path, number)
            .unwrap()
            .unwrap()
    }
}

fn heard(sent: Moment, batch: Vec<CheckedTicket>, answer: Result<(), Fault>) -> HeartbeatAnswer {
    HeartbeatAnswer {
        sent,
        batch,
        answer,
        by: By::Any,
        is_checked: false,
        owned: None,
        found: Some(Vec::new()),
    }
}

fn no_node() -> Result<(), Fault> {
    Err(Fault::Refused(0, Code::NoNode))
}

#[test]
fn a_lease_that_ends_while_an_answer_is_taken_in_is_told() {
    let alive = Alive::new();
    let entry = alive.begin_hold(1);

    alive.at(1079, 1);
    let answer = heard(ms(1000), Vec::new(), Ok(()));
    alive.heartbeat.hear(answer, &mut Rounds::default());

    alive.at(1100, 0);
    assert_eq!(entry.loss(), Some(Loss::Lapsed));
}

#[test]
fn a_hidden_ticket_keeps_no_other_from_being_checked() {
    let alive = Alive::new();
    let entries: Vec<LeaseEntry> = (0..150).map(|number| alive.begin_hold(number)).collect();
    for hidden in &entries[..100] {
        alive.heartbeat.observed().hide(hidden.0.id);
    }

    let checked: Vec<i64> = (0..4)
        .flat_map(|_| alive.heartbeat.observed().next_batch().0)
        .map(|ticket| ticket.czxid)
        .collect();

    for number in 100..150 {
        assert!(checked.contains(&number), "{number}");
    }
}

#[test]
fn tickets_that_a_heartbeat_told_nothing_of_come_first_in_the_next_one() {
    for (answer, first) in [(Err(Fault::Refused(5, Code::NoNode)), 6), (unknown(), 0)] {
        let alive = Alive::new();
        let _holds: Vec<LeaseEntry> = (0..250).map(|number| alive.begin_hold(number)).collect();
        let mut rounds = Rounds::default();
        let batch = alive.heartbeat.observed().next_batch().0;
        alive
            .heartbeat
            .hear(heard(ms(10), batch, answer), &mut rounds);

        let batch = alive.heartbeat.observed().next_batch().0;
        let next: Vec<i64> = batch.iter().map(|ticket| ticket.czxid).collect();

        let untold = (first..100).filter(|number| !next.contains(number));
        assert_eq!(untold.collect::<Vec<_>>(), [0_i64; 0], "of {next:?}");
    }
}

fn unknown() -> Result<(), Fault> {
    Err(Fault::Unknown("no answer".into()))
}

#[test]
fn a_broken_ticket_answers_no_question_for_the_session() {
    let alive = Alive::new();
    let (broken, other) = (alive.begin_hold(1), alive.begin_hold(2));
    let mut rounds = Rounds::default();
    let batch = alive.heartbeat.observed().next_batch().0;
    let mut answer = heard(ms(10), batch, no_node());
    answer.owned = Some((1, Vec::new()));

    alive.heartbeat.hear(answer, &mut rounds);

    assert!(matches!(broken.loss(), Some(Loss::Gone(_))));
    assert_eq!(other.loss(), None);
    assert!(
        alive.heartbeat.is_strange().is_some(),
        "it is asked again, about another one"
    );
}

#[test]
fn a_sync_that_finds_a_broken_ticket_is_no_reason_to_give_the_session_up() {
    let alive = Alive::new();
    let (broken, other) = (alive.begin_hold(1), alive.begin_hold(2));
    let mut rounds = Rounds::default();
    let batch = alive.heartbeat.observed().next_batch().0;
    let mut answer = heard(ms(10), batch, Ok(()));
    answer.owned = Some((1, Vec::new()));
    answer.found = Some(vec![Found::Failed(Code::NoNode)]);

    alive.heartbeat.hear(answer, &mut rounds);

    assert!(matches!(broken.loss(), Some(Loss::Gone(_))));
    assert_eq!(other.loss(), None);
}

#[test]
fn a_ticket_that_is_there_and_another_sessions_ends_ours() {
    let alive = Alive::new();
    let (entry, mut rounds) = (alive.begin_hold(1), Rounds::default());
    let batch = alive.heartbeat.observed().next_batch().0;
    let mut answer = heard(ms(10), batch, Ok(()));
    answer.owned = Some((1, Vec::new()));
    answer.is_checked = true;

    alive.heartbeat.hear(answer, &mut rounds);

    assert!(matches!(entry.loss(), Some(Loss::Ended(End::Over(_)))));
}

#[test]
fn a_heartbeat_that_crosses_a_release_is_no_loss() {
    let alive = Alive::new();
    let (entry, mut rounds) = (alive.begin_hold(1), Rounds::default());
    let batch = alive.heartbeat.observed().next_batch().0;

    assert_eq!(entry.loss_watch().begin_release(), None);
    alive
        .heartbeat
        .hear(heard(ms(10), batch, no_node()), &mut rounds);

    assert_eq!(entry.loss(), None);
}

#[test]
fn a_ticket_that_was_found_gone_is_lost_although_it_may_not_be_read() {
    let alive = Alive::new();
    let entry = alive.begin_hold(1);
    alive.heartbeat.observed().hide(entry.0.id);

    entry.lose("the ticket was removed");

    assert!(matches!(entry.loss(), Some(Loss::Gone(_))));
}

#[test]
fn a_listener_of_a_hold_may_ask_for_its_loss() {
    let listener = Listener::default();
    let hear = |of: &Alive, at: u64| {
        let mut rounds = Rounds::default();
        let batch = of.heartbeat.observed().next_batch().0;
        of.heartbeat
            .hear(heard(ms(at), batch, no_node()), &mut rounds);
    };
    let lose: [&dyn Fn(&Alive); 4] = [
        &|of| hear(of, 10),
        &|of| of.at(1200, 0),
        &|of| of.heartbeat.ending.renounce(DEAF),
        &|of| of.closing.send(true).unwrap(),
    ];

    let lose_all = || {
        for lose in lose {
            let (alive, before) = (Alive::new(), listener.told());
            let entries = [alive.begin_hold(1), alive.begin_hold(2)];
            let waker = Waker::from(Arc::new(listener.clone()));
            let mut told: Vec<_> = entries
                .iter()
                .map(|entry| entry.loss_watch().lost().boxed())
                .collect();
            for (entry, told) in entries.iter().zip(&mut told) {
                entry.count(&MetricsTable::default().of("orders", "mutex"));
                let polled = told.poll_unpin(&mut Context::from_waker(&waker));
                assert!(polled.is_pending());
            }

            lose(&alive);
            let lost = entries
                .iter()
                .filter(|entry| entry.loss().is_some())
                .count();

            assert!(lost > 0 && listener.told() > before);
            drop(entries);
        }
    };
    let listen = || tracing::subscriber::with_default(listener.clone(), lose_all);
    #[cfg(feature = "metrics")]
    ::metrics::with_local_recorder(&listener, listen);
    #[cfg(not(feature = "metrics"))]
    listen();

    assert_eq!(listener.too_early(), None);
}
