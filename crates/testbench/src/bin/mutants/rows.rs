//! The rows of `docs/failures.md`: every row that is cited is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Begins a citation, in small letters.
const PAGE: &str = "failures.md";

/// What is wrong with the rows that the sources and these mutants cite.
pub(crate) fn faults<'a>(
    tree: &Path,
    mutants: impl IntoIterator<Item = (&'a str, u32)>,
) -> Vec<String> {
    let page = match fs::read_to_string(tree.join("docs/failures.md")) {
        Ok(page) => page,
        Err(error) => return vec![format!("docs/failures.md: {error}")],
    };
    let (mut rows, mut faults) = (BTreeSet::new(), Vec::new());
    for row in rows_of(&page) {
        if !rows.insert(row) {
            faults.push(format!("docs/failures.md: there are two rows {row}"));
        }
    }
    for (name, row) in mutants {
        if !rows.contains(&row) {
            faults.push(format!("{name}: docs/failures.md has no row {row}"));
        }
    }
    for folder in ["src", "crates", "tests", "examples", "benches", "fuzz"] {
        in_folder(&tree.join(folder), &mut |file, text| {
            for (line, row) in citations(text) {
                if !rows.contains(&row) {
                    let file = file.strip_prefix(tree).unwrap_or(file);
                    let place = format!("{}:{line}", file.display());
                    faults.push(format!("{place}: docs/failures.md has no row {row}"));
                }
            }
        });
    }
    faults
}

/// The numbers with which lines of its tables begin.
fn rows_of(page: &str) -> impl Iterator<Item = u32> {
    page.lines().filter_map(|line| {
        let (number, _) = line.trim().strip_prefix('|')?.split_once('|')?;
        number.trim().parse().ok()
    })
}

/// Tells of all Rust files below.
fn in_folder(folder: &Path, tell: &mut impl FnMut(&Path, &str)) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() && name != "target" {
            in_folder(&path, tell);
        } else if path.extension().is_some_and(|end| end == "rs") {
            if let Ok(text) = fs::read_to_string(&path) {
                tell(&path, &text);
            }
        }
    }
}

/// The rows that a file cites, with the lines on which the citations begin.
fn citations(text: &str) -> Vec<(usize, u32)> {
    // A citation may go on in the next line of its comment.
    let (mut joined, mut starts) = (String::new(), Vec::new());
    for line in text.lines() {
        starts.push(joined.len());
        let line = line.trim_start().trim_start_matches(['/', '!']);
        joined.push_str(&line.replace('`', "").to_ascii_lowercase());
        joined.push(' ');
    }
    let mut found = Vec::new();
    for (at, _) in joined.match_indices(PAGE) {
        let after = joined[at + PAGE.len()..].trim_start();
        let Some(after) = after.strip_prefix("row") else {
            continue;
        };
        let line = starts.partition_point(|start| *start <= at);
        found.extend(numbers(after).into_iter().map(|row| (line, row)));
    }
    found
}

/// The one number after `row`, or those of a list after `rows`.
fn numbers(text: &str) -> Vec<u32> {
    let (mut rest, is_list) = match text.strip_prefix('s') {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let mut found = Vec::new();
    loop {
        rest = rest.trim_start();
        let end = rest.find(|letter: char| !letter.is_ascii_digit());
        let (number, after) = rest.split_at(end.unwrap_or(rest.len()));
        let Ok(number) = number.parse() else { break };
        found.push(number);
        let after = after.trim_start();
        let next = [", and ", ",", "and "]
            .iter()
            .find_map(|word| after.strip_prefix(word));
        match next {
            Some(next) if is_list => rest = next,
            _ => break,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_the_numbers_that_begin_the_lines_of_tables() {
        let page = "| row | from |\n|---|---|\n| 1 | a#2 |\n|23|b|\n\nRow 4 | 5 |\n";

        assert_eq!(rows_of(page).collect::<Vec<_>>(), [1, 23]);
    }

    #[test]
    fn citations_are_found_also_across_lines() {
        let text = "\
//! A (docs/failures.md rows 1 and
//! 2), or `docs/failures.md` row 3, 4 times.
    // The rows of docs/failures.md: 5. FAILURES.md
    // rows 6, 7, and 8.
";
        let expected = [(1, 1), (1, 2), (2, 3), (3, 6), (3, 7), (3, 8)];

        assert_eq!(citations(text), expected);
    }
}
