//! Words that this project once coined although the field had terms. They must not return.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use proc_macro2::{TokenStream, TokenTree};

use crate::items::Items;
use crate::library::{files, rust_files};

/// Forbidden everywhere, as words and as parts of identifiers. Beside each is its replacement.
const ANYWHERE: [(&str, &str); 13] = [
    ("crier", "EndNotifier"),
    ("criers", "EndNotifier"),
    ("glimpse", "speculative_read"),
    ("glimpsed", "speculative_read"),
    ("glimpses", "speculative_read"),
    ("museum", "regressions"),
    ("stint", "LocalTurn"),
    ("stints", "LocalTurn"),
    ("tenure", "Hold"),
    ("tenures", "Hold"),
    ("vigil", "LeaderWatch"),
    ("vigils", "LeaderWatch"),
    ("watchman", "SessionMonitor"),
];

/// English words: forbidden only as parts of the library's identifiers, and not in those that are
/// sentences.
const IN_LIBRARY_NAMES: [(&str, &str); 22] = [
    ("beat", "heartbeat"),
    ("beats", "heartbeat"),
    ("bell", "wake"),
    ("circumstances", "SessionConfig"),
    ("company", "part of dialect"),
    ("desk", "PendingLines"),
    ("door", "Acquirer"),
    ("gate", "OwnerSlot"),
    ("look", "verified_read"),
    ("looked", "verified_read"),
    ("meter", "metrics"),
    ("presence", "SelfWait"),
    ("presences", "SelfWait"),
    ("probe", "diagnose"),
    ("pulse", "Heartbeat"),
    ("scribe", "JournalWriter"),
    ("seat", "HeldTicket or TicketId"),
    ("seats", "HeldTicket or TicketId"),
    ("sight", "Snapshot"),
    ("stock", "PermitSnapshot"),
    ("supply", "PermitPool"),
    ("visit", "GuestEntry"),
];

/// Ordinary names of values: too vague as names of the library's types.
const TYPES: [(&str, &str); 9] = [
    ("Begun", "DeleteProgress"),
    ("Claim", "Recipe"),
    ("DataLine", "TicketData"),
    ("Exit", "ReleasePlan"),
    ("Held", "LeaseEntry"),
    ("Kind", "Mode"),
    ("Left", "ReleaseOutcome"),
    ("Passing", "Handoff"),
    ("Witness", "LossWatch"),
];

/// Names of files and folders, anywhere.
const FILES: [(&str, &str); 7] = [
    ("floor", "baseline"),
    ("ground", "bench_dir"),
    ("holders", "local_holds"),
    ("mess", "the behaviour"),
    ("papers", "the command"),
    ("trouble", "the behaviour"),
    ("visits", "the behaviour"),
];

/// The files that are searched.
const PLACES: [&str; 12] = [
    "src",
    "crates",
    "tests",
    "benches",
    "fuzz",
    "examples",
    "docs",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "Cargo.toml",
];

/// The file with the lists above.
const NOT_HERE: &str = "crates/testbench/src/bin/figures";

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Coined {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) word: String,
    pub(crate) say: &'static str,
}

impl Coined {
    fn new(file: &str, line: usize, word: &str, say: &'static str) -> Self {
        Self {
            file: file.to_owned(),
            line,
            word: word.to_owned(),
            say,
        }
    }
}

/// All the uses left in the tree. `library` is the library's definitions.
pub(crate) fn left(tree: &Path, library: &Items) -> Vec<Coined> {
    let mut found = BTreeSet::new();
    let ends = ["rs", "md", "toml"];
    let all = PLACES
        .iter()
        .flat_map(|place| ends.map(|end| files(tree, place, end)));
    for file in all.flatten().filter(|file| !file.starts_with(NOT_HERE)) {
        let text = fs::read_to_string(tree.join(&file)).unwrap_or_default();
        found.extend(in_text(&file, &text));
        for part in file.trim_end_matches(".rs").split('/') {
            if let Some((word, say)) = FILES.iter().find(|(word, _)| *word == part) {
                found.insert(Coined::new(&file, 1, word, say));
            }
        }
    }
    for file in rust_files(tree, "src") {
        let text = fs::read_to_string(tree.join(&file)).unwrap_or_default();
        found.extend(in_names(&file, &text));
    }
    for one in &library.types {
        if let Some((word, say)) = TYPES.iter().find(|(word, _)| *word == one.name) {
            found.insert(Coined::new(&one.file, one.line, word, say));
        }
    }
    found.into_iter().collect()
}

fn in_text(file: &str, text: &str) -> Vec<Coined> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let words = line.split(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
        for word in words {
            found.extend(listed(&ANYWHERE, word).map(|say| Coined::new(file, number, word, say)));
        }
    }
    found
}

fn in_names(file: &str, text: &str) -> Vec<Coined> {
    let mut found = Vec::new();
    // A file that cannot be read was refused before.
    let tokens = TokenStream::from_str(text).unwrap_or_default();
    names(tokens, &mut |name, line| {
        if parts(name).len() <= NAME_WORDS {
            let say = listed(&IN_LIBRARY_NAMES, name);
            found.extend(say.map(|say| Coined::new(file, line, name, say)));
        }
    });
    found
}

fn names(tokens: TokenStream, tell: &mut impl FnMut(&str, usize)) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => names(group.stream(), tell),
            TokenTree::Ident(ident) => tell(&ident.to_string(), ident.span().start().line),
            _ => {}
        }
    }
}

/// An identifier of more words is a sentence, such as the name of a test.
const NAME_WORDS: usize = 4;

/// The replacement, if a part of the word is in the list.
fn listed(list: &[(&str, &'static str)], word: &str) -> Option<&'static str> {
    let parts = parts(word);
    let found = list
        .iter()
        .find(|(coined, _)| parts.iter().any(|part| part == coined));
    found.map(|(_, say)| *say)
}

/// The words of an identifier, in lower case.
fn parts(word: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_small = false;
    for letter in word.chars() {
        if letter == '_' || (letter.is_uppercase() && was_small) {
            parts.push(String::new());
        }
        was_small = !letter.is_uppercase();
        if letter != '_' {
            if let Some(last) = parts.last_mut() {
                last.extend(letter.to_lowercase());
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coined_word_is_found_as_a_part_of_a_name_but_not_inside_a_word() {
        let text = "let tenure_of = 1;\nTenureLost and TENURE\nvigilant, stinted";
        let found: Vec<(usize, String)> = in_text("a.md", text)
            .into_iter()
            .map(|one| (one.line, one.word))
            .collect();
        let expected = [(1, "tenure_of"), (2, "TenureLost"), (2, "TENURE")];

        assert_eq!(found, expected.map(|(line, word)| (line, word.to_owned())));
    }

    #[test]
    fn an_english_word_is_found_in_names_only() {
        let text = "// at the door\nfn door() -> &'static str { \"gate\" }\n\
                    struct OpenGate;\nfn a_test_of_the_door() {}";
        let found: Vec<usize> = in_names("a.rs", text).iter().map(|one| one.line).collect();

        assert_eq!(found, [2, 3]);
    }
}
