//! What is said of one play of a test. A play that is not as it should be says why.

use crate::bench::Outcome;
use crate::record::{Asked, Mutant};

/// Of what a test has printed, so many of the last lines are shown.
const SHOWN: usize = 60;

/// What is said at the end of a line, and whether it is as it should be.
pub(crate) struct Verdict {
    pub(crate) is_good: bool,
    pub(crate) name: String,
    pub(crate) line: String,
}

impl Verdict {
    pub(crate) fn new(is_good: bool, name: &str, word: &str, detail: &str) -> Self {
        let line = format!("{name:<56} {word:<9} {detail}");
        let name = name.to_owned();
        Self {
            is_good,
            name,
            line,
        }
    }

    pub(crate) fn of_sound(asked: &Asked, outcome: Outcome) -> Self {
        let name = &asked.filter;
        let bad = |word: &str, detail: &str, said: &str| {
            Self::new(false, name, word, &format!("{detail}{}", end_of(said)))
        };
        match outcome {
            Outcome::Passed(count, _) => Self::new(true, name, "passes", &format!("{count} run")),
            Outcome::Failed(said) => bad("FAILS", "without any bug", &said),
            Outcome::Hung(said) => bad("HANGS", "without any bug", &said),
            Outcome::NotBuilt(said) => bad("NO BUILD", "", &said),
            Outcome::NotRun(said) => bad("NOT RUN", "", &said),
        }
    }

    pub(crate) fn of_bug(mutant: &Mutant, filter: &str, outcome: Outcome) -> Self {
        let name = &mutant.name;
        let bad = |word: &str, said: &str| {
            Self::new(false, name, word, &format!("{filter}{}", end_of(said)))
        };
        match outcome {
            Outcome::Failed(_) => Self::new(true, name, "caught", filter),
            Outcome::Hung(_) => Self::new(true, name, "caught", &format!("{filter} (hangs)")),
            Outcome::Passed(_, said) => bad("SURVIVED", &said),
            Outcome::NotBuilt(said) => bad("NO BUILD", &said),
            Outcome::NotRun(said) => bad("UNCLEAR", &said),
        }
    }
}

/// The end of what was printed, below the line that it explains.
fn end_of(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let end = &lines[lines.len().saturating_sub(SHOWN)..];
    let shown = end.iter().map(|line| format!("\n    | {line}"));
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::On;

    fn asked() -> Asked {
        Asked {
            words: &["-p", "lockkeeper", "--lib"],
            on: On::Embedded,
            filter: "row_01".into(),
        }
    }

    #[test]
    fn a_test_that_fails_without_any_bug_says_why() {
        let said = "---- row_01 ----\ntwo are inside";

        for outcome in [Outcome::Failed(said.into()), Outcome::Hung(said.into())] {
            let verdict = Verdict::of_sound(&asked(), outcome);

            assert!(!verdict.is_good);
            assert!(
                verdict.line.contains("| two are inside"),
                "{}",
                verdict.line
            );
        }
    }

    #[test]
    fn a_bug_that_survives_shows_what_its_test_has_printed() {
        let mutant = toml::from_str(
            "name = 'b'\nrow = 1\nwhy = 'w'\ntests = ['row_01']\nfile = 'f'\nfind = 'x'\nreplace = 'y'",
        );
        let mutant: Mutant = mutant.unwrap();

        let survived = Verdict::of_bug(&mutant, "row_01", Outcome::Passed(1, "0 lost".into()));
        let caught = Verdict::of_bug(&mutant, "row_01", Outcome::Failed("1 lost".into()));

        assert!(!survived.is_good && survived.line.contains("| 0 lost"));
        assert!(caught.is_good && !caught.line.contains("lost"));
    }

    #[test]
    fn only_the_end_of_what_was_printed_is_shown() {
        let text: Vec<String> = (0..100).map(|line| format!("line {line}")).collect();

        let shown = end_of(&text.join("\n"));

        assert_eq!(shown.matches("\n    | ").count(), SHOWN);
        assert!(shown.ends_with("line 99") && !shown.contains("line 39"));
        assert_eq!(end_of(""), "");
    }
}
