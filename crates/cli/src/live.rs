//! A view of a table: once, or drawn again and again, in place on a terminal and one below the
//! other elsewhere. On a terminal it fits the width; elsewhere it is whole.
//!
//! Invariant: however it ends, but for a kill, the terminal shows again what it showed before.
//! While it is stopped (Ctrl-Z), the terminal stays as it is.

use std::time::Duration;

use console::{Term, measure_text_width, style, truncate_str};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use crate::failure::Failure;
use crate::report;
use crate::table::Table;
use crate::visible::clean;

const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
/// The other screen, without a cursor; and back.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l";
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";
const HOME: &str = "\u{1b}[H";
const REST_OF_LINE: &str = "\u{1b}[K";
const REST_OF_SCREEN: &str = "\u{1b}[J";

/// What was seen at one moment.
pub(crate) struct Sight {
    pub(crate) title: String,
    pub(crate) table: Table,
    /// So many rows from the top are those of holders.
    pub(crate) holders: usize,
    /// What to say in place of a table without rows.
    pub(crate) nothing: String,
    pub(crate) json: Value,
}

/// Shows it once, with its title on a terminal: a script reads a head and rows.
pub(crate) fn show(sight: &Sight, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return report::print_json(&sight.json);
    }
    if sight.table.is_empty() {
        report::say(&sight.nothing);
        return Ok(());
    }
    let terminal = Term::stdout();
    let mut lines = Vec::new();
    if terminal.is_term() {
        let seen = terminal.size_checked().map(|(_, width)| width.into());
        lines.push(clean(&sight.title));
        lines.extend(sight.table.lines(told_width().or(seen)));
    } else {
        lines.extend(sight.table.lines(None));
    }
    report::print(&lines.join("\n"))
}

/// The width that the environment asks for.
fn told_width() -> Option<usize> {
    let told = std::env::var("COLUMNS").ok()?;
    told.parse().ok().filter(|width| *width > 0)
}

/// Looks until something fails. It rests at least as long as a look takes, so that it never loads
/// the servers more than half of the time.
pub(crate) async fn watch(
    as_json: bool,
    look: impl AsyncFn() -> Result<Sight, Failure>,
) -> Result<u8, Failure> {
    let mut resized = signal(SignalKind::window_change()).map_err(Failure::System)?;
    let terminal = Term::stdout();
    let screen = (terminal.is_term() && !as_json).then(|| Screen::enter(terminal));
    let screen = screen.transpose()?;
    let mut is_first = true;
    loop {
        let began = Instant::now();
        let sight = look().await?;
        let next = Instant::now() + began.elapsed().max(BETWEEN_LOOKS);
        match &screen {
            Some(screen) => screen.draw(&sight)?,
            None => {
                if !is_first && !as_json {
                    report::print("")?;
                }
                show(&sight, as_json)?;
            }
        }
        is_first = false;
        loop {
            let is_resized = tokio::select! {
                () = sleep_until(next) => false,
                Some(()) = resized.recv() => true,
            };
            match &screen {
                _ if !is_resized => break,
                Some(screen) => screen.draw(&sight)?,
                None => {}
            }
        }
    }
}

struct Screen(Term);

impl Screen {
    fn enter(terminal: Term) -> Result<Self, Failure> {
        terminal.write_str(ENTER).map_err(Failure::Output)?;
        Ok(Self(terminal))
    }

    fn draw(&self, sight: &Sight) -> Result<(), Failure> {
        let (height, width) = self.0.size();
        // A line that is wider than the terminal would push the others down.
        let width = usize::from(width).min(told_width().unwrap_or(usize::MAX));
        let picture = picture(sight, height.into(), width);
        let drawn = self.0.write_str(&picture);
        drawn.and_then(|()| self.0.flush()).map_err(Failure::Output)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nothing is left to say so with.
        self.0.write_str(LEAVE).unwrap_or_default();
    }
}

