//! Two runs side by side: each ratio of both, and how far they differ.
//!
//! It compares ratios only: the figures themselves belong to the machine and the hour.

use std::collections::BTreeMap;
use std::path::Path;

use crate::Result;
use crate::peer::Peer;
use crate::results::{Results, Row};
use crate::run::title;
use crate::text::{print, three};

/// Prints all ratios that both have; an error if one differs by more than so many per cent.
pub(crate) fn compare(before: &Path, after: &Path, within: u32) -> Result<()> {
    let (before, after) = (read(before)?, read(after)?);
    if before.on != after.on {
        let (before, after) = (before.on.title(), after.on.title());
        return Err(format!("one run is on {before}, and the other on {after}").into());
    }
    let (before, after) = (ratios(&before), ratios(&after));
    let (mut far, mut compared) = (0, 0);
    print("| ratio | first | second | differ by | |\n|---|---|---|---|---|");
    for (name, first) in &before {
        let Some(second) = after.get(name) else {
            continue;
        };
        let apart = apart(*first, *second);
        let is_far = apart * 100.0 > f64::from(within);
        (far, compared) = (far + usize::from(is_far), compared + 1);
        let verdict = if is_far { "**too far**" } else { "" };
        print(format_args!(
            "| {name} | {} | {} | {:.0} % | {verdict} |",
            three(*first),
            three(*second),
            apart * 100.0
        ));
    }
    let only_one = before.len() + after.len() - 2 * compared;
    print(format_args!(
        "\n{compared} ratios compared, {only_one} in one run only, {far} differ by more than {within} %"
    ));
    match (compared, far) {
        (0, _) => Err("the runs have no ratio in common".into()),
        (_, 0) => Ok(()),
        _ => Err(format!("{far} ratios differ by more than {within} %").into()),
    }
}

fn read(file: &Path) -> Result<Results> {
    let text =
        std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(serde_json::from_str(&text)?)
}

/// By how much the larger is above the smaller.
fn apart(one: f64, other: f64) -> f64 {
    one.max(other) / one.min(other) - 1.0
}

/// Everybody beside Lockkeeper in every row, Lockkeeper beside the baseline, and its crowds beside
/// each other.
fn ratios(results: &Results) -> BTreeMap<String, f64> {
    let ours = Peer::Lockkeeper;
    let crowds = results.crowds.iter();
    let crowds = crowds.map(|waiters| Row::HandOver { waiters: *waiters });
    let rows = [Row::Uncontended, Row::Independent]
        .into_iter()
        .chain(crowds);
    let mut found = BTreeMap::new();
    for row in rows {
        for peer in results.peers.iter().filter(|peer| **peer != ours) {
            if let Some(ratio) = results.ratio(row, ours, *peer) {
                let name = format!("{}: Lockkeeper to {}", title(row), peer.title());
                found.insert(name, ratio.median);
            }
        }
    }
    for waiters in &results.crowds {
        if let Some(growth) = results.growth(*waiters) {
            let row = title(Row::HandOver { waiters: *waiters });
            let name = format!("{row}: Lockkeeper to its own at 100");
            found.insert(name, growth.median);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ratios_are_as_far_apart_whichever_comes_first() {
        assert!((apart(1.0, 1.2) - 0.2).abs() < 1e-9);
        assert_eq!(apart(3.0, 2.0), apart(2.0, 3.0));
    }
}
