//! Plays the chosen bugs: first the tests as they are, then with each bug.
//!
//! Invariant: what a play changes in a copy is changed back after it. It builds nothing itself.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::bench::Bench;
use crate::record::{Asked, Mutant};
use crate::sources::build;
use crate::verdict::Verdict;

/// Plays the bugs that can be switched in one build, and each of the others in one of its own.
pub(crate) fn play(checkout: &Path, chosen: &[Mutant], jobs: usize, began: Instant) -> ExitCode {
    let bench = Bench::new(checkout, 0);
    let (built, alone) = match build(&bench, chosen) {
        Ok(built) => built,
        Err(why) => {
            eprintln!("error: the tree does not build: {why}");
            return ExitCode::FAILURE;
        }
    };
    let is_alone = |mutant: &&Mutant| alone.contains(&mutant.name);
    let (alone, switched): (Vec<&Mutant>, Vec<&Mutant>) = chosen.iter().partition(is_alone);
    let counts = format!(
        "{} switched in one build, {} built alone",
        switched.len(),
        alone.len()
    );
    println!(
        "{counts} ({:.0} s until here)",
        began.elapsed().as_secs_f64()
    );

    println!("== as it is");
    let sound: BTreeSet<Asked> = chosen.iter().flat_map(Mutant::asked).collect();
    let sound: Vec<Asked> = sound.into_iter().collect();
    let players = vec![built; jobs];
    let unsound = each(&players, &sound, |built, asked| {
        vec![Verdict::of_sound(asked, built.run(asked, ""))]
    });
    println!("== with the bug, switched");
    let mut missed = each(&players, &switched, |built, mutant| {
        let run = |asked: Asked| {
            let outcome = built.run(&asked, &mutant.name);
            Verdict::of_bug(mutant, &asked.filter, outcome)
        };
        mutant.asked().map(run).collect()
    });
    println!("== with the bug, built alone");
    if !alone.is_empty() {
        let others = (1..jobs.min(alone.len())).map(|job| Bench::new(checkout, job));
        // The first one's copy is as the tree again.
        let first = Bench::new(checkout, 0);
        let benches: Vec<Bench> = std::iter::once(first).chain(others).collect();
        missed.extend(each(&benches, &alone, |bench, mutant| {
            try_bug(bench, mutant)
        }));
    }
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    println!(
        "{} caught, {} missed; {} of {} tests fail without any bug; {counts}; {minutes:.1} minutes",
        chosen.len() - missed.len(),
        missed.len(),
        unsound.len(),
        sound.len(),
    );
    for name in &missed {
        println!("missed: {name}");
    }
    if missed.is_empty() && unsound.is_empty() {
        println!("all {} mutants are caught", chosen.len());
        ExitCode::SUCCESS
    } else {
        println!("not all is as it should be");
        ExitCode::FAILURE
    }
}

/// Gives the work to the benches as they come free, and prints what comes of it. Gives the
/// names of what is not as it should be.
fn each<B: Sync, T: Sync>(
    benches: &[B],
    work: &[T],
    play: impl Fn(&B, &T) -> Vec<Verdict> + Sync,
) -> BTreeSet<String> {
    let (next, bad) = (AtomicUsize::new(0), Mutex::new(BTreeSet::new()));
    std::thread::scope(|scope| {
        for bench in benches {
            let (next, bad, play) = (&next, &bad, &play);
            scope.spawn(move || {
                while let Some(one) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    for verdict in play(bench, one) {
                        let mut bad = bad.lock().unwrap();
                        if !verdict.is_good {
                            bad.insert(verdict.name);
                        }
                        println!("{}", verdict.line);
                    }
                }
            });
        }
    });
    bad.into_inner().unwrap()
}

/// Puts one bug back, and takes it out again.
fn try_bug(bench: &Bench, mutant: &&Mutant) -> Vec<Verdict> {
    let files = match mutant.applied(&bench.tree) {
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
