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
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a tool for tests"
)]

mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::Deserialize;

/// So long may one run of a test take.
const LIMIT: Duration = Duration::from_secs(300);

/// One bug.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutant {
    name: String,
    /// The row of `docs/failures.md`.
    row: u32,
    /// What is wrong then.
    why: String,
    /// Filters; each must have a test that fails.
    tests: Vec<String>,
    #[serde(default)]
    target: Target,
    /// The server that the integration suite runs on.
    #[serde(default)]
    on: On,
    file: String,
    find: String,
    replace: String,
    /// More of the same bug.
    #[serde(default)]
    also: Vec<Also>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Also {
    /// The same file unless it is said.
    file: Option<String>,
    find: String,
    replace: String,
}

/// Where its tests are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Target {
    /// `tests/`
    #[default]
    Suite,
    /// `crates/cli/tests/`
    Cli,
    /// `crates/embedded/tests/`
    Embedded,
    /// Unit tests of the package that the file belongs to.
    Unit,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
enum On {
    #[default]
    Embedded,
    Zookeeper,
    Ensemble,
}

impl On {
    fn word(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Zookeeper => "zookeeper",
            Self::Ensemble => "ensemble",
        }
    }
}

/// Some tests, as cargo is asked for them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Asked {
    words: &'static [&'static str],
    on: On,
    filter: String,
}

impl Mutant {
    /// The edits, file by file.
    fn edits(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        let first = (&*self.file, &*self.find, &*self.replace);
        let more = self.also.iter().map(|edit| {
            let file = edit.file.as_ref().unwrap_or(&self.file);
            (&**file, &*edit.find, &*edit.replace)
        });
        std::iter::once(first).chain(more)
    }

    /// The files with the bug in them.
    fn applied(&self, tree: &Path) -> Result<BTreeMap<PathBuf, String>, String> {
        let mut files = BTreeMap::new();
        for (file, find, replace) in self.edits() {
            let path = tree.join(file);
            let read = || fs::read_to_string(&path).map_err(|error| format!("{file}: {error}"));
            let text = match files.remove(&path) {
                Some(text) => text,
                None => read()?,
            };
            let found = text.matches(find).count();
            if found != 1 {
                return Err(format!("{file} has it {found} times: {find}"));
            }
            files.insert(path, text.replacen(find, replace, 1));
        }
        Ok(files)
    }

    fn asked(&self) -> impl Iterator<Item = Asked> {
        let words: &[&str] = match self.target {
            Target::Suite => &["-p", "lockkeeper", "--test", "it"],
            Target::Cli => &["-p", "lockkeeper-cli", "--test", "cli"],
            Target::Embedded => &["-p", "zookeeper-embedded", "--test", "embedded"],
            Target::Unit if self.file.starts_with("crates/cli/") => {
                &["-p", "lockkeeper-cli", "--lib"]
            }
            Target::Unit if self.file.starts_with("crates/embedded/") => {
                &["-p", "zookeeper-embedded", "--lib"]
            }
            Target::Unit => &["-p", "lockkeeper", "--lib"],
        };
        let on = self.on;
        self.tests.iter().map(move |filter| Asked {
            words,
            on,
            filter: filter.clone(),
        })
    }
}

/// All records, in the order of their rows.
fn records(tree: &Path) -> Vec<Mutant> {
    #[derive(Deserialize)]
    struct Page {
        mutant: Vec<Mutant>,
    }

    let folder = tree.join("tests/mutants");
    let mut all = Vec::new();
    for entry in fs::read_dir(&folder).expect("tests/mutants") {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "toml") {
            let text = fs::read_to_string(&path).unwrap();
            let page: Page =
                toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            all.extend(page.mutant);
        }
    }
    all.sort_by(|one, other| (one.row, &one.name).cmp(&(other.row, &other.name)));
    all
}

