//! Everything that is printed: data on stdout, talk on stderr.
//!
//! Invariant: no failure takes more than one line, and no text from a server reaches a terminal
//! with characters in it that are not seen. Talk waits for nobody.

use std::error::Error;
use std::fmt::{Debug, Display};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::failure::Failure;
use crate::table;
use crate::visible::{clean, escape};

/// Starts the log on stderr, if one was asked for.
pub(crate) fn trace(verbose: u8) {
    let filter = match (std::env::var_os("RUST_LOG"), verbose) {
        (Some(_), _) => EnvFilter::from_default_env(),
        (None, 0) => {
            return tracing_subscriber::registry()
                .with(Warnings(Once::new()))
                .init();
        }
        (None, 1) => EnvFilter::new("lockkeeper=info"),
        (None, 2) => EnvFilter::new("lockkeeper=debug"),
        (None, _) => EnvFilter::new("lockkeeper=trace"),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Talk)
        .with_ansi(io::stderr().is_terminal())
        .init();
}

/// Says once what the journal lacks: it is written in the background, where you would not look
/// for what is missing. And says which access lists are only warned of, if you have asked for that.
struct Warnings(Once);

fn is_of_lists(metadata: &Metadata<'_>) -> bool {
    metadata.target() == "lockkeeper::acl"
}

impl<S: Subscriber> Layer<S> for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        let is_said = metadata.target() == "lockkeeper::journal" || is_of_lists(metadata);
        *metadata.level() <= Level::WARN && is_said
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let tell = || {
            let mut words = Words::default();
            event.record(&mut words);
            say(words.0.join(": "));
        };
        if is_of_lists(event.metadata()) {
            tell();
        } else {
            self.0.call_once(tell);
        }
    }
}

/// The message of an event, and then its fields.
#[derive(Default)]
struct Words(Vec<String>);

impl Visit for Words {
    fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
        self.0.push(format!("{value:?}"));
    }
}

/// What a pipe that is ready takes at once, in bytes: pipe(7).
const AT_ONCE: usize = 4096;

/// Talk on stderr. What cannot be written now is left out: a terminal that is held (Ctrl-S), or a
/// pipe that nobody reads, would stop the heartbeats and signals too, because all runs on one
/// thread.
struct Talk;

impl Write for Talk {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let mut stderr = io::stderr();
        let part = &text[..text.len().min(AT_ONCE)];
        let written = if is_ready(&stderr) {
            stderr.write(part).unwrap_or_default()
        } else {
            0
        };
        Ok(if written > 0 { written } else { text.len() })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_ready(file: &impl AsFd) -> bool {
    let mut ends = [PollFd::new(file.as_fd(), PollFlags::POLLOUT)];
    poll(&mut ends, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// Whether the cursor stands behind a line that is drawn again and again.
static HAS_STATUS: AtomicBool = AtomicBool::new(false);

/// Draws a line on the terminal of stderr, in place of the one before.
pub(crate) fn draw_status(line: &str) {
    HAS_STATUS.store(true, Ordering::Relaxed);
    tell(&format!("\r{line}\u{1b}[K"));
}

/// Takes that line away, if there is one.
pub(crate) fn clear_status() {
    if HAS_STATUS.swap(false, Ordering::Relaxed) {
        tell("\r\u{1b}[K");
    }
}

/// One line on stderr, while the work goes on.
pub(crate) fn say(text: impl Display) {
    clear_status();
    tell(&line(&text.to_string()));
}

fn line(text: &str) -> String {
    format!("lockkeeper: {}\n", clean(text))
}

fn tell(text: &str) {
    Talk.write_all(text.as_bytes()).unwrap_or_default();
}

/// A question on stderr; true if the answer on stdin begins with a y.
pub(crate) fn ask(question: &str) -> io::Result<bool> {
    write!(io::stderr(), "lockkeeper: {} [y/N] ", clean(question))?;
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(answer.trim_start().starts_with(['y', 'Y']))
}

/// One line on stderr with the failure and its causes. It is the last word, and waits for a reader.
pub(crate) fn complain(failure: &Failure) {
    if matches!(failure, Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe) {
        return;
    }
    clear_status();
    let last = line(&in_one_line(failure));
    io::stderr().write_all(last.as_bytes()).unwrap_or_default();
}

/// The failure and its causes, but not those that it quotes already.
pub(crate) fn in_one_line(failure: &Failure) -> String {
    let mut text = failure.to_string();
    let mut cause = failure.source();
    while let Some(error) = cause {
        let why = error.to_string();
        if !text.contains(&why) {
            text += &format!(": {why}");
        }
        cause = error.source();
    }
    text
}

/// Lines on stdout.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(Failure::Output)
}

/// The same, and none of them steers the terminal.
pub(crate) fn print_lines(lines: &[String]) -> Result<(), Failure> {
    let lines: Vec<String> = lines.iter().map(|line| clean(line)).collect();
    print(&lines.join("\n"))
}

/// One line of JSON on stdout.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(|error| Failure::Output(error.into()))?;
    print(&escape(text))
}

/// A head and rows, whole.
pub(crate) fn table<const COLUMNS: usize>(
    head: [&str; COLUMNS],
    rows: &[[String; COLUMNS]],
) -> String {
    let head = head.map(str::to_owned);
    let rows = std::iter::once(&head).chain(rows);
    let cleaned: Vec<Vec<String>> = rows
        .map(|row| row.iter().map(|cell| clean(cell)).collect())
        .collect();
    table::align(&cleaned, 2).join("\n")
}

/// A cell that may be empty.
pub(crate) fn or_dash(text: Option<String>) -> String {
    text.filter(|text| !text.is_empty())
        .unwrap_or_else(|| table::NOTHING.to_owned())
}

/// A time span for people: no finer than a second, no more than its two largest units.
pub(crate) fn span(long: Duration) -> String {
    let text = humantime::format_duration(Duration::from_secs(long.as_secs())).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// The same, with milliseconds where there are no seconds.
pub(crate) fn fine_span(long: Duration) -> String {
    if long < Duration::from_secs(1) {
        return format!("{}ms", long.as_millis());
    }
    span(long)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_aligned_and_cannot_steer_the_terminal() {
        let rows = [
            ["a".to_owned(), "\u{1b}[2Jx\ny".to_owned()],
            ["longer".to_owned(), "z".to_owned()],
        ];

        let text = table(["NAME", "B"], &rows);

        assert_eq!(text, "NAME    B\na       \\u{1b}[2Jx y\nlonger  z");
    }

    #[test]
    fn a_span_has_two_units() {
        assert_eq!(span(Duration::from_millis(999)), "0s");
        assert_eq!(span(Duration::from_millis(3_723_400)), "1h 2m");
        assert_eq!(fine_span(Duration::from_millis(999)), "999ms");
        assert_eq!(fine_span(Duration::from_millis(3_999)), "3s");
    }
}
