//! The library's log as text: of the listening call, and not of the tasks that it starts.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Level, Subscriber};
use tracing_subscriber::fmt::format::FmtSpan;

/// Lets a case listen while others run. With one listener at most, `tracing` (0.1: `callsite.rs`,
/// `JustOne`) asks only the first thread that reaches an event. It keeps the answer for all
/// threads. So a case would miss an event that another case, without a listener, reached first.
pub fn let_cases_listen() {
    for _ in 0..2 {
        std::mem::forget(Dispatch::new(NoSubscriber::new()));
    }
}

#[derive(Clone, Debug, Default)]
pub struct Heard(Arc<Mutex<Vec<u8>>>);

impl Heard {
    pub fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The lines with this in them.
    pub fn lines(&self, with: &str) -> Vec<String> {
        let text = self.text();
        let lines = text.lines().filter(|line| line.contains(with));
        lines.map(str::to_owned).collect()
    }

    /// Listens from this level on; spans when they are closed.
    pub fn listener(&self, level: Level) -> impl Subscriber + Send + Sync + use<> {
        let heard = self.clone();
        tracing_subscriber::fmt()
            .with_max_level(level)
            .with_span_events(FmtSpan::CLOSE)
            .with_ansi(false)
            .with_writer(move || heard.clone())
            .finish()
    }
}

impl io::Write for Heard {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heard.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
