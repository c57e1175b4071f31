//! A table that fits: which columns are shown, and how wide each of them is. (pure)
//!
//! Invariant: a cell is whole, or shows with `…` that it is not, or lacks its last words. Without a
//! width no column and no cell is left out. Cells hold no characters that steer a terminal.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::visible::clean;

/// What stands in a cell of which nothing is known.
pub(crate) const NOTHING: &str = "-";
/// No cell has more characters: others may have written a megabyte.
const MOST: usize = 1_000;
const CUT: &str = "…";
/// Columns of a higher rank are shown only where those before them are not cut short.
const CORE: u8 = 4;
/// A text of that width is not cut short.
const READABLE: usize = 20;
/// In a terminal that is not as wide, one space between two columns has to do.
const CRAMPED: usize = 60;

/// What a narrow column does with its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shrink {
    /// They stay whole: a number without its end is another number.
    Never,
    /// They lose their ends, but not below this width.
    End(usize),
    /// They lose their beginnings, but not below this width.
    Start(usize),
    /// They lose their last words: `3m 12s ago` is `3m 12s`, then `3m`.
    Words,
}

#[derive(Debug)]
pub(crate) struct Column {
    head: &'static str,
    /// A column of rank 0 always stays. The higher the rank, the sooner it is left out.
    rank: u8,
    shrink: Shrink,
}

impl Column {
    pub(crate) const fn new(head: &'static str, rank: u8, shrink: Shrink) -> Self {
        Self { head, rank, shrink }
    }
}

