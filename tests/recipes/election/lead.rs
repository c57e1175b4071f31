//! `lead`: one function at a time, leadership for as long as it runs, and again after a loss.

#[path = "../../../examples/scheduler.rs"]
#[allow(dead_code, reason = "its main")]
mod scheduler;

use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockkeeper::{Leadership, Token};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::{SOON, candidate, elected, value};
use testbench::{World, case, eventually};
use testbench::{children, keeper};

#[case]
async fn lead_stands_again_until_its_function_has_enough(world: World) {
    let keeper = keeper(&world).await;
    let stranger = world.raw().await;
    let election = keeper.election("again").unwrap();
    let mut tokens = Vec::new();

    let tokens = election
        .lead("a", async move |leadership| {
            tokens.push(leadership.token());
            match tokens.len() {
                5 => Break(std::mem::take(&mut tokens)),
                _ => Continue(()),
            }
        })
        .await
        .unwrap();

    assert_eq!(tokens.len(), 5);
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    assert!(children(&stranger, "again").await.is_empty());
}

#[case]
async fn lead_never_runs_two_functions(world: World) {
    let inside = Arc::new(AtomicUsize::new(0));
    let (tell, mut told) = mpsc::unbounded_channel::<Token>();
    let mut leaders = Vec::new();
    for number in 0..4 {
        let keeper = keeper(&world).await;
        let election = keeper.election("two").unwrap();
        let (inside, tell) = (Arc::clone(&inside), tell.clone());
        leaders.push(tokio::spawn(async move {
            let mut rounds = 0;
            let led = election.lead(number.to_string(), async move |leadership| {
                rounds += 1;
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two lead");
                tell.send(leadership.token()).unwrap();
                tokio::task::yield_now().await;
                assert!(leadership.is_held());
                inside.fetch_sub(1, Ordering::SeqCst);
                if rounds < 10 { Continue(()) } else { Break(()) }
            });
            led.await.unwrap();
            keeper.close().await;
        }));
    }
    for leader in leaders {
        leader.await.unwrap();
    }

    told.close();
    let mut tokens = Vec::new();
    while let Some(token) = told.recv().await {
        tokens.push(token);
    }
    assert_eq!(tokens.len(), 40);
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[case]
async fn lead_keeps_leadership_until_its_function_has_ended(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let stranger = world.raw().await;
    let [first, second] = [&a, &b].map(|keeper| keeper.election("kept").unwrap());
    let (end, mut ended) = mpsc::channel::<()>(1);
    let (led, next) = tokio::join!(
        first.lead("a", async move |_leadership| {
            ended.recv().await;
            Break(7)
        }),
        async {
            let leads = || async { value(&second).await.as_deref() == Some("a") };
            eventually("it leads", SOON, leads).await;
            let next = candidate(&stranger, &second, "b").await;
            sleep(Duration::from_millis(100)).await;
            assert!(!next.is_finished(), "the function has not ended");
            end.send(()).await.unwrap();
            elected(next).await
        }
    );

    assert_eq!(led.unwrap(), 7);
    next.resign().await.unwrap();
}

#[case]
async fn a_dropped_lead_drops_its_function_and_then_resigns(world: World) {
    let keeper = keeper(&world).await;
    let stranger = world.raw().await;
    let election = keeper.election("dropped").unwrap();
    let (began, begun) = oneshot::channel();
    let dropped = Arc::new(AtomicUsize::new(0));
    let (mut began, mine) = (Some(began), Arc::clone(&dropped));
    let leading = election.lead("a", async move |leadership| {
        // Dropped with the future, while the leadership is there: it borrows it.
        let last_look = LastLook(leadership, &mine);
        began.take().expect("one call").send(()).unwrap();
        std::future::pending::<()>().await;
        drop(last_look);
        Continue::<()>(())
    });
    {
        tokio::pin!(leading);
        tokio::select! {
            led = &mut leading => panic!("it never ends: {led:?}"),
            begun = begun => begun.unwrap(),
        }
        assert_eq!(children(&stranger, "dropped").await.len(), 1);
    }

    assert_eq!(dropped.load(Ordering::SeqCst), 1, "it was held to the last");
    let gone = || async { children(&stranger, "dropped").await.is_empty() };
    eventually("it resigns", SOON, gone).await;
}

/// Counts, when it is dropped, whether we still lead.
struct LastLook<'a>(&'a Leadership, &'a AtomicUsize);

impl Drop for LastLook<'_> {
    fn drop(&mut self) {
        self.1
            .fetch_add(usize::from(self.0.is_held()), Ordering::SeqCst);
    }
}

