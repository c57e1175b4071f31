//! Signals as values that can be awaited.
//!
//! A signal that was ignored when the tool started (`nohup`, `&` in a script) stays ignored, also
//! for the command.

use std::future::poll_fn;
use std::task::Poll;

use futures_util::FutureExt;
use nix::sys::signal::Signal;
use tokio::signal::unix::{self, SignalKind};

use crate::failure::Failure;

/// What ends a tool that only looks or serves.
pub(crate) const ENDING: &[Signal] = &[
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
];
/// What is passed on to a command.
pub(crate) const PASSED_ON: &[Signal] = &[
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// From now on these signals are ours, until the process ends.
    pub(crate) fn listen(signals: &[Signal]) -> Result<Self, Failure> {
        let ignored = ignored();
        let mut ours = Vec::new();
        for signal in signals {
            let number = *signal as i32;
            if ignored & (1 << (number - 1)) == 0 {
                let arriving =
                    unix::signal(SignalKind::from_raw(number)).map_err(Failure::System)?;
                ours.push((*signal, arriving));
            }
        }
        Ok(Self(ours))
    }

    /// Waits for the next one.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a signal that came is kept for the next call.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, arriving) in &mut self.0 {
                if arriving.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Forgets those that have come already: they were for what is over by now.
    pub(crate) fn forget(&mut self) {
        while self.next().now_or_never().is_some() {}
    }
}

/// The exit code that a shell shows for a process which this signal ended.
pub(crate) fn code(signal: Signal) -> u8 {
    128 + signal as u8
}

/// Whether a signal of this number tells a process to end.
pub(crate) fn is_ending(signal: i32) -> bool {
    ENDING.iter().any(|ending| *ending as i32 == signal)
}

/// The signals that this process ignores, one bit each.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .unwrap_or_default();
    u64::from_str_radix(mask.trim(), 16).unwrap_or_default()
}