/// As much as there is room for. Nothing is erased before it is written over, so it does not
/// flicker.
fn picture(sight: &Sight, height: usize, width: usize) -> String {
    let rows = if sight.table.is_empty() {
        vec![clean(&sight.nothing)]
    } else {
        sight.table.lines(Some(width))
    };
    // The title, and a line of air.
    let room = height.saturating_sub(2).max(1);
    let hidden = if rows.len() > room {
        rows.len() - room + 1
    } else {
        0
    };
    let cut = |line: &str| truncate_str(line, width, "…").into_owned();
    let mut lines = vec![
        style(cut(&clean(&sight.title))).bold().to_string(),
        String::new(),
    ];
    for (at, row) in rows.iter().take(rows.len() - hidden).enumerate() {
        let row = cut(row);
        let is_holder = (1..=sight.holders).contains(&at);
        lines.push(match at {
            0 => style(row).dim().to_string(),
            _ if is_holder => style(row).green().to_string(),
            _ => row,
        });
    }
    if hidden > 0 {
        let more = cut(&format!("… and {hidden} more"));
        lines.push(style(more).dim().to_string());
    }
    let is_high = lines.len() >= height;
    // Behind a line that fills its row, the cursor is still on the last character.
    let ended = lines
        .into_iter()
        .map(|line| match measure_text_width(&line) {
            long if long < width => line + REST_OF_LINE,
            _ => line,
        });
    let lines = ended.collect::<Vec<_>>().join("\r\n");
    let rest = if is_high {
        String::new()
    } else {
        format!("\r\n{REST_OF_SCREEN}")
    };
    format!("{HOME}{lines}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Column, Shrink};

    const WORDS: [Column; 1] = [Column::new("POS STATE", 0, Shrink::Never)];

    fn sight(rows: usize) -> Sight {
        let rows = (0..rows).map(|row| [format!("{row} waits here")]);
        Sight {
            title: "a title".into(),
            table: Table::new(&WORDS, rows),
            holders: 1,
            nothing: "nobody".into(),
            json: Value::Null,
        }
    }

    /// As the terminal shows it.
    fn lines(picture: &str) -> Vec<String> {
        let plain = console::strip_ansi_codes(picture).into_owned();
        let lines = plain.trim_end_matches("\r\n").split("\r\n");
        lines.map(str::to_owned).collect()
    }

    #[test]
    fn a_long_queue_leaves_out_its_end_and_says_how_many() {
        let shown = lines(&picture(&sight(100), 10, 80));

        assert_eq!(shown.len(), 10);
        assert_eq!(shown[2..4], ["POS STATE", "0 waits here"]);
        assert_eq!(shown[9], "… and 94 more");
    }

    #[test]
    fn a_queue_that_fits_is_shown_whole_and_wide_rows_are_cut() {
        assert_eq!(lines(&picture(&sight(2), 24, 80)).len(), 5);
        assert_eq!(lines(&picture(&sight(1), 24, 9))[3], "0 waits …");
    }

    #[test]
    fn a_row_that_fills_the_width_is_not_erased_behind_its_end() {
        let full = "0 waits here".len();

        let seen = picture(&sight(1), 4, full);
        assert!(seen.ends_with("0 waits here"), "{seen:?}");
        let seen = picture(&sight(1), 24, full);
        assert!(seen.ends_with("0 waits here\r\n\u{1b}[J"), "{seen:?}");
        let seen = picture(&sight(1), 4, full + 1);
        assert!(seen.ends_with("0 waits here\u{1b}[K"), "{seen:?}");
    }

    #[test]
    fn nothing_is_said_in_words_and_a_title_steers_no_terminal() {
        let empty = Sight {
            title: "a\u{1b}[2Jb".into(),
            nothing: "nobody\u{9b}".into(),
            ..sight(0)
        };

        let seen = picture(&empty, 24, 80);
        assert_eq!(lines(&seen), ["a\\u{1b}[2Jb", "", "nobody\\u{9b}"]);
    }
}