#[case]
async fn lead_can_be_spawned(world: World) {
    let keeper = keeper(&world).await;
    let election = keeper.election("spawned").unwrap();
    let led = tokio::spawn(async move {
        let led = election.lead(String::from("a"), async |leadership| {
            Break(leadership.run(async { 7 }).await)
        });
        led.await
    });

    assert_eq!(led.await.unwrap().unwrap().unwrap(), 7);
}

#[case]
async fn lead_takes_an_async_function_and_a_closure_with_a_boxed_future(world: World) {
    async fn leads(leadership: &Leadership) -> ControlFlow<Token> {
        Break(leadership.token())
    }
    let keeper = keeper(&world).await;
    let election = keeper.election("functions").unwrap();

    let first = election.lead("a", leads).await.unwrap();
    let boxed = |leadership: &Leadership| {
        let token = leadership.token();
        Box::pin(async move { Break(token) })
    };
    let second = election.lead("a", boxed).await.unwrap();

    assert!(second > first, "{first} {second}");
}

#[case]
async fn the_example_runs_each_job_once_and_hands_over(world: World) {
    let jobs = scheduler::schedule(&world.connect_string()).await.unwrap();

    let numbers: Vec<usize> = jobs.iter().map(|(job, _)| *job).collect();
    assert_eq!(numbers, (0..12).collect::<Vec<_>>());
    assert!(jobs.is_sorted_by_key(|(_, token)| *token), "{jobs:?}");
    let mut leaders: Vec<Token> = jobs.iter().map(|(_, token)| *token).collect();
    leaders.dedup();
    assert_eq!(leaders.len(), 4, "each leads for three jobs: {jobs:?}");
}

#[case(embedded)]
async fn lead_waits_for_its_function_after_a_loss_and_stands_again(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let faults = world.embedded().faults();
    let [first, second] = [&a, &b].map(|keeper| keeper.election("loss").unwrap());
    let (calls, mut called) = mpsc::unbounded_channel();
    let leading = tokio::spawn(async move {
        let led = first.lead("a", async move |leadership| {
            let (end, ended) = oneshot::channel::<ControlFlow<()>>();
            calls.send((leadership.token(), end)).unwrap();
            let why = leadership.lost().await;
            assert!(why.is_lost() && !leadership.is_held(), "{why}");
            // A slow end.
            ended.await.unwrap()
        });
        led.await
    });
    let (token, end) = called.recv().await.unwrap();
    let session = i64::from(second.leader().await.unwrap().unwrap().session);

    faults.expire_session(session);

    let other = timeout(SOON, second.campaign("b")).await.unwrap().unwrap();
    assert!(other.token() > token);
    sleep(Duration::from_millis(100)).await;
    assert_eq!(
        second.participants().await.unwrap().len(),
        1,
        "it does not stand"
    );
    other.resign().await.unwrap();
    assert!(called.try_recv().is_err(), "the first has not ended");
    end.send(Continue(())).unwrap();
    let (again, end) = timeout(SOON, called.recv()).await.unwrap().unwrap();
    assert!(again > token);
    leading.abort();
    // Or it would lose its keeper, and then miss what `end` never says.
    assert!(leading.await.unwrap_err().is_cancelled());
    drop(end);
}

#[case(embedded)]
async fn lead_stands_again_after_an_operator_broke_its_ticket(world: World) {
    let keeper = keeper(&world).await;
    let faults = world.embedded().faults();
    let election = keeper.election("broken").unwrap();
    let mut calls = 0;
    let (tell, mut told) = mpsc::unbounded_channel();
    let led = election.lead("a", async move |leadership| {
        calls += 1;
        tell.send(leadership.node().to_owned()).unwrap();
        if calls == 3 {
            return Break(leadership.token());
        }
        leadership.lost().await;
        Continue(())
    });
    let broken = async {
        for _ in 0..2 {
            let node = told.recv().await.unwrap();
            let path = format!("{}/locks/broken/{node}", world.chroot());
            faults.remove(&path).unwrap();
        }
    };

    let (led, ()) = tokio::join!(timeout(SOON * 3, led), broken);

    assert!(u64::from(led.unwrap().unwrap()) > 0);
}
