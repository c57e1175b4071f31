//! A view that is drawn again and again: in place on a terminal, one below the other elsewhere.
//!
//! Invariant: however it ends, but for a kill, the terminal shows again what it showed before.
//! While it is stopped (Ctrl-Z), the terminal stays as it is.

use std::time::Duration;

use console::{Term, style, truncate_str};
use serde_json::Value;

use crate::failure::Failure;
use crate::report;

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
    /// A head, and then rows; no row if nothing is there.
    pub(crate) table: String,
    /// So many rows from the top are those of holders.
    pub(crate) holders: usize,
    /// What to say in place of a table without rows.
    pub(crate) nothing: String,
    pub(crate) json: Value,
}

/// Looks once and shows it.
pub(crate) fn show(sight: &Sight, as_json: bool) -> Result<(), Failure> {
    if as_json {
        report::print_json(&sight.json)
    } else if sight.table.is_empty() {
        report::say(&sight.nothing);
        Ok(())
    } else {
        report::print(&sight.table)
    }
}

/// Looks until something fails.
pub(crate) async fn watch(
    as_json: bool,
    look: impl AsyncFn() -> Result<Sight, Failure>,
) -> Result<u8, Failure> {
    let terminal = Term::stdout();
    let screen = (terminal.is_term() && !as_json).then(|| Screen::enter(terminal));
    let screen = screen.transpose()?;
    let mut is_first = true;
    loop {
        let sight = look().await?;
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
        tokio::time::sleep(BETWEEN_LOOKS).await;
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
        let picture = picture(sight, height.into(), width.into());
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
    let rows: Vec<&str> = match &*sight.table {
        "" => vec![&sight.nothing],
        table => table.lines().collect(),
    };
    // The title, and a line of air.
    let room = height.saturating_sub(2).max(1);
    let hidden = if rows.len() > room {
        rows.len() - room + 1
    } else {
        0
    };
    let mut lines = vec![
        style(truncate_str(&sight.title, width, "…"))
            .bold()
            .to_string(),
        String::new(),
    ];
    for (at, row) in rows.iter().take(rows.len() - hidden).enumerate() {
        let row = truncate_str(row, width, "…");
        let is_holder = (1..=sight.holders).contains(&at);
        lines.push(match at {
            0 => style(row).dim().to_string(),
            _ if is_holder => style(row).green().to_string(),
            _ => row.into_owned(),
        });
    }
    if hidden > 0 {
        lines.push(style(format!("… and {hidden} more")).dim().to_string());
    }
    let lines = lines.join(&format!("{REST_OF_LINE}\r\n"));
    format!("{HOME}{lines}{REST_OF_LINE}{REST_OF_SCREEN}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sight(rows: usize) -> Sight {
        let rows = (0..rows).map(|row| format!("\n{row} waits here"));
        Sight {
            title: "a title".into(),
            table: "POS STATE".to_owned() + &rows.collect::<String>(),
            holders: 1,
            nothing: "nobody".into(),
            json: Value::Null,
        }
    }

    /// As the terminal shows it.
    fn lines(picture: &str) -> Vec<String> {
        let plain = console::strip_ansi_codes(picture).into_owned();
        plain.split("\r\n").map(str::to_owned).collect()
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
    fn nothing_is_said_in_words() {
        let empty = Sight {
            table: String::new(),
            ..sight(0)
        };

        assert_eq!(lines(&picture(&empty, 24, 80)), ["a title", "", "nobody"]);
    }
}
