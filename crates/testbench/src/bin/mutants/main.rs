//! Proves that the tests still catch known bugs: each record of `tests/mutants/*.toml` puts one bug
//! back, and the tests that it names must fail then.
//!
//! ```text
//! cargo run -p lockkeeper-testbench --bin mutants -- [--check | --share N] [--jobs N] [NAME...]
//! ```
//!
//! `--check` only looks that every record still applies and that every row of `docs/failures.md`
//! that is cited is there, as a unit test below does. `--share N` tries every Nth, beginning with
//! another one whenever the sources change. Each named test must run and pass on the tree as it is,
//! and run and fail with the bug. A record that does not apply, a bug that does not build and a
//! test that does not run are failures, not catches. It works on copies: the tree is never changed.
//!
//! Bugs in the bodies of functions, and in files that these include, are switched in one build, and
//! each other one has its own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a tool for tests"
)]

mod bench;
mod play;
mod record;
mod rows;
mod sources;
mod switched;
mod verdict;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use play::play;
use record::{Mutant, faults, records};

const HELP: &str = "\
mutants [--check | --share N] [--jobs N] [NAME...]

Puts the bugs of tests/mutants back, one after the other; the tests that each names must fail.

  NAME...    these bugs only
  --check    only look that each bug applies, and that each row of docs/failures.md is there
  --share N  every Nth bug, beginning with another one whenever the sources change
  --jobs N   so many tests at a time";

/// The checkout that this was built in.
fn checkout() -> PathBuf {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR"));
    ours.ancestors()
        .nth(2)
        .expect("crates/testbench")
        .to_owned()
}

/// The part of the mutants that is tried now: another one whenever the sources change.
fn part(all: Vec<Mutant>, share: usize, checkout: &Path) -> Vec<Mutant> {
    let tree = Command::new("git")
        .args(["rev-parse", "--short=7", "HEAD:src"])
        .current_dir(checkout)
        .output();
    let tree = tree.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let first = tree.map_or(0, |hash| {
        usize::from_str_radix(hash.trim(), 16).unwrap_or(0)
    }) % share;
    println!(
        "every {share}th of {} mutants, from number {} on",
        all.len(),
        first + 1
    );
    all.into_iter().skip(first).step_by(share).collect()
}

fn main() -> ExitCode {
    let began = Instant::now();
    let (mut share, mut jobs, mut is_check, mut names) = (1, 1, false, Vec::new());
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || {
            words
                .next()
                .and_then(|word| word.parse().ok())
                .expect("a number")
        };
        match &*word {
            "--check" => is_check = true,
            "--help" => {
                println!("{HELP}");
                return ExitCode::SUCCESS;
            }
            "--share" => share = number(),
            "--jobs" => jobs = number(),
            _ => names.push(word),
        }
    }
    let checkout = checkout();
    let all = records(&checkout);
    let faults = faults(&checkout, &all);
    for fault in &faults {
        eprintln!("error: {fault}");
    }
    if is_check || !faults.is_empty() {
        println!("{} mutants, {} faults", all.len(), faults.len());
        return ExitCode::from(u8::from(!faults.is_empty()));
    }
    for name in &names {
        if !all.iter().any(|mutant| mutant.name == *name) {
            eprintln!("error: there is no mutant {name}");
            return ExitCode::FAILURE;
        }
    }
    let is_named = |mutant: &Mutant| names.is_empty() || names.contains(&mutant.name);
    let mut chosen: Vec<Mutant> = all.into_iter().filter(is_named).collect();
    if share > 1 {
        chosen = part(chosen, share, &checkout);
    }

    play(&checkout, &chosen, jobs, began)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_still_applies() {
        let all = records(&checkout());

        assert_eq!(faults(&checkout(), &all), [""; 0]);
        assert!(all.len() > 200, "{}", all.len());
    }
}
