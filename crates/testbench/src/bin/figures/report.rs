//! The figures as a table, and those that are out of bounds.

use std::fmt::Write as _;

use crate::figures::{COLUMNS, Figures};
use crate::imports::Circle;

/// The most lines of a file of the library.
const FILE_LINES: usize = 350;
/// The most lines of a function...
const FUNCTION_LINES: usize = 40;
/// ... except for this many of them.
const LONG_FUNCTIONS: usize = 10;
const MEAN_WORDS: f64 = 18.0;
const SENTENCE_WORDS: usize = 40;
const README_LINES: usize = 160;

/// One measure: the count, its bound, and the place of each item.
pub(crate) struct Figure {
    name: String,
    value: String,
    bound: String,
    is_good: bool,
    /// One line each.
    pub(crate) each: Vec<String>,
}

impl Figure {
    fn of_count(name: &str, bound: usize, each: Vec<String>) -> Self {
        Self::of_number(name, each.len(), bound, each)
    }

    fn of_number(name: &str, value: usize, bound: usize, each: Vec<String>) -> Self {
        Self {
            name: name.to_owned(),
            value: value.to_string(),
            bound: format!("at most {bound}"),
            is_good: value <= bound,
            each,
        }
    }
}

/// All that has a bound.
pub(crate) fn bounded(figures: &Figures) -> Vec<Figure> {
    let long_files = figures.files.iter().filter(|file| file.lines > FILE_LINES);
    let long_files = long_files.map(|file| {
        format!(
            "{}: {} lines, {} of them without tests",
            file.file, file.lines, file.without_tests
        )
    });
    let functions = figures.items.functions_above(FUNCTION_LINES);
    let functions = functions.iter().map(|one| {
        format!(
            "{}:{}: {} has {} lines",
            one.file, one.line, one.name, one.lines
        )
    });
    let comments = figures
        .long_comments
        .iter()
        .map(|one| format!("{}:{}: {} columns", one.file, one.line, one.length));
    let coined = figures
        .coined
        .iter()
        .map(|one| format!("{}:{}: {}, now {}", one.file, one.line, one.word, one.say));
    vec![
        Figure::of_count(
            "files of the library above 350 lines, tests included",
            0,
            long_files.collect(),
        ),
        Figure::of_count(
            "functions of the library above 40 lines",
            LONG_FUNCTIONS,
            functions.collect(),
        ),
        Figure::of_count(
            "type names that the library defines twice",
            0,
            types(figures),
        ),
        Figure::of_count("circles of imports in the library", 0, circles(figures)),
        Figure::of_count(
            &format!("comment lines above {COLUMNS} columns"),
            0,
            comments.collect(),
        ),
        means(figures),
        sentences(figures),
        Figure::of_number(
            "lines of README.md",
            figures.readme_lines,
            README_LINES,
            Vec::new(),
        ),
        Figure::of_count("coined words", 0, coined.collect()),
    ]
}

fn types(figures: &Figures) -> Vec<String> {
    let twice = figures.items.types_defined_twice();
    let each = twice.iter().map(|(name, all)| {
        let places = all.iter().map(|one| format!("{}:{}", one.file, one.line));
        format!("{name}: {}", places.collect::<Vec<_>>().join(", "))
    });
    each.collect()
}

fn circles(figures: &Figures) -> Vec<String> {
    figures.imports.circles().iter().map(circle).collect()
}

/// Its way round, and the imports of its least used step, which is the first to look at.
fn circle(circle: &Circle) -> String {
    let mut text = match &*circle.within {
        "" => String::from("src: "),
        within => format!("{within}: "),
    };
    for part in circle.parts.iter().chain(circle.parts.first()) {
        let arrow = if text.ends_with(": ") { "" } else { " -> " };
        _ = write!(text, "{arrow}{part}");
    }
    let least = circle.imports.iter().min_by_key(|step| step.len());
    for import in least.into_iter().flatten() {
        _ = write!(
            text,
            "\n    {}:{}: {}",
            import.file, import.line, import.written
        );
    }
    text
}

