//! One line on the terminal that is drawn again in place, and taken away at its end.

use console::{Term, truncate_str};
use nix::unistd::getpgrp;

use crate::report;
use crate::terminal::Terminal;
use crate::visible;

pub(crate) struct StatusLine {
    screen: Term,
    terminal: Terminal,
}

impl StatusLine {
    /// None if stderr is no terminal, or has a log.
    pub(crate) fn open() -> Option<Self> {
        let screen = Term::stderr();
        let is_drawn = screen.is_term() && !has_log();
        let terminal = Terminal::open().filter(|_| is_drawn)?;
        Some(Self { screen, terminal })
    }

    /// Draws what is said to so many columns.
    pub(crate) fn show(&self, line: impl FnOnce(usize) -> String) {
        // A job in the background leaves the line to the shell.
        if !self.terminal.is_with(getpgrp()) {
            return;
        }
        let (_, columns) = self.screen.size();
        // The cursor needs one, or the line would wrap.
        let room = usize::from(columns).saturating_sub(1);
        let line = visible::clean(&line(room));
        report::draw_status(&truncate_str(&line, room, "…"));
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        report::clear_status();
    }
}

/// Whether the log was asked for.
pub(crate) fn has_log() -> bool {
    tracing::enabled!(tracing::Level::INFO)
}
