//! One build with all bugs in it that can be switched.
//!
//! A bug in a file that a function includes, as a script or a schema, is a bug of that function:
//! it includes another file then. Invariant: a bug that cannot be switched in one file is switched
//! in none. It runs no test.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::bench::{Bench, Built};
use crate::record::{Asked, Mutant};
use crate::switched::{self, Edit, Switched};

/// Builds the tests with all bugs in them that can be switched, and names the others. A bug that
/// does not compile is taken out, and the rest is built again.
pub(crate) fn build(bench: &Bench, chosen: &[Mutant]) -> Result<(Built, BTreeSet<String>), String> {
    let asked: Vec<Asked> = chosen.iter().flat_map(Mutant::asked).collect();
    let asked = asked.iter().map(|asked| asked.words).collect();
    let sources = Sources::of(&bench.tree, chosen);
    let mut alone = sources.unfit.clone();
    let by_record = chosen.iter().filter(|mutant| mutant.alone);
    alone.extend(by_record.map(|mutant| mutant.name.clone()));
    loop {
        let files = sources.switch(&mut alone);
        sources.write(&bench.tree, &files);
        let complaints = match bench.build(&asked) {
            Ok(built) => return Ok((built, alone)),
            Err(complaints) => complaints,
        };
        let mut blamed = BTreeSet::new();
        for (file, line) in complaints.iter().flat_map(|complaint| &complaint.places) {
            if let Some(file) = files.get(file) {
                blamed.extend(file.bugs_at(*line).iter().cloned());
            }
        }
        for bug in &blamed {
            println!("{bug:<56} is built alone: it does not compile beside others");
        }
        if blamed.is_empty() {
            let texts = complaints.iter().map(|complaint| &*complaint.text);
            return Err(texts.collect::<Vec<_>>().join("\n"));
        }
        alone.extend(blamed);
    }
}

/// The files that bugs change, as they are, and what each bug changes in them.
struct Sources {
    files: BTreeMap<String, (String, BTreeMap<String, Vec<Edit>>)>,
    roots: BTreeMap<String, String>,
    /// Bugs that cannot be found in the files as they are.
    unfit: BTreeSet<String>,
}

impl Sources {
    fn of(tree: &Path, chosen: &[Mutant]) -> Self {
        let mut all = Self {
            files: BTreeMap::new(),
            roots: BTreeMap::new(),
            unfit: BTreeSet::new(),
        };
        let read = |file: &str| fs::read_to_string(tree.join(file)).unwrap_or_default();
        for mutant in chosen {
            let including = including(tree, mutant);
            let edits = mutant
                .edits()
                .filter(|(file, ..)| !including.contains_key(*file));
            let edits = edits.map(|(file, find, replace)| {
                (file.to_owned(), find.to_owned(), replace.to_owned())
            });
            for (file, find, replace) in edits.chain(including.values().cloned()) {
                let whole = &mut all.files.entry(file.clone()).or_insert_with(|| {
                    let root = file.split_inclusive("src/").next().unwrap_or_default();
                    let root = format!("{root}lib.rs");
                    all.roots.insert(root.clone(), read(&root));
                    (read(&file), BTreeMap::new())
                });
                match Edit::new(&whole.0, &find, &replace) {
                    Some(edit) => whole.1.entry(mutant.name.clone()).or_default().push(edit),
                    None => drop(all.unfit.insert(mutant.name.clone())),
                }
            }
        }
        all
    }

    /// The files with all bugs in them but those that are built alone, to which it adds.
    fn switch(&self, alone: &mut BTreeSet<String>) -> BTreeMap<String, Switched> {
        loop {
            let (mut made, before) = (BTreeMap::new(), alone.len());
            for (file, (whole, bugs)) in &self.files {
                let bugs = bugs.iter().filter(|(bug, _)| !alone.contains(*bug));
                let bugs = bugs.map(|(bug, edits)| (bug.clone(), edits.clone()));
                let (switched, left) = Switched::new(whole, &bugs.collect());
                alone.extend(left);
                made.insert(file.clone(), switched);
            }
            // A bug that cannot be switched in one file is not switched in another one.
            if alone.len() == before {
                return made;
            }
        }
    }

