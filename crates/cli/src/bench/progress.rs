//! How far it is: a bar on stderr while a terminal is there to show it, and nothing otherwise.

use std::fmt::Display;
use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Between two drawings of a bar that stands still, so that its time goes on.
const TICK: Duration = Duration::from_millis(500);

pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn new(steps: usize) -> Self {
        let target = if io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(steps as u64), target);
        // Without its style it is a plain bar.
        if let Ok(style) = ProgressStyle::with_template("{bar:32} {pos}/{len} {elapsed}  {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(TICK);
        Self(bar)
    }

    pub(crate) fn show(&self, what: impl Display) {
        self.0.set_message(what.to_string());
    }

    pub(crate) fn step(&self) {
        self.0.inc(1);
    }

    /// Takes it from the screen.
    pub(crate) fn clear(&self) {
        self.0.finish_and_clear();
    }
}