fn means(figures: &Figures) -> Figure {
    let sum: usize = figures
        .pages
        .iter()
        .flat_map(|page| &page.sentences)
        .map(|one| one.words)
        .sum();
    let count: usize = figures.pages.iter().map(|page| page.sentences.len()).sum();
    let all = sum as f64 / count.max(1) as f64;
    let above = figures.pages.iter().filter(|page| page.mean() > MEAN_WORDS);
    let each: Vec<String> = above
        .map(|page| format!("{}: {:.1} words a sentence", page.file, page.mean()))
        .collect();
    Figure {
        name: "words a sentence, of all pages and of each".into(),
        value: format!("{all:.1}"),
        bound: format!("at most {MEAN_WORDS}"),
        is_good: all <= MEAN_WORDS && each.is_empty(),
        each,
    }
}

fn sentences(figures: &Figures) -> Figure {
    let mut each = Vec::new();
    for page in &figures.pages {
        for one in page.above(SENTENCE_WORDS) {
            each.push(format!(
                "{}:{}: {} words: {}",
                page.file, one.line, one.words, one.text
            ));
        }
    }
    Figure::of_count("sentences above 40 words", 0, each)
}

/// The figures as tables in Markdown.
pub(crate) fn tables(figures: &Figures) -> String {
    let mut text = String::from(
        "| code lines, without tests and comments | files | lines |\n|---|---:|---:|\n",
    );
    let mut row = |name: &str, files: usize, code: usize| {
        _ = writeln!(text, "| {name} | {files} | {code} |");
    };
    let (mut parts, mut files): (Vec<_>, Vec<_>) =
        figures.library.iter().partition(|part| part.files > 1);
    parts.sort_by_key(|part| std::cmp::Reverse(part.code));
    files.sort_by_key(|part| std::cmp::Reverse(part.code));
    for part in parts {
        row(&format!("`src/{}/`", part.name), part.files, part.code);
    }
    let beside: usize = files.iter().map(|part| part.code).sum();
    row("`src/*.rs` beside them", files.len(), beside);
    let all = figures.library.iter().map(|part| part.files).sum();
    row(
        "**the library, lines without `compat/` and the stores of `link/`**",
        all,
        figures.library_code(),
    );
    for other in &figures.others {
        row(&format!("`{}/`", other.name), other.files, other.code);
    }
    row("all tests", figures.tests.files, figures.tests.code);

    text.push_str("\n| figure | value | bound |\n|---|---:|---|\n");
    for figure in bounded(figures) {
        let mark = if figure.is_good { "" } else { ", **missed**" };
        _ = writeln!(
            text,
            "| {} | {} | {}{mark} |",
            figure.name, figure.value, figure.bound
        );
    }
    text
}

/// The counted items, one by one.
pub(crate) fn list(figures: &Figures) -> String {
    let mut text = String::new();
    for figure in bounded(figures) {
        _ = writeln!(text, "\n== {}: {}", figure.name, figure.value);
        for one in &figure.each {
            _ = writeln!(text, "{one}");
        }
    }
    text
}

/// Each page with its sentences, and the long ones.
pub(crate) fn words(figures: &Figures) -> String {
    let mut text =
        String::from("| page | sentences | words each | longest |\n|---|---:|---:|---:|\n");
    for page in &figures.pages {
        let (count, mean, longest) = (page.sentences.len(), page.mean(), page.longest());
        _ = writeln!(text, "| {} | {count} | {mean:.1} | {longest} |", page.file);
    }
    for one in sentences(figures).each {
        _ = write!(text, "\n{one}\n");
    }
    text
}

/// One line for each figure that is out of bounds.
pub(crate) fn breaches(figures: &Figures) -> Vec<String> {
    /// More of one kind do not help the reader.
    const SHOWN: usize = 20;

    let mut found = Vec::new();
    for figure in bounded(figures)
        .into_iter()
        .filter(|figure| !figure.is_good)
    {
        let Figure {
            name,
            value,
            bound,
            each,
            ..
        } = figure;
        found.push(format!("{name}: {value}, {bound}"));
        found.extend(each.iter().take(SHOWN).map(|one| format!("    {one}")));
        if each.len() > SHOWN {
            let more = each.len() - SHOWN;
            found.push(format!("    and {more} more, which --list shows"));
        }
    }
    found
}