#[derive(Debug)]
pub(crate) struct Table {
    columns: &'static [Column],
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<const COLUMNS: usize>(
        columns: &'static [Column; COLUMNS],
        rows: impl IntoIterator<Item = [String; COLUMNS]>,
    ) -> Self {
        let rows = rows.into_iter();
        let rows = rows.map(|row| row.iter().map(|cell| cell_of(cell)).collect());
        Self {
            columns,
            rows: rows.collect(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The head and the rows. With a width, no line is wider, unless the columns of rank 0 are.
    pub(crate) fn lines(&self, width: Option<usize>) -> Vec<String> {
        let all = 0..self.columns.len();
        let (shown, gap) = match width {
            None => (all.map(|at| (at, self.natural(at))).collect(), 2),
            Some(width) => self.fit(width),
        };
        let head = shown
            .iter()
            .map(|(at, _)| self.columns[*at].head.to_owned());
        let mut lines = vec![head.collect()];
        lines.extend(self.rows.iter().map(|row| {
            let cells = shown.iter();
            let cells = cells.map(|(at, width)| self.columns[*at].shrink.to(&row[*at], *width));
            cells.collect::<Vec<String>>()
        }));
        align(&lines, gap)
    }

    /// The columns that are shown in this width, with their own, and the space between them.
    fn fit(&self, width: usize) -> (Vec<(usize, usize)>, usize) {
        let gap = if width < CRAMPED { 1 } else { 2 };
        let all = 0..self.columns.len();
        let least: Vec<usize> = all.clone().map(|at| self.least(at)).collect();
        let mut by_rank: Vec<usize> = all
            .filter(|at| self.columns[*at].rank == 0 || !self.is_blank(*at))
            .collect();
        by_rank.sort_by_key(|at| self.columns[*at].rank);
        let mut chosen = Vec::new();
        // Widths with the space behind each column.
        let (mut shortest, mut readable) = (0, 0);
        for at in by_rank {
            let rank = self.columns[at].rank;
            let (short, long) = (least[at], self.readable(at));
            let has_room = match rank {
                0 => true,
                1..=CORE => shortest + short <= width,
                _ => readable + long <= width,
            };
            if has_room {
                shortest += short + gap;
                readable += long + gap;
                chosen.push(at);
            }
        }
        chosen.sort_unstable();
        let room = width.saturating_sub(gap * chosen.len().saturating_sub(1));
        (self.share(room, &chosen, &least), gap)
    }

    /// Gives each column what it wants. If that is too much, words give up first, and then the
    /// widest column does.
    fn share(&self, room: usize, chosen: &[usize], least: &[usize]) -> Vec<(usize, usize)> {
        let wants = chosen.iter().map(|&at| (at, self.natural(at)));
        let mut shown: Vec<(usize, usize)> = wants.collect();
        while shown.iter().map(|(_, width)| width).sum::<usize>() > room {
            let can_give = shown.iter_mut().filter(|(at, width)| *width > least[*at]);
            let is_words = |at: usize| self.columns[at].shrink == Shrink::Words;
            let Some((at, width)) = can_give.max_by_key(|(at, width)| (is_words(*at), *width))
            else {
                break;
            };
            *width -= 1;
            if is_words(*at) {
                *width = self.shown_in(*at, *width);
            }
        }
        shown
    }

    /// Whether no row has anything there.
    fn is_blank(&self, at: usize) -> bool {
        self.rows.iter().all(|row| row[at] == NOTHING)
    }

    fn natural(&self, at: usize) -> usize {
        self.shown_in(at, usize::MAX)
    }

    /// The width in which a person reads its cells with ease.
    fn readable(&self, at: usize) -> usize {
        match self.columns[at].shrink {
            Shrink::Never | Shrink::Words => self.natural(at),
            Shrink::End(_) | Shrink::Start(_) => self.shown_in(at, READABLE),
        }
    }

    /// The width that its cells need at least.
    fn least(&self, at: usize) -> usize {
        let least = match self.columns[at].shrink {
            Shrink::Never => usize::MAX,
            Shrink::End(least) | Shrink::Start(least) => least,
            Shrink::Words => 0,
        };
        self.shown_in(at, least)
    }

    /// The width of its widest cell in a column of this width.
    fn shown_in(&self, at: usize, width: usize) -> usize {
        let Column { head, shrink, .. } = &self.columns[at];
        let cells = self.rows.iter().map(|row| match shrink {
            Shrink::Words => shrink.to(&row[at], width).width(),
            _ => row[at].width().min(width),
        });
        cells.max().unwrap_or_default().max(head.width())
    }
}

impl Shrink {
    /// A cell in this width, if it can be shown in that.
    fn to(self, cell: &str, width: usize) -> String {
        if cell.width() <= width {
            return cell.to_owned();
        }
        match self {
            Self::Never => cell.to_owned(),
            Self::End(_) => begin(cell.chars(), width.saturating_sub(1)) + CUT,
            Self::Start(_) => {
                let end = begin(cell.chars().rev(), width.saturating_sub(1));
                let end: String = end.chars().rev().collect();
                // A mark without its letter would stand above the sign.
                let is_mark = |c: char| c.width() == Some(0);
                format!("{CUT}{}", end.trim_start_matches(is_mark))
            }
            Self::Words => {
                let mut words = cell;
                while words.width() > width {
                    let Some((rest, _)) = words.rsplit_once(' ') else {
                        break;
                    };
                    words = rest;
                }
                words.to_owned()
            }
        }
    }
}

/// As many of these characters as there is room for.
fn begin(chars: impl Iterator<Item = char>, width: usize) -> String {
    let mut text = String::new();
    for c in chars {
        text.push(c);
        // Of the whole: some characters are wider beside others.
        if text.width() > width {
            text.pop();
            break;
        }
    }
    text
}

/// A cell without what steers the terminal, and not longer than a person reads.
fn cell_of(text: &str) -> String {
    match text.char_indices().nth(MOST) {
        Some((end, _)) => clean(&text[..end]) + CUT,
        None => clean(text),
    }
}

/// Lines with columns as wide as their widest cells; no spaces at the ends of lines.
pub(crate) fn align(rows: &[Vec<String>], gap: usize) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let widths: Vec<usize> = (0..columns)
        .map(|at| {
            rows.iter()
                .map(|row| row[at].width())
                .max()
                .unwrap_or_default()
        })
        .collect();
    let line = |row: &Vec<String>| {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line += cell;
            line.extend(std::iter::repeat_n(' ', width - cell.width() + gap));
        }
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHO: [Column; 5] = [
        Column::new("POS", 0, Shrink::Never),
        Column::new("LABEL", 2, Shrink::End(6)),
        Column::new("PID", 1, Shrink::Never),
        Column::new("SINCE", 3, Shrink::Words),
        Column::new("NAME", 4, Shrink::Start(6)),
    ];

    fn table(rows: &[[&str; 5]]) -> Table {
        Table::new(&WHO, rows.iter().map(|row| row.map(str::to_owned)))
    }

    fn shown(rows: &[[&str; 5]], width: usize) -> Vec<String> {
        table(rows).lines(Some(width))
    }

    const ROW: [&str; 5] = [
        "0",
        "nightly-report",
        "4271",
        "3m 12s ago",
        "orders/emea/42",
    ];

    #[test]
    fn without_a_width_nothing_is_left_out() {
        let lines = table(&[ROW, ["1", "-", "-", "-", "-"]]).lines(None);

        assert_eq!(
            lines,
            [
                "POS  LABEL           PID   SINCE       NAME",
                "0    nightly-report  4271  3m 12s ago  orders/emea/42",
                "1    -               -     -           -",
            ]
        );
    }

    #[test]
    fn a_narrow_table_loses_words_then_ends_and_then_columns() {
        for (width, expected) in [
            (60, "0    nightly-report  4271  3m 12s ago  orders/emea/42"),
            (50, "0   nightly-report 4271 3m 12s ago orders/emea/42"),
            (48, "0   nightly-report 4271 3m 12s orders/emea/42"),
            (44, "0   nightly-report 4271 3m    orders/emea/42"),
            (40, "0   nightly-rep… 4271 3m    …ers/emea/42"),
            (28, "0   night… 4271 3m    …ea/42"),
            (25, "0   nightly-r… 4271 3m"),
            (17, "0   nightly… 4271"),
            (9, "0   4271"),
            (3, "0"),
        ] {
            assert_eq!(shown(&[ROW], width)[1], expected, "{width}");
        }
    }

    #[test]
    fn a_column_that_matters_less_does_not_cut_the_others_short() {
        const NODES: [Column; 2] = [
            Column::new("LABEL", 1, Shrink::End(6)),
            Column::new("NODE", CORE + 1, Shrink::Never),
        ];
        let table = |label: &str| {
            let row = [label.to_owned(), "lock-0000000007".to_owned()];
            Table::new(&NODES, [row])
        };

        assert_eq!(
            table("report.sh").lines(Some(25))[1],
            "report.sh lock-0000000007"
        );
        assert_eq!(table("report.sh").lines(Some(24))[1], "report.sh");
        let long = "x".repeat(40);
        let cut = format!("{}… lock-0000000007", "x".repeat(READABLE - 1));
        assert_eq!(table(&long).lines(Some(36))[1], cut);
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let wide = [
            "12",
            "日本語のラベル",
            "99999",
            "2days 3h ago",
            "e\u{301}e\u{301}/日本",
        ];
        for width in 9..120 {
            for line in shown(&[ROW, wide], width) {
                assert!(line.width() <= width, "{width}: {line}");
            }
        }
    }

    #[test]
    fn columns_that_say_nothing_are_left_out_on_a_terminal() {
        let lines = shown(&[["0", "-", "7", "-", "a"]], 80);

        assert_eq!(lines, ["POS  PID  NAME", "0    7    a"]);
    }

    #[test]
    fn what_is_wide_or_has_no_width_is_counted_as_it_is_shown() {
        let rows = [
            ["0", "日本", "7", "1s ago", "a"],
            ["1", "e\u{301}tude", "8", "2s ago", "b"],
        ];

        assert_eq!(
            table(&rows).lines(None)[1..],
            [
                "0    日本   7    1s ago  a",
                "1    e\u{301}tude  8    2s ago  b"
            ]
        );
        assert_eq!(Shrink::End(1).to("日本語", 4), "日…");
        assert_eq!(
            Shrink::End(1).to("e\u{301}e\u{301}e\u{301}", 2),
            "e\u{301}…"
        );
        assert_eq!(Shrink::Start(1).to("日本語", 4), "…語");
        assert_eq!(Shrink::Start(1).to("ab\u{301}c", 2), "…c");
        assert_eq!(Shrink::End(1).to("❤\u{fe0f}❤\u{fe0f}", 3), "❤\u{fe0f}…");
    }

    #[test]
    fn a_number_or_a_node_is_whole_or_not_there() {
        let row = ["0", "a", "4194304", "1s ago", "b"];
        for width in 0..60 {
            let line = shown(&[row], width).remove(1);
            let has_pid = line.contains("4194304");
            assert!(has_pid || !line.contains("41"), "{width}: {line}");
        }
    }

    #[test]
    fn a_cell_of_a_megabyte_ends_soon() {
        let long = "x".repeat(1 << 20);

        let lines = table(&[["0", &long, "7", "-", "a"]]).lines(None);

        assert_eq!(lines[1].chars().filter(|c| *c == 'x').count(), MOST);
        assert!(lines[1].contains("x…"));
    }
}