/// What is wrong with the records.
fn faults(tree: &Path, all: &[Mutant]) -> Vec<String> {
    let (mut faults, mut names) = (Vec::new(), BTreeSet::new());
    for mutant in all {
        let name = &mutant.name;
        if !names.insert(name) {
            faults.push(format!("{name}: there are two"));
        }
        if mutant.tests.is_empty() || mutant.why.is_empty() {
            faults.push(format!(
                "{name}: does not say why, or which test catches it"
            ));
        }
        if let Err(why) = mutant.applied(tree) {
            faults.push(format!("{name}: does not apply: {why}"));
        }
    }
    let cited = all.iter().map(|mutant| (&*mutant.name, mutant.row));
    faults.extend(rows::faults(tree, cited));
    faults
}

/// The checkout that this was built in.
fn checkout() -> PathBuf {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR"));
    ours.ancestors()
        .nth(2)
        .expect("crates/testbench")
        .to_owned()
}

/// A copy of the tree in which bugs are put back, and what is built of it.
struct Bench {
    tree: tempfile::TempDir,
    target: PathBuf,
}

/// What came of some tests.
enum Outcome {
    Passed(usize),
    Failed,
    Hung,
    NotBuilt(String),
    NotRun(String),
}

impl Bench {
    fn new(checkout: &Path, job: usize) -> Self {
        let target = std::env::var_os("CARGO_TARGET_DIR");
        let target = target.map_or_else(|| checkout.join("target"), PathBuf::from);
        let target = target.join("mutants").join(job.to_string());
        let tree = tempfile::tempdir().unwrap();
        let listed = Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(checkout)
            .output()
            .unwrap();
        for file in String::from_utf8(listed.stdout).unwrap().split('\0') {
            let (from, to) = (checkout.join(file), tree.path().join(file));
            if from.is_file() {
                fs::create_dir_all(to.parent().unwrap()).unwrap();
                fs::copy(from, to).unwrap();
            }
        }
        Self { tree, target }
    }

    fn cargo(&self, asked: &Asked, more: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new("timeout");
        command
            .arg((LIMIT.as_secs() * if more.is_empty() { 1 } else { 10 }).to_string())
            .args(["cargo", "test", "--all-features"])
            .args(asked.words)
            .args(more)
            .args(["--", &asked.filter])
            .current_dir(self.tree.path())
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_TERM_COLOR", "never")
            .env("LOCKKEEPER_TEST_ON", asked.on.word())
            .env("RUST_BACKTRACE", "0")
            .env_remove("LOCKKEEPER_SOAK")
            .env_remove("RUST_LOG")
            .stdin(Stdio::null());
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    }

    fn run(&self, asked: &Asked) -> Outcome {
        let (built, _, why) = self.cargo(asked, &["--no-run"]);
        if built != Some(0) {
            return Outcome::NotBuilt(why);
        }
        let (code, stdout, stderr) = self.cargo(asked, &[]);
        let results = stdout
            .lines()
            .find_map(|line| line.strip_prefix("test result: "));
        let count = |word: &str| {
            let (before, _) = results?.split_once(&format!(" {word}"))?;
            before.rsplit(' ').next()?.parse::<usize>().ok()
        };
        match (code, count("passed"), count("failed")) {
            (Some(0), Some(passed), Some(0)) if passed > 0 => Outcome::Passed(passed),
            (code, _, Some(failed)) if failed > 0 && code != Some(0) => Outcome::Failed,
            (Some(124), ..) if stdout.lines().any(|line| line.starts_with("running ")) => {
                Outcome::Hung
            }
            (code, ..) => Outcome::NotRun(format!("ended with {code:?}: {stdout}\n{stderr}")),
        }
    }
}

/// What is said at the end of a line, and whether it is as it should be.
struct Verdict {
    is_good: bool,
    line: String,
}

impl Verdict {
    fn new(is_good: bool, name: &str, word: &str, detail: &str) -> Self {
        let line = format!("{name:<56} {word:<9} {detail}");
        Self { is_good, line }
    }

