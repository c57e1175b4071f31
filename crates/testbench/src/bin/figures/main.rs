//! Measures the tree: the size and structure that a reader meets. It prints the figures as tables.
//!
//! ```text
//! cargo run -q -p lockkeeper-testbench --bin figures --
//!     [--check] [--list] [--words] [--structure [--svg FILE]] [--root DIR | --at COMMIT]
//! ```
//!
//! - `--check` fails if a figure is out of bounds, and names it.
//! - `--list` also shows the place of each counted item.
//! - `--words` shows the words of the pages, and all sentences that are too long.
//! - `--structure` draws the parts of the library and their imports into `docs/house/after.svg`,
//!   and prints the same for Mermaid.
//! - `--root` measures another checkout, and `--at` the tree of a commit.
//!
//! A line of code has a token that is neither documentation nor part of a test. The lines of a
//! function are those between its braces. Functions that macros make are not seen. The lines of a
//! file are all of its lines, with its unit tests; a file that only tests build is not counted.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a tool for developers"
)]

mod circles;
mod coined;
mod drawing;
mod figures;
mod imports;
mod items;
mod layout;
mod library;
mod names;
mod prose;
mod report;
mod source;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use figures::Figures;

const USAGE: &str = "usage: figures [--check] [--list] [--words] \
                     [--structure [--svg FILE]] [--root DIR | --at COMMIT]";

/// The command line's request.
#[derive(Debug, Default)]
struct Asked {
    is_check: bool,
    is_list: bool,
    is_words: bool,
    is_structure: bool,
    svg: Option<PathBuf>,
    root: Option<PathBuf>,
    commit: Option<String>,
}

impl Asked {
    fn new(mut words: impl Iterator<Item = String>) -> Option<Self> {
        let mut asked = Self::default();
        while let Some(word) = words.next() {
            match &*word {
                "--check" => asked.is_check = true,
                "--list" => asked.is_list = true,
                "--words" => asked.is_words = true,
                "--structure" => asked.is_structure = true,
                "--svg" => asked.svg = Some(words.next()?.into()),
                "--root" => asked.root = Some(words.next()?.into()),
                "--at" => asked.commit = Some(words.next()?),
                _ => return None,
            }
        }
        Some(asked)
    }
}

/// The checkout that this was built in.
fn checkout() -> PathBuf {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = ours.ancestors().nth(2);
    root.expect("crates/testbench").to_owned()
}

/// The tree of a commit, in a folder that is deleted with its guard.
fn tree_of(commit: &str) -> Result<tempfile::TempDir, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut git = Command::new("git")
        .args(["archive", "--format=tar", commit])
        .current_dir(checkout())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("git: {error}"))?;
    let archive = git.stdout.take().expect("piped");
    let unpacked = Command::new("tar")
        .arg("-x")
        .current_dir(folder.path())
        .stdin(archive)
        .status()
        .map_err(|error| format!("tar: {error}"))?;
    let is_read = git.wait().is_ok_and(|status| status.success());
    if is_read && unpacked.success() {
        Ok(folder)
    } else {
        Err(format!("there is no tree of {commit}"))
    }
}

fn draw(asked: &Asked, figures: &Figures) -> Result<(), String> {
    let usual = || checkout().join("docs/house/after.svg");
    let svg = asked.svg.clone().unwrap_or_else(usual);
    let fail = |error| format!("{}: {error}", svg.display());
    if let Some(folder) = svg.parent() {
        fs::create_dir_all(folder).map_err(fail)?;
    }
    fs::write(&svg, drawing::svg(figures)).map_err(fail)?;
    print!("{}", drawing::mermaid(figures));
    Ok(())
}

fn run(asked: &Asked) -> Result<ExitCode, String> {
    let unpacked = asked.commit.as_deref().map(tree_of).transpose()?;
    let root = match (&unpacked, &asked.root) {
        (Some(folder), _) => folder.path().to_owned(),
        (None, Some(root)) => root.clone(),
        (None, None) => checkout(),
    };
    let figures = Figures::of(&root)?;
    if asked.is_structure {
        draw(asked, &figures)?;
    }
    if asked.is_words {
        print!("{}", report::words(&figures));
    }
    if !asked.is_words && !asked.is_structure && !asked.is_check {
        print!("{}", report::tables(&figures));
    }
    if asked.is_list {
        print!("{}", report::list(&figures));
    }
    if asked.is_check {
        let breaches = report::breaches(&figures);
        for breach in &breaches {
            eprintln!("{breach}");
        }
        return Ok(ExitCode::from(u8::from(!breaches.is_empty())));
    }
    Ok(ExitCode::SUCCESS)
}

fn main() -> ExitCode {
    let Some(asked) = Asked::new(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    run(&asked).unwrap_or_else(|why| {
        eprintln!("error: {why}");
        ExitCode::FAILURE
    })
}
