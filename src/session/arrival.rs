//! The moment at which an answer came. Its future may be polled much later.
//!
//! An answer wakes its waiter, and the moment of that wake-up is noted here. Invariant: the moment
//! is never later than the answer was taken in. It knows no requests.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Wake, Waker};

use super::clock::Clock;
use crate::protocol::lease::Moment;

/// Notes when it was first woken, and wakes the waiter.
struct Woken {
    clock: Arc<dyn Clock>,
    at: OnceLock<Moment>,
    waker: Waker,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.at.get_or_init(|| self.clock.now());
        self.waker.wake_by_ref();
    }
}

/// Waits for an answer; with it, the moment at which it came, or an earlier one.
pub(super) async fn stamped<T>(
    clock: &Arc<dyn Clock>,
    answer: impl Future<Output = T>,
) -> (Moment, T) {
    let mut answer = pin!(answer);
    let mut last: Option<Arc<Woken>> = None;
    poll_fn(|context| {
        let woken = Arc::new(Woken {
            clock: Arc::clone(clock),
            at: OnceLock::new(),
            waker: context.waker().clone(),
        });
        let waker = Waker::from(Arc::clone(&woken));
        let polled = answer.as_mut().poll(&mut Context::from_waker(&waker));
        let before = last.replace(woken).and_then(|last| last.at.get().copied());
        polled.map(|answer| (before.unwrap_or_else(|| clock.now()), answer))
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::time::sleep;

    use super::*;
    use crate::session::clock::SystemClock;

    #[tokio::test]
    async fn an_answer_is_as_old_as_it_is_and_not_as_new_as_its_poll() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let (give, answer) = oneshot::channel();
        let mut answered = pin!(stamped(&clock, answer));
        tokio::select! {
            biased;
            _ = &mut answered => panic!("there is no answer yet"),
            () = std::future::ready(()) => {}
        }
        give.send(7).unwrap();
        let at = clock.now();
        sleep(Duration::from_millis(20)).await;

        let (came, answer) = answered.await;

        assert_eq!(answer, Ok(7));
        assert!(came <= at, "{came:?} {at:?}");
    }

    #[tokio::test]
    async fn an_answer_that_is_there_comes_now() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let before = clock.now();

        let (came, ()) = stamped(&clock, async {}).await;

        assert!(before <= came && came <= clock.now());
    }
}
