//! The figures of a tree.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::coined::{self, Coined};
use crate::imports::Imports;
use crate::items::Items;
use crate::library::{Module, files, modules, rust_files};
use crate::prose::Page;
use crate::source::{Source, comments};

/// A folder, or some files beside one another, with lines of code.
#[derive(Debug)]
pub(crate) struct Lines {
    pub(crate) name: String,
    pub(crate) files: usize,
    pub(crate) code: usize,
}

/// A line of a file.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) length: usize,
}

/// Files of the library with more lines than they should have.
#[derive(Debug)]
pub(crate) struct LongFile {
    pub(crate) file: String,
    pub(crate) lines: usize,
    pub(crate) without_tests: usize,
}

#[derive(Debug)]
pub(crate) struct Figures {
    /// The parts of `src/`, without tests and without code outside the library.
    pub(crate) library: Vec<Lines>,
    /// The other programs and crates, without their tests.
    pub(crate) others: Vec<Lines>,
    /// All code that only tests build.
    pub(crate) tests: Lines,
    /// All files of the library, the longest first.
    pub(crate) files: Vec<LongFile>,
    pub(crate) items: Items,
    pub(crate) imports: Imports,
    pub(crate) pages: Vec<Page>,
    pub(crate) long_comments: Vec<Line>,
    pub(crate) readme_lines: usize,
    pub(crate) coined: Vec<Coined>,
}

/// The role of a folder that has a crate's sources.
const OTHERS: [&str; 8] = [
    "src/embedded",
    "src/bin",
    "crates/embedded",
    "crates/cli",
    "crates/testbench",
    "benches",
    "fuzz",
    "examples",
];

/// All Rust files are below these.
const RUST: [&str; 6] = ["src", "crates", "tests", "examples", "benches", "fuzz"];

/// Comments end here.
pub(crate) const COLUMNS: usize = 100;

impl Figures {
    pub(crate) fn of(tree: &Path) -> Result<Self, String> {
        let modules = modules(tree, "src/lib.rs")?;
        // Once the embedded server was a module of the library, and is counted for itself.
        let is_library = |module: &&Module| !module.source.file.starts_with("src/embedded/");
        let library: Vec<&Module> = modules.iter().filter(is_library).collect();
        let items = Items::of(library.iter().copied());
        let (others, tests) = others_and_tests(tree, &library)?;
        Ok(Self {
            library: parts(&library),
            others,
            tests,
            files: long_files(&library),
            imports: Imports::of(&library),
            pages: pages(tree),
            long_comments: long_comments(tree),
            readme_lines: lines_of(tree, "README.md"),
            coined: coined::left(tree, &items),
            items,
        })
    }

    /// Without plain locks and other engines, which came after the first count and stand beside the
    /// rest.
    pub(crate) fn library_code(&self) -> usize {
        let came_later = ["compat", STORES];
        let parts = self.library.iter();
        let parts = parts.filter(|part| !came_later.contains(&&*part.name));
        parts.map(|part| part.code).sum()
    }
}

/// The engines of other stores than ZooKeeper, with what they share.
pub(crate) const STORES: &str = "link/stores";

/// The folders of `src/`, then the files beside them, one by one.
fn parts(library: &[&Module]) -> Vec<Lines> {
    let mut parts: Vec<Lines> = Vec::new();
    for module in library {
        let name = match &module.path[..] {
            [link, engine, ..]
                if link == "link" && ["postgres", "redis", "stored"].contains(&&**engine) =>
            {
                STORES
            }
            path => path.first().map_or("lib", String::as_str),
        };
        let code = module.source.code.len();
        match parts.iter_mut().find(|part| part.name == name) {
            Some(part) => {
                part.files += 1;
                part.code += code;
            }
            None => parts.push(Lines {
                name: name.to_owned(),
                files: 1,
                code,
            }),
        }
    }
    parts
}

/// Every Rust file is either built into something, or a test.
fn others_and_tests(tree: &Path, library: &[&Module]) -> Result<(Vec<Lines>, Lines), String> {
    let mut sources: BTreeSet<String> = RUST
        .iter()
        .flat_map(|folder| rust_files(tree, folder))
        .collect();
    let mut tests = Lines {
        name: "tests".into(),
        files: 0,
        code: 0,
    };
    for module in library {
        sources.remove(&module.source.file);
        tests.code += module.source.tests.len();
    }
    let mut others = Vec::new();
    for name in OTHERS {
        let mut built = Lines {
            name: name.into(),
            files: 0,
            code: 0,
        };
        for root in roots(tree, name) {
            for module in modules(tree, &root)? {
                if sources.remove(&module.source.file) {
                    built.files += 1;
                    built.code += module.source.code.len();
                    tests.code += module.source.tests.len();
                }
            }
        }
        if built.files > 0 {
            others.push(built);
        }
    }
    for file in sources {
        let text = fs::read_to_string(tree.join(&file)).unwrap_or_default();
        let source = Source::new(&file, &text)?;
        tests.files += 1;
        tests.code += source.code.len() + source.tests.len();
    }
    Ok((others, tests))
}

/// The roots of crates below a folder.
fn roots(tree: &Path, folder: &str) -> Vec<String> {
    let is_root = |file: &String| {
        let names: Vec<&str> = file.split('/').collect();
        match names[..] {
            [.., "tests", _] | [.., "tests", _, _] => false,
            [.., "src", "lib.rs" | "main.rs"] | [.., "src", "bin", _] => true,
            [.., "src", "bin", _, "main.rs"] | ["src", "embedded", "mod.rs"] => true,
            [.., "examples", _] | [.., "fuzz_targets", _] => true,
            _ => false,
        }
    };
    rust_files(tree, folder)
        .into_iter()
        .filter(is_root)
        .collect()
}

fn long_files(library: &[&Module]) -> Vec<LongFile> {
    let mut files: Vec<LongFile> = library
        .iter()
        .map(|module| LongFile {
            file: module.source.file.clone(),
            lines: module.source.raw_lines(),
            without_tests: module.source.lines_without_tests(),
        })
        .collect();
    files.sort_by_key(|file| std::cmp::Reverse(file.lines));
    files
}

/// The pages that users and developers read.
fn pages(tree: &Path) -> Vec<Page> {
    let mut names: Vec<String> = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"]
        .map(str::to_owned)
        .into();
    let docs = files(tree, "docs", "md");
    names.extend(
        docs.into_iter()
            .filter(|name| name.matches('/').count() == 1),
    );
    let crates = files(tree, "crates", "md");
    names.extend(
        crates
            .into_iter()
            .filter(|name| name.matches('/').count() == 2 && name.ends_with("/README.md")),
    );
    let page = |name: String| {
        let text = fs::read_to_string(tree.join(&name)).ok()?;
        Some(Page::new(&name, &text))
    };
    names.into_iter().filter_map(page).collect()
}

fn long_comments(tree: &Path) -> Vec<Line> {
    let mut found = Vec::new();
    for file in RUST.iter().flat_map(|folder| rust_files(tree, folder)) {
        let text = fs::read_to_string(tree.join(&file)).unwrap_or_default();
        for (line, comment) in comments(&text) {
            let length = comment.chars().count();
            if length > COLUMNS {
                found.push(Line {
                    file: file.clone(),
                    line,
                    length,
                });
            }
        }
    }
    found
}

fn lines_of(tree: &Path, file: &str) -> usize {
    let text = fs::read_to_string(tree.join(file)).unwrap_or_default();
    text.lines().count()
}
