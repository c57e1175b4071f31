//! INT and TERM while something of ours is at the servers: the first one ends the measurements, the
//! second one also the clearing up.

use std::future::Future;

use nix::sys::signal::Signal;

use crate::failure::Failure;
use crate::signals::{self, Signals};

pub(crate) struct Interrupts {
    signals: Signals,
    /// What came so far.
    told: Vec<Signal>,
}

impl Interrupts {
    pub(crate) fn listen() -> Result<Self, Failure> {
        let signals = Signals::listen(signals::ENDING)?;
        let told = Vec::new();
        Ok(Self { signals, told })
    }

    /// Drops the work at the first signal.
    pub(crate) async fn or<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Signal> {
        tokio::select! {
            done = work => Ok(done),
            signal = self.signals.next() => {
                self.told.push(signal);
                Err(signal)
            }
        }
    }

    /// Goes on with the work at the first signal of all, and drops it at the second, also if that
    /// came before.
    pub(crate) async fn despite<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Signal> {
        let mut work = std::pin::pin!(work);
        loop {
            if let [_, .., last] = self.told[..] {
                return Err(last);
            }
            if let Ok(done) = self.or(&mut work).await {
                return Ok(done);
            }
        }
    }
}
