//! The clock of leases: it counts the time for which the machine was suspended, as the servers'
//! clocks do.
//!
//! On Linux it is `CLOCK_BOOTTIME`, with timers that fire after a suspend too. Elsewhere it is the
//! monotonic clock, which stops while the machine sleeps. Invariant: it is never the time of day,
//! so nothing changes when that is set. It knows nothing of leases.

use std::fmt;

use futures_util::future::BoxFuture;

use crate::protocol::lease::Moment;

/// Where a session's time comes from; tests bring their own.
pub(crate) trait Clock: Send + Sync + fmt::Debug {
    fn now(&self) -> Moment;
    /// Ends at that moment or soon after it, also when the machine was suspended meanwhile.
    fn until(&self, moment: Moment) -> BoxFuture<'static, ()>;
}

/// The system's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        system::now()
    }

    fn until(&self, moment: Moment) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            while let Some(left) = moment
                .checked_sub(system::now())
                .filter(|left| !left.is_zero())
            {
                system::wait(moment, left).await;
            }
        })
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::io;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use rustix::time::{
        ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec,
        clock_gettime, timerfd_create, timerfd_settime,
    };
    use tokio::io::unix::AsyncFd;
    use tokio::time::sleep;

    use super::Moment;

    /// Without a timer of the system, the clock is read this often.
    const POLL: Duration = Duration::from_millis(20);

    pub(super) fn now() -> Moment {
        let now = clock_gettime(ClockId::Boottime);
        // Since the boot: neither is ever negative.
        Duration::new(
            now.tv_sec.try_into().unwrap_or_default(),
            now.tv_nsec.try_into().unwrap_or_default(),
        )
    }

    /// Waits until the moment, or for a while.
    pub(super) async fn wait(moment: Moment, left: Duration) {
        match timer(moment) {
            Ok(timer) => {
                // Readable once it has fired; an error means that the runtime ends.
                timer.readable().await.map(drop).unwrap_or_default();
            }
            Err(error) => {
                tracing::debug!(%error, "no timer, so the clock is read again and again");
                sleep(left.min(POLL)).await;
            }
        }
    }

    fn timer(moment: Moment) -> io::Result<AsyncFd<OwnedFd>> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
        let fires = Timespec {
            tv_sec: moment.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: moment.subsec_nanos().into(),
        };
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: fires,
        };
        timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &once)?;
        #[allow(
            deprecated,
            reason = "its successor is newer than the oldest tokio that we allow"
        )]
        AsyncFd::new(timer)
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::sync::OnceLock;
    use std::time::{Duration, Instant};

    use super::Moment;

    pub(super) fn now() -> Moment {
        static ZERO: OnceLock<Instant> = OnceLock::new();
        ZERO.get_or_init(Instant::now).elapsed()
    }

    pub(super) async fn wait(_moment: Moment, left: Duration) {
        tokio::time::sleep(left).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn an_alarm_rings_soon_after_its_moment_and_never_before() {
        let clock = SystemClock;
        for ms in [0, 1, 30] {
            let moment = clock.now() + Duration::from_millis(ms);

            clock.until(moment).await;

            let late = clock.now().checked_sub(moment).expect("not before");
            assert!(late < Duration::from_millis(50), "{late:?}");
        }
    }
}