    fn write(&self, tree: &Path, files: &BTreeMap<String, Switched>) {
        let mut texts: BTreeMap<&String, &str> = BTreeMap::new();
        texts.extend(self.roots.iter().map(|(file, text)| (file, &**text)));
        texts.extend(files.iter().map(|(file, made)| (file, &*made.text)));
        for (file, text) in texts {
            let mut text = text.to_owned();
            if self.roots.contains_key(file) {
                text.push_str(switched::QUESTION);
            }
            if fs::read_to_string(tree.join(file)).ok().as_ref() != Some(&text) {
                fs::write(tree.join(file), text).unwrap();
            }
        }
    }
}

/// For each file that a bug changes and that is no source of Rust: the one source beside it that
/// includes it, and what is another one there with the bug. The file with the bug is written.
fn including(tree: &Path, mutant: &Mutant) -> BTreeMap<String, (String, String, String)> {
    let mut including = BTreeMap::new();
    for (path, text) in mutant.applied(tree).unwrap_or_default() {
        let is_rust = path.extension().is_some_and(|end| end == "rs");
        let (Some(name), Some(folder)) = (path.file_name(), path.parent()) else {
            continue;
        };
        let (name, with_bug) = (name.to_string_lossy(), mutant.name.as_str());
        let included = format!("include_str!(\"{name}\")");
        let beside = fs::read_dir(folder).unwrap();
        let beside = beside.map(|entry| entry.unwrap().path());
        let sources = beside.filter(|source| {
            let text = fs::read_to_string(source);
            source.extension().is_some_and(|end| end == "rs")
                && text.is_ok_and(|text| text.contains(&included))
        });
        let sources: Vec<_> = sources.collect();
        // Where several include it, nobody knows which one counts.
        let ([source], false) = (&sources[..], is_rust) else {
            continue;
        };
        fs::write(folder.join(format!("{name}.{with_bug}")), text).unwrap();
        let [file, source] = [&path, source].map(|path| {
            let path = path.strip_prefix(tree).unwrap();
            path.to_string_lossy().into_owned()
        });
        let other = format!("include_str!(\"{name}.{with_bug}\")");
        including.insert(file, (source, included, other));
    }
    including
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bug_of_an_included_file_is_a_bug_of_the_function_that_includes_it() {
        let tree = tempfile::tempdir().unwrap();
        let src = tree.path().join("src");
        fs::create_dir(&src).unwrap();
        fs::write(src.join("lib.rs"), "mod a;\n").unwrap();
        let a = "fn f() -> &'static str { include_str!(\"b.sql\") }\n";
        fs::write(src.join("a.rs"), a).unwrap();
        fs::write(src.join("b.sql"), "SELECT 1, 2;\n").unwrap();
        let record = r#"
            name = "three"
            row = 1
            why = "it is three"
            tests = ["f"]
            file = "src/b.sql"
            find = "1"
            replace = "3"
            also = [{ find = "2", replace = "4" }]
        "#;

        let sources = Sources::of(tree.path(), &[toml::from_str(record).unwrap()]);
        let mut alone = BTreeSet::new();
        let switched = sources.switch(&mut alone);

        assert!(alone.is_empty() && sources.unfit.is_empty());
        let with_bug = fs::read_to_string(src.join("b.sql.three")).unwrap();
        assert_eq!(with_bug, "SELECT 3, 4;\n");
        let text = &switched["src/a.rs"].text;
        assert!(
            text.contains("if crate::has_bug(\"three\") { include_str!(\"b.sql.three\") }"),
            "{text}"
        );

        fs::write(src.join("c.rs"), a).unwrap();
        let sources = Sources::of(tree.path(), &[toml::from_str(record).unwrap()]);
        sources.switch(&mut alone);
        assert!(alone.contains("three"), "one source is switched of two");
    }
}
