//! What the library logs, as text: of the call that listens, and not of the tasks that it starts.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Level, Subscriber};
use tracing_subscriber::fmt::format::FmtSpan;

/// Lets a case listen while others run. As long as a process has one listener at most, `tracing`
/// (0.1: `callsite.rs`, `JustOne`) asks that of the thread which comes to an event first whether
/// anybody wants it, and believes its answer for all threads: a case would miss what another case,
/// which does not listen, met before it.
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
