//! The checked-in list of cases: no case appears, disappears or changes its servers without a line in a diff.
//!
//! `LOCKKEEPER_CASES=write` writes it anew. Lines of a feature that is off in this build are left alone.

use std::collections::BTreeSet;
use std::path::Path;

/// Compares the registered cases, as `Case::line` writes them, with `cases.txt`.
pub(crate) fn check(lines: Vec<String>) -> Result<(), String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/cases.txt");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let (ours, others): (BTreeSet<&str>, BTreeSet<&str>) =
        text.lines().partition(|line| is_built(line));

    let mut registered = BTreeSet::new();
    for line in &lines {
        if !registered.insert(line.as_str()) {
            return Err(format!("the case `{line}` is registered twice"));
        }
    }
    if std::env::var("LOCKKEEPER_CASES").is_ok_and(|word| word == "write") {
        let all: String = registered
            .union(&others)
            .map(|line| format!("{line}\n"))
            .collect();
        return std::fs::write(&path, all)
            .map_err(|error| format!("cannot write {}: {error}", path.display()));
    }
    if registered == ours {
        return Ok(());
    }
    let gone = ours
        .difference(&registered)
        .map(|line| format!("  - {line}\n"));
    let new = registered
        .difference(&ours)
        .map(|line| format!("  + {line}\n"));
    Err(format!(
        "the cases differ from tests/it/cases.txt (-: listed only, +: registered only):\n{}\
         if that is meant, run `LOCKKEEPER_CASES=write cargo test --all-features --test it` and commit the list",
        gone.chain(new).collect::<String>()
    ))
}

/// Whether this build holds the case of a line.
fn is_built(line: &str) -> bool {
    let features = [
        ("cli", cfg!(feature = "cli")),
        ("metrics", cfg!(feature = "metrics")),
    ];
    let needs = line.split(' ').nth(2);
    !features
        .iter()
        .any(|(feature, is_on)| needs == Some(feature) && !is_on)
}
