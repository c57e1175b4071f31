//! INT and TERM while something of ours is at the servers: the first one ends the measurements, the second one also the
//! clearing up.

use std::future::Future;

use nix::sys::signal::Signal;

use crate::failure::Failure;
use crate::signals::{self, Signals};

pub(crate) struct Interrupts {
    signals: Signals,
    told: usize,
}

impl Interrupts {
    pub(crate) fn listen() -> Result<Self, Failure> {
        let signals = Signals::listen(signals::ENDING)?;
        Ok(Self { signals, told: 0 })
    }

    /// Drops the work at the first signal.
    pub(crate) async fn or<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Signal> {
        tokio::select! {
            done = work => Ok(done),
            signal = self.signals.next() => {
                self.told += 1;
                Err(signal)
            }
        }
    }

    /// Goes on with the work at the first signal of all, and drops it at the second.
    pub(crate) async fn despite<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Signal> {
        let mut work = std::pin::pin!(work);
        loop {
            match self.or(&mut work).await {
                Err(_) if self.told < 2 => {}
                end => return end,
            }
        }
    }
}
