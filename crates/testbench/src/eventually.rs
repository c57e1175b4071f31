//! The only way to wait for a condition: ask again until it holds, with a deadline.
//!
//! It never succeeds late: an answer after the deadline is a failure that names the condition. Time
//! in which the machine kept the case from asking is no time of the wait.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

const NAP: Duration = Duration::from_millis(10);

/// "Not yet" is `false` or `None`.
pub trait Answer {
    type Value;
    fn value(self) -> Option<Self::Value>;
}

impl Answer for bool {
    type Value = ();
    fn value(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Answer for Option<T> {
    type Value = T;
    fn value(self) -> Self {
        self
    }
}

/// Asks every 10 ms until the answer is yes, and panics with `what` when the deadline has passed.
pub async fn eventually<A, F>(what: &str, within: Duration, mut ask: impl FnMut() -> F) -> A::Value
where
    A: Answer,
    F: Future<Output = A>,
{
    let mut deadline = Instant::now() + within;
    let mut asked = 0;
    loop {
        asked += 1;
        match timeout_at(deadline, ask()).await {
            Ok(answer) => {
                if let Some(value) = answer.value() {
                    return value;
                }
            }
            Err(_) => panic!(
                "waited {within:?} for: {what} (asked {asked} times, the last without an answer)"
            ),
        }
        assert!(
            Instant::now() < deadline,
            "waited {within:?} for: {what} (asked {asked} times)"
        );
        let napped = Instant::now();
        sleep(NAP).await;
        deadline += napped.elapsed().saturating_sub(NAP);
    }
}