    fn of_sound(asked: &Asked, outcome: Outcome) -> Self {
        let name = &asked.filter;
        match outcome {
            Outcome::Passed(count) => Self::new(true, name, "passes", &format!("{count} run")),
            Outcome::Failed | Outcome::Hung => Self::new(false, name, "FAILS", "without any bug"),
            Outcome::NotBuilt(why) => Self::new(false, name, "NO BUILD", &end_of(&why)),
            Outcome::NotRun(why) => Self::new(false, name, "NOT RUN", &end_of(&why)),
        }
    }

    fn of_bug(mutant: &Mutant, filter: &str, outcome: Outcome) -> Self {
        let name = &mutant.name;
        match outcome {
            Outcome::Failed => Self::new(true, name, "caught", filter),
            Outcome::Hung => Self::new(true, name, "caught", &format!("{filter} (hangs)")),
            Outcome::Passed(_) => Self::new(false, name, "SURVIVED", filter),
            Outcome::NotBuilt(why) => Self::new(false, name, "NO BUILD", &end_of(&why)),
            Outcome::NotRun(why) => Self::new(false, name, "UNCLEAR", &end_of(&why)),
        }
    }
}

fn end_of(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let end = &lines[lines.len().saturating_sub(20)..];
    format!("\n    | {}", end.join("\n    | "))
}

/// Puts one bug back, and takes it out again.
fn try_bug(bench: &Bench, mutant: &Mutant) -> Vec<Verdict> {
    let files = match mutant.applied(bench.tree.path()) {
        Ok(files) => files,
        Err(why) => return vec![Verdict::new(false, &mutant.name, "NO FIT", &why)],
    };
    let sound: Vec<(&PathBuf, String)> = files
        .keys()
        .map(|path| (path, fs::read_to_string(path).unwrap()))
        .collect();
    for (path, text) in &files {
        fs::write(path, text).unwrap();
    }
    let verdicts = mutant
        .asked()
        .map(|asked| Verdict::of_bug(mutant, &asked.filter, bench.run(&asked)))
        .collect();
    for (path, text) in sound {
        fs::write(path, text).unwrap();
    }
    verdicts
}

/// Gives the work to the benches as they come free, and prints what comes of it. Whether all is
/// good.
fn each<T: Sync>(
    benches: &[Bench],
    work: &[T],
    play: impl Fn(&Bench, &T) -> Vec<Verdict> + Sync,
) -> bool {
    let (next, bad) = (AtomicUsize::new(0), Mutex::new(0));
    std::thread::scope(|scope| {
        for bench in benches {
            let (next, bad, play) = (&next, &bad, &play);
            scope.spawn(move || {
                while let Some(one) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    for verdict in play(bench, one) {
                        let mut bad = bad.lock().unwrap();
                        *bad += usize::from(!verdict.is_good);
                        println!("{}", verdict.line);
                    }
                }
            });
        }
    });
    bad.into_inner().unwrap() == 0
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

    let benches: Vec<Bench> = (0..jobs).map(|job| Bench::new(&checkout, job)).collect();
    println!("== as it is");
    let sound: BTreeSet<Asked> = chosen.iter().flat_map(Mutant::asked).collect();
    let sound: Vec<Asked> = sound.into_iter().collect();
    let is_sound = each(&benches, &sound, |bench, asked| {
        vec![Verdict::of_sound(asked, bench.run(asked))]
    });
    println!("== with the bug");
    let are_caught = each(&benches, &chosen, try_bug);
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    if is_sound && are_caught {
        println!(
            "all {} mutants are caught ({minutes:.0} minutes)",
            chosen.len()
        );
        ExitCode::SUCCESS
    } else {
        println!("not all is as it should be ({minutes:.0} minutes)");
        ExitCode::FAILURE
    }
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
